"""Processes started through a Supervisor: their start, their end, and the end of everything they started."""

import contextlib
import errno
import gc
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from evopolicygym.process import Child, Supervisor, SupervisorLostError, describe_returncode

ENV = {"PATH": os.environ["PATH"]}
PATIENCE_SECONDS = 20.0


@pytest.fixture(name="supervisor")
def _supervisor() -> Iterator[Supervisor]:
    with Supervisor() as supervisor:
        yield supervisor


def python(supervisor: Supervisor, program: str, *arguments: str, **options: object) -> Child:
    return supervisor.start(
        [sys.executable, "-I", "-S", "-c", program, *arguments],
        **{"env": ENV, **options},  # type: ignore[arg-type]
    )


def run_to_file(supervisor: Supervisor, argv: list[str], path: Path, **options: object) -> str:
    with path.open("wb") as file:
        child = supervisor.start(argv, **{"env": ENV, "stdout": file.fileno(), **options})  # type: ignore[arg-type]
        assert child.wait(PATIENCE_SECONDS) == 0
    return path.read_text()


def read_until(path: Path, count: int) -> list[int]:
    """Wait until `path` holds `count` whole lines of one process id each."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        if path.exists() and path.read_text().count("\n") >= count:
            return [int(line) for line in path.read_text().split()]
        time.sleep(0.01)
    raise AssertionError(f"{path.name} did not get {count} lines")


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def test_a_process_gets_its_arguments_environment_and_directory(supervisor: Supervisor, tmp_path: Path) -> None:
    out = run_to_file(
        supervisor,
        ["sh", "-c", 'echo "$1|$GREETING|$(pwd)"', "sh", "ü 🙂"],
        tmp_path / "out",
        env={**ENV, "GREETING": "hällo"},
        cwd="/usr",
    )
    assert out == "ü 🙂|hällo|/usr\n"


def test_the_environment_is_the_given_one_alone(supervisor: Supervisor, tmp_path: Path) -> None:
    out = run_to_file(supervisor, ["env"], tmp_path / "out")
    assert [line.partition("=")[0] for line in out.splitlines()] == ["PATH"]


def test_without_a_directory_it_starts_in_that_of_the_host(
    supervisor: Supervisor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_to_file(supervisor, ["pwd"], tmp_path / "out") == f"{tmp_path}\n"


def test_standard_streams_default_to_the_null_device(supervisor: Supervisor) -> None:
    program = "import os; n = os.stat('/dev/null').st_rdev; print('x'); assert os.read(0, 1) == b''; "
    program += "raise SystemExit(0 if all(os.fstat(i).st_rdev == n for i in range(3)) else 7)"
    assert python(supervisor, program).wait(PATIENCE_SECONDS) == 0


def test_a_large_environment_and_a_long_argument_arrive_whole(supervisor: Supervisor) -> None:
    environment = {**ENV, **{f"V{i}": "x" * 10_000 for i in range(60)}}
    program = "import os, sys; raise SystemExit(os.environ['V59'] != 'x' * 10_000 or len(sys.argv[1]) != 100_000)"
    assert python(supervisor, program, "y" * 100_000, env=environment).wait(PATIENCE_SECONDS) == 0


def test_only_the_named_descriptors_reach_the_process(supervisor: Supervisor, tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    host_only = os.open(tmp_path / "a", os.O_RDONLY)
    os.set_inheritable(host_only, True)
    named = os.open(tmp_path / "a", os.O_RDONLY)
    program = """
import os
def is_open(number):
    try:
        return bool(os.fstat(number))
    except OSError:
        return False
print([number for number in range(1024) if is_open(number)])
"""
    try:
        listing = run_to_file(
            supervisor,
            [sys.executable, "-I", "-S", "-c", program],
            tmp_path / "out",
            pass_fds={9: named},
        )
    finally:
        os.close(host_only)
        os.close(named)
    assert listing == "[0, 1, 2, 9]\n"


def test_descriptors_land_on_their_numbers_also_when_those_are_swapped(supervisor: Supervisor, tmp_path: Path) -> None:
    descriptors = []
    for name in ("three", "four", "five"):
        (tmp_path / name).write_text(name)
        descriptors.append(os.open(tmp_path / name, os.O_RDONLY))
    try:
        out = run_to_file(
            supervisor,
            ["sh", "-c", "cat <&3; cat <&4; cat <&5"],
            tmp_path / "out",
            pass_fds=dict(zip((5, 3, 4), descriptors, strict=True)),
        )
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
    assert out == "fourfivethree"


def test_signals_are_back_at_their_defaults_in_the_process(supervisor: Supervisor, tmp_path: Path) -> None:
    out = run_to_file(supervisor, ["grep", "-E", "^Sig(Blk|Ign):", "/proc/self/status"], tmp_path / "out")
    blocked, ignored = (int(word, 16) for word in out.split()[1::2])
    # Without those that the C library keeps for itself, which no program can set.
    usable = sum(1 << (number - 1) for number in signal.valid_signals())
    assert (blocked & usable, ignored & usable) == (0, 0)
    pipe = supervisor.start(["sh", "-c", "kill -PIPE $$"], env=ENV)
    assert pipe.wait(PATIENCE_SECONDS) == -signal.SIGPIPE


def test_the_process_leads_a_session_of_its_own(supervisor: Supervisor) -> None:
    child = supervisor.start(["sleep", "60"], env=ENV)
    assert os.getsid(child.pid) == os.getpgid(child.pid) == child.pid


@pytest.mark.parametrize(
    ("argv", "cwd", "code"),
    [
        (["no-such-program-here"], None, errno.ENOENT),
        (["/no/such/program"], None, errno.ENOENT),
        (["/etc/passwd"], None, errno.EACCES),
        (["/"], None, errno.EACCES),
        (["true"], "/no/such/directory", errno.ENOENT),
        (["sh", "x" * 200_000], None, errno.E2BIG),
    ],
)
def test_a_failed_exec_raises_with_its_errno(
    supervisor: Supervisor, argv: list[str], cwd: str | None, code: int
) -> None:
    with pytest.raises(OSError) as caught:  # noqa: PT011 (the errno is what counts)
        supervisor.start(argv, env=ENV, cwd=cwd)
    assert caught.value.errno == code
    assert caught.value.filename == (cwd or argv[0])


def test_a_failed_start_leaves_the_supervisor_usable(supervisor: Supervisor) -> None:
    with pytest.raises(FileNotFoundError):
        supervisor.start(["no-such-program-here"], env=ENV)
    assert supervisor.start(["true"], env=ENV).wait(PATIENCE_SECONDS) == 0


@pytest.mark.parametrize("argv", [[], [""], ["sh", "a\0b"]])
def test_arguments_that_no_process_can_receive_are_refused(supervisor: Supervisor, argv: list[str]) -> None:
    with pytest.raises(ValueError, match=r"argv is empty|zero byte"):
        supervisor.start(argv, env=ENV)


def test_a_closed_descriptor_is_refused_and_harms_nothing(supervisor: Supervisor) -> None:
    running = supervisor.start(["sleep", "60"], env=ENV)
    with pytest.raises(OSError) as caught:  # noqa: PT011 (the errno is what counts)
        supervisor.start(["true"], env=ENV, stdout=987)
    assert caught.value.errno == errno.EBADF
    assert running.returncode is None
    assert supervisor.start(["true"], env=ENV).wait(PATIENCE_SECONDS) == 0


def test_wait_answers_none_while_it_runs_and_then_the_exit_code(supervisor: Supervisor) -> None:
    reader, writer = os.pipe()
    try:
        child = supervisor.start(["sh", "-c", "read line; exit 3"], env=ENV, stdin=reader)
        assert child.wait(0.05) is None
        os.write(writer, b"go\n")
        assert child.wait(PATIENCE_SECONDS) == 3
        assert child.wait(None) == 3
    finally:
        os.close(reader)
        os.close(writer)


def test_a_signal_is_told_as_a_negative_number(supervisor: Supervisor) -> None:
    child = supervisor.start(["sh", "-c", "kill -SEGV $$"], env=ENV)
    assert child.wait(PATIENCE_SECONDS) == -signal.SIGSEGV


def test_the_descriptor_is_readable_from_the_end_of_the_process_on(supervisor: Supervisor) -> None:
    child = supervisor.start(["sleep", "60"], env=ENV)
    assert select.select([child], [], [], 0.05)[0] == []
    os.kill(child.pid, signal.SIGTERM)
    assert select.select([child], [], [], PATIENCE_SECONDS)[0] == [child]
    assert child.wait(0) == -signal.SIGTERM
    assert select.select([child], [], [], 0)[0] == [child]
    child.kill_tree()
    assert select.select([child], [], [], 0)[0] == [child]


def test_terminate_returns_what_a_clean_exit_said(supervisor: Supervisor, tmp_path: Path) -> None:
    program = "trap 'exit 5' TERM; echo $$ > $1; while :; do sleep 0.02; done"
    child = supervisor.start(["sh", "-c", program, "sh", str(tmp_path / "pid")], env=ENV)
    read_until(tmp_path / "pid", 1)
    assert child.terminate(grace_seconds=PATIENCE_SECONDS) == 5


def test_terminate_kills_what_ignores_sigterm(supervisor: Supervisor, tmp_path: Path) -> None:
    program = "trap '' TERM; echo $$ > $1; while :; do sleep 60; done"
    child = supervisor.start(["sh", "-c", program, "sh", str(tmp_path / "pid")], env=ENV)
    read_until(tmp_path / "pid", 1)
    assert child.terminate(grace_seconds=0.1) == -signal.SIGKILL
    assert child.survivors == 0


def test_terminate_reaches_a_stopped_process(supervisor: Supervisor) -> None:
    child = supervisor.start(["sleep", "60"], env=ENV)
    os.kill(child.pid, signal.SIGSTOP)
    assert child.terminate(grace_seconds=PATIENCE_SECONDS) == -signal.SIGTERM


def test_terminate_asks_descendants_in_other_sessions_too(supervisor: Supervisor, tmp_path: Path) -> None:
    program = """
import os, sys, time, signal
def leave(*_):
    open(sys.argv[2], "w").write("bye")
    os._exit(0)
if os.fork() == 0:
    os.setsid()
    signal.signal(signal.SIGTERM, leave)
    open(sys.argv[1], "w").write(f"{os.getpid()}\\n")
    time.sleep(600)
os.wait()
"""
    child = python(supervisor, program, str(tmp_path / "pids"), str(tmp_path / "said"))
    read_until(tmp_path / "pids", 1)
    child.terminate(grace_seconds=PATIENCE_SECONDS)
    assert (tmp_path / "said").read_text() == "bye"


def test_a_double_fork_with_setsid_does_not_escape(supervisor: Supervisor, tmp_path: Path) -> None:
    program = """
import os, sys, time, signal
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        open(sys.argv[1], "w").write(f"{os.getpid()}\\n")
        time.sleep(600)
    os._exit(0)
os.wait()
"""
    child = python(supervisor, program, str(tmp_path / "pids"))
    [escaped] = read_until(tmp_path / "pids", 1)
    assert child.wait(PATIENCE_SECONDS) == 0
    assert child.stragglers() == [escaped]
    assert child.terminate(grace_seconds=0.05) == 0
    assert not is_alive(escaped)


def test_the_end_is_seen_while_a_grandchild_holds_stdout(supervisor: Supervisor) -> None:
    reader, writer = os.pipe()
    child = supervisor.start(["sh", "-c", "setsid sleep 600 & exit 4"], env=ENV, stdout=writer)
    os.close(writer)
    try:
        assert child.wait(PATIENCE_SECONDS) == 4
        assert select.select([reader], [], [], 0.05)[0] == []
        child.kill_tree()
        assert os.read(reader, 1) == b""
    finally:
        os.close(reader)


def test_a_thousand_descendants_end_with_their_process(supervisor: Supervisor, tmp_path: Path) -> None:
    program = """
import os, sys, time
for i in range(1000):
    if os.fork() == 0:
        if i % 2: os.setsid()
        time.sleep(600)
        os._exit(0)
open(sys.argv[1], "w").write(f"{os.getpid()}\\n")
time.sleep(600)
"""
    child = python(supervisor, program, str(tmp_path / "pid"))
    read_until(tmp_path / "pid", 1)
    tree = child.stragglers()
    assert len(tree) == 1000
    assert child.kill_tree() == -signal.SIGKILL
    assert child.survivors == 0
    assert not [pid for pid in tree if is_alive(pid)]


@pytest.mark.parametrize("session", ["", "os.setsid()"])
def test_processes_that_fork_and_exit_without_end_are_caught(
    supervisor: Supervisor, tmp_path: Path, session: str
) -> None:
    program = f"""
import os, sys, time, signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
out = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
end = time.monotonic() + 60
for _ in range(2):
    if os.fork() == 0:
        while time.monotonic() < end:
            if os.fork():
                os._exit(0)
            {session or "pass"}
            os.write(out, b"%d\\n" % os.getpid())
        os._exit(0)
time.sleep(600)
"""
    child = python(supervisor, program, str(tmp_path / "pids"))
    read_until(tmp_path / "pids", 20)
    assert child.terminate(grace_seconds=0.1) == -signal.SIGKILL
    assert child.survivors == 0
    size = (tmp_path / "pids").stat().st_size
    time.sleep(0.1)
    assert (tmp_path / "pids").stat().st_size == size


def test_two_trees_are_apart(supervisor: Supervisor) -> None:
    first = supervisor.start(["sh", "-c", "sleep 600 & wait"], env=ENV)
    second = supervisor.start(["sh", "-c", "sleep 600 & wait"], env=ENV)
    first.kill_tree()
    assert second.wait(0.05) is None
    assert is_alive(second.pid)


def test_ending_a_tree_again_answers_the_same(supervisor: Supervisor) -> None:
    child = supervisor.start(["sh", "-c", "exit 3"], env=ENV)
    assert child.wait(PATIENCE_SECONDS) == 3
    assert [child.kill_tree(), child.terminate(grace_seconds=0), child.kill_tree()] == [3, 3, 3]


def test_a_closed_child_still_tells_how_it_ended(supervisor: Supervisor) -> None:
    with supervisor.start(["sleep", "60"], env=ENV) as child:
        pass
    assert child.returncode == child.wait(None) == -signal.SIGKILL


def test_closing_the_supervisor_ends_every_tree() -> None:
    with Supervisor() as supervisor:
        children = [supervisor.start(["sh", "-c", "setsid sleep 600 & sleep 600"], env=ENV) for _ in range(3)]
        pids = [pid for child in children for pid in [child.pid, *child.stragglers()]]
    assert [child.wait(0) for child in children] == [-signal.SIGKILL] * 3
    assert not [pid for pid in pids if is_alive(pid)]
    supervisor.close()


def test_nothing_is_started_through_a_closed_supervisor() -> None:
    with Supervisor() as supervisor:
        pass
    with pytest.raises(ValueError, match="closed"):
        supervisor.start(["true"], env=ENV)


def test_many_threads_may_start_at_once(supervisor: Supervisor) -> None:
    codes: dict[int, int | None] = {}

    def start(number: int) -> None:
        child = supervisor.start(["sh", "-c", f"exit {number}"], env=ENV)
        codes[number] = child.wait(PATIENCE_SECONDS)

    threads = [threading.Thread(target=start, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert codes == {number: number for number in range(16)}


def test_the_host_keeps_no_descriptor_of_ended_children(supervisor: Supervisor) -> None:
    supervisor.start(["true"], env=ENV).kill_tree()
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        supervisor.start(["true"], env=ENV).kill_tree()
    assert len(os.listdir("/proc/self/fd")) == before


def test_signals_of_the_terminal_do_not_reach_the_supervisor(supervisor: Supervisor) -> None:
    child = supervisor.start(["sleep", "60"], env=ENV)
    for pid in (supervisor._process.pid, child._keeper):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            os.kill(pid, number)
    assert os.getsid(supervisor._process.pid) != os.getsid(0)
    assert child.wait(0.1) is None
    assert supervisor.start(["true"], env=ENV).wait(PATIENCE_SECONDS) == 0


def test_a_job_that_kills_its_keeper_is_ended_by_the_supervisor(supervisor: Supervisor) -> None:
    reader, writer = os.pipe()
    child = supervisor.start(
        ["sh", "-c", "setsid sleep 600 & read line; kill -KILL $PPID; sleep 600"], env=ENV, stdin=reader
    )
    os.write(writer, b"go\n")
    os.close(reader)
    os.close(writer)
    assert child.wait(PATIENCE_SECONDS) == -signal.SIGKILL
    child.kill_tree()
    assert child.survivors == 0
    assert not is_alive(child.pid)
    assert supervisor.start(["true"], env=ENV).wait(PATIENCE_SECONDS) == 0


def test_a_job_that_kills_its_keeper_at_once_was_not_started(supervisor: Supervisor, tmp_path: Path) -> None:
    program = "echo $$ > $1; kill -KILL $PPID; sleep 600"
    with contextlib.suppress(ChildProcessError):  # or the word of its start came first
        child = supervisor.start(["sh", "-c", program, "sh", str(tmp_path / "pid")], env=ENV)
        child.wait(PATIENCE_SECONDS)
        child.kill_tree()
    assert not [pid for pid in read_until(tmp_path / "pid", 1) if is_alive(pid)]
    assert supervisor.start(["true"], env=ENV).wait(PATIENCE_SECONDS) == 0


def test_when_the_supervisor_is_killed_every_job_ends_and_the_error_says_so() -> None:
    with Supervisor() as supervisor:
        child = supervisor.start(["sh", "-c", "setsid sleep 600 & sleep 600"], env=ENV)
        os.kill(supervisor._process.pid, signal.SIGKILL)
        assert child.wait(PATIENCE_SECONDS) == -signal.SIGKILL
        assert child.kill_tree() == -signal.SIGKILL
        with pytest.raises(SupervisorLostError, match="ended unexpectedly"):
            supervisor.start(["true"], env=ENV)


def test_a_keeper_stopped_by_its_job_does_not_keep_the_tree_alive(
    supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evopolicygym.process.supervisor.KEEPER_WAIT_SECONDS", 0.5)
    child = supervisor.start(["sleep", "600"], env=ENV)
    os.kill(child._keeper, signal.SIGSTOP)
    os.kill(supervisor._process.pid, signal.SIGSTOP)
    assert child.kill_tree() == -signal.SIGKILL
    assert not is_alive(child.pid)


HOST = """
import os, sys, time
from evopolicygym.process import Supervisor
supervisor = Supervisor()
child = supervisor.start(
    ["sh", "-c", "trap '' TERM; setsid sh -c 'echo $$ >> $0; sleep 600' $0 & echo $$ >> $0; sleep 600", sys.argv[1]],
    env=dict(os.environ),
)
if "fork" in sys.argv and os.fork() == 0:
    os.close(1)
    time.sleep(600)  # holds copies of all sockets
print(supervisor._process.pid, child._keeper, flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.parametrize("more", [[], ["fork"]])
def test_everything_ends_with_a_host_that_is_killed(tmp_path: Path, ending: signal.Signals, more: list[str]) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOST, str(tmp_path / "pids"), *more],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as host:
        assert host.stdout is not None
        ours = [int(pid) for pid in host.stdout.readline().split()]
        jobs = read_until(tmp_path / "pids", 2)
        host.send_signal(ending)
        host.wait(PATIENCE_SECONDS)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while [pid for pid in ours + jobs if is_alive(pid)] and time.monotonic() < deadline:
            time.sleep(0.01)
        left = [pid for pid in ours + jobs if is_alive(pid)]
        if more:
            os.killpg(host.pid, signal.SIGKILL)
    assert left == []


def test_it_works_with_few_descriptors() -> None:
    program = """
import os, resource
resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))
from evopolicygym.process import Supervisor
with Supervisor() as supervisor:
    children = [supervisor.start(["sleep", "600"], env=dict(os.environ)) for _ in range(60)]
    for child in children[:30]:
        child.terminate(grace_seconds=5)
    assert [child.returncode for child in children] == [-15] * 30 + [None] * 30
assert [child.returncode for child in children] == [-15] * 30 + [-9] * 30
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_return_codes_are_described_in_words() -> None:
    assert describe_returncode(0) == "exit code 0"
    assert describe_returncode(3) == "exit code 3"
    assert describe_returncode(-9) == "killed by SIGKILL"
    assert describe_returncode(-40) == "killed by signal 40"


def test_a_supervisor_that_cannot_be_started_is_named() -> None:
    script = (
        "import os, resource; from evopolicygym.process import Supervisor\n"
        "free = os.dup(0); os.close(free)\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (free + 2, free + 2))\n"
        "try: Supervisor()\n"
        "except OSError as error: print(error.strerror)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("the supervisor process cannot be started: Too many open files\n", "")
