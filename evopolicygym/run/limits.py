"""Limits of a Run that is resumed: as recorded, as overridden, and what may not change."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, asdict, fields, replace
from pathlib import Path

from evopolicygym.errors import RecordError
from evopolicygym.record.events import FieldValue
from evopolicygym.run_config import AssessmentConfig, LimitError, RunConfig, ValidationConfig

__all__ = [
    "PARTS",
    "check_changeable",
    "differing_limits",
    "limits_of_document",
    "override_texts",
    "overrides_of_parts",
    "parse_overrides",
    "refuse_other_limits",
    "with_overrides",
]

PARTS = ("agent.", "execution.")
"""Tables of a run spec that name no limits and may change all the same, if it is said."""

_TABLES = ("validation", "assessment")
_FIX_THE_POOL = ("seed", "split", "episode_pool_size")


def limits_of_document(document: object) -> RunConfig:
    """The limits as ``run.json`` holds them under ``config``.

    Raises:
        ValueError: they are missing or wrong, with the reason as text.
    """
    if not isinstance(document, Mapping):
        raise ValueError("'config' is missing")
    values = {str(key): value for key, value in document.items() if key not in _TABLES}
    try:
        validation, assessment = (document.get(name) for name in _TABLES)
        return RunConfig(
            **values,
            validation=None if validation is None else ValidationConfig(**validation),
            assessment=None if assessment is None else AssessmentConfig(**assessment),
        )
    except (LimitError, TypeError) as error:
        raise ValueError(f"'config' is wrong: {error}") from None


def with_overrides(config: RunConfig, overrides: Mapping[str, object]) -> RunConfig:
    """The limits with some of them changed.

    Args:
        config: the limits.
        overrides: new values by name, such as ``agent_timeout_seconds`` or ``validation.max_candidates``.

    Raises:
        ValueError: there is no such limit, a value is wrong, or two contradict each other.
    """
    changes: dict[str, object] = {}
    tables: dict[str, dict[str, object]] = {}
    for key, value in overrides.items():
        table, _, name = key.rpartition(".")
        if table in _TABLES:
            tables.setdefault(table, {})[name] = value
        elif table or key in _TABLES or key not in _names(config):
            known = ", ".join(name for name in _names(config) if name not in _TABLES)
            raise ValueError(f"there is no limit {key!r}; limits are {known}, validation.… and assessment.…")
        else:
            changes[key] = value
    for table, values in tables.items():
        current = getattr(config, table)
        if current is None:
            raise ValueError(f"the Run has no {table}, so nothing of it can change")
        for name in values:
            if name not in _names(current):
                raise ValueError(f"{table} has no {name!r}; it has {', '.join(_names(current))}")
        changes[table] = replace(current, **values)
    return replace(config, **changes)  # type: ignore[arg-type]  # checked by the class itself


def override_texts(config: RunConfig, overrides: Mapping[str, object]) -> tuple[str, ...]:
    """Those ``overrides`` that change ``config``, as the journal holds them: ``"key=JSON value"``."""
    current = dict(_flat(config))
    return tuple(f"{key}={json.dumps(value)}" for key, value in overrides.items() if current.get(key, MISSING) != value)


def overrides_of_parts(texts: Sequence[str]) -> tuple[str, ...]:
    """Those overrides of the journal that change no limit, but the Agent or the execution."""
    return tuple(text for text in texts if text.startswith(PARTS))


def parse_overrides(texts: Sequence[str]) -> dict[str, object]:
    """The inverse of :func:`override_texts`; of several for one limit the last counts, other parts are left out.

    Raises:
        ValueError: one is no ``key=JSON value``.
    """
    overrides: dict[str, object] = {}
    for text in texts:
        if text.startswith(PARTS):
            continue
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise ValueError(f"the override {text!r:.80} has not the form key=value")
        overrides[key] = json.loads(value)
    return overrides


def check_changeable(overrides: Mapping[str, object], *, validation_begun: bool, assessment_begun: bool) -> None:
    """See that no limit changes that something has already been built on.

    Raises:
        RecordError: one does.
    """
    for key in overrides:
        if key in _FIX_THE_POOL:
            raise RecordError(f"{key} cannot change: it fixes the Episodes that the Agent has worked on")
        if key.startswith("validation.") and validation_begun:
            raise RecordError(f"{key} cannot change: the Validation has begun, and all candidates get the same")
        if key.startswith("assessment.") and assessment_begun:
            raise RecordError(f"{key} cannot change: the Assessment has begun")


def differing_limits(expected: RunConfig, found: RunConfig) -> list[tuple[str, object, object]]:
    """Name, expected and found value of every limit that differs."""
    one, other = dict(_flat(expected)), dict(_flat(found))
    return [(key, one.get(key), other.get(key)) for key in {**one, **other} if one.get(key) != other.get(key)]


def refuse_other_limits(
    config: RunConfig, started: Mapping[str, FieldValue], overrides: Mapping[str, object], *, source: Path
) -> None:
    """See that the limits, which come from ``source``, are those that ``run_started`` tells, but for ``overrides``.

    Raises:
        RecordError: others have changed.
    """
    recorded = {
        "split": config.split,
        "episode_pool_size": config.episode_pool_size,
        "episode_budget": config.episode_budget,
        "max_submissions": config.max_submissions,
        "max_episodes_per_submission": config.max_episodes_per_submission,
        "finish_budget_policy": config.finish_budget_policy,
        "agent_timeout_seconds": config.agent_timeout_seconds,
        "validation.max_candidates": config.max_candidates,
        "validation.episodes_per_candidate": config.validation.episodes_per_candidate if config.validation else None,
        "assessment.episodes": config.assessment.episodes if config.assessment else None,
    }
    names = {
        "episode_pool_size": "pool_size",
        "validation.max_candidates": "max_candidates",
        "validation.episodes_per_candidate": "validation_episodes",
        "assessment.episodes": "assessment_episodes",
    }
    for key, value in recorded.items():
        told = started.get(names.get(key, key))
        if key not in overrides and value != told:
            raise RecordError(
                f"{source}: {key} is {value!r} there, and {told!r} in events.jsonl:1; one of the two was changed"
            )


def _flat(config: RunConfig) -> Iterator[tuple[str, object]]:
    for key, value in asdict(config).items():
        if key not in _TABLES:
            yield key, value
        elif value is not None:
            for name, inner in value.items():
                yield f"{key}.{name}", inner


def _names(config: object) -> list[str]:
    return [field.name for field in fields(config)]  # type: ignore[arg-type]  # a dataclass
