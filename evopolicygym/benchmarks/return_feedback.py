"""Feedback about returns: mean and spread, one line an Episode, and the transitions of the first Episodes."""

from collections.abc import Iterable, Iterator, Sequence
from math import fsum, sqrt
from statistics import median

from evopolicygym.artifacts import Artifact, Feedback
from evopolicygym.authoring import EpisodeRecord
from evopolicygym.policy_json import dumps, to_json

__all__ = ["EPISODES_MAX_BYTES", "TRACE_MAX_BYTES", "TRACE_MAX_EPISODES", "return_feedback"]

TRACE_MAX_EPISODES = 4
TRACE_MAX_BYTES = 1024 * 1024
EPISODES_MAX_BYTES = 4 * 1024 * 1024

_JSON_LINES = "application/jsonl"


def return_feedback(records: Sequence[EpisodeRecord], *, failure_return: float) -> Feedback:
    """Score records by their mean return; a failed Episode counts ``failure_return``.

    Neither seeds nor scenarios are in the Feedback.

    Args:
        records: at least one, in plan order.
        failure_return: what an Episode counts in which the Policy failed.

    Returns:
        Feedback with the mean return as score; content ``episodes``, ``mean_return``,
        ``standard_deviation`` (of these Episodes, not an estimate: divided by n), ``min_return``, ``median_return``,
        ``max_return``, ``steps`` (of all Episodes), ``failures``, ``failure_return``; artifacts
        ``episodes.jsonl`` (permanent) and ``trace.jsonl`` (bulk).

    Raises:
        ValueError: no records.
    """
    if not records:
        raise ValueError("Feedback needs at least one Episode record")
    returns = [_counted_return(record, failure_return) for record in records]
    mean = fsum(returns) / len(returns)
    content: dict[str, object] = {
        "episodes": len(returns),
        "mean_return": mean,
        "standard_deviation": sqrt(fsum((value - mean) ** 2 for value in returns) / len(returns)),
        "min_return": min(returns),
        "median_return": float(median(returns)),
        "max_return": max(returns),
        "steps": sum(record.steps for record in records),
        "failures": sum(record.policy_failure is not None for record in records),
        "failure_return": failure_return,
    }
    artifacts = (
        Artifact("episodes.jsonl", _JSON_LINES, _episode_lines(records, returns)),
        Artifact("trace.jsonl", _JSON_LINES, _trace(records), retention="bulk"),
    )
    return Feedback(mean, content, artifacts)  # type: ignore[arg-type]  # Feedback checks that it is a PolicyValue


def _counted_return(record: EpisodeRecord, failure_return: float) -> float:
    return record.total_reward if record.policy_failure is None else failure_return


def _episode_lines(records: Sequence[EpisodeRecord], returns: Sequence[float]) -> bytes:
    lines = _BoundedLines(EPISODES_MAX_BYTES)
    for position, (record, counted) in enumerate(zip(records, returns, strict=True)):
        line: dict[str, object] = {
            "position": position,
            "status": "completed" if record.policy_failure is None else "policy_failed",
            "return": counted,
            "length": record.steps,
            "failure": record.policy_failure,
        }
        if not lines.add(line):
            lines.close_with({"omitted": {"episodes": len(records) - position}})
            break
    return lines.content()


def _trace(records: Sequence[EpisodeRecord]) -> bytes:
    """The first Episodes step by step, and a last line that tells what was left out."""
    lines = _BoundedLines(TRACE_MAX_BYTES)
    episodes = transitions = 0
    for position, record in enumerate(records[:TRACE_MAX_EPISODES]):
        written = lines.add_while_room(_trace_lines(position, record))
        if written == 0:
            break
        episodes += 1
        transitions += written - 1  # the first line of an Episode is its initial observation
        if written <= record.steps:
            break
    total = sum(record.steps for record in records)
    left_out = {"episodes": len(records) - episodes, "transitions": total - transitions}
    lines.close_with({"omitted": left_out})
    return lines.content()


def _trace_lines(position: int, record: EpisodeRecord) -> Iterator[dict[str, object]]:
    yield {"position": position, "step": 0, "observation": to_json(record.initial_observation)}
    for number, transition in enumerate(record.transitions, start=1):
        step = transition.step
        yield {
            "position": position,
            "step": number,
            "action": to_json(transition.action),
            "reward": step.reward,
            "observation": to_json(step.observation),
            "terminated": step.terminated,
            "truncated": step.truncated,
        }


class _BoundedLines:
    """JSON lines up to a number of bytes; only a closing line may pass it."""

    def __init__(self, max_bytes: int) -> None:
        self._lines: list[bytes] = []
        self._room = max_bytes

    def add(self, line: dict[str, object]) -> bool:
        encoded = dumps(line).encode() + b"\n"
        if len(encoded) > self._room:
            return False
        self._room -= len(encoded)
        self._lines.append(encoded)
        return True

    def add_while_room(self, lines: Iterable[dict[str, object]]) -> int:
        written = 0
        for line in lines:
            if not self.add(line):
                break
            written += 1
        return written

    def close_with(self, line: dict[str, object]) -> None:
        self._lines.append(dumps(line).encode() + b"\n")

    def content(self) -> bytes:
        return b"".join(self._lines)
