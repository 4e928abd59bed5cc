"""Known answers of the 0.3 line: whoever changes one changes every Episode of every Run."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from policy_values import policy_values

from evopolicygym.identities import (
    assessment_seed,
    environment_digest,
    plan_digest,
    policy_seed,
    program_digest,
    seed_is_guessable,
    skill_digest,
    training_policy_seed,
    training_pool_seed,
    validation_seed,
)
from evopolicygym.policy import PolicyValue, TensorValue
from evopolicygym.program import Program
from evopolicygym.skills import AgentSkill

POLICY = b"def make_policy(context):\n    return None\n"
PROGRAM_DIGEST = "sha256:122b119c79122253a4ade4104195e8f3585d8c14ee67b855eff047d2273ac519"
SKILL = b"---\nname: tiny-skill\n---\nHi\n"
SKILL_DIGEST = "sha256:ecd231daa04f16dd22ee672487c73cb684a930ea6a75aacf2eb3888b7136fff6"


@pytest.mark.parametrize(
    ("seed", "known"),
    [
        (policy_seed(42, 3), 10710544709411615356),
        (training_pool_seed(42), 18379659693720673948),
        (training_policy_seed(42, 5), 17254460676015203078),
        (validation_seed(42), 10759615216421017987),
        (assessment_seed(42), 9258954799118358117),
    ],
)
def test_seeds_have_their_known_answers(seed: int, known: int) -> None:
    assert seed == known


@pytest.mark.parametrize("wrong", [-1, 2**64, True, 1.0, "1", None])
@pytest.mark.parametrize("derive", [training_pool_seed, validation_seed, assessment_seed])
def test_a_seed_that_is_no_unsigned_64_bit_int_is_a_value_error(derive: object, wrong: object) -> None:
    with pytest.raises(ValueError, match=r"2\*\*64-1"):
        derive(wrong)  # type: ignore[operator]  # a function of one seed


@pytest.mark.parametrize("derive", [policy_seed, training_policy_seed])
def test_the_largest_seed_and_position_are_allowed(derive: object) -> None:
    assert 0 <= derive(2**64 - 1, 2**64 - 1) < 2**64  # type: ignore[operator]  # a function of two numbers


def test_a_program_digest_has_its_known_answer() -> None:
    assert program_digest({"policy.py": POLICY, "lib/a.txt": b"x\n"}) == PROGRAM_DIGEST


def test_a_program_digest_does_not_depend_on_the_order_of_files() -> None:
    assert program_digest({"lib/a.txt": b"x\n", "policy.py": POLICY}) == PROGRAM_DIGEST


def test_a_captured_program_has_the_known_digest(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "a.txt").write_bytes(b"x\n")
    (tmp_path / "policy.py").write_bytes(POLICY)
    assert Program.from_directory(tmp_path).digest == PROGRAM_DIGEST


def test_files_are_ordered_by_their_utf8_bytes_and_not_by_utf16_units(tmp_path: Path) -> None:
    names = ["policy.py", "\ufb01", "\U0001f600", "a/b", "a.b", "é"]
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    assert Program.from_directory(tmp_path).files == tuple(sorted(names, key=str.encode))


def test_a_skill_digest_has_its_known_answer() -> None:
    assert skill_digest("tiny-skill", {"SKILL.md": (False, SKILL), "go.sh": (True, b"#!/bin/sh\n")}) == SKILL_DIGEST


def test_a_captured_skill_has_the_known_digest(tmp_path: Path) -> None:
    source = tmp_path / "tiny-skill"
    source.mkdir()
    (source / "SKILL.md").write_bytes(SKILL)
    (source / "SKILL.md").chmod(0o644)
    (source / "go.sh").write_bytes(b"#!/bin/sh\n")
    (source / "go.sh").chmod(0o755)
    assert AgentSkill.from_directory(source).digest == SKILL_DIGEST


def test_no_environment_parameters_have_their_known_digest() -> None:
    assert environment_digest({}) == "sha256:112fe20679c849da7447a364b0e7c5526f5162bda1f2663ce5adc7e4ca33ec10"


def test_environment_parameters_of_every_type_have_their_known_digest() -> None:
    parameters: dict[str, PolicyValue] = {
        "b": True,
        "a": [1, -2.5, None, ("x", b"\x00")],
        "é": TensorValue("uint8", (2, 1), b"\x01\x02"),
    }
    known = "sha256:017e8d136051373ebaea27a56460faf6a7f9d612c83ad2f74e5e0bca65dc718f"
    assert environment_digest(parameters) == known


@pytest.mark.parametrize(
    "pair",
    [(1, True), (1, 1.0), (0, False), (0.0, -0.0), ([], ()), ("a", b"a"), (None, False), ([[1], [2]], [[1, 2]])],
)
def test_values_that_python_holds_equal_or_alike_have_different_digests(pair: tuple[PolicyValue, PolicyValue]) -> None:
    first, second = pair
    assert environment_digest({"x": first}) != environment_digest({"x": second})


@settings(max_examples=20)
@given(st.dictionaries(st.text(max_size=5), policy_values, max_size=4))
def test_an_environment_digest_does_not_depend_on_the_order_of_keys(parameters: dict[str, PolicyValue]) -> None:
    assert environment_digest(dict(reversed(parameters.items()))) == environment_digest(parameters)


def test_a_plan_digest_depends_on_the_order_of_episodes() -> None:
    assert plan_digest([1, 2]) != plan_digest([2, 1])
    assert plan_digest(iter([1, 2])) == plan_digest((1, 2))


def test_a_seed_below_two_to_the_48_is_guessable() -> None:
    assert seed_is_guessable(42)
    assert seed_is_guessable(2**48 - 1)
    assert not seed_is_guessable(2**48)
