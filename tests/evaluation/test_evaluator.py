"""The Evaluator: same results however Episodes are run, and trusted faults told apart from Policy failures."""

import math
import os
import signal
import threading
import time
from pathlib import Path

import pytest
from benchmarks_for_tests import (
    ALWAYS_ONE,
    EchoBenchmark,
    FaultyBenchmark,
    GlobalRandomBenchmark,
    HostBenchmark,
    NumpyRandomBenchmark,
    ShowingBenchmark,
    StatefulBenchmark,
    UnpicklableBenchmark,
    WalkBenchmark,
    acting,
    program,
)

from evopolicygym.authoring import Benchmark
from evopolicygym.errors import BenchmarkError, EvaluationError
from evopolicygym.evaluation import (
    Cancellation,
    EpisodeCompleted,
    Evaluation,
    EvaluationCancelled,
    EvaluationConfig,
    Evaluator,
    evaluate,
    plan_episodes,
)
from evopolicygym.execution import PolicyLaunch, ProcessExecution
from evopolicygym.policy import TensorValue
from evopolicygym.process import Supervisor

RANDOM_POLICY = acting(
    "self.calls += 1\nreturn random.random() + numpy.random.random() + self.own.random() + self.calls",
    before="import random\nimport numpy",
    setup="self.calls = 0\nself.own = random.Random(context.policy_seed)",
)
RANDOM_WALKER = acting("return random.choice((-1, 0, 1))", before="import random")


def run(
    benchmark: Benchmark,
    source: str,
    directory: Path,
    *,
    workers: int = 2,
    episodes: int = 6,
    seconds: float = 30.0,
    fork: bool = True,
    **further: object,
) -> Evaluation:
    execution = ProcessExecution.unsafe(workers=workers)
    execution.launch = PolicyLaunch(fork=fork)
    plan = plan_episodes(benchmark, split="train", master_seed=7, count=episodes)
    with Evaluator(benchmark, execution, episode_timeout_seconds=seconds, **further) as evaluator:
        return evaluator.evaluate(program(directory, source), plan)


@pytest.mark.parametrize(
    ("benchmark", "source"),
    [
        (GlobalRandomBenchmark(), RANDOM_POLICY),
        (NumpyRandomBenchmark(), RANDOM_POLICY),
        (WalkBenchmark(), RANDOM_WALKER),
    ],
    ids=["global-random", "numpy-random", "walk"],
)
def test_results_do_not_depend_on_how_episodes_are_run(tmp_path: Path, benchmark: Benchmark, source: str) -> None:
    ways = [(0, True), (1, True), (2, True), (8, True), (2, False), (2, True)]
    results = [
        run(benchmark, source, tmp_path / str(number), workers=workers, fork=fork)
        for number, (workers, fork) in enumerate(ways)
    ]
    assert all(episode.failure is None for episode in results[0].episodes)
    assert len(set(results[0].feedback.content["returns"])) == 6
    for result in results[1:]:
        assert result.episodes == results[0].episodes
        assert result.feedback == results[0].feedback


def test_evaluate_gives_the_whole_result(tmp_path: Path) -> None:
    benchmark = EchoBenchmark()
    one = program(tmp_path / "program", ALWAYS_ONE)
    result = evaluate(one, benchmark, execution=ProcessExecution.unsafe(workers=1), config=EvaluationConfig(episodes=3))
    assert (result.benchmark_id, result.program_digest) == ("test/echo", one.digest)
    assert result.environment_digest == benchmark.spec.environment_digest
    assert result.feedback.score == 5.0
    assert [(episode.status, episode.reward, episode.steps) for episode in result.episodes] == [
        ("completed", 5.0, 5)
    ] * 3


@pytest.mark.parametrize("wrong", [None, "unsafe-process", ProcessExecution, ProcessExecution.unsafe])
def test_what_is_no_execution_is_a_type_error(tmp_path: Path, wrong: object) -> None:
    submitted = program(tmp_path / "program", ALWAYS_ONE)
    with pytest.raises(TypeError, match=r"execution must be ProcessExecution\.unsafe\(\) or SandboxExecution\(\)"):
        evaluate(submitted, EchoBenchmark(), execution=wrong)  # type: ignore[arg-type]  # on purpose


def test_evaluate_works_in_a_script_without_a_main_guard(tmp_path: Path) -> None:
    import subprocess
    import sys

    program(tmp_path / "program", ALWAYS_ONE)
    script = f"""
from benchmarks_for_tests import EchoBenchmark
from evopolicygym import Program, evaluate
from evopolicygym.execution import ProcessExecution

class Mine(EchoBenchmark):
    pass

program = Program.from_directory({str(tmp_path / "program")!r})
print(evaluate(program, Mine(), execution=ProcessExecution.unsafe()).feedback.score)
"""
    # The script comes through standard input, so that no worker could import it.
    done = subprocess.run(
        [sys.executable, "-"],
        input=script,
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
        check=False,
    )
    assert (done.stdout, done.stderr) == ("5.0\n", "")


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    ("where", "how", "told"),
    [
        ("make", "raise", r"make_environment\(\) raised RuntimeError: the simulator is broken"),
        ("make", "exit", r"make_environment\(\) raised SystemExit: 3"),
        ("reset", "raise", r"reset\(\) raised RuntimeError: the simulator is broken"),
        ("reset", "wrong", r"reset\(\) must return a PolicyValue: value: object is not a PolicyValue"),
        ("step", "raise", r"step\(\) raised RuntimeError: the simulator is broken"),
        ("step", "wrong", r"step\(\) must return a Step, not str"),
        ("step", "exit", r"step\(\) raised SystemExit: 3"),
        ("close", "raise", r"close\(\) raised RuntimeError: the simulator is broken"),
        ("feedback", "raise", r"feedback\(\) raised RuntimeError: feedback is broken"),
        ("feedback", "exit", r"feedback\(\) raised SystemExit: no more feedback"),
        ("feedback", "wrong", r"feedback\(\) must return Feedback, not str"),
        ("never", "endless", r"goes on after the 5 steps"),
    ],
)
def test_a_trusted_fault_ends_the_evaluation_with_its_reason(
    tmp_path: Path, workers: int, where: str, how: str, told: str
) -> None:
    benchmark = FaultyBenchmark(where, how, position=2)
    with pytest.raises(EvaluationError, match=told):
        run(benchmark, ALWAYS_ONE, tmp_path / "program", workers=workers)


@pytest.mark.parametrize("where", ["make", "reset", "step", "close"])
def test_a_worker_that_dies_is_named_with_its_signal_and_last_words(tmp_path: Path, where: str) -> None:
    with pytest.raises(EvaluationError, match=r"killed by SIGSEGV(?s:.*)last words of a simulator"):
        run(FaultyBenchmark(where, "segfault", position=1), ALWAYS_ONE, tmp_path / "program")


@pytest.mark.parametrize(("workers", "how"), [(0, "doze"), (1, "hang")])
def test_an_environment_that_hangs_ends_the_evaluation(tmp_path: Path, workers: int, how: str) -> None:
    with pytest.raises(EvaluationError, match=r"did not return within 0\.5 s"):
        run(
            FaultyBenchmark("step", how),
            ALWAYS_ONE,
            tmp_path / "program",
            workers=workers,
            environment_timeout_seconds=0.5,
        )


@pytest.mark.parametrize("workers", [0, 1])
def test_a_slow_environment_costs_the_policy_nothing(tmp_path: Path, workers: int) -> None:
    evaluation = run(
        FaultyBenchmark("step", "wait", steps=2),
        ALWAYS_ONE,
        tmp_path / "program",
        workers=workers,
        episodes=1,
        seconds=0.5,
    )
    assert evaluation.episodes[0].failure is None


def test_the_time_limit_is_for_a_whole_episode_not_for_each_step(tmp_path: Path) -> None:
    slow = acting("time.sleep(0.2)\nreturn 1", before="import time")
    evaluation = run(EchoBenchmark(steps=50), slow, tmp_path / "program", workers=1, episodes=1, seconds=1.0)
    assert evaluation.episodes[0].failure == "timeout"
    assert 2 <= evaluation.episodes[0].steps <= 5


def test_an_evaluator_goes_on_after_a_fault(tmp_path: Path) -> None:
    benchmark = FaultyBenchmark("step", "segfault", position=3)
    one = program(tmp_path / "program", ALWAYS_ONE)
    plan = plan_episodes(benchmark, split="train", master_seed=1, count=4)
    with Evaluator(benchmark, ProcessExecution.unsafe(workers=2), episode_timeout_seconds=30) as evaluator:
        with pytest.raises(EvaluationError):
            evaluator.evaluate(one, plan)
        assert [episode.failure for episode in evaluator.evaluate(one, plan[:3]).episodes] == [None] * 3


def test_observations_of_every_size_and_kind_arrive_in_turn(tmp_path: Path) -> None:
    def tensor(fill: int, *shape: int) -> TensorValue:
        return TensorValue("uint8", shape, bytes([fill]) * math.prod(shape))

    shown: list[object] = [
        *(1, tensor(1, 100, 100), tensor(2, 100, 100), tensor(3, 100, 100), "small"),
        *(tensor(4, 10_000), tensor(5, 10_000), tensor(6, 5), tensor(7, 10_000), [tensor(8, 10_000)]),
        *(tensor(9, 300, 300), tensor(10, 300, 300), "x" * 100_000, b"y" * 511, b"y" * 2000, [0.5] * 4),
        *(tensor(11, 1500, 1000), tensor(12, 1500, 1000), tensor(13, 1000, 1500), None, tensor(14, 2000, 2000)),
    ]
    answering = acting("return hashlib.sha256(repr(observation).encode()).hexdigest()", before="import hashlib")
    evaluation = run(ShowingBenchmark(shown), answering, tmp_path / "program", workers=1, episodes=2)
    assert [(episode.failure, episode.steps) for episode in evaluation.episodes] == [(None, len(shown))] * 2


def test_episodes_are_told_as_they_complete(tmp_path: Path) -> None:
    told: list[EpisodeCompleted] = []
    plan = plan_episodes(EchoBenchmark(), split="train", master_seed=1, count=5)
    with Evaluator(EchoBenchmark(), ProcessExecution.unsafe(workers=2), episode_timeout_seconds=30) as evaluator:
        evaluation = evaluator.evaluate(program(tmp_path / "program", ALWAYS_ONE), plan, on_episode=told.append)
    assert sorted(completed.position for completed in told) == [0, 1, 2, 3, 4]
    assert all(completed.summary == evaluation.episodes[completed.position] for completed in told)


@pytest.mark.parametrize("workers", [0, 2])
def test_cancelling_ends_an_evaluation_and_the_next_one_runs(tmp_path: Path, workers: int) -> None:
    sleeping = program(tmp_path / "sleeping", acting("time.sleep(600)", before="import time"))
    one = program(tmp_path / "one", ALWAYS_ONE)
    plan = plan_episodes(EchoBenchmark(), split="train", master_seed=1, count=3)
    with (
        Cancellation() as cancellation,
        Evaluator(EchoBenchmark(), ProcessExecution.unsafe(workers=workers), episode_timeout_seconds=60) as evaluator,
    ):
        timer = threading.Timer(0.5, cancellation.cancel)
        timer.start()
        with pytest.raises(EvaluationCancelled):
            evaluator.evaluate(sleeping, plan, cancellation=cancellation)
        timer.join()
        assert evaluator.evaluate(one, plan).feedback.score == 5.0


def test_a_worker_killed_from_outside_ends_the_evaluation(tmp_path: Path) -> None:
    sleeping = acting("time.sleep(600)", before="import time")
    plan = plan_episodes(EchoBenchmark(), split="train", master_seed=1, count=2)
    with (
        Supervisor() as supervisor,
        Evaluator(
            EchoBenchmark(),
            ProcessExecution.unsafe(workers=2),
            episode_timeout_seconds=60,
            supervisor=supervisor,
        ) as evaluator,
    ):

        def kill_a_worker() -> None:
            deadline = time.monotonic() + 30
            while time.monotonic() < deadline:
                for pid in _workers():
                    time.sleep(1.0)
                    os.kill(pid, signal.SIGKILL)
                    return
                time.sleep(0.05)

        killer = threading.Thread(target=kill_a_worker)
        killer.start()
        with pytest.raises(EvaluationError, match="killed by SIGKILL"):
            evaluator.evaluate(program(tmp_path / "program", sleeping), plan)
        killer.join()


def _workers() -> list[int]:
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                command = (process / "cmdline").read_bytes()
            except OSError:
                continue
            if b"evopolicygym.evaluation.worker" in command and _descends_from(int(process.name), os.getpid()):
                found.append(int(process.name))
    return found


def _descends_from(pid: int, ancestor: int) -> bool:
    while pid > 1:
        if pid == ancestor:
            return True
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
        except OSError:
            return False
    return False


def test_a_benchmark_that_asks_for_the_host_process_gets_it(tmp_path: Path) -> None:
    assert run(HostBenchmark(), ALWAYS_ONE, tmp_path / "program", workers=2).feedback.score == 1.0


@pytest.mark.parametrize(
    ("benchmark", "reason"),
    [(StatefulBenchmark(), r"keeps state in it \(changed: made\)"), (UnpicklableBenchmark(), "cannot be pickled")],
)
def test_a_benchmark_that_cannot_live_in_a_worker_moves_to_the_host_with_a_notice(
    tmp_path: Path, benchmark: Benchmark, reason: str
) -> None:
    notices: list[str] = []
    told: list[int] = []
    plan = plan_episodes(benchmark, split="train", master_seed=1, count=4)
    one = program(tmp_path / "program", ALWAYS_ONE)
    with Evaluator(
        benchmark, ProcessExecution.unsafe(workers=2), episode_timeout_seconds=30, on_notice=notices.append
    ) as evaluator:
        first = evaluator.evaluate(one, plan, on_episode=lambda completed: told.append(completed.position))
        evaluator.evaluate(one, plan)
        assert evaluator.facts["environment_process"] == "host"
    assert first.feedback.score == (4.0 if isinstance(benchmark, StatefulBenchmark) else 5.0)
    assert sorted(told) == [0, 1, 2, 3]
    assert len(notices) == 1
    import re

    assert re.search(reason, notices[0])


def test_the_callers_random_generators_are_left_alone(tmp_path: Path) -> None:
    import random

    random.seed(1)
    expected = random.random()
    random.seed(1)
    run(GlobalRandomBenchmark(), RANDOM_POLICY, tmp_path / "program", workers=0)
    assert random.random() == expected


def test_facts_say_how_episodes_are_run(tmp_path: Path) -> None:
    plan = plan_episodes(EchoBenchmark(), split="train", master_seed=1, count=2)
    with Evaluator(EchoBenchmark(), ProcessExecution.unsafe(workers=1), episode_timeout_seconds=30) as evaluator:
        evaluator.evaluate(program(tmp_path / "program", ALWAYS_ONE), plan)
        facts = evaluator.facts
    assert (facts["execution"], facts["workers"], facts["environment_process"]) == ("unsafe-process", 1, "worker")
    assert isinstance(facts["pinned"], bool)


def test_an_unknown_split_is_a_benchmark_error(tmp_path: Path) -> None:
    with pytest.raises(BenchmarkError, match=r"episodes\('nowhere', count=1\) raised ValueError: unknown split"):
        evaluate(
            program(tmp_path / "program", ALWAYS_ONE),
            EchoBenchmark(),
            execution=ProcessExecution.unsafe(workers=0),
            config=EvaluationConfig(split="nowhere"),
        )


def test_many_episodes_run_where_few_descriptors_may_be_open(tmp_path: Path) -> None:
    import resource

    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (128, limits[1]))
    try:
        evaluation = run(EchoBenchmark(), ALWAYS_ONE, tmp_path / "program", workers=4, episodes=150)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert evaluation.feedback.score == 5.0
