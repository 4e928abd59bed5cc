"""How a template process is started: its command line, its environment, and what the Record says of it."""

import marshal
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

__all__ = ["CONTROL_DESCRIPTOR", "THREAD_CAPS", "PolicyLaunch"]

# The number of the control socket in the template.
CONTROL_DESCRIPTOR = 3

# Linear algebra in N processes on N cores: one thread each.
THREAD_CAPS: Mapping[str, str] = dict.fromkeys(
    (
        "OMP_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
        "MKL_NUM_THREADS",
        "BLIS_NUM_THREADS",
        "NUMEXPR_NUM_THREADS",
        "VECLIB_MAXIMUM_THREADS",
    ),
    "1",
)

# All that a Policy process is given of the Host's environment.
_INHERITED = ("LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "PATH", "TZ")


@dataclass(frozen=True, slots=True)
class PolicyLaunch:
    """How Policy processes come to be, without any isolation beyond that of a process.

    An execution with more isolation derives from this class and wraps the command; instances are sent to workers
    by pickle.

    Args:
        fork: fork the template for every Episode; else start a new interpreter for each (slower, same semantics).
    """

    fork: bool = sys.platform != "darwin"  # system libraries there do not survive a fork

    def command(self, *, root: Path, preload: tuple[str, ...]) -> list[str]:  # noqa: ARG002 (for what derives from it)
        """The argv of a template.

        Args:
            root: the directory that will hold ``program`` and ``scratch``.
            preload: modules to import before forking.
        """
        settings = {"fork": self.fork, "preload": preload, "sandbox": None}
        template = Path(__file__).with_name("template.py")
        return [sys.executable, "-P", str(template), str(CONTROL_DESCRIPTOR), marshal.dumps(settings).hex()]

    def release(self, *, root: Path) -> None:
        """Undo what :meth:`command` has made for a template that has ended."""

    def environment(self, *, root: Path) -> dict[str, str]:
        """The whole environment of a template, and so of its Policy processes."""
        inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
        return {
            **inherited,
            **THREAD_CAPS,
            **dict.fromkeys(("EVOPOLICYGYM_SCRATCH", "HOME", "TMPDIR"), str(root / "scratch")),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONHASHSEED": "0",
        }
