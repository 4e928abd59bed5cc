"""The three programs as the suite uses them: what they are called, and what is peculiar to each."""

import json
import shlex
from dataclasses import dataclass
from pathlib import Path

__all__ = ["PROGRAMS", "Program"]


@dataclass(frozen=True)
class Program:
    """One of them.

    Args:
        name: of the Agent in a spec.
        executable: its name.
        options: of the Agent's table.
        key_variable: holds the key that the suite makes up.
        api: what follows the model server's address.
        state: files of a user's home that a Run with a key must leave alone.
    """

    name: str
    executable: str
    options: tuple[tuple[str, object], ...]
    key_variable: str
    api: str
    state: tuple[str, ...]

    def command_of(self, recorded: str) -> str:
        """The model's command, from what the transcript says was run."""
        if self.name != "codex":
            return recorded
        words = shlex.split(recorded)
        return words[-1] if len(words) == 3 and words[1] in ("-c", "-lc") else recorded


PROGRAMS = {
    program.name: program
    for program in (
        Program(
            name="codex",
            executable="codex",
            options=(("model", "scripted-model"), ("reasoning_effort", "low")),
            key_variable="OPENAI_API_KEY",
            api="/v1",
            state=(".codex/config.toml", ".codex/history.jsonl", ".codex/AGENTS.md"),
        ),
        Program(
            name="claude-code",
            executable="claude",
            options=(("model", "claude-sonnet-4-5"), ("effort", "low"), ("allow_root", True)),
            key_variable="ANTHROPIC_API_KEY",
            api="",
            state=(".claude.json", ".claude/settings.json", ".claude/CLAUDE.md"),
        ),
        Program(
            name="kimi-code",
            executable="kimi",
            options=(("model", "scripted"), ("provider_type", "openai")),
            key_variable="KIMI_API_KEY",
            api="/v1",
            state=(".kimi-code/config.toml", ".kimi-code/workspaces.json"),
        ),
    )
}


def furnish_home(home: Path, program: Program) -> None:
    """A user's home with state of the program's in it."""
    home.mkdir(parents=True)
    for name in program.state:
        path = home / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps({"decoy": True}) if path.suffix in (".json", ".jsonl") else "# a decoy\n")
