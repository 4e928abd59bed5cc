"""Output for a locale that cannot write every character: plain ones in their place, and never a crash."""

import codecs
import sys

HANDLER = "evopolicygym-plain"

_PLAIN = {
    "−": "-",
    "–": "-",
    "…": "...",
    "±": "+-",
    "×": "x",
    "★": "*",
    "▸": ">",
    "→": "->",
    "─": "-",
    "━": "=",
    "╸": "=",
    "╺": "-",
    "│": "|",
    "├": "|",
    "└": "`",
}
_BLOCKS = dict(zip("▁▂▃▄▅▆▇█", "_.-:=+*#", strict=True))


def use_plain_characters() -> None:
    """Let standard output and standard error replace what their encoding does not have."""
    codecs.register_error(HANDLER, _replace)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors=HANDLER)


def writes_unicode() -> bool:
    """Whether standard output takes every character."""
    return (getattr(sys.stdout, "encoding", None) or "utf-8").lower().replace("-", "").startswith("utf")


def _replace(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lost = error.object[error.start : error.end]
    return "".join(_PLAIN.get(character) or _BLOCKS.get(character, "?") for character in lost), error.end
