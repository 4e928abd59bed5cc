"""What a hostile Policy may do in a sandbox: nothing that reaches the machine, the Host or another Episode."""

import dataclasses
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import sandbox_attempts
from benchmarks_for_tests import EchoBenchmark, acting, program

from evopolicygym.authoring import EpisodeRecord, EpisodeSpec, Feedback
from evopolicygym.evaluation import Evaluation, Evaluator, PlannedEpisode
from evopolicygym.evaluation.evaluator import Execution
from evopolicygym.execution import PolicyLimits, ProcessExecution, SandboxExecution
from evopolicygym.execution.sandbox_launch import SandboxLaunch
from evopolicygym.program import Program

ATTEMPTS = {**sandbox_attempts.OF_BOTH, **sandbox_attempts.OF_POLICIES}

# Small, so that whoever reaches them does so quickly.
LIMITS = PolicyLimits(memory_bytes=1 << 30, processes=32, scratch_bytes=32 << 20, file_bytes=16 << 20, cpu_seconds=60)

SMALL = dataclasses.replace(LIMITS, memory_bytes=256 << 20)


class WatchedSandbox(SandboxExecution):
    """The sandbox as it is where no control groups can be made."""

    def launch_for(self, benchmark: object) -> SandboxLaunch:
        return dataclasses.replace(super().launch_for(benchmark), control_groups=None)


class TellingBenchmark(EchoBenchmark):
    """Feedback tells what Policies did in their first step."""

    def feedback(self, records: Sequence[EpisodeRecord]) -> Feedback:
        told = [record.transitions[0].action if record.transitions else None for record in records]
        return Feedback(0.0, told)


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, object]]:
    """What there is on the Host, for Policies to look for."""
    with sandbox_attempts.host_facts(tmp_path_factory.mktemp("host")) as found:
        yield found


def episodes(*policy_seeds: int) -> list[PlannedEpisode]:
    return [PlannedEpisode(EpisodeSpec(seed), seed) for seed in policy_seeds]


def evaluate(
    execution: Execution,
    submitted: Program,
    plan: list[PlannedEpisode],
    seconds: float = 20.0,
) -> Evaluation:
    with Evaluator(TellingBenchmark(steps=1), execution, episode_timeout_seconds=seconds) as evaluator:
        return evaluator.evaluate(submitted, plan)


def attempting(folder: Path, attempts: dict[str, str], facts: dict[str, object]) -> Program:
    """A Program whose Policy makes the attempt of its seed, and acts with what came of it."""
    body = "return list(attempted(ATTEMPTS[self.context.policy_seed]))"
    return program(folder, acting(body, before=sandbox_attempts.source(attempts, facts)))


def made(execution: Execution, folder: Path, attempts: dict[str, str], facts: dict[str, object]) -> dict[str, str]:
    """What came of each attempt, in an Episode of its own each; how the Episode ended where nothing came of it."""
    evaluation = evaluate(execution, attempting(folder, attempts, facts), episodes(*range(len(attempts))), 4.0)
    told = evaluation.feedback.content
    assert isinstance(told, list)
    outcomes = {}
    for name, action, summary in zip(attempts, told, evaluation.episodes, strict=True):
        outcomes[name] = ": ".join(action) if action else f"failed: {summary.failure}"
    return outcomes


@pytest.fixture(scope="module")
def by_landlock(tmp_path_factory: pytest.TempPathFactory, facts: dict[str, object]) -> dict[str, str]:
    execution = SandboxExecution(workers=2, policy=LIMITS, hide=["target_benchmark"])
    return made(execution, tmp_path_factory.mktemp("landlock") / "program", ATTEMPTS, facts)


@pytest.fixture(scope="module")
def by_namespaces(tmp_path_factory: pytest.TempPathFactory, facts: dict[str, object]) -> dict[str, str]:
    execution = SandboxExecution(workers=2, policy=LIMITS, hide=["target_benchmark"], landlock=False)
    return made(execution, tmp_path_factory.mktemp("namespaces") / "program", ATTEMPTS, facts)


@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_a_policy_gets_nothing_by_an_attempt(attempt, by_landlock):
    assert by_landlock[attempt].startswith(("held", "failed")), by_landlock[attempt]


# The Episode's own namespace has a scratch whose parent it may write to: it goes with it.
OWN = {"writes beside its scratch"}


@pytest.mark.parametrize("attempt", [name for name in ATTEMPTS if name not in OWN])
def test_without_landlock_a_policy_gets_nothing_either(attempt, by_namespaces):
    assert by_namespaces[attempt].startswith(("held", "failed")), by_namespaces[attempt]


def test_the_attempts_succeed_where_nothing_holds_them(tmp_path, facts):
    harmless = [
        "reads a file of the caller's home",
        "reads the journal",
        "sees the Host in /proc",
        "signals the Host",
        "connects by TCP",
        "connects to an abstract socket",
        "connects to a Unix socket of the Host",
        "has a program of the system",
        "finds the source of what is hidden",
    ]
    chosen = {name: ATTEMPTS[name] for name in harmless}
    unsafe = ProcessExecution.unsafe(workers=1)
    outcomes = made(unsafe, tmp_path / "program", chosen, facts)
    assert {name: outcome.split(":")[0] for name, outcome in outcomes.items()} == dict.fromkeys(harmless, "got")


GREEDY = {name: ATTEMPTS[name] for name in ("forks without end", "starts 10^5 threads", "takes 100 GB of memory")} | {
    "takes memory in many processes": """
for _ in range(8):
    if os.fork() == 0:
        held = bytearray(80 << 20)
        for place in range(0, len(held), 4096): held[place] = 1
        time.sleep(1)
        os._exit(0)
if any([os.wait()[1] for _ in range(8)]): raise MemoryError
return 'has it all'""",
    "takes shared memory in many processes": """
import mmap
for _ in range(8):
    if os.fork() == 0:
        held = mmap.mmap(-1, 80 << 20)
        for _ in range(20): held.write(bytes(4 << 20))
        time.sleep(1)
        os._exit(0)
if any([os.wait()[1] for _ in range(8)]): raise MemoryError
return 'has it all'""",
}


def test_without_control_groups_a_greedy_policy_is_ended_and_the_next_episode_runs(tmp_path, facts):
    attempts = {**GREEDY, "behaves": "return 'well'"}
    outcomes = made(WatchedSandbox(workers=1, policy=SMALL), tmp_path / "program", attempts, facts)
    assert outcomes.pop("behaves") == "got: 'well'"
    assert all(outcome.startswith(("held", "failed: protocol_error")) for outcome in outcomes.values()), outcomes


@pytest.mark.parametrize("name", [name for name in GREEDY if name.endswith("many processes")])
def test_memory_of_many_processes_is_bounded_together(tmp_path, facts, name):
    outcomes = made(SandboxExecution(workers=1, policy=SMALL), tmp_path / "program", {name: GREEDY[name]}, facts)
    assert outcomes[name].startswith(("held: MemoryError", "failed: protocol_error")), outcomes


LEAVE = (
    f"""
PRIORITY = {os.getpriority(os.PRIO_PROCESS, 0)}  # the Host's
"""
    + """
import ctypes, fcntl, json, os, resource, signal, socket, sys, time
PLACES = ['/tmp', '/var/tmp', '/dev/shm', os.environ['TMPDIR'], os.path.dirname(os.environ['TMPDIR']),
          os.getcwd(), os.path.dirname(os.getcwd()), os.path.dirname(json.__file__), '/', '/dev',
          os.path.dirname(os.getcwd()) + '-compile']
libc = ctypes.CDLL(None, use_errno=True)

def attempt(action, *arguments):
    try:
        return action(*arguments)
    except BaseException:
        return None

def write(path):
    with open(path, 'w') as file:
        file.write('left')

def leave():
    for place in PLACES:
        attempt(write, f'{place}/left')
        attempt(os.mkdir, f'{place}/left-directory')
        attempt(os.setxattr, place, 'user.left', b'left')
        attempt(os.utime, place, (4242, 4242))
        attempt(os.chmod, place, 0o751)
    for path in ('policy.py', sys.executable, '/dev/null'):
        attempt(os.utime, path, (4242, 4242))
    for descriptor in range(3):
        attempt(os.fchmod, descriptor, 0o666)
        attempt(os.utime, descriptor, (4242, 4242))
    attempt(os.prlimit if hasattr(os, 'prlimit') else resource.prlimit, 1, resource.RLIMIT_NOFILE, (77, 77))
    attempt(os.setpriority, os.PRIO_PROCESS, 1, 5)
    attempt(os.setpriority, os.PRIO_USER, 0, 5)
    attempt(os.sched_setscheduler, 1, os.SCHED_BATCH, os.sched_param(0))
    attempt(libc.shmget, 4242, 4096, 0o1666)
    attempt(libc.msgget, 4242, 0o1666)
    attempt(libc.semget, 4242, 1, 0o1666)
    attempt(lambda: socket.socket(socket.AF_UNIX).bind('\\0left'))
    os.environ['LEFT'] = 'left'
    os.umask(0o7)
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            os.closerange(0, 64)
            time.sleep(600)
        os._exit(0)
    time.sleep(0.05)
    return 'left'

def look():
    found = []
    for place in PLACES:
        for name in ('left', 'left-directory'):
            if os.path.lexists(f'{place}/{name}'):
                found.append(f'{place}/{name}')
        if attempt(os.getxattr, place, 'user.left'):
            found.append(f'attribute of {place}')
        status = attempt(os.stat, place)
        if status is not None and (4242 in (status.st_mtime, status.st_atime) or status.st_mode & 0o777 == 0o751):
            found.append(f'times or mode of {place}')
    for path in ('policy.py', sys.executable, '/dev/null', 0, 1, 2):
        status = attempt(os.stat, path)
        if status is not None and 4242 in (status.st_mtime, status.st_atime):
            found.append(f'times of {path}')
    if resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 77:
        found.append('limit')
    if os.getpriority(os.PRIO_PROCESS, 0) != PRIORITY or os.sched_getscheduler(0) != os.SCHED_OTHER:
        found.append('priority')
    if libc.shmget(4242, 0, 0) != -1 or libc.msgget(4242, 0) != -1 or libc.semget(4242, 0, 0) != -1:
        found.append('System V')
    if attempt(lambda: socket.socket(socket.AF_UNIX).connect('\\0left') or True):
        found.append('abstract socket')
    if 'LEFT' in os.environ or os.umask(0o22) == 0o7:
        found.append('process state')
    for number in range(2, os.getpid()):
        if attempt(os.kill, number, 0) is None and alive(number):
            found.append(f'process {number}')
    for number in range(5, 1024):
        if attempt(os.fstat, number):
            found.append(f'descriptor {number}')
    return found

def alive(number):
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
"""
)


@pytest.mark.parametrize("landlock", [True, False], ids=["landlock", "namespaces"])
def test_nothing_that_an_episode_leaves_is_found_by_the_next(tmp_path, landlock):
    act = "return leave() if self.context.policy_seed == 0 else look()"
    submitted = program(tmp_path / "program", acting(act, before=LEAVE))
    execution = SandboxExecution(workers=1, policy=LIMITS, landlock=landlock)
    evaluation = evaluate(execution, submitted, episodes(0, 1, 0, 1))
    assert evaluation.feedback.content == ["left", [], "left", []], evaluation.diagnostics


def test_what_an_episode_leaves_is_found_where_nothing_isolates_it(tmp_path):
    """The search finds what there is to find."""
    act = "return [leave(), look()]"
    submitted = program(tmp_path / "program", acting(act, before=LEAVE))
    evaluation = evaluate(SandboxExecution(workers=1, policy=LIMITS), submitted, episodes(0))
    told = evaluation.feedback.content
    assert isinstance(told, list)
    assert any("episode/left" in place for place in told[0][1])
    assert "process state" in told[0][1]
    assert any(trace.startswith("process ") for trace in told[0][1][-3:])


def test_a_policy_can_use_its_scratch_the_null_device_and_processes_of_its_own(tmp_path):
    body = """
import asyncio, subprocess, sys, tempfile
with tempfile.TemporaryDirectory() as folder:
    open(folder + '/a', 'w').write('x')
    os.rename(folder + '/a', folder + '/b')
    os.mkdir(folder + '/c')
    os.rename(folder + '/b', folder + '/c/b')
    shutil.copy2(folder + '/c/b', folder + '/copy')
print('quiet', file=open(os.devnull, 'w'))
async def answer(): return 'async'
done = subprocess.run([sys.executable, '-c', 'print(1 + 1)'], capture_output=True, text=True, stdin=subprocess.DEVNULL)
return [asyncio.run(answer()), done.stdout, done.stderr, sys.stdin.read()]"""
    submitted = program(tmp_path / "program", acting(body.strip(), before="import os, shutil"))
    evaluation = evaluate(SandboxExecution(workers=1), submitted, episodes(0))
    assert evaluation.feedback.content == [["async", "2\n", "", ""]], evaluation.diagnostics


def test_results_are_the_same_as_without_a_sandbox(tmp_path):
    source = acting(
        "self.sum += observation[0]\nreturn [self.sum, random.random(), float(numpy.random.random()), helper.TWO]",
        before="import random, numpy, helper",
        setup="self.sum = 0.0",
    )
    submitted = program(tmp_path / "program", source, helper="TWO = 2")
    plan = episodes(3, 1, 4, 1, 5)
    results = []
    for execution in (
        ProcessExecution.unsafe(workers=1),
        SandboxExecution(workers=1),
        SandboxExecution(workers=2),
        SandboxExecution(workers=0),
        SandboxExecution(workers=1, landlock=False),
    ):
        with Evaluator(EchoBenchmark(steps=4), execution, episode_timeout_seconds=20) as evaluator:
            evaluation = evaluator.evaluate(submitted, plan)
        assert [summary.status for summary in evaluation.episodes] == ["completed"] * 5, evaluation.diagnostics
        results.append((evaluation.episodes, evaluation.feedback.artifacts[0].read_bytes()))
    assert results[1:] == results[:1] * 4


def test_no_control_group_is_left_behind(tmp_path):
    submitted = program(tmp_path / "program", acting("return os.environ['TMPDIR']", before="import os"))
    evaluation = evaluate(SandboxExecution(workers=1), submitted, episodes(0))
    told = evaluation.feedback.content
    assert isinstance(told, list)
    worker = Path(told[0]).parents[1]  # …/evopolicygym-run-abcd/worker-1-scratch/episode
    assert worker.name.startswith("evopolicygym-run-")
    assert [path for path in Path("/sys/fs/cgroup").glob(f"**/*{worker.name}*") if path.is_dir()] == []
