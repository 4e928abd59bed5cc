"""Any registered Gymnasium environment as a Benchmark."""

import inspect
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

try:
    import gymnasium
except ImportError as missing:
    raise ImportError(
        "GymnasiumBenchmark needs Gymnasium and NumPy, which are an optional extra. "
        "Install them with: python -m pip install 'evopolicygym[gymnasium]'"
    ) from missing

from gymnasium.envs.registration import EnvSpec

from evopolicygym.authoring import BenchmarkSpec, EpisodeRecord, EpisodeSpec, Feedback, Step
from evopolicygym.benchmarks.failure_floors import known_failure_return
from evopolicygym.benchmarks.return_feedback import return_feedback
from evopolicygym.benchmarks.spaces import Decode, Encode, space_codec
from evopolicygym.benchmarks.split_seeds import split_seeds
from evopolicygym.errors import BenchmarkError
from evopolicygym.policy import PolicyValue, copy_policy_value

__all__ = ["GymnasiumBenchmark", "GymnasiumEnvironment"]

_DOCUMENTATION_MAX_CHARACTERS = 8192
_OWN_ARGUMENTS = ("id", "max_episode_steps", "disable_env_checker")


class GymnasiumBenchmark:
    """A registered Gymnasium id as a Benchmark; the score is the mean return, to be maximised.

    Spaces become Policy values: Discrete ↔ int, Box ↔ (nested) list up to 64 elements, else TensorValue,
    MultiDiscrete and MultiBinary ↔ (nested) list of int, Text ↔ str, Dict ↔ dict, Tuple ↔ tuple. Actions are
    checked exactly against the space and never clipped; what is outside ends the Episode as ``invalid_action``.

    The splits ``train``, ``validation`` and ``test`` have seeds that cannot coincide.

    Known values of ``failure_return``, each a bound that no finished Episode is below (steps = the limit in
    force): CartPole 0, MountainCar and Acrobot -1 × steps, MountainCarContinuous -0.1 - 0.1 × steps,
    Pendulum -16.274 × steps, Blackjack -1, FrozenLake 0, CliffWalking -100 × steps, Taxi -10 × steps, CarRacing
    -100.1 - 0.1 × steps, InvertedPendulum 0. They hold for the environments of Gymnasium itself, with
    ``env_kwargs`` that leave the bound alone; ``evopolicygym.benchmarks.failure_floors`` has the reasons.

    An instance keeps no state between Episodes and can be pickled, so Environments may be made in workers.

    Args:
        env_id: a registered id with its version, such as ``"CartPole-v1"``; ``"module:Name-v0"`` imports the module
            that registers it first.
        env_kwargs: arguments for the environment's constructor; Policy values only (they are part of its identity).
        max_episode_steps: Environment steps after which an Episode is truncated; default: the registered limit.
        failure_return: what an Episode counts in which the Policy failed; default: the known value of the id.

    Raises:
        BenchmarkError: the id is unknown or its module missing, the environment cannot be made, no step limit is
            known, no failure_return is known, or a space has no Policy value.

    Example:
        >>> benchmark = GymnasiumBenchmark("CartPole-v1")
        >>> benchmark.spec.max_episode_steps
        500
    """

    def __init__(
        self,
        env_id: str,
        *,
        env_kwargs: Mapping[str, PolicyValue] | None = None,
        max_episode_steps: int | None = None,
        failure_return: float | None = None,
    ) -> None:
        self._registered = find_environment(env_id)
        self._env_kwargs = _checked_arguments(env_kwargs)
        self._max_episode_steps = self._step_limit(max_episode_steps)
        self._failure_return = self._failure_floor(failure_return)
        environment = self._make()
        try:
            self._observation_space = environment.observation_space
            self._action_space = environment.action_space
            documentation = _documentation(environment)
        finally:
            environment.close()
        self._build_codecs()
        self.spec = self._specification(documentation)

    @property
    def simulator_modules(self) -> tuple[str, ...]:
        """Top-level modules with which the Environment could be rolled out outside the budget."""
        modules = {"gymnasium": None}
        entry_point = self._registered.entry_point
        if isinstance(entry_point, str):
            modules[entry_point.partition(":")[0].partition(".")[0]] = None
        return tuple(modules)

    def episodes(self, split: str, *, seed: int, count: int) -> tuple[EpisodeSpec, ...]:
        """``count`` Episodes of ``"train"``, ``"validation"`` or ``"test"``, all different.

        Raises:
            ValueError: an unknown split, a seed or count out of range.
        """
        return tuple(map(EpisodeSpec, split_seeds(split, seed=seed, count=count)))

    def make_environment(self, episode: EpisodeSpec) -> "GymnasiumEnvironment":
        """A fresh simulator for one Episode."""
        environment = self._make()
        return GymnasiumEnvironment(environment, episode.environment_seed, self._encode, self._decode)

    def feedback(self, records: Sequence[EpisodeRecord]) -> Feedback:
        """Mean return as score; spread, one line an Episode, and a bounded trace beside it.

        Raises:
            ValueError: no records.
        """
        return return_feedback(records, failure_return=self._failure_return)

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in vars(self).items() if name not in ("_encode", "_decode")}

    def __setstate__(self, state: dict[str, object]) -> None:
        vars(self).update(state)
        self._build_codecs()

    def _build_codecs(self) -> None:
        self._encode = space_codec(self._observation_space, "the observation space").encode
        self._decode = space_codec(self._action_space, "the action space").decode

    def _make(self) -> "gymnasium.Env[Any, Any]":
        arguments = copy_policy_value(self._env_kwargs)
        assert isinstance(arguments, dict)
        try:
            # The registered specification itself: it is found without the registry, so an id that a script
            # registered is there in a worker process too.
            return gymnasium.make(
                self._registered,
                max_episode_steps=self._max_episode_steps,
                disable_env_checker=True,  # its checks cost more than most steps
                **arguments,
            )
        except Exception as error:
            raise BenchmarkError(
                f"gymnasium.make({self._registered.id!r}) failed: {type(error).__name__}: {error}"
            ) from error

    def _step_limit(self, asked: int | None) -> int:
        limit = self._registered.max_episode_steps if asked is None else asked
        if limit is None:
            raise BenchmarkError(
                f"{self._registered.id} is registered without a step limit; an Episode must end: "
                "give max_episode_steps, for example max_episode_steps=100"
            )
        if type(limit) is not int or limit < 1:
            raise BenchmarkError(f"max_episode_steps must be an int >= 1, found {limit!r}")
        return limit

    def _failure_floor(self, asked: float | None) -> float:
        registered = self._registered
        if asked is not None:
            if type(asked) not in (int, float) or not abs(asked) < float("inf"):
                raise BenchmarkError(f"failure_return must be a finite number, found {asked!r}")
            return float(asked)
        floor = known_failure_return(
            registered.id,
            entry_point=registered.entry_point,
            argument_names={**registered.kwargs, **self._env_kwargs},
            max_episode_steps=self._max_episode_steps,
        )
        if floor is None:
            raise BenchmarkError(
                f"{registered.id} needs failure_return here: the return that an Episode counts in which the Policy "
                "fails (an exception, a timeout, an action outside the space). Take a number that no honest "
                "Episode can fall below; if it is too kind, crashing pays: a Policy that is losing does better by "
                "raising an exception. (No safe value is known for this id with these env_kwargs.)"
            )
        return floor

    def _specification(self, documentation: str | None) -> BenchmarkSpec:
        registered = self._registered
        observation = space_codec(self._observation_space, "the observation space")
        action = space_codec(self._action_space, "the action space")
        metadata: dict[str, PolicyValue] = {"gymnasium_version": gymnasium.__version__}
        if registered.reward_threshold is not None:
            metadata["reward_threshold"] = float(registered.reward_threshold)
        if documentation is not None:
            metadata["documentation"] = documentation
        return BenchmarkSpec(
            id=f"gymnasium/{registered.id}",
            description=(
                f"Act in the Gymnasium environment {registered.id} so that the return, the sum of the rewards of an "
                "Episode, becomes as high as possible.\n"
                f"Observation: {observation.phrase}.\n"
                f"Action: {action.phrase}. It is checked exactly, never clipped or repaired; an action of another "
                "type, shape or range fails the Episode.\n"
                f"Episode: at most {self._max_episode_steps} steps, fewer if the environment ends it.\n"
                f"Score: the mean return, higher is better; an Episode in which the Policy fails counts "
                f"{self._failure_return}.\n"
                "In the spaces, a bound of null means unbounded."
            ),
            observation_space=observation.description,
            action_space=action.description,
            metadata=metadata,
            max_episode_steps=self._max_episode_steps,
            primary_metric="mean_return",
            score_direction="maximize",
            environment_parameters={
                "env_id": registered.id,
                "env_kwargs": dict(self._env_kwargs),
                "max_episode_steps": self._max_episode_steps,
                "failure_return": self._failure_return,
            },
        )


class GymnasiumEnvironment:
    """One Gymnasium simulator that serves one Episode."""

    __slots__ = ("_close", "_decode", "_encode", "_reset", "_seed", "_step")

    def __init__(self, environment: "gymnasium.Env[Any, Any]", seed: int, encode: Encode, decode: Decode) -> None:
        self._seed = seed
        self._encode = encode
        self._decode = decode
        self._reset = environment.reset
        self._step = environment.step
        self._close = environment.close

    def reset(self) -> PolicyValue:
        """The first observation, as a Policy value."""
        observation, _ = self._reset(seed=self._seed)
        return self._encode(observation)

    def step(self, action: PolicyValue) -> Step:
        """Apply an action that lies exactly in the action space.

        Raises:
            InvalidAction: it does not.
        """
        observation, reward, terminated, truncated, _ = self._step(self._decode(action))
        return Step(self._encode(observation), float(reward), bool(terminated), bool(truncated))

    def close(self) -> None:
        """Release the simulator."""
        self._close()


def find_environment(env_id: str) -> EnvSpec:
    """What is registered under an id, ``module:Name-v0`` included.

    Raises:
        BenchmarkError: nothing, or the module cannot be imported.
    """
    if type(env_id) is not str:
        raise BenchmarkError(f"env_id must be a str such as 'CartPole-v1', found {env_id!r}")
    module, _, name = env_id.rpartition(":")
    if module:
        try:
            import_module(module)
        except ImportError as error:
            raise BenchmarkError(
                f"{env_id!r}: the module {module!r} that should register {name!r} cannot be imported: {error}"
            ) from error
    try:
        return gymnasium.spec(name)
    except gymnasium.error.Error as error:
        raise BenchmarkError(_unknown_id(name, error)) from error


def _unknown_id(name: str, error: Exception) -> str:
    if isinstance(error, gymnasium.error.DeprecatedEnv):
        return f"Gymnasium has no environment {name!r} any more: {error}"
    versions = sorted(known for known in gymnasium.registry if known.rpartition("-v")[0] == name)
    if versions:
        return f"{name!r} needs a version; registered: {', '.join(versions)}"
    return (
        f"Gymnasium has no environment {name!r} ({error}). If a package of its own registers it, install that "
        f"package and write 'its_module:{name}'."
    )


def _checked_arguments(arguments: Mapping[str, PolicyValue] | None) -> dict[str, PolicyValue]:
    try:
        copied = copy_policy_value(dict(arguments or {}))
    except (TypeError, ValueError) as error:
        raise BenchmarkError(f"env_kwargs must be a mapping of str to Policy values: {error}") from error
    assert isinstance(copied, dict)
    for name in _OWN_ARGUMENTS:
        if name in copied:
            raise BenchmarkError(
                f"env_kwargs must not hold {name!r}; it is an argument of GymnasiumBenchmark, or fixed"
            )
    return copied


def _documentation(environment: "gymnasium.Env[Any, Any]") -> str | None:
    """The environment's own documentation, which Gymnasium keeps in the docstring of its class."""
    text = vars(type(environment.unwrapped)).get("__doc__")
    return inspect.cleandoc(text)[:_DOCUMENTATION_MAX_CHARACTERS] if isinstance(text, str) else None
