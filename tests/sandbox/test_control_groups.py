"""Where groups can be made and joined they hold the limits.

The trees here are laid out as the kernel does it, in ordinary directories.
"""

import dataclasses
import os
from pathlib import Path

import pytest
from benchmarks_for_tests import EchoBenchmark, acting, program

from evopolicygym.authoring import EpisodeSpec
from evopolicygym.evaluation import Evaluator, PlannedEpisode
from evopolicygym.execution import SandboxExecution
from evopolicygym.execution.cgroups import ControlGroups, find_control_groups
from evopolicygym.execution.sandbox_launch import SandboxLaunch

PROBE = f"evopolicygym-{os.getpid()}-probe"


def unified(root: Path, *memberships: str) -> Path:
    """A tree of version 2 in which this process is in user.slice/run.scope; the file that says so."""
    (root / "user.slice" / "run.scope").mkdir(parents=True)
    (root / "cgroup.controllers").write_text("cpu memory pids\n")
    membership = root / "membership"
    membership.write_text("\n".join(memberships or ("0::/user.slice/run.scope",)) + "\n")
    return membership


def test_a_group_of_version_2_is_made_beside_the_own_one(tmp_path):
    membership = unified(tmp_path)
    place = str(tmp_path / "user.slice")
    assert find_control_groups(str(membership), str(tmp_path)) == ControlGroups(2, place, place)
    probe = tmp_path / "user.slice" / PROBE
    assert (probe / "memory.max").read_text() == str(1 << 30)
    assert (probe / "memory.swap.max").read_text() == "0"
    assert (probe / "pids.max").read_text() == "100"
    assert (probe / "cgroup.procs").read_text().strip().isdigit()


def test_where_nothing_can_be_made_beside_it_a_group_is_made_in_it(tmp_path):
    membership = unified(tmp_path)
    (tmp_path / "user.slice" / PROBE).touch()
    place = str(tmp_path / "user.slice" / "run.scope")
    assert find_control_groups(str(membership), str(tmp_path)) == ControlGroups(2, place, place)


def test_in_the_root_of_version_2_a_group_is_made_in_it(tmp_path):
    membership = unified(tmp_path, "0::/")
    assert find_control_groups(str(membership), str(tmp_path)) == ControlGroups(2, str(tmp_path), str(tmp_path))


def test_a_group_that_cannot_be_joined_is_none(tmp_path):
    membership = unified(tmp_path)
    for place in ("user.slice", "user.slice/run.scope"):
        (tmp_path / place / PROBE / "cgroup.procs").mkdir(parents=True)
    assert find_control_groups(str(membership), str(tmp_path)) is None


def test_a_group_without_controllers_is_none(tmp_path):
    """As the kernel has it where they are not delegated: the files of the limits are not there, and cannot be made."""
    membership = unified(tmp_path)
    for place in ("user.slice", "user.slice/run.scope"):
        (tmp_path / place / PROBE / "pids.max").mkdir(parents=True)
    assert find_control_groups(str(membership), str(tmp_path)) is None


def test_version_1_has_a_directory_for_each_controller(tmp_path):
    membership = tmp_path / "membership"
    membership.write_text("12:pids:/box\n7:cpu,cpuacct:/\n4:memory:/box\n0::/\n")
    for controller in ("memory", "pids"):
        (tmp_path / controller / "box").mkdir(parents=True)
    groups = find_control_groups(str(membership), str(tmp_path))
    assert groups == ControlGroups(1, str(tmp_path / "memory" / "box"), str(tmp_path / "pids" / "box"))
    assert (tmp_path / "memory" / "box" / PROBE / "memory.limit_in_bytes").read_text() == str(1 << 30)
    assert (tmp_path / "pids" / "box" / PROBE / "pids.max").read_text() == "100"


def test_in_a_container_a_group_of_version_1_is_made_where_the_controller_is_mounted(tmp_path):
    membership = tmp_path / "membership"
    membership.write_text("12:pids:/outside/box\n4:memory:/outside/box\n")
    for controller in ("memory", "pids"):
        (tmp_path / controller).mkdir()
    groups = find_control_groups(str(membership), str(tmp_path))
    assert groups == ControlGroups(1, str(tmp_path / "memory"), str(tmp_path / "pids"))


@pytest.mark.parametrize("membership", [None, "4:memory:/\n"], ids=["no control groups", "one controller"])
def test_without_both_controllers_there_is_none(tmp_path, membership):
    if membership is not None:
        (tmp_path / "membership").write_text(membership)
    assert find_control_groups(str(tmp_path / "membership"), str(tmp_path)) is None


def test_what_killed_processes_left_is_swept_up(tmp_path):
    groups = ControlGroups(2, str(tmp_path), str(tmp_path))
    for name in ("evopolicygym-4194305-x", f"evopolicygym-{os.getpid()}-x", "another"):  # no process id is so large
        (tmp_path / name).mkdir()
    groups.sweep()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["another", f"evopolicygym-{os.getpid()}-x"]


def test_a_template_joins_its_group_of_version_2_before_it_starts(tmp_path):
    groups = ControlGroups(2, str(tmp_path / "groups"), str(tmp_path / "groups"))
    (tmp_path / "groups").mkdir()

    class Grouped(SandboxExecution):
        def launch_for(self, benchmark: object) -> SandboxLaunch:
            return dataclasses.replace(super().launch_for(benchmark), control_groups=groups)

    submitted = program(tmp_path / "program", acting("return 1"))
    with Evaluator(EchoBenchmark(steps=1), Grouped(workers=1), episode_timeout_seconds=20) as evaluator:
        evaluation = evaluator.evaluate(submitted, [PlannedEpisode(EpisodeSpec(0), 0)])
    assert evaluation.episodes[0].status == "completed", evaluation.diagnostics
    (made,) = (tmp_path / "groups").iterdir()
    assert (made / "cgroup.procs").read_text().strip().isdigit()
    assert int((made / "pids.max").read_text()) > 64
