"""What is wrong with a run spec, all of it at once, in words that a newcomer can act on."""

import difflib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from evopolicygym.errors import SpecError

KeyPath = tuple[str | int, ...]

_VALUE_WIDTH = 60


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing to mend.

    Args:
        origin: where it stands: ``"spec.toml:7"`` or ``"--set run.seed=x"``.
        subject: the key, with the value found if there is one: ``"run.seed = -1"``; empty for the whole file.
        message: what is allowed, and what to do.
        line: position for sorting; 0 where there is none.
    """

    origin: str
    subject: str
    message: str
    line: int = 0


class ProblemsFoundError(Exception):
    """Carries one or more problems to the place that reports them together."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("; ".join(problem.message for problem in problems))
        self.problems = tuple(problems)


def spec_error(display: str, problems: Sequence[Problem]) -> SpecError:
    """One error that lists every problem, in the order of the file."""
    ordered = sorted(dict.fromkeys(problems), key=lambda problem: problem.line)
    count = "1 problem" if len(ordered) == 1 else f"{len(ordered)} problems"
    blocks = [f"{display}: {count}"]
    for problem in ordered:
        head = f"  {problem.origin}  {problem.subject}".rstrip()
        body = problem.message.replace("\n", "\n      ")
        blocks.append(f"{head}\n      {body}")
    return SpecError("\n".join(blocks))


def key_text(path: KeyPath) -> str:
    """``("skills", 0, "path")`` as ``skills[0].path``."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def value_text(value: object) -> str:
    """A value as TOML would show it, shortened to one readable line."""
    if isinstance(value, bool):
        text = "true" if value else "false"
    elif isinstance(value, str):
        text = json.dumps(value, ensure_ascii=False)
    elif isinstance(value, dict):
        text = "{ " + ", ".join(f"{key} = {value_text(item)}" for key, item in value.items()) + " }"
    elif isinstance(value, list):
        text = "[" + ", ".join(map(value_text, value)) + "]"
    else:
        text = str(value)
    return text if len(text) <= _VALUE_WIDTH else text[: _VALUE_WIDTH - 1] + "…"


def did_you_mean(found: str, known: Iterable[str]) -> str:
    """`` Did you mean "seed"?`` with a leading blank, or nothing if no known name is near."""
    names = sorted(set(known))
    near = difflib.get_close_matches(found, names, n=1, cutoff=0.6)
    if not near:
        near = difflib.get_close_matches(found.lower().replace("-", "_"), names, n=1, cutoff=0.6)
    return f' Did you mean "{near[0]}"?' if near else ""


def choices(names: Iterable[str]) -> str:
    """``"a", "b" or "c"``."""
    return _listed(names, "or")


def every(names: Iterable[str]) -> str:
    """``"a", "b" and "c"``."""
    return _listed(names, "and")


def _listed(names: Iterable[str], last: str) -> str:
    quoted = [f'"{name}"' for name in names]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} {last} {quoted[-1]}"
