"""What Policies may do to the engine: each Episode ends with the right code, and nothing else is harmed."""

import os
import time
from pathlib import Path

import pytest
from benchmarks_for_tests import EchoBenchmark, acting, program

from evopolicygym.authoring import EpisodeSpec
from evopolicygym.evaluation import Evaluation, Evaluator, PlannedEpisode
from evopolicygym.execution import PolicyLaunch, ProcessExecution
from evopolicygym.program import Program

# What `act` does in the second step, and how the Episode ends.
BEHAVIOURS: dict[str, tuple[str, str | None]] = {
    "behaves": ("return 1", None),
    "segfaults": ("import ctypes; ctypes.string_at(0)", "protocol_error"),
    "exits with 0": ("os._exit(0)", "protocol_error"),
    "kills itself": ("os.kill(os.getpid(), 9)", "protocol_error"),
    "raises": ("raise ValueError('no idea')", "exception"),
    "raises SystemExit": ("sys.exit(0)", "exception"),
    "recurses": ("f = lambda: f()\nf()", "exception"),
    "has no memory": ("bytearray(1 << 60)", "exception"),
    "sleeps": ("time.sleep(600)", "timeout"),
    "spins in Python": ("while True: pass", "timeout"),
    "spins in a regular expression": ("re.match('(a+)+$', 'a' * 64 + 'b')", "timeout"),
    "spins in C": ("sum(range(10**12))", "timeout"),
    "ignores SIGTERM": (
        "[signal.signal(n, signal.SIG_IGN) for n in (1, 2, 13, 15)]\ntime.sleep(600)",
        "timeout",
    ),
    "closes all descriptors": ("os.closerange(0, 4096)\ntime.sleep(600)", "protocol_error"),
    "closes all descriptors and returns": ("os.closerange(0, 4096)\nreturn 1", "protocol_error"),
    "closes its output": ("sys.stdout.close()\nos.closerange(0, 3)\nreturn 1", None),
    # A length that fits, a kind that there is not: of random bytes alone some would be the beginning of a long frame.
    "writes garbage everywhere": ("everywhere(b'\\x3c\\0\\0\\0\\xee' + os.urandom(59))\nreturn 1", "protocol_error"),
    "writes a huge frame everywhere": ("everywhere(b'\\xff' * 100)\nreturn 1", "protocol_error"),
    "writes a short frame everywhere": ("everywhere(b'\\x05\\0\\0')\ntime.sleep(600)", "timeout"),
    "forges an action": ("everywhere(b'\\x02\\0\\0\\0\\x03N')\ntime.sleep(600)", "timeout"),
    "floods its output": ("while True: print('x' * 1000)", "timeout"),
    "prints": ("print('out'); print('err', file=sys.stderr)\nos.write(1, b'raw')\nreturn 1", None),
    "leaves a child": ("leave_child()\nreturn 1", None),
    "leaves a child and exits": ("leave_child()\nos._exit(0)", "protocol_error"),
    "leaves a thread": ("threading.Thread(target=time.sleep, args=(600,)).start()\nreturn 1", None),
    "becomes another program": ("os.execv('/bin/sleep', ['sleep', '600'])", "protocol_error"),
    "returns a NumPy scalar": ("import numpy\nreturn numpy.float64(1)", "protocol_error"),
    "returns NaN": ("return float('nan')", "protocol_error"),
    "returns itself": ("return self", "protocol_error"),
    "returns a cycle": ("a = []\na.append(a)\nreturn a", "protocol_error"),
    "returns 5 MB": ("return bytes(5_000_000)", "invalid_action"),
    "returns 20 MB": ("return bytes(20_000_000)", "protocol_error"),
    "returns what is refused": ("return 'refuse'", "invalid_action"),
    "kills the template": ("os.kill(os.getppid(), 9)\ntime.sleep(600)", "protocol_error"),
    "kills the template and returns": ("os.kill(os.getppid(), 9)\nreturn 1", "protocol_error"),
    "stops the template": ("os.kill(os.getppid(), signal.SIGSTOP)\nreturn 1", None),
}

HOSTILE = """
import os, re, signal, sys, threading, time

def everywhere(data):
    for descriptor in range(64):
        try:
            os.write(descriptor, data)
        except OSError:
            pass

def leave_child():
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            with open(LEFT_BEHIND, "a") as file:
                file.write(f"{os.getpid()}\\n")
        time.sleep(600)
    time.sleep(0.1)  # until the file is written
"""


def hostile_program(directory: Path, left_behind: Path) -> Program:
    methods = "\n".join(
        f"def behaviour_{number}(self):\n" + "\n".join("    " + line for line in body.split("\n"))
        for number, (body, _) in enumerate(BEHAVIOURS.values())
    )
    names = ", ".join(f"behaviour_{number}" for number in range(len(BEHAVIOURS)))
    act = "self.calls += 1\nif self.calls == 1: return 0\nreturn self.behave(self)"
    setup = f"self.calls = 0\nself.behave = [{names}][context.policy_seed % {len(BEHAVIOURS)}]"
    before = f"LEFT_BEHIND = {str(left_behind)!r}\n{HOSTILE}\n{methods}"
    return program(directory, acting(act, before=before, setup=setup))


def plan(seeds: range) -> list[PlannedEpisode]:
    return [PlannedEpisode(EpisodeSpec(seed), seed) for seed in seeds]


@pytest.fixture(params=["forked", "spawned"])
def execution(request: pytest.FixtureRequest) -> ProcessExecution:
    execution = ProcessExecution.unsafe(workers=2)
    execution.launch = PolicyLaunch(fork=request.param == "forked")
    return execution


def run(program: Program, execution: ProcessExecution, episodes: list[PlannedEpisode]) -> Evaluation:
    # A spawned process needs longer for the imports of the Program.
    seconds = 0.5 if execution.launch.fork else 1.0
    with Evaluator(EchoBenchmark(steps=3), execution, episode_timeout_seconds=seconds) as evaluator:
        return evaluator.evaluate(program, episodes)


def processes_named_in(file: Path) -> list[int]:
    return [int(line) for line in file.read_text().split()]


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_every_hostile_policy_fails_only_its_own_episode_and_leaves_nothing(
    tmp_path: Path, execution: ProcessExecution
) -> None:
    left_behind = tmp_path / "pids"
    rounds = 2 if execution.launch.fork else 1
    hostile = hostile_program(tmp_path / "program", left_behind)
    evaluation = run(hostile, execution, plan(range(rounds * len(BEHAVIOURS))))
    expected = [failure for _, failure in BEHAVIOURS.values()] * rounds
    found = {
        f"{name} ({position})": (episode.failure, evaluation.diagnostics[position].message)
        for position, (name, episode) in enumerate(zip(list(BEHAVIOURS) * rounds, evaluation.episodes, strict=True))
        if episode.failure != expected[position]
    }
    assert found == {}
    left = processes_named_in(left_behind)
    assert len(left) >= 2 * rounds
    assert not any(map(is_running, left))


@pytest.mark.parametrize(
    ("source", "failure"),
    [
        ("import time; time.sleep(600)", "timeout"),
        ("raise RuntimeError('not today')", "exception"),
        ("import os; os._exit(0)", "protocol_error"),
        ("def make_policy(context)", "exception"),
        ("x = 1", "exception"),
        ("def make_policy(context): return 3", "exception"),
        ("def make_policy(context):\n    import time\n    time.sleep(600)", "timeout"),
        ("import no_such_module", "exception"),
        ("while True: pass", "timeout"),
        ("import sys; sys.stdout = sys.stderr = None\nraise ValueError('mute')", "exception"),
    ],
)
def test_a_program_that_cannot_be_loaded_fails_every_episode(tmp_path: Path, source: str, failure: str) -> None:
    with Evaluator(EchoBenchmark(), ProcessExecution.unsafe(workers=1), episode_timeout_seconds=0.3) as evaluator:
        evaluation = evaluator.evaluate(program(tmp_path / "program", source), plan(range(2)))
    assert [episode.failure for episode in evaluation.episodes] == [failure] * 2
    assert [episode.steps for episode in evaluation.episodes] == [0, 0]


def test_a_policy_that_never_reads_its_large_observations_times_out(tmp_path: Path) -> None:
    deaf = program(tmp_path / "program", "import time\ndef make_policy(context):\n    time.sleep(600)")
    began = time.monotonic()
    with Evaluator(
        EchoBenchmark(observation=bytes(5_000_000)), ProcessExecution.unsafe(workers=1), episode_timeout_seconds=0.5
    ) as evaluator:
        evaluation = evaluator.evaluate(deaf, plan(range(3)))
    assert [episode.failure for episode in evaluation.episodes] == ["timeout"] * 3
    assert time.monotonic() - began < 30


def test_large_observations_and_actions_arrive_whole(tmp_path: Path) -> None:
    returning = program(tmp_path / "program", acting("return observation[:900_000]"))
    with Evaluator(
        EchoBenchmark(observation=bytes(range(256)) * 20_000),
        ProcessExecution.unsafe(workers=1),
        episode_timeout_seconds=20,
    ) as evaluator:
        evaluation = evaluator.evaluate(returning, plan(range(2)))
    assert [episode.failure for episode in evaluation.episodes] == [None, None]


def test_the_policy_process_gets_nothing_of_the_hosts_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "sesame")
    telling = program(tmp_path / "program", acting("return sorted(os.environ)", before="import os"))
    with Evaluator(EchoBenchmark(steps=1), ProcessExecution.unsafe(workers=1), episode_timeout_seconds=20) as evaluator:
        trace = evaluator.evaluate(telling, plan(range(1))).feedback.artifacts[0].content
    assert b"EVOPOLICYGYM_SCRATCH" in trace
    assert b"SOME_API_KEY" not in trace


def test_a_policy_process_has_no_descriptor_but_its_own(tmp_path: Path) -> None:
    listing = "\n".join(
        ("numbers = [int(name) for name in os.listdir('/proc/self/fd')]", "return [n for n in numbers if is_open(n)]")
    )
    before = """
import os
def is_open(number):
    try:
        os.fstat(number)
    except OSError:
        return False
    return True
"""
    telling = program(tmp_path / "program", acting(listing, before=before))
    with Evaluator(EchoBenchmark(steps=1), ProcessExecution.unsafe(workers=1), episode_timeout_seconds=20) as evaluator:
        trace = evaluator.evaluate(telling, plan(range(1))).feedback.artifacts[0].content
    assert b"([0, 1, 2, 3, 4], Step" in trace


def test_the_number_of_open_descriptors_stays_flat_when_every_policy_is_killed(tmp_path: Path) -> None:
    dying = program(tmp_path / "program", acting("os.kill(os.getpid(), 9)", before="import os"))
    with Evaluator(EchoBenchmark(), ProcessExecution.unsafe(workers=0), episode_timeout_seconds=20) as evaluator:
        evaluator.evaluate(dying, plan(range(3)))
        before = len(os.listdir("/proc/self/fd"))
        evaluator.evaluate(dying, plan(range(200)))
        assert len(os.listdir("/proc/self/fd")) <= before
