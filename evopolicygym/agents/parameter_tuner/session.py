"""The tuner's side of ``evopolicygym-session``: commands in, answers out, Feedback read from the workspace."""

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from evopolicygym.agents.parameter_tuner.failure import TunerError
from evopolicygym.agents.parameter_tuner.plan import Limits
from evopolicygym.agents.parameter_tuner.reporting import Reporter
from evopolicygym.selector import format_selector

__all__ = ["Receipt", "SessionCommand", "SessionRefusedError", "Status"]

REFUSED = 1
"""Exit code of ``evopolicygym-session`` where the Host said no; 2 is a fault of use or connection."""


class SessionRefusedError(Exception):
    """The Host refused a request; nothing was charged.

    Args:
        code: What kind of refusal.
        message: The Host's words.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{message} ({code})")
        self.code = code


@dataclass(frozen=True, slots=True)
class Status:
    """What ``status`` told.

    Args:
        limits: What is left of the budget.
        seconds: Wall-clock time left.
        maximize: Whether a higher score is better.
        metric: What the score is called.
        published: Submissions made before, with their scores.
        running: Whether an Evaluation runs that was started before.
    """

    limits: Limits
    seconds: float
    maximize: bool
    metric: str
    published: tuple[tuple[str, float], ...]
    running: bool


@dataclass(frozen=True, slots=True)
class Receipt:
    """What one Submission came to.

    Args:
        submission_id: Its id.
        score: The Benchmark's score of it.
        episodes: Episodes charged.
        failures: Kinds of Policy failure, with their numbers.
        problem: The first failure in the Host's words, where it told one.
        seconds: How long the command took.
    """

    submission_id: str
    score: float
    episodes: int
    failures: Mapping[str, int]
    problem: str | None
    seconds: float


class SessionCommand:
    """Runs ``evopolicygym-session`` from PATH, else as a module of this interpreter.

    Args:
        workspace: Where it runs; Feedback paths are relative to it.
        reporter: Told of every call.
    """

    def __init__(self, workspace: Path, reporter: Reporter) -> None:
        found = shutil.which("evopolicygym-session")
        self._command = [found] if found else [sys.executable, "-P", "-m", "evopolicygym.session"]
        self._workspace = workspace
        self._reporter = reporter

    def status(self) -> Status:
        """Ask what is left."""
        answer = self._call("status")
        try:
            pool, cap = int(answer["pool_size"]), answer.get("max_episodes_per_submission")  # type: ignore[call-overload]  # a wrong type is caught below
            limits = Limits(
                episodes=int(answer["episodes_remaining"]),  # type: ignore[call-overload]  # as above
                submissions=int(answer["submissions_remaining"]),  # type: ignore[call-overload]  # as above
                pool_size=pool,
                largest_submission=min(pool, pool if cap is None else int(cap)),  # type: ignore[call-overload]  # as above
                max_candidates=int(answer.get("max_candidates") or 1),  # type: ignore[call-overload]  # as above
                spend_all=answer.get("finish_budget_policy") == "require_budget_exhaustion",
            )
            return Status(
                limits=limits,
                seconds=float(answer["seconds_remaining"]),  # type: ignore[arg-type]  # as above
                maximize=answer["score_direction"] != "minimize",
                metric=str(answer.get("primary_metric") or "score"),
                published=tuple(_scores(answer.get("published"))),
                running=answer.get("running") is not None,
            )
        except (KeyError, TypeError, ValueError) as error:
            raise TunerError(f"the Host's status cannot be understood ({type(error).__name__}: {error})") from error

    def submit(self, indices: Sequence[int]) -> Receipt:
        """Submit ``program/`` as it is on these pool indices.

        Raises:
            SessionRefusedError: the Host said no.
        """
        started = time.monotonic()
        answer = self._call("submit", "program", "--episodes", format_selector(indices))
        seconds = time.monotonic() - started
        score = answer.get("score")
        if isinstance(score, bool) or not isinstance(score, int | float):
            raise TunerError(f"a receipt without a score: {json.dumps(answer)[:500]}")
        episodes = self._episodes(answer.get("feedback"))
        return Receipt(
            submission_id=str(answer.get("submission_id")),
            score=float(score),
            episodes=len(indices),
            failures=_failures(episodes),
            problem=_problem(answer.get("diagnostics")),
            seconds=seconds,
        )

    def wait(self) -> None:
        """Wait for an Evaluation that runs."""
        self._call("wait")

    def finish(self, submission_ids: Sequence[str]) -> None:
        """Hand these off, best first."""
        self._call("finish", *submission_ids)

    def _call(self, *arguments: str) -> dict[str, object]:
        # No time-out here: the Host ends this process, and with it the command, when its time is up.
        done = subprocess.run(
            [*self._command, *arguments],
            cwd=self._workspace,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            encoding="utf-8",
            errors="replace",
            check=False,
        )
        self._reporter.called(["evopolicygym-session", *arguments], done.returncode)
        answer = _object(done.stdout if done.returncode == 0 else done.stderr)
        if done.returncode == 0 and answer is not None:
            result = answer.get("result")
            return dict(result) if isinstance(result, Mapping) else answer
        error = answer.get("error") if answer else None
        if done.returncode == REFUSED and isinstance(error, Mapping):
            raise SessionRefusedError(str(error.get("code")), str(error.get("message")))
        words = (done.stderr.strip() or done.stdout.strip())[-1000:] or "it said nothing"
        raise TunerError(f"evopolicygym-session {arguments[0]} failed with exit code {done.returncode}: {words}")

    def _episodes(self, path: object) -> list[object]:
        """The Episodes that ``feedback.json`` tells of; none where the Host could not write it."""
        if not isinstance(path, str):
            return []
        try:
            feedback = json.loads((self._workspace / path).read_text(encoding="utf-8"))
            episodes = feedback.get("episodes")
        except (OSError, ValueError, AttributeError):
            return []
        return episodes if isinstance(episodes, list) else []


def _object(text: str) -> dict[str, object] | None:
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _scores(published: object) -> list[tuple[str, float]]:
    found: list[tuple[str, float]] = []
    for item in published if isinstance(published, list) else []:
        if isinstance(item, Mapping) and isinstance(item.get("score"), int | float):
            found.append((str(item.get("submission_id")), float(item["score"])))
    return found


def _failures(episodes: list[object]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for episode in episodes:
        if isinstance(episode, Mapping) and episode.get("status") == "policy_failed":
            kind = str(episode.get("failure"))
            counts[kind] = counts.get(kind, 0) + 1
    return counts


def _problem(diagnostics: object) -> str | None:
    """The message of the first group of failures, whatever else stands there."""
    if not isinstance(diagnostics, Mapping):
        return None
    groups = diagnostics.get("groups")
    first = groups[0] if isinstance(groups, list) and groups else None
    if not isinstance(first, Mapping):
        return None
    words = [str(first[key]) for key in ("exception_type", "message") if first.get(key)]
    return ": ".join(words) or None
