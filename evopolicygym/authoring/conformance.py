"""The conformance check: does a Benchmark keep the authoring contract on a few known Episodes?"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from evopolicygym.artifacts import Feedback
from evopolicygym.authoring.interfaces import FAULTS, Benchmark, Environment, InvalidAction, missing_members
from evopolicygym.authoring.records import EpisodeRecord, EpisodeSpec, Step, Transition
from evopolicygym.authoring.specification import BenchmarkSpec
from evopolicygym.errors import BenchmarkError
from evopolicygym.policy import PolicyValue, copy_policy_value, type_name

__all__ = ["BenchmarkFixture", "ConformanceIssue", "ConformanceReport", "check_benchmark"]

_SPLITS = ("train", "validation", "test")
_PLANNED = 4
_PLAN_SEED = 7
_POLICY_SEED = 11


@dataclass(frozen=True, slots=True)
class BenchmarkFixture:
    """One known Episode and the actions to play in it.

    Args:
        episode: what ``make_environment`` is called with.
        actions: played in order, until the Episode is done.

    Raises:
        TypeError: the wrong type of episode, or an action that is no PolicyValue.
    """

    episode: EpisodeSpec
    actions: tuple[PolicyValue, ...]

    def __post_init__(self) -> None:
        if type(self.episode) is not EpisodeSpec:
            raise TypeError(f"a fixture's episode must be EpisodeSpec, not {type_name(self.episode)}")
        if not isinstance(self.actions, tuple | list):
            raise TypeError(f"a fixture's actions must be a tuple, not {type_name(self.actions)}")
        object.__setattr__(self, "actions", tuple(copy_policy_value(action, name="action") for action in self.actions))


@dataclass(frozen=True, slots=True)
class ConformanceIssue:
    """One way in which the contract is broken.

    Args:
        code: a stable word, such as ``"not_deterministic"``.
        message: a sentence for people.
    """

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class ConformanceReport:
    """Everything that a check found.

    Args:
        benchmark_id: of the Benchmark; the name of its type where it has none.
        issues: one for each broken promise, in the order in which they were found.
    """

    benchmark_id: str
    issues: tuple[ConformanceIssue, ...]

    @property
    def passed(self) -> bool:
        """Whether nothing was found."""
        return not self.issues

    def raise_for_errors(self) -> None:
        """Raise BenchmarkError with every issue, if there is one."""
        if self.issues:
            lines = "\n".join(f"  {issue.code}: {issue.message}" for issue in self.issues)
            raise BenchmarkError(f"{self.benchmark_id} breaks the Benchmark contract:\n{lines}")


def check_benchmark(benchmark: Benchmark, *, fixtures: Sequence[BenchmarkFixture]) -> ConformanceReport:
    """Play the fixtures twice and look for broken promises: types, determinism, bounds, scoring of failures.

    Args:
        benchmark: an instance.
        fixtures: at least one known Episode.

    Returns:
        A report; nothing that the Benchmark does wrong is raised from here.

    Raises:
        ValueError: no fixtures.
        TypeError: a fixture of another type.
    """
    given = tuple(fixtures)
    if not given:
        raise ValueError("check_benchmark needs at least one BenchmarkFixture")
    for fixture in given:
        if type(fixture) is not BenchmarkFixture:
            raise TypeError(f"fixtures must hold BenchmarkFixture values, not {type_name(fixture)}")
    return _Check(benchmark).run(given)


class _Check:
    def __init__(self, benchmark: Benchmark) -> None:
        self.benchmark = benchmark
        self.issues: list[ConformanceIssue] = []

    def run(self, fixtures: Sequence[BenchmarkFixture]) -> ConformanceReport:
        name = type_name(self.benchmark)
        missing = missing_members(self.benchmark, Benchmark)
        for member in missing:
            self._found("missing_member", f"the Benchmark has no {member!r}")
        if not missing:
            spec = self._specification()
            if spec is not None:
                name = spec.id
                self._check_plans()
                self._check_fixtures(spec, fixtures)
        return ConformanceReport(name, tuple(self.issues))

    def _found(self, code: str, message: str) -> None:
        self.issues.append(ConformanceIssue(code, message))

    def _specification(self) -> BenchmarkSpec | None:
        try:
            spec: object = self.benchmark.spec
        except FAULTS as error:  # whatever the Benchmark raises is the finding
            self._found("spec_failed", f"reading spec raised {_told(error)}")
            return None
        if type(spec) is not BenchmarkSpec:
            self._found("spec_type", f"spec must be a BenchmarkSpec, not {type_name(spec)}")
            return None
        return spec

    def _check_plans(self) -> None:
        failures = []
        for split in _SPLITS:
            try:
                first: object = self.benchmark.episodes(split, seed=_PLAN_SEED, count=_PLANNED)
                second: object = self.benchmark.episodes(split, seed=_PLAN_SEED, count=_PLANNED)
            except FAULTS as error:  # a Benchmark need not have every split
                failures.append(f"{split}: {_told(error)}")
                continue
            self._check_plan(split, first, second)
        if len(failures) == len(_SPLITS):
            self._found("episodes_failed", "episodes() raised for every split: " + "; ".join(failures))

    def _check_plan(self, split: str, first: object, second: object) -> None:
        if not isinstance(first, Sequence):
            self._found("episodes_type", f"episodes({split!r}) must return a sequence, not {type_name(first)}")
            return
        wrong = [item for item in first if type(item) is not EpisodeSpec]
        if wrong:
            self._found("episodes_type", f"episodes({split!r}) must hold EpisodeSpec, found {type_name(wrong[0])}")
        elif len(first) != _PLANNED:
            self._found("episodes_count", f"episodes({split!r}, count={_PLANNED}) returned {len(first)}")
        elif not isinstance(second, Sequence) or list(first) != list(second):
            self._found("episodes_not_deterministic", f"episodes({split!r}) differs for the same seed and count")

    def _check_fixtures(self, spec: BenchmarkSpec, fixtures: Sequence[BenchmarkFixture]) -> None:
        records = []
        for number, fixture in enumerate(fixtures):
            record = self._play(spec, number, fixture)
            again = self._play(spec, number, fixture) if record is not None else None
            if record is None or again is None:
                continue
            if record != again:
                self._found("not_deterministic", f"fixture {number}: playing it twice gave two different Episodes")
            records.append(record)
        if records:
            self._check_feedback(records)

    def _play(self, spec: BenchmarkSpec, number: int, fixture: BenchmarkFixture) -> EpisodeRecord | None:
        try:
            environment: object = self.benchmark.make_environment(fixture.episode)
        except FAULTS as error:
            self._found("make_environment_failed", f"fixture {number}: make_environment raised {_told(error)}")
            return None
        missing = missing_members(environment, Environment)
        for member in missing:
            self._found("missing_member", f"fixture {number}: the Environment has no {member!r}")
        if missing:
            return None
        trusted = cast("Environment", environment)  # isinstance would evaluate its properties
        try:
            return self._episode(spec, number, fixture, trusted)
        finally:
            try:
                trusted.close()
            except FAULTS as error:
                self._found("close_failed", f"fixture {number}: close raised {_told(error)}")

    def _episode(
        self, spec: BenchmarkSpec, number: int, fixture: BenchmarkFixture, environment: Environment
    ) -> EpisodeRecord | None:
        try:
            observation = copy_policy_value(environment.reset(), name="observation")
        except FAULTS as error:
            self._found("reset_failed", f"fixture {number}: reset raised or returned no PolicyValue: {_told(error)}")
            return None
        transitions: list[Transition] = []
        invalid = False
        for action in fixture.actions:
            try:
                step: object = environment.step(copy_policy_value(action))
            except InvalidAction:
                invalid = True
                break
            except FAULTS as error:
                self._found("step_failed", f"fixture {number}, step {len(transitions)}: raised {_told(error)}")
                return None
            if type(step) is not Step:
                self._found("step_type", f"fixture {number}: step must return a Step, not {type_name(step)}")
                return None
            transitions.append(Transition(action, step))
            if step.done:
                break
            if len(transitions) >= spec.max_episode_steps:
                self._found(
                    "too_many_steps",
                    f"fixture {number}: not done after max_episode_steps = {spec.max_episode_steps} steps",
                )
                break
        return EpisodeRecord(
            fixture.episode,
            _POLICY_SEED,
            observation,
            tuple(transitions),
            "invalid_action" if invalid else None,
        )

    def _check_feedback(self, records: list[EpisodeRecord]) -> None:
        failed = [
            EpisodeRecord(record.episode, record.policy_seed, record.initial_observation, (), "exception")
            for record in records
        ]
        for code, what, given in (
            ("feedback_failed", "the fixtures' records", records),
            ("feedback_of_failures_failed", "records of failed Episodes without steps", failed),
        ):
            try:
                first: object = self.benchmark.feedback(tuple(given))
                second: object = self.benchmark.feedback(tuple(given))
            except FAULTS as error:
                self._found(code, f"feedback of {what} raised {_told(error)}")
                continue
            if type(first) is not Feedback:
                self._found("feedback_type", f"feedback must return a Feedback, not {type_name(first)}")
            elif first != second:
                self._found("feedback_not_deterministic", f"feedback of {what} differs when asked twice")


def _told(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
