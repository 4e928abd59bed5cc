"""How Policies are run is said once, in words that cannot be mistaken; and what a template is given."""

import os
import tempfile
from pathlib import Path

import pytest
from benchmarks_for_tests import program

from evopolicygym.execution import PolicyLaunch, ProcessExecution
from evopolicygym.execution.cores import CorePin
from evopolicygym.execution.preload import modules_to_preload, shadowed_names


def test_an_execution_without_isolation_must_be_called_unsafe() -> None:
    with pytest.raises(TypeError, match=r"ProcessExecution\.unsafe\(\)"):
        ProcessExecution()


@pytest.mark.parametrize("workers", [True, 1.0, "2"])
def test_workers_must_be_an_int(workers: object) -> None:
    with pytest.raises(TypeError, match="workers must be an int or None"):
        ProcessExecution.unsafe(workers=workers)  # type: ignore[arg-type]  # on purpose


def test_workers_must_not_be_negative() -> None:
    with pytest.raises(ValueError, match="workers must be >= 0"):
        ProcessExecution.unsafe(workers=-1)


def test_the_number_of_workers_comes_from_the_argument_the_variable_or_the_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("EVOPOLICYGYM_WORKERS", raising=False)
    assert ProcessExecution.unsafe().workers == len(os.sched_getaffinity(0))
    monkeypatch.setenv("EVOPOLICYGYM_WORKERS", "7")
    assert ProcessExecution.unsafe().workers == 7
    assert ProcessExecution.unsafe(workers=3).workers == 3
    monkeypatch.setenv("EVOPOLICYGYM_WORKERS", "many")
    with pytest.raises(ValueError, match="EVOPOLICYGYM_WORKERS must be a whole number >= 0, found 'many'"):
        _ = ProcessExecution.unsafe().workers


def test_installed_modules_that_the_source_imports_are_preloaded_and_nothing_else(tmp_path: Path) -> None:
    source = """
import os, numpy as np
import helper
from numpy.linalg import norm
from . import sibling
def later():
    import hypothesis.strategies as st, no_such_module
# import pytest
"""
    found = modules_to_preload(program(tmp_path / "program", source, helper="import rich"))
    assert found == ("hypothesis.strategies", "numpy", "numpy.linalg", "rich")


def test_a_module_that_the_program_shadows_is_not_preloaded(tmp_path: Path) -> None:
    shadowing = program(tmp_path / "program", "import numpy", numpy="mine = 1")
    assert modules_to_preload(shadowing) == ()
    assert shadowed_names(shadowing) == ("numpy", "policy")


def test_a_template_is_given_little_of_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MY_API_KEY", "secret")
    environment = PolicyLaunch().environment(root=tmp_path)
    assert "MY_API_KEY" not in environment
    assert environment["PYTHONHASHSEED"] == "0"
    assert environment["OMP_NUM_THREADS"] == "1"
    assert environment["HOME"] == str(tmp_path / "scratch")


def test_a_core_is_held_by_one_until_it_is_released(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # other Runs on this machine hold cores, too
    allowed = os.sched_getaffinity(0)
    pins = [CorePin() for _ in range(len(allowed) + 1)]
    try:
        cores = []
        for pin in pins:
            cores.append(pin.claim())
        held = [core for core in cores if core is not None]
        assert len(set(held)) == len(held)
        assert None in cores
        released = next(pin for pin, core in zip(pins, cores, strict=True) if core is not None)
        released.release()
        assert pins[cores.index(None)].claim() is not None
    finally:
        for pin in pins:
            pin.release()
        os.sched_setaffinity(0, allowed)
