"""The tables of a run spec as checked models; limits come from the very classes that Python callers use."""

import secrets
import types
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, Union, cast, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, create_model
from pydantic.fields import FieldInfo

from evopolicygym.run_config import AssessmentConfig, RunConfig, ValidationConfig

_SEED_MAX = 2**64 - 1
_DIGEST = r"^sha256:[0-9a-f]{64}$"

# TOML has no null: this word says None where a limit may be absent.
NO_VALUE = "none"


class Table(BaseModel):
    """A table whose keys are all known."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, use_attribute_docstrings=True)


class OpenTable(BaseModel):
    """A table with ``use``; its other keys are keyword arguments of what ``use`` names."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True, use_attribute_docstrings=True)

    @property
    def arguments(self) -> dict[str, object]:
        """The keyword arguments."""
        return dict(self.model_extra or {})


def _absent_word(value: object) -> object:
    return None if value == NO_VALUE else value


def _random_seed(value: object) -> object:
    return secrets.randbits(64) if value == "random" else value


def _as_key(name: str, field: FieldInfo) -> tuple[Any, FieldInfo]:
    annotation: Any = field.annotation
    for constraint in field.metadata:
        annotation = Annotated[annotation, constraint]
    if get_origin(annotation) in (Union, types.UnionType) and type(None) in get_args(annotation):
        annotation = Annotated[
            annotation, BeforeValidator(_absent_word, json_schema_input_type=annotation | Literal["none"])
        ]
    if name == "seed":
        annotation = Annotated[
            annotation,
            BeforeValidator(_random_seed),
            WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 0, "maximum": _SEED_MAX}, {"const": "random"}]}),
        ]
    description = (field.description or "").replace("None", f'"{NO_VALUE}"')
    if name == "seed":
        description = 'Run seed, unsigned 64-bit; or "random": 64 bits from the operating system, recorded.'
    default = ... if field.is_required() else field.default
    return annotation, Field(default, description=description)


def table_model(config_class: type, title: str, /, **extra_keys: tuple[Any, Any]) -> type[Table]:
    """The TOML form of a configuration class: its fields, save those that are tables of their own, and more keys.

    Args:
        config_class: a pydantic dataclass.
        title: the model's name, as the JSON Schema shows it.
        extra_keys: annotation and default of each further key.
    """
    fields = cast("Mapping[str, FieldInfo]", config_class.__pydantic_fields__)  # type: ignore[attr-defined]  # pydantic dataclasses have it
    keys = {key: _as_key(key, field) for key, field in fields.items() if key not in ("validation", "assessment")}
    make = cast("Callable[..., type[Table]]", create_model)
    return make(title, __base__=Table, **(extra_keys | keys))


if TYPE_CHECKING:  # models made at run time are no types to a checker
    RunTable: TypeAlias = Table
    ValidationTable: TypeAlias = Table
    AssessmentTable: TypeAlias = Table
else:
    RunTable = table_model(
        RunConfig,
        "RunTable",
        record_to=(
            Annotated[str, Field(min_length=1)],
            Field(
                "runs/{name}-{time}",
                description="Directory of the Record, relative to this file; it must not exist. {time} (milliseconds), "
                "{seed} and {name} are filled in.",
            ),
        ),
        name=(
            Annotated[str, Field(min_length=1, pattern=r"^[^/\x00-\x1f]+$")] | None,
            Field(None, description="Name of this Run; the file's name without .toml if it is left out."),
        ),
        python_path=(
            list[str],
            Field(
                ["."],
                description="Directories, relative to this file, from which import paths are looked up first.",
            ),
        ),
    )
    ValidationTable = table_model(ValidationConfig, "ValidationTable")
    AssessmentTable = table_model(AssessmentConfig, "AssessmentTable")


class BenchmarkTable(OpenTable):
    """The Benchmark; keys beside `use` are its keyword arguments."""

    use: Annotated[str, Field(min_length=1)]
    """Import path `package.module:attribute`, or a registered name."""


class AgentTable(OpenTable):
    """The coding agent; keys beside `use` are its keyword arguments."""

    use: Annotated[str, Field(min_length=1)]
    """Import path `package.module:attribute`, or a registered name."""


class ProgramTable(OpenTable):
    """The initial Program: exactly one of `path`, `use`, `from`."""

    model_config = ConfigDict(populate_by_name=False)

    path: Annotated[str, Field(min_length=1)] | None = None
    """A Policy directory, relative to this file."""
    use: Annotated[str, Field(min_length=1)] | None = None
    """Import path of a function that returns a Program; other keys are its keyword arguments."""
    source: Annotated[str, Field(min_length=1)] | None = Field(None, alias="from")
    """A Submission of an earlier Run: `runs/x:submission-000004`; `runs/x` alone is the selected one."""
    digest: Annotated[str, Field(pattern=_DIGEST)] | None = None
    """Refuse a Program with another digest."""


class ExecutionTable(OpenTable):
    """Where Policies run. There is no default: the user says it."""

    use: Literal["unsafe-process", "sandbox"]
    """`unsafe-process`: local processes, no isolation. `sandbox`: isolated; other keys are its arguments."""
    workers: Annotated[
        Annotated[int, Field(ge=0)] | None,
        BeforeValidator(_absent_word, json_schema_input_type=int | Literal["none"] | None),
    ] = None
    """Episodes at once; left out: one a CPU; 0: Environments in the Host process."""


class SkillTable(Table):
    """A Skill directory to put into the Agent's workspace."""

    path: Annotated[str, Field(min_length=1)]
    """Directory that holds SKILL.md, relative to this file."""
    digest: Annotated[str, Field(pattern=_DIGEST)] | None = None
    """Refuse a Skill with another digest."""


class SpecDocument(Table):
    """A run spec of EvoPolicyGym: everything that one Run needs."""

    run: RunTable = Field(default_factory=RunTable)
    """Limits of the Run and where its Record goes."""
    benchmark: BenchmarkTable
    program: ProgramTable
    agent: AgentTable
    execution: ExecutionTable
    validation: ValidationTable | None = None
    """Private Episodes that select one of the candidates; leave the table out for none."""
    assessment: AssessmentTable | None = None
    """Held-out Episodes that measure the selected Program; leave the table out for none."""
    skills: list[SkillTable] = Field(default_factory=list)
    """Agent Skills, in the order in which the task names them."""
