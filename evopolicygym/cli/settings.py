"""The user's own defaults, from ``config.toml`` in their configuration directory: nothing that changes a result."""

import os
import tomllib
from pathlib import Path
from typing import Annotated, Literal

import platformdirs
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from evopolicygym.errors import SpecError
from evopolicygym.spec.problems import did_you_mean, key_text
from evopolicygym.spec.record_path import expand_home

WORKERS_VARIABLE = "EVOPOLICYGYM_WORKERS"


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Display(_Table):
    """How Runs are shown."""

    progress: Literal["auto", "live", "plain", "json", "off"] = "auto"


class Execution(_Table):
    """How many Episodes run at once where neither spec nor environment says it."""

    workers: Annotated[int, Field(ge=0)] | None = None


class Records(_Table):
    """Where Records go if a spec has no ``record_to``."""

    directory: Annotated[str, Field(min_length=1)] | None = None


class Settings(_Table):
    """All of ``config.toml``; every table and key may be left out."""

    display: Display = Field(default_factory=Display)
    execution: Execution = Field(default_factory=Execution)
    records: Records = Field(default_factory=Records)

    @property
    def records_directory(self) -> Path | None:
        """Absolute directory for Records; None if the spec's own default holds."""
        directory = self.records.directory
        return None if directory is None else expand_home(directory).absolute()

    def set_workers(self) -> None:
        """Let the engine know; the variable of the environment goes first."""
        if self.execution.workers is not None:
            os.environ.setdefault(WORKERS_VARIABLE, str(self.execution.workers))


def settings_path() -> Path:
    """Where the file is looked for."""
    return Path(platformdirs.user_config_dir("evopolicygym", appauthor=False)) / "config.toml"


def load_settings() -> Settings:
    """Read the file; without one, or without a home that it could be in, all defaults.

    Raises:
        SpecError: it is no TOML, or holds what no setting is.
    """
    try:
        path = settings_path()
    except RuntimeError:  # no home directory is known
        return Settings()
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
        return Settings.model_validate(document)
    except FileNotFoundError:
        return Settings()
    except OSError as error:
        raise SpecError(f"{path}: cannot be read: {error.strerror or error}") from error
    except ValidationError as error:
        raise SpecError("\n".join([f"{path}:", *map(_line, error.errors(include_url=False))])) from None
    except ValueError as error:  # no UTF-8, or no TOML
        raise SpecError(f"{path}: {error}") from None


def _line(found: object) -> str:
    assert isinstance(found, dict)
    path = tuple(found["loc"])
    table = Settings.model_fields.get(str(path[0]))
    known = list(Settings.model_fields)
    if len(path) > 1 and table is not None and isinstance(table.annotation, type):
        known = list(getattr(table.annotation, "model_fields", known))
    if found["type"] == "extra_forbidden":
        near = did_you_mean(str(path[-1]), known) or f" Known are: {', '.join(known)}"
        return f"  {key_text(path)}: there is no such setting.{near}"
    return f"  {key_text(path)} = {found['input']!r}: {found['msg']}"
