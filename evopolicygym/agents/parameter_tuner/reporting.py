"""What the tuner tells: events on standard output, lines for people on standard error, notes in ``analysis/``."""

import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from evopolicygym.agents.events import AgentEvent

__all__ = ["Reporter"]


class Reporter:
    """Writes as the search goes on, so that a tuner that is stopped leaves its notes.

    Args:
        analysis: Directory of the notes; made if it is missing. Files there are added to, never replaced.
    """

    def __init__(self, analysis: Path) -> None:
        analysis.mkdir(exist_ok=True)
        self._notes = analysis / "parameter-tuner.md"
        self._trials = analysis / "parameter-tuner.jsonl"

    def started(self, text: str) -> None:
        """The search begins."""
        self._emit(AgentEvent(kind="session_start", text=text))
        self._note(f"# Parameter tuner\n\n{text}\n")

    def said(self, text: str) -> None:
        """One line on how it goes."""
        self._emit(AgentEvent(kind="message", text=text))
        self._note(f"- {text}")

    def called(self, command: Sequence[str], exit_code: int) -> None:
        """A command was run."""
        failed = exit_code != 0
        self._emit(
            AgentEvent(kind="tool_call", tool="shell", command=shlex.join(command), exit_code=exit_code, failed=failed)
        )

    def tried(self, trial: dict[str, object]) -> None:
        """One Submission and its parameters, as a line of JSON."""
        with self._trials.open("a", encoding="utf-8") as file:
            file.write(json.dumps(trial, allow_nan=False) + "\n")

    def failed(self, text: str) -> None:
        """Something is wrong."""
        self._emit(AgentEvent(kind="error", text=text, fatal=True))
        self._note(f"- ERROR: {text}")

    def ended(self, text: str, *, failed: bool) -> None:
        """The last words."""
        self._emit(AgentEvent(kind="end", text=text, failed=failed))
        self._note(f"\n{text}")

    def _emit(self, event: AgentEvent) -> None:
        sys.stdout.write(json.dumps(event.to_json(), ensure_ascii=False, allow_nan=False) + "\n")
        sys.stdout.flush()
        if event.kind != "tool_call" and event.text:
            sys.stderr.write(event.text + "\n")
            sys.stderr.flush()

    def _note(self, text: str) -> None:
        with self._notes.open("a", encoding="utf-8") as file:
            file.write(text + "\n")
