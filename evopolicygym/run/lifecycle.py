"""One Run's life: prepare, Agent phase, selection, Assessment, commit."""

import json
import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime

import evopolicygym
from evopolicygym.agents import CodingAgent
from evopolicygym.analysis import run_diagnostics
from evopolicygym.authoring import Benchmark
from evopolicygym.errors import AgentRunError, BenchmarkError, EvaluationError, RecordError
from evopolicygym.evaluation import Evaluator
from evopolicygym.evaluation.evaluator import Execution, check_execution
from evopolicygym.execution.agent_sandbox import AgentSandbox
from evopolicygym.process import Supervisor
from evopolicygym.program import Program
from evopolicygym.record import RUN_SCHEMA, ObserverRelay, RecordWriter, RunObserver, events
from evopolicygym.results import (
    AssessmentResult,
    RunResult,
    SubmissionResult,
    TerminalReason,
    ValidationCandidateResult,
    ValidationResult,
)
from evopolicygym.run.agent_phase import AgentClock, AgentPhase, redact_lost_logs
from evopolicygym.run.desk import SessionDesk
from evopolicygym.run.idleness import WatchedSession
from evopolicygym.run.interruption import Interruption, wait_readable
from evopolicygym.run.manifest import (
    agent_facts,
    assessment_report,
    final_manifest,
    first_manifest,
    measured_report,
    resumed_manifest,
    seed_strength,
    validation_report,
)
from evopolicygym.run.preparation import AgentStart, PreparedRun, plan_start, prepare
from evopolicygym.run.private_phases import PrivateEvaluations, RunInterrupted
from evopolicygym.run.progress import LOST, AgentAttempt, RunProgress
from evopolicygym.run.selection import best_submissions
from evopolicygym.run.task import continued_task_text
from evopolicygym.run_config import RunConfig
from evopolicygym.session import LedgerLimits
from evopolicygym.skills import AgentSkill

__all__ = ["Standing", "ledger_limits", "live", "run"]

RETRY_SECONDS: Mapping[str, float] = {
    "crashed": 1.0,
    "failed": 1.0,
    "stalled": 1.0,
    "overloaded": 60.0,
    "network": 60.0,
}
"""After which ends an Agent is worth another start at once, and how long to wait before it."""


def run(
    initial_program: Program,
    benchmark: Benchmark,
    *,
    agent: CodingAgent,
    execution: Execution,
    record_to: str | os.PathLike[str],
    config: RunConfig | None = None,
    skills: Sequence[AgentSkill] = (),
    observer: RunObserver | None = None,
    spec_document: Mapping[str, object] | None = None,
) -> RunResult:
    """Let one Agent improve a Policy on a budget, then select and measure what it hands off.

    Args:
        initial_program: what the Agent starts from.
        benchmark: the task.
        agent: who improves it.
        execution: where Policies run, and whether the Agent is enclosed, too.
        record_to: the Record's directory; it must not exist, its parent is made if missing.
        config: limits and choices; defaults to ``RunConfig()``.
        skills: instructions that the Agent finds in its workspace.
        observer: is told every event of the journal, on a thread of its own.
        spec_document: the resolved run spec, kept in the Record as ``spec.toml``, from which ``resume`` takes all of
            the above; without one it has to be given them again.

    Returns:
        The result; the same, and more, stands in the Record.

    Raises:
        TypeError, ValueError: an argument is wrong; nothing was written.
        AgentRunError: the Agent cannot be started here; nothing was written.
        BenchmarkError: the Benchmark breaks its contract; nothing was written.
        ExecutionUnavailableError: the isolation that was asked for cannot be had here; nothing was written.
        RecordError: ``record_to`` exists, or the Record cannot be written. What was promised to the Agent is in it,
            and :func:`~evopolicygym.run.resume` goes on with it.
        KeyboardInterrupt: SIGINT or SIGTERM arrived; the Record was committed first.
    """
    check_execution(execution)
    prepared, start = prepare(
        initial_program,
        benchmark,
        agent=agent,
        record_to=record_to,
        config=config,
        skills=skills,
        sandboxed=execution.encloses_agent,
    )
    return live(
        prepared,
        Standing(start=start, agent=agent, spec_document=spec_document),
        execution=execution,
        open_writer=lambda: RecordWriter.create(
            prepared.record_to, bulk_feedback_retention_bytes=prepared.config.bulk_feedback_retention_bytes
        ),
        observer=observer,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """From where a Host process goes on with a Run, and how; by default from the very beginning.

    Args:
        progress: what has happened.
        manifest: what ``run.json`` says.
        published: the published Submissions, in order.
        validated: candidates whose Validation is complete, by id.
        assessed: the Assessment, if it is complete.
        start: how the Agent is started next; None if no start is owed.
        agent: makes further starts.
        agent_retries: how many more, should it fail.
        select: hand off the best published Submissions instead of starting the Agent.
        overrides: limits that change now, as ``"key=JSON value"``.
        spec_document: the run spec for a new Record.
    """

    progress: RunProgress = field(default_factory=RunProgress)
    manifest: Mapping[str, object] = field(default_factory=dict)
    published: tuple[SubmissionResult, ...] = ()
    validated: Mapping[str, ValidationCandidateResult] = field(default_factory=dict)
    assessed: AssessmentResult | None = None
    start: AgentStart | None = None
    agent: CodingAgent | None = None
    agent_retries: int = 0
    select: bool = False
    overrides: tuple[str, ...] = ()
    spec_document: Mapping[str, object] | None = None


def live(
    prepared: PreparedRun,
    standing: Standing,
    *,
    execution: Execution,
    open_writer: Callable[[], RecordWriter],
    observer: RunObserver | None,
) -> RunResult:
    """Go on with a Run from where it stands to its end.

    Raises:
        ExecutionUnavailableError: the isolation that was asked for cannot be had here; nothing was written.
        RecordError: the Record cannot be written any more.
        KeyboardInterrupt: SIGINT or SIGTERM arrived; the Record was committed first.
    """
    sandbox = execution.agent_sandbox_for(prepared.benchmark)
    with (
        Interruption() as interruption,
        Supervisor() as supervisor,
        Evaluator(
            prepared.benchmark,
            execution,
            episode_timeout_seconds=prepared.config.episode_timeout_seconds,
            environment_timeout_seconds=prepared.config.environment_timeout_seconds,
            supervisor=supervisor,
            on_notice=lambda message: writer.journal.notice(message),  # called by evaluate() only: there is a writer
        ) as evaluator,
        open_writer() as writer,
        _observed(writer, observer),
    ):
        life = _Life(prepared, standing, writer, evaluator, supervisor, interruption, sandbox)
        result = life.live()
    if result.terminal_reason == "interrupted":
        raise KeyboardInterrupt
    return result


@contextmanager
def _observed(writer: RecordWriter, observer: RunObserver | None) -> Iterator[None]:
    if observer is None:
        yield
        return
    relay = ObserverRelay(observer)
    writer.journal.subscribe(relay)
    try:
        yield
    finally:
        relay.close()


class _Life:
    def __init__(
        self,
        prepared: PreparedRun,
        standing: Standing,
        writer: RecordWriter,
        evaluator: Evaluator,
        supervisor: Supervisor,
        interruption: Interruption,
        sandbox: AgentSandbox | None,
    ) -> None:
        self._prepared = prepared
        self._config = prepared.config
        self._standing = standing
        self._progress = standing.progress
        self._writer = writer
        self._journal = writer.journal
        self._journal.keep(self._progress.apply)
        self._evaluator = evaluator
        self._supervisor = supervisor
        self._interruption = interruption
        self._sandbox = sandbox
        self._clock = AgentClock(self._config.agent_timeout_seconds, used=self._progress.agent_seconds)
        self._desk = SessionDesk(prepared, writer, evaluator, self._clock.remaining, standing.published)
        self._limits = ledger_limits(prepared.config)
        self._retries_left = standing.agent_retries
        self._error: str | None = None
        self._agent_told: Mapping[str, object] = {}
        self._validation: ValidationResult | None = None
        self._assessment = standing.assessed

    def live(self) -> RunResult:
        """From where the Run stands to its end."""
        manifest = self._begin() if self._progress.started is None else self._begin_again()
        reason = self._live_phases()
        return self._commit(manifest, reason)

    def _begin(self) -> dict[str, object]:
        try:
            return self._open_record()
        except BaseException:
            if self._progress.started is None:
                self._writer.discard()  # nothing has happened yet that a Record could tell
            raise

    def _open_record(self) -> dict[str, object]:
        prepared, config, start = self._prepared, self._config, self._standing.start
        assert start is not None
        began = datetime.now(UTC)
        self._writer.write_initial(prepared.initial_program, prepared.skills)
        if self._standing.spec_document is not None:
            import tomli_w

            self._writer.write_text("spec.toml", tomli_w.dumps(dict(self._standing.spec_document)))
        manifest = first_manifest(
            prepared,
            agent=agent_facts(start.invocation),
            execution_facts=self._evaluator.facts,
            repeatable=self._standing.spec_document is not None,
            started=began,
        )
        self._writer.write_manifest(manifest)
        assert config.max_submissions is not None
        assert config.episode_pool_size is not None
        self._journal.append(
            events.RunStarted(
                schema=RUN_SCHEMA,
                library_version=evopolicygym.__version__,
                benchmark_id=prepared.spec.id,
                environment_digest=prepared.spec.environment_digest,
                program_digest=prepared.initial_program.digest,
                agent=start.invocation.name,
                split=config.split,
                seed_strength=seed_strength(config.seed),
                pool_size=config.episode_pool_size,
                pool_digest=prepared.pool_digest,
                episode_budget=config.episode_budget,
                max_submissions=config.max_submissions,
                max_episodes_per_submission=config.max_episodes_per_submission,
                finish_budget_policy=config.finish_budget_policy,
                max_candidates=config.max_candidates,
                agent_timeout_seconds=config.agent_timeout_seconds,
                primary_metric=prepared.spec.primary_metric,
                score_direction=prepared.spec.score_direction,
                validation_episodes=config.validation.episodes_per_candidate if config.validation else None,
                assessment_episodes=config.assessment.episodes if config.assessment else None,
            )
        )
        if self._evaluator.facts["execution"] == "unsafe-process":
            self._journal.notice("unsafe-process is not a sandbox: Policies and the Agent run with your rights")
        return manifest

    def _begin_again(self) -> dict[str, object]:
        attempt = self._progress.hosts + 1
        last = self._progress.last_attempt
        lost = last if last is not None and last.reason == LOST else None
        phase = self._progress.next_phase(has_assessment=self._config.assessment is not None)
        manifest = resumed_manifest(
            self._standing.manifest,
            self._prepared,
            attempt=attempt,
            phase=phase,
            overrides=self._standing.overrides,
            execution_facts=self._evaluator.facts,
            now=datetime.now(UTC),
        )
        # First the manifest: with the line alone, a reader would find a Run that has ended and goes on.
        self._writer.write_manifest(manifest)
        self._journal.append(events.RunResumed(attempt=attempt, phase=phase, overrides=self._standing.overrides))
        if lost is not None:
            redact_lost_logs(self._writer, lost.attempt, os.environ)
        return manifest

    def _live_phases(self) -> TerminalReason:
        phases: tuple[tuple[str, Callable[[], TerminalReason | None], TerminalReason], ...] = (
            ("agent", self._hand_off, "evaluation_failed"),
            ("validation", self._select, "validation_failed"),
            ("assessment", self._assess, "assessment_failed"),
        )
        for name, phase, when_failed in phases:
            try:
                reason = phase()
            except RunInterrupted:
                self._note_interruption(name)
                return "interrupted"
            except (EvaluationError, BenchmarkError, RecordError, OSError) as error:
                self._error = f"{type(error).__name__}: {error}"
                self._note_failure(when_failed, self._error)
                return when_failed
            if reason is not None:
                return reason
        return "finished"

    def _note_failure(self, reason: TerminalReason, message: str) -> None:
        if reason == "validation_failed":
            self._journal.append(events.ValidationFailed(message=message))
        elif reason == "assessment_failed":
            self._journal.append(events.AssessmentFailed(message=message))

    def _note_interruption(self, phase: str) -> None:
        number = self._interruption.signal
        name = signal.Signals(number).name if number is not None else "unknown"
        self._journal.append(events.Interrupted(phase=phase, signal=name))

    # The Agent phase: until something is handed off, or nothing more can be done for it.

    def _hand_off(self) -> TerminalReason | None:
        if self._progress.ledger.candidates:
            return None
        if self._standing.select:
            self._hand_off_best()
            return None
        ended = self._progress.agent_ended_unsettled
        if ended is not None and (self._host_may_hand_off(ended) or self._standing.start is None):
            return self._settle(ended)
        start = self._standing.start
        while start is not None:
            self._run_agent(start)
            attempt = self._progress.last_attempt
            assert attempt is not None
            if attempt.reason == "interrupted":
                raise RunInterrupted
            if attempt.reason == "fault":
                self._error = attempt.message
                return "evaluation_failed"
            if self._progress.ledger.candidates:
                return None
            start = self._next_start(attempt)
        attempt = self._progress.last_attempt
        assert attempt is not None
        return self._settle(attempt)

    def _run_agent(self, start: AgentStart) -> None:
        with WatchedSession(
            self._limits,
            self._desk,
            state=self._progress.ledger,
            workspace=self._writer.layout.workspace,
            primary_metric=self._prepared.spec.primary_metric,
            score_direction=self._prepared.spec.score_direction,
        ) as session:
            self._desk.unseal()
            self._journal.subscribe(session)
            phase = AgentPhase(
                writer=self._writer,
                supervisor=self._supervisor,
                session=session,
                start=start,
                interruption=self._interruption,
                clock=self._clock,
                idle_timeout_seconds=self._config.agent_idle_timeout_seconds,
                sandbox=self._sandbox,
            )
            try:
                self._agent_told = phase.run().told or self._agent_told
            finally:
                self._desk.seal()
                self._journal.unsubscribe(session)

    def _next_start(self, attempt: AgentAttempt) -> AgentStart | None:
        agent, wait = self._standing.agent, RETRY_SECONDS.get(attempt.reason)
        if wait is None or agent is None or not self._retries_left or not self._clock.remaining():
            return None
        self._retries_left -= 1
        self._journal.notice(f"the Agent ended ({attempt.reason}) and is started again in {wait:g} s")
        wait_readable([self._interruption.fileno()], wait)
        if self._interruption.noted:
            raise RunInterrupted
        number = attempt.attempt + 1
        text = continued_task_text(
            self._prepared.task,
            self._progress,
            self._limits,
            attempt=number,
            seconds_left=self._clock.remaining(),
        )
        try:
            return plan_start(agent, text, self._writer.layout, attempt=number, sandboxed=self._sandbox is not None)
        except AgentRunError as error:
            self._journal.notice(f"the Agent cannot be started again: {error}")
            return None

    def _settle(self, attempt: AgentAttempt) -> TerminalReason | None:
        """What comes of an Agent that has ended without a hand-off."""
        if self._host_may_hand_off(attempt):
            self._hand_off_best()
            return None
        return self._unfinished_reason(attempt)

    def _host_may_hand_off(self, attempt: AgentAttempt) -> bool:
        return (
            self._config.when_unfinished == "select"
            and not attempt.resumable
            and attempt.reason not in ("interrupted", "fault")
            and bool(self._desk.submissions)
        )

    def _hand_off_best(self) -> None:
        best = best_submissions(
            self._desk.submissions,
            direction=self._prepared.spec.score_direction,
            count=self._config.max_candidates,
        )
        self._journal.append(events.FinishRequested(candidate_submission_ids=best, handed_off_by="host"))

    def _unfinished_reason(self, attempt: AgentAttempt) -> TerminalReason:
        if attempt.reason == "timed_out":
            return "agent_timed_out"
        # One that had said that its work was done, and was ended for living on, has not failed.
        well = attempt.reason == "lived_on" or (attempt.returncode == 0 and attempt.reason != "stalled")
        if not well:
            return "agent_failed"
        return "budget_exhausted" if self._limits.exhausted(self._progress.ledger) else "agent_exited"

    # Selection and Assessment.

    def _private_evaluations(self) -> PrivateEvaluations:
        return PrivateEvaluations(
            self._prepared.benchmark,
            self._prepared.spec,
            run_seed=self._config.seed,
            evaluator=self._evaluator,
            journal=self._journal,
            interruption=self._interruption,
        )

    def _submission(self, submission_id: str) -> SubmissionResult:
        return next(s for s in self._desk.submissions if s.submission_id == submission_id)

    def _select(self) -> None:
        candidates = self._progress.ledger.candidates
        if self._config.validation is None:
            self._note_selection(candidates[0], "only_candidate")
            return
        validation = self._private_evaluations().validate(
            [self._submission(submission_id) for submission_id in candidates],
            self._config.validation,
            done=self._standing.validated,
            keep=self._keep_candidate,
        )
        self._writer.write_json("validation/report.json", validation_report(validation))
        self._note_selection(validation.selected_submission_id, "validation")
        self._validation = validation

    def _keep_candidate(self, result: ValidationCandidateResult) -> None:
        self._writer.write_json(f"validation/{result.submission_id}.json", measured_report(result))

    def _note_selection(self, submission_id: str, selected_by: str) -> None:
        if self._progress.selected is None:
            self._journal.append(events.CandidateSelected(submission_id=submission_id, selected_by=selected_by))

    def _assess(self) -> None:
        config, selected = self._config.assessment, self._progress.selected
        if config is None or self._assessment is not None:
            return
        assert selected is not None
        self._assessment = self._private_evaluations().assess(
            self._submission(selected), config, keep=self._keep_assessment
        )

    def _keep_assessment(self, result: AssessmentResult) -> None:
        self._writer.write_json("assessment/report.json", assessment_report(result))

    # The end.

    def _commit(self, manifest: Mapping[str, object], reason: TerminalReason) -> RunResult:
        progress = self._progress
        selected = progress.selected
        result = RunResult(
            final_program=None if selected is None else self._submission(selected).program,
            final_submission_id=selected,
            submissions=tuple(self._desk.submissions),
            terminal_reason=reason,
            candidate_submission_ids=progress.ledger.candidates,
            validation=self._validation,
            assessment=self._assessment,
        )
        self._journal.append(events.RunCommitted(terminal_reason=reason))
        self._writer.write_manifest(
            final_manifest(
                manifest,
                submissions=self._desk.submissions,
                progress=progress,
                environment_names=_environment_names(self._writer, progress.last_attempt),
                agent_told=self._agent_told,
                result=result,
                error=self._error,
                execution_facts=self._evaluator.facts,
                ended=datetime.now(UTC),
            )
            | {"diagnostics": self._diagnostics(result)}
        )
        return result

    def _diagnostics(self, result: RunResult) -> dict[str, object]:
        return run_diagnostics(
            self._prepared.initial_program,
            self._desk.submissions,
            episode_budget=self._config.episode_budget,
            episodes_spent=self._config.episode_budget - self._limits.episodes_remaining(self._progress.ledger),
            score_direction=self._prepared.spec.score_direction,
            selected_submission_id=result.final_submission_id,
            validation=result.validation,
            assessment=result.assessment,
        )


def ledger_limits(config: RunConfig) -> LedgerLimits:
    """The part of the limits that the Session keeps."""
    assert config.max_submissions is not None
    assert config.episode_pool_size is not None
    return LedgerLimits(
        episode_budget=config.episode_budget,
        max_submissions=config.max_submissions,
        pool_size=config.episode_pool_size,
        max_episodes_per_submission=config.max_episodes_per_submission,
        finish_budget_policy=config.finish_budget_policy,
        max_candidates=config.max_candidates,
    )


def _environment_names(writer: RecordWriter, attempt: AgentAttempt | None) -> list[str] | None:
    if attempt is None:
        return None
    try:
        names = json.loads((writer.layout.agent(attempt.attempt) / "invocation.json").read_bytes())["environment_names"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return [str(name) for name in names] if isinstance(names, list) else None
