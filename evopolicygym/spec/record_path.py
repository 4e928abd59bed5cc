"""Where a Record goes: the placeholders of ``record_to``, and the next free name."""

import os
import re
from datetime import datetime
from pathlib import Path

from evopolicygym.errors import SpecError
from evopolicygym.spec.problems import did_you_mean

PLACEHOLDERS = ("time", "seed", "name")

_PLACEHOLDER = re.compile(r"\{\{|\}\}|\{([^{}]*)\}")
_UNSAFE = re.compile(r"[/\x00-\x1f]")


def check_template(template: str) -> None:
    """See that a template has known placeholders only.

    Raises:
        ValueError: it has another one.
    """
    for match in _PLACEHOLDER.finditer(template):
        if match[1] is not None and match[1] not in PLACEHOLDERS:
            known = ", ".join(f"{{{name}}}" for name in PLACEHOLDERS)
            near = re.sub('"(.*)"', r"{\1}", did_you_mean(match[1], PLACEHOLDERS))
            raise ValueError(
                f"{match[0]} is no placeholder; known are {known}.{near} For a literal brace write it twice"
            )


def record_directory(template: str, base: Path, *, name: str, seed: int, now: datetime) -> Path:
    """The absolute path of the new Record.

    Args:
        template: ``record_to`` with its environment variables filled in.
        base: directory that a relative template starts from.
        name: for ``{name}``.
        seed: for ``{seed}``.
        now: for ``{time}``, local time with milliseconds.

    Returns:
        A path that does not exist. If placeholders led to a taken one it ends in ``-2``, ``-3`` …

    Raises:
        ValueError: an unknown placeholder, or the path exists and has no placeholder.
    """
    check_template(template)
    values = {
        "time": f"{now:%Y%m%d-%H%M%S}-{now.microsecond // 1000:03d}",
        "seed": str(seed),
        "name": _UNSAFE.sub("-", name),
    }
    literal = {"{{": "{", "}}": "}"}
    filled = _PLACEHOLDER.sub(lambda m: literal.get(m[0]) or values[m[1]], template)
    path = Path(os.path.normpath(base / expand_home(filled)))
    if not os.path.lexists(path):
        return path
    if not any(match[1] for match in _PLACEHOLDER.finditer(template)):
        raise ValueError(
            f"{path} exists already, and a Record is never overwritten; choose another place, or let "
            f'{{time}} make it new each time: "{template.rstrip("/")}-{{time}}"'
        )
    suffix = 2
    while os.path.lexists(numbered := path.with_name(f"{path.name}-{suffix}")):
        suffix += 1
    return numbered


def expand_home(text: str) -> Path:
    """The path with ``~`` and ``~user`` filled in.

    Raises:
        SpecError: there is no such user, or no home directory is known.
    """
    try:
        return Path(text).expanduser()
    except RuntimeError:
        raise SpecError(f"{text!r}: there is no home directory that {text.split('/')[0]} stands for") from None


def absolute_template(template: str, filled: str, base: Path) -> str:
    """A ``record_to`` that means the same from anywhere: placeholders and ``${VAR}`` stay as they are.

    Args:
        template: as written.
        filled: with its environment variables filled in.
        base: directory that a relative one starts from.
    """
    if expand_home(filled).is_absolute():
        return template
    escaped = str(base).replace("{", "{{").replace("}", "}}")
    return f"{escaped}/{template}"
