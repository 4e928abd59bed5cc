"""Why a provider's program ended: patterns over its last words, each with a reason and what to do."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from evopolicygym.agents.events import AgentDiagnosis, AgentEndReason, AgentEvent, AgentExit

__all__ = ["FailurePattern", "diagnose_exit"]

_WORDS_MAX = 600
_STDERR_LINES = 20
_RESET = re.compile(
    r"\b(?:try again|retry|resets?|available again)\s+(?:(?:at|in|on|after)\s+)?([^\n.;|()]{3,60})", re.IGNORECASE
)
_EPOCH = re.compile(r"\|\s*(1[0-9]{9})\b")


@dataclass(frozen=True, slots=True)
class FailurePattern:
    """One way to fail.

    Args:
        reason: What it means.
        pattern: Regular expression, looked for in the last words, whatever the case.
        advice: What to do about it.
    """

    reason: AgentEndReason
    pattern: str
    advice: str = ""


def diagnose_exit(
    title: str, patterns: Iterable[FailurePattern], stub_advice: str, end: AgentExit
) -> AgentDiagnosis | None:
    """Explain an exit.

    Args:
        title: The program's name for people.
        patterns: Its ways to fail, the first that matches counts.
        stub_advice: What to do if it ended without having done anything.
        end: How it ended.

    Returns:
        The explanation; None if it simply ended, or was ended by a signal.
    """
    words = _fatal_words(end.events)
    worked = any(event.kind in ("session_start", "message", "tool_call") for event in end.events)
    if words is None and end.returncode == 0:
        if worked:
            return None
        message = f"{title} ended with exit code 0 and did nothing"
        return AgentDiagnosis("stub", _sentence(message, _last_lines(end.stderr_tail or end.stdout_tail), stub_advice))
    if words is None and (end.returncode < 0 or not end.stderr_tail.strip()):
        return None
    said = words or _last_lines(end.stderr_tail)
    for pattern in patterns:
        if re.search(pattern.pattern, said, re.IGNORECASE):
            reset = _reset_time(said, end.events) if pattern.reason == "usage_limit" else ""
            return AgentDiagnosis(pattern.reason, _sentence(title, said, reset, pattern.advice))
    return AgentDiagnosis("failed", _sentence(title, said))


def _fatal_words(events: Iterable[AgentEvent]) -> str | None:
    """What the last fatal error says, its code first."""
    for event in reversed(tuple(events)):
        if event.kind == "error" and event.fatal:
            return f"[{event.code}] {event.text}" if event.code else str(event.text)
    return None


def _last_lines(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"\W*\w*error\b", line, re.IGNORECASE)]
    return " ".join((errors or lines)[-_STDERR_LINES:])


def _reset_time(said: str, events: Iterable[AgentEvent]) -> str:
    for text in (said, *(event.text or "" for event in reversed(tuple(events)) if event.kind == "error")):
        epoch = _EPOCH.search(text)
        if epoch:
            moment = datetime.fromtimestamp(int(epoch[1]), UTC)
            return f"It resets at {moment:%Y-%m-%d %H:%M} UTC"
        told = _RESET.search(text)
        if told:
            return f"It resets: {told[1].strip()}"
    return ""


def _sentence(title: str, said: str, *rest: str) -> str:
    said = " ".join(said.split())
    if len(said) > _WORDS_MAX:
        said = said[: _WORDS_MAX - 1] + "…"
    words = f"{title}: {said}" if said else title
    return ". ".join(part.rstrip(". ") for part in (words, *rest) if part)
