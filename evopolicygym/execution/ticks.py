"""How long a change may hide: a file changed twice within one tick of the kernel's clock keeps its time."""

import time
from pathlib import Path

__all__ = ["hiding_seconds"]

# Where the system does not tell (not Linux): no kernel in use ticks slower than 100 times a second.
_SLOWEST_TICK_SECONDS = 0.010

_CLOCK_REALTIME_COARSE = 5  # <linux/time.h>: the clock that file times are read from
_PROBES = 4


def hiding_seconds(directory: Path) -> float:
    """For how long after a file's time was looked at a change of it may not show, on this file system.

    0 where the kernel gives a file that was looked at a time of its own at the next change (Linux 6.13 and later, on
    most file systems); else one tick.
    """
    probe = directory / ".time-probe"
    try:
        probe.touch()
        times = []
        for mode in range(_PROBES):
            probe.chmod(0o600 | mode)
            times.append(probe.lstat().st_ctime_ns)
    except OSError:
        return _tick_seconds()
    finally:
        probe.unlink(missing_ok=True)
    # All within microseconds: only times of their own can all differ.
    return 0.0 if len(set(times)) == _PROBES else _tick_seconds()


def _tick_seconds() -> float:
    try:
        return min(2 * time.clock_getres(_CLOCK_REALTIME_COARSE), _SLOWEST_TICK_SECONDS)
    except (AttributeError, OSError):
        return _SLOWEST_TICK_SECONDS
