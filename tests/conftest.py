"""What every test shares: state of its own, and a check that nothing is left behind."""

import gc
import os
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from multiprocessing import resource_tracker
from pathlib import Path

import hypothesis
import hypothesis.configuration
import pytest

TESTS = Path(__file__).parent
if str(TESTS) not in sys.path:
    sys.path.insert(0, str(TESTS))  # so that shared modules such as policy_values can be imported

# Short, since sockets may live below it and a socket's path holds about 100 bytes.
STATE = Path(tempfile.mkdtemp(prefix="epg-tests-"))

SETTLE_SECONDS = 5.0  # how long ended processes and closing threads may take to be gone

hypothesis.configuration.set_hypothesis_home_dir(STATE / "hypothesis")
hypothesis.settings.register_profile("suite", deadline=None, max_examples=60, database=None)
hypothesis.settings.load_profile("suite")


# A shell that starts the tests in its background has them ignore Ctrl-C, and so would all that they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_unconfigure() -> None:
    shutil.rmtree(STATE, ignore_errors=True)


@pytest.fixture(scope="session", autouse=True)
def own_state() -> Iterator[None]:
    """User configuration, state and sockets of the tests live in a directory of their own."""
    with pytest.MonkeyPatch.context() as patch:
        for variable, name in (
            ("HOME", "home"),
            ("XDG_CACHE_HOME", "cache"),
            ("XDG_CONFIG_HOME", "config"),
            ("XDG_DATA_HOME", "data"),
            ("XDG_RUNTIME_DIR", "run"),
            ("XDG_STATE_HOME", "state"),
        ):
            directory = STATE / name
            directory.mkdir(mode=0o700, exist_ok=True)
            patch.setenv(variable, str(directory))
        for variable in [name for name in os.environ if name.startswith("EVOPOLICYGYM_")]:
            patch.delenv(variable)
        yield


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """Fail a test that leaves child processes or open descriptors behind."""
    if not Path("/proc/self/fd").is_dir():
        yield
        return
    children, descriptors = child_processes(), open_descriptors()
    yield
    deadline = time.monotonic() + SETTLE_SECONDS
    left = _left(children, descriptors)
    if left:
        gc.collect()  # what only a cycle keeps open is not the test's fault
    while (left := _left(children, descriptors)) and time.monotonic() < deadline:
        time.sleep(0.02)
    if left:
        pytest.fail("left behind: " + "; ".join(left), pytrace=False)


def _left(children: set[int], descriptors: Counter[str]) -> list[str]:
    processes = [f"process {pid} ({_command(pid)})" for pid in sorted(child_processes() - children)]
    opened = open_descriptors() - descriptors
    return processes + [f"{count} open {target}" for target, count in sorted(opened.items())]


def child_processes() -> set[int]:
    """The children of this process, zombies included; multiprocessing's own tracker is not one of them."""
    found: set[int] = set()
    for task in Path("/proc/self/task").iterdir():
        try:
            found.update(map(int, (task / "children").read_text().split()))
        except OSError:
            continue  # the thread has ended, or the kernel does not tell
    found.discard(getattr(resource_tracker._resource_tracker, "_pid", None) or 0)
    return found


def open_descriptors() -> Counter[str]:
    """What the open descriptors of this process point to, without what libraries keep open on purpose."""
    targets: Counter[str] = Counter()
    tracker = getattr(resource_tracker._resource_tracker, "_fd", None)
    for name in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{name}")  # noqa: PTH115
        except OSError:
            continue  # the descriptor of this listing itself
        kept_on_purpose = (
            int(name) == tracker
            or target in ("/dev/null", "/dev/urandom", "/dev/random")
            or target.startswith(f"{STATE}/hypothesis")
        )
        if not kept_on_purpose:
            targets[target] += 1
    return targets


def _command(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
    except OSError:
        return "gone"
    return words.decode(errors="replace").strip()[:120] or "a zombie: it was never waited for"
