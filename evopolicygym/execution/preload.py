"""Which third-party modules a template should import before it forks, read off a Program's source."""

import importlib.util
import re
import sys
from collections.abc import Iterator

from evopolicygym.program import Program

__all__ = ["modules_to_preload", "shadowed_names"]

# Start threads, or hold state that a fork breaks, when they are imported.
_UNFIT_FOR_FORKING = frozenset({"cupy", "grpc", "jax", "jaxlib", "paddle", "ray", "tensorflow", "vllm"})

# Lines that look like imports. A look only: parsing would hand hostile source to the compiler in a trusted
# process, and a line in a docstring costs no more than an import that nobody needed.
_NAME = r"[A-Za-z_][\w.]*(?:[ \t]+as[ \t]+\w+)?"
_IMPORT = re.compile(
    r"^[ \t]*(?:from[ \t]+(?P<origin>[A-Za-z_][\w.]*)[ \t]+import\b"
    rf"|import[ \t]+(?P<names>{_NAME}(?:[ \t]*,[ \t]*{_NAME})*))",
    re.MULTILINE,
)


def shadowed_names(program: Program) -> tuple[str, ...]:
    """The top-level module names that the Program itself provides, whatever else is installed under them."""
    names = {path.split("/")[0].removesuffix(".py") for path in program.files if path.endswith(".py")}
    return tuple(sorted(names))


def modules_to_preload(program: Program) -> tuple[str, ...]:
    """The installed third-party modules that the Program's source imports, as written there, in order of name.

    Nothing is imported, and nothing of the Program is run, to find them.
    """
    own = set(shadowed_names(program))
    found: set[str] = set()
    for path in program.files:
        if path.endswith(".py"):
            found.update(_imports(program.read_bytes(path)))
    return tuple(sorted(name for name in found if _is_fit(name.partition(".")[0], own)))


def _imports(source: bytes) -> Iterator[str]:
    for match in _IMPORT.finditer(source.decode("utf-8", "replace")):
        if match["origin"]:
            yield match["origin"]
        else:
            for item in match["names"].split(","):
                yield item.split(" as ")[0].strip()


def _is_fit(name: str, own: set[str]) -> bool:
    if name in own or name in sys.stdlib_module_names or name in _UNFIT_FOR_FORKING or name == "evopolicygym":
        return False
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return False
    origin = spec.origin if spec is not None else None
    return origin is not None and ("site-packages" in origin or "dist-packages" in origin)
