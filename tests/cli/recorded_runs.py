"""What tests of the command line share: Records written by the real writer, event by event."""

import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from evopolicygym.artifacts import Artifact, Feedback
from evopolicygym.evaluation.outcome import EpisodeDiagnostics
from evopolicygym.program import Program
from evopolicygym.record import RunEvent, RunObserver, events
from evopolicygym.record.writer import RecordWriter
from evopolicygym.results import EpisodeSummary, SubmissionResult

# Runs the command with the given arguments and environment variables.
Command = Callable[..., subprocess.CompletedProcess[str]]

HOSTILE = "[bold red]not markup[/] \x1b[31mred\x1b]0;title\x07 \u202ereversed\nsecond line"


class Kept:
    """Keeps every event that it is told of."""

    def __init__(self) -> None:
        self.events: list[RunEvent] = []

    def on_event(self, event: RunEvent) -> None:
        self.events.append(event)


def initial_program(directory: Path) -> Program:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "policy.py").write_text("def make_policy(context):\n    return None\n")
    return Program.from_directory(directory)


def write_record(
    path: Path,
    program_directory: Path,
    *,
    scores: Sequence[float] = (9.5, 40.0, 38.0),
    terminal_reason: str | None = "finished",
    validation: bool = True,
    text: str = "IndexError in the Policy",
    observer: RunObserver | None = None,
) -> Path:
    """A Record with one Submission of two Episodes a score; the first is the initial Program's.

    Args:
        terminal_reason: None leaves the Run without its end, as a crash does.
        text: what the Agent and the Policy said.
    """
    program = initial_program(program_directory)
    writer = RecordWriter.create(path)
    journal = writer.journal
    if observer is not None:
        journal.subscribe(observer)
    writer.write_initial(program, ())
    budget = 2 * len(scores) + 4
    writer.write_manifest({"schema": "evopolicygym/run-record/v9", "status": "running"})
    journal.append(run_started(program.digest, budget))
    journal.append(events.AgentStarted(attempt=1, command=("tuner",), process_id=1))
    journal.append(events.AgentEvent(turns=3, input_tokens=12345, output_tokens=678, cost_usd=0.25, last_action=text))
    for number, score in enumerate(scores, 1):
        identifier = f"submission-{number:06d}"
        if number > 1:
            (program_directory / "policy.py").write_text(f"# {number}\n")
            program = Program.from_directory(program_directory)
        left = budget - 2 * number
        journal.append(
            events.EvaluationStarted(
                submission_id=identifier,
                program_digest=program.digest,
                episodes=f"{2 * number - 2}:{2 * number}",
                episode_count=2,
                episodes_remaining=left,
            )
        )
        episodes = (EpisodeSummary("completed", score, 7), EpisodeSummary("policy_failed", None, 2, "exception"))
        for position, episode in enumerate(episodes):
            journal.append(
                events.EpisodeCompleted(
                    submission_id=identifier,
                    episode_index=2 * number - 2 + position,
                    position=position,
                    status=episode.status,
                    reward=episode.reward,
                    steps=episode.steps,
                    failure=episode.failure,
                    seconds=0.01,
                )
            )
        feedback = Feedback(score, {"mean": score, "note": text}, (Artifact("trace.jsonl", "text/plain", b"{}\n"),))
        submission = SubmissionResult(
            identifier, program, (2 * number - 2, 2 * number - 1), 2, left, feedback, episodes
        )
        failure = EpisodeDiagnostics("IndexError", text, ("policy.py:31 in act",), "traceback", "", "")
        writer.publish(submission, (EpisodeDiagnostics(), failure), policy_diagnostics="traceback", seconds=0.02)
    if terminal_reason is not None:
        _end(writer, scores, terminal_reason, validation=validation, text=text)
    writer.close()
    return path


def write_paired_record(
    path: Path, program_directory: Path, rewards: Sequence[dict[int, float | None]], budget: int = 100
) -> Path:
    """A Record that was not ended, with one Submission for each mapping of Episode index to reward."""
    program = initial_program(program_directory)
    writer = RecordWriter.create(path)
    journal = writer.journal
    writer.write_initial(program, ())
    left = budget
    writer.write_manifest({"schema": "evopolicygym/run-record/v9", "status": "running"})
    journal.append(run_started(program.digest, budget))
    for number, played in enumerate(rewards, 1):
        identifier = f"submission-{number:06d}"
        if number > 1:
            (program_directory / "policy.py").write_text(f"x = {number}\n")
            program = Program.from_directory(program_directory)
        left -= len(played)
        journal.append(
            events.EvaluationStarted(
                submission_id=identifier,
                program_digest=program.digest,
                episodes=f"{min(played)}:{max(played) + 1}",
                episode_count=len(played),
                episodes_remaining=left,
            )
        )
        episodes = tuple(
            EpisodeSummary("completed", reward, 7)
            if reward is not None
            else EpisodeSummary("policy_failed", None, 2, "exception")
            for reward in played.values()
        )
        score = sum(reward or 0.0 for reward in played.values()) / len(played)
        submission = SubmissionResult(identifier, program, tuple(played), len(played), left, Feedback(score), episodes)
        writer.publish(submission, (), policy_diagnostics="traceback", seconds=0.02)
    writer.close()
    return path


def run_started(program_digest: str, budget: int) -> events.RunStarted:
    return events.RunStarted(
        schema="evopolicygym/run-record/v9",
        library_version="0.3.0",
        benchmark_id="CartPole-v1",
        environment_digest="sha256:0",
        program_digest=program_digest,
        agent="ParameterTuner",
        split="train",
        seed_strength="derivable",
        pool_size=60,
        pool_digest="sha256:1",
        episode_budget=budget,
        max_submissions=10,
        max_episodes_per_submission=None,
        finish_budget_policy="allow_early",
        max_candidates=3,
        agent_timeout_seconds=60.0,
        primary_metric="mean return",
        score_direction="maximize",
    )


def _end(writer: RecordWriter, scores: Sequence[float], terminal_reason: str, *, validation: bool, text: str) -> None:
    journal = writer.journal
    best = f"submission-{max(range(len(scores)), key=scores.__getitem__) + 1:06d}"
    finished = terminal_reason == "finished"
    if finished:
        journal.append(events.FinishRequested(candidate_submission_ids=(best,)))
    message = None if finished else text
    reason = "finished" if finished else terminal_reason
    journal.append(events.AgentEnded(attempt=1, returncode=0, reason=reason, seconds=1.5, message=message))
    if finished and validation:
        journal.append(
            events.ValidationStarted(split="validation", episodes_per_candidate=5, candidate_submission_ids=(best,))
        )
        journal.append(
            events.ValidationCandidateCompleted(submission_id=best, score=41.0, policy_failures=0, seconds=0.1)
        )
    if finished:
        selected_by = "validation" if validation else "only_candidate"
        journal.append(events.CandidateSelected(submission_id=best, selected_by=selected_by))
        journal.append(events.AssessmentStarted(submission_id=best, split="test", episodes=10))
        journal.append(events.AssessmentCompleted(submission_id=best, score=47.5, policy_failures=0, seconds=0.2))
    journal.append(events.RunCommitted(terminal_reason=terminal_reason))
    writer.write_manifest(
        {
            "schema": "evopolicygym/run-record/v9",
            "status": "finished" if finished else "ended",
            "terminal_reason": terminal_reason,
            "selected_submission_id": best if finished else None,
        }
    )
