"""Every Episode finds the world as if it were the first, and what a Policy prints or raises is told."""

from pathlib import Path

import pytest
from benchmarks_for_tests import EchoBenchmark, acting, program

from evopolicygym.evaluation import Evaluation, Evaluator, plan_episodes
from evopolicygym.execution import PolicyLaunch, ProcessExecution


def run(source: str, directory: Path, *, episodes: int = 3, fork: bool = True, **files: str) -> Evaluation:
    execution = ProcessExecution.unsafe(workers=1)
    execution.launch = PolicyLaunch(fork=fork)
    benchmark = EchoBenchmark(steps=2)
    plan = plan_episodes(benchmark, split="train", master_seed=7, count=episodes)
    with Evaluator(benchmark, execution, episode_timeout_seconds=30) as evaluator:
        return evaluator.evaluate(program(directory, source, **files), plan)


def failures(evaluation: Evaluation) -> list[object]:
    return [
        (episode.failure, diagnostics.message)
        for episode, diagnostics in zip(evaluation.episodes, evaluation.diagnostics, strict=True)
        if episode.failure is not None
    ]


@pytest.mark.parametrize("fork", [True, False], ids=["forked", "spawned"])
@pytest.mark.parametrize(
    ("look", "leave"),
    [
        ("assert not hasattr(helper, 'mark')", "helper.mark = 1"),
        ("assert os.listdir(SCRATCH) == []", "open(SCRATCH + '/mark', 'w').close()"),
        ("assert os.listdir(SCRATCH) == []", "os.makedirs(SCRATCH + '/a/b/c'); os.chmod(SCRATCH + '/a', 0)"),
        ("assert not os.path.exists('mark')", "open('mark', 'w').close()"),
        ("assert open('helper.py').read() == '# help'", "open('helper.py', 'w').write('# harm')"),
        ("assert os.path.exists('helper.py')", "os.unlink('helper.py')"),
        ("assert stat.S_IMODE(os.stat('.').st_mode) == 0o755", "os.chmod('.', 0o700)"),
        ("assert os.environ.get('MARK') is None", "os.environ['MARK'] = '1'"),
        ("assert not hasattr(os, 'mark')", "os.mark = 1"),
        ("assert os.getcwd() == HERE", "os.chdir('/')"),
        ("assert 'mark' not in sys.modules", "sys.modules['mark'] = os"),
        ("assert sys.getrecursionlimit() == 1000", "sys.setrecursionlimit(500)"),
        ("assert os.path.isdir('.')", "shutil.rmtree('.', ignore_errors=True)"),
    ],
)
def test_nothing_that_a_policy_leaves_is_there_in_the_next_episode(
    tmp_path: Path, look: str, leave: str, fork: bool
) -> None:
    before = (
        "import helper, os, shutil, stat, sys\nSCRATCH = os.environ['EVOPOLICYGYM_SCRATCH']\n"
        "HERE = os.path.dirname(os.path.abspath(__file__))"
    )
    source = acting("return 1", before=before, setup=f"{look}\n{leave}")
    assert failures(run(source, tmp_path / "program", fork=fork, helper="# help")) == []


@pytest.mark.parametrize("fork", [True, False], ids=["forked", "spawned"])
def test_scratch_is_where_home_and_temporary_files_are(tmp_path: Path, fork: bool) -> None:
    look = (
        "import os, tempfile\n"
        "scratch = os.environ['EVOPOLICYGYM_SCRATCH']\n"
        "assert os.path.expanduser('~') == os.environ['TMPDIR'] == tempfile.gettempdir() == scratch\n"
        "assert os.path.dirname(scratch) == os.path.dirname(os.getcwd())"
    )
    assert failures(run(acting("return 1", setup=look), tmp_path / "program", fork=fork)) == []


@pytest.mark.parametrize("fork", [True, False], ids=["forked", "spawned"])
def test_a_program_may_shadow_modules_of_the_standard_library(tmp_path: Path, fork: bool) -> None:
    source = acting("return 1", before="import random, json", setup="assert random.MINE and json.MINE")
    evaluation = run(source, tmp_path / "program", fork=fork, random="MINE = 1", json="MINE = 1")
    assert failures(evaluation) == []


def test_a_policy_can_be_pickled_by_reference(tmp_path: Path) -> None:
    source = acting("return 1", setup="import pickle\nassert type(pickle.loads(pickle.dumps(self))) is Policy")
    assert failures(run(source, tmp_path / "program")) == []


def test_the_context_is_what_the_benchmark_says(tmp_path: Path) -> None:
    look = (
        "assert context.metadata['nested'] == [1, (2.5, None)]\n"
        "assert context.environment_parameters == {'steps': 2}\n"
        "assert type(context.policy_seed) is int"
    )
    assert failures(run(acting("return 1", setup=look), tmp_path / "program")) == []


def test_forked_children_of_a_policy_draw_other_numbers(tmp_path: Path) -> None:
    look = """
import os, random
reader, writer = os.pipe()
if os.fork() == 0:
    os.write(writer, repr(random.random()).encode())
    os._exit(0)
os.wait()
assert float(os.read(reader, 100)) != random.random()
"""
    assert failures(run(acting("return 1", setup=look), tmp_path / "program")) == []


@pytest.mark.parametrize("fork", [True, False], ids=["forked", "spawned"])
def test_what_a_policy_prints_is_kept_and_does_not_disturb_it(tmp_path: Path, fork: bool) -> None:
    source = acting(
        "print('act', end='')\nreturn 1", before="import sys\nprint('import ü')\nsys.stderr.write('no line end')"
    )
    evaluation = run(source, tmp_path / "program", fork=fork)
    assert failures(evaluation) == []
    assert [(d.stdout, d.stderr) for d in evaluation.diagnostics] == [("import ü\nactact", "no line end")] * 3


def test_only_the_last_part_of_a_flood_is_kept(tmp_path: Path) -> None:
    source = acting("print('x' * 1_000_000)\nprint('end')\nreturn 1")
    diagnostics = run(source, tmp_path / "program", episodes=1).diagnostics[0]
    assert diagnostics.stdout.endswith("x\nend\n")
    assert 10_000 < len(diagnostics.stdout) < 20_000


@pytest.mark.parametrize("fork", [True, False], ids=["forked", "spawned"])
def test_an_exception_is_told_with_the_frames_inside_the_program(tmp_path: Path, fork: bool) -> None:
    source = acting("return helper.fail(observation)", before="import helper")
    helper = """def fail(x):
    try:
        {}['missing']
    except KeyError as error:
        raise ValueError('no way') from error
"""
    told = run(source, tmp_path / "program", episodes=1, fork=fork, helper=helper).diagnostics[0]
    assert (told.exception_type, told.message) == ("ValueError", "no way")
    assert told.frames == ("policy.py:8 in act", "helper.py:5 in fail")
    assert told.traceback is not None
    assert "KeyError: 'missing'" in told.traceback
    assert "return helper.fail(observation)" in told.traceback
    assert "policy_process.py" not in told.traceback


def test_an_exception_class_of_the_program_is_named_with_its_module(tmp_path: Path) -> None:
    source = acting("raise Mine('x' * 10_000)", before="class Mine(Exception): pass")
    told = run(source, tmp_path / "program", episodes=1).diagnostics[0]
    assert told.exception_type == "policy.Mine"
    assert told.message is not None
    assert len(told.message) < 3000


def test_an_exception_that_cannot_be_printed_is_still_an_exception(tmp_path: Path) -> None:
    source = acting("raise Mine", before="class Mine(Exception):\n    def __str__(self): raise SystemExit")
    evaluation = run(source, tmp_path / "program", episodes=1)
    assert evaluation.episodes[0].failure == "exception"


def test_a_syntax_error_is_told_with_its_line(tmp_path: Path) -> None:
    told = run("def make_policy(context):\n    return (\n", tmp_path / "program", episodes=1).diagnostics[0]
    assert told.exception_type == "SyntaxError"
    assert told.frames == ("policy.py:2",)


def test_diagnostics_of_one_episode_are_bounded(tmp_path: Path) -> None:
    source = acting(
        "print('o' * 10**6); sys.stderr.write('e' * 10**6)\nraise ValueError('m' * 10**6)", before="import sys"
    )
    told = run(source, tmp_path / "program", episodes=1).diagnostics[0]
    parts = [
        told.exception_type or "",
        told.message or "",
        told.traceback or "",
        told.stdout,
        told.stderr,
        *told.frames,
    ]
    assert sum(len(part.encode()) for part in parts) <= 64 * 1024
