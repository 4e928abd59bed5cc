"""A checked run spec, and the objects that it names."""

import inspect
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Never, TypeVar, cast

from evopolicygym.agents import CodingAgent, CommandAgent
from evopolicygym.authoring import Benchmark
from evopolicygym.authoring.interfaces import missing_members
from evopolicygym.errors import AgentSkillError, ProgramError
from evopolicygym.evaluation.evaluator import Execution
from evopolicygym.execution import ProcessExecution
from evopolicygym.program import Program
from evopolicygym.run_config import RunConfig
from evopolicygym.skills import AgentSkill, check_skills
from evopolicygym.spec.checking import check_document, run_config
from evopolicygym.spec.models import NO_VALUE, OpenTable, ProgramTable, RunTable, SpecDocument
from evopolicygym.spec.names import (
    AGENTS,
    BENCHMARKS,
    UnusableNameError,
    absolute_import_path,
    construct,
    default_arguments,
    load_attribute,
    look_up_in,
)
from evopolicygym.spec.problems import KeyPath, Problem, ProblemsFoundError, did_you_mean, spec_error
from evopolicygym.spec.record_path import absolute_template, expand_home, record_directory
from evopolicygym.spec.source import SpecSource, expand, literal_text, read_source

T = TypeVar("T")

_SUBMISSION = re.compile(r"submission-[0-9]{6,}")


@dataclass(frozen=True, slots=True)
class ResolvedRun:
    """Everything that :func:`evopolicygym.run.run` takes.

    Args:
        spec_document: the resolved spec for the Record: runnable again from there.
    """

    initial_program: Program
    benchmark: Benchmark
    agent: CodingAgent
    execution: Execution
    record_to: Path
    config: RunConfig
    skills: tuple[AgentSkill, ...]
    spec_document: dict[str, object]


@dataclass(frozen=True, slots=True)
class ResolvedEvaluation:
    """The parts of a spec that an evaluation without an Agent needs."""

    program: Program
    benchmark: Benchmark
    execution: Execution
    config: RunConfig


@dataclass(frozen=True, slots=True)
class RecordedParts:
    """What a Run that is resumed takes from the spec in its Record; the Agent is made when it is asked for."""

    config: RunConfig
    benchmark: Benchmark
    execution: Execution
    agent: Callable[[], CodingAgent]


class _Parts:
    """Takes the parts of a spec one after the other, and reports what is wrong with all of them together."""

    def __init__(self, problems: list[Problem] | None = None) -> None:
        self._problems = [] if problems is None else problems

    def take(self, part: Callable[[], T]) -> T:
        """The part; after a problem nothing that may be used, since :meth:`check` will raise."""
        try:
            return part()
        except ProblemsFoundError as found:
            self._problems.extend(found.problems)
            return cast("T", None)

    def check(self, display: str) -> None:
        """Raise SpecError if any part had a problem."""
        if self._problems:
            raise spec_error(display, self._problems)


class Spec:
    """One run spec whose keys and values are in order. Made by :func:`load_spec`."""

    def __init__(self, source: SpecSource, tables: Mapping[str, Any], config: RunConfig | None) -> None:
        self._source = source
        self._tables = tables
        self._config = config

    @property
    def path(self) -> Path:
        """Absolute path of the file."""
        return self._source.path

    @property
    def config(self) -> RunConfig:
        """Limits of the Run; a seed "random" is drawn when the spec is loaded."""
        assert self._config is not None
        return self._config

    @property
    def name(self) -> str:
        """Name of the Run: ``run.name``, else the file's name without ``.toml``."""
        return str(self._tables["run"].name or self.path.stem)

    def resolve(self) -> ResolvedRun:
        """Import, construct and read all that the spec names; nothing is written or started.

        Raises:
            SpecError: every name, argument, path or digest that is wrong, together.
            ExecutionUnavailableError: the isolation asked for cannot be had here.
        """
        parts = _Parts()
        benchmark = parts.take(self._benchmark)
        program = parts.take(self._program)
        agent = parts.take(self._agent)
        execution = parts.take(self._execution)
        skills = parts.take(self._skills)
        record_to = parts.take(self._record_to)
        parts.check(self._source.display)
        return ResolvedRun(
            program,
            benchmark,
            agent,
            execution,
            record_to,
            self.config,
            skills,
            self.document(
                program={"path": "initial/program", "digest": program.digest},
                skills=[{"path": f"initial/skills/{s.name}", "digest": s.digest} for s in skills],
            ),
        )

    def resolve_evaluation(self, program_directory: str | os.PathLike[str] | None = None) -> ResolvedEvaluation:
        """What an evaluation needs: Benchmark, Program and execution; the Agent is not looked at.

        Args:
            program_directory: take this Policy directory in place of the spec's Program.

        Raises:
            SpecError: what is wrong with the tables used.
            ProgramError: ``program_directory`` is no Program.
            ExecutionUnavailableError: the isolation asked for cannot be had here.
        """
        parts = _Parts()
        benchmark = parts.take(self._benchmark)
        execution = parts.take(self._execution)
        given = program_directory
        program = parts.take(self._program) if given is None else Program.from_directory(given)
        parts.check(self._source.display)
        return ResolvedEvaluation(program, benchmark, execution, self.config)

    def recorded_parts(self) -> RecordedParts:
        """What a Run that goes on in its Record needs of the spec that lies there.

        Raises:
            SpecError: what is wrong with the tables used.
            ExecutionUnavailableError: the isolation asked for cannot be had here.
        """
        parts = _Parts()
        benchmark = parts.take(self._benchmark)
        execution = parts.take(self._execution)
        parts.check(self._source.display)
        return RecordedParts(self.config, benchmark, execution, self._resolved_agent)

    def _resolved_agent(self) -> CodingAgent:
        parts = _Parts()
        agent = parts.take(self._agent)
        parts.check(self._source.display)
        return agent

    def document(
        self, *, program: Mapping[str, object] | None = None, skills: Sequence[Mapping[str, object]] | None = None
    ) -> dict[str, object]:
        """The spec with every default written out and every name absolute.

        ``${VAR}`` stays unexpanded and ``record_to`` keeps its placeholders.

        Args:
            program: another ``[program]`` table, such as one that points into a Record.
            skills: other ``[[skills]]`` tables.
        """
        document: dict[str, object] = {"run": self._run_document()}
        document["benchmark"] = self._named_document("benchmark", BENCHMARKS)
        document["program"] = dict(program) if program is not None else self._program_document()
        document["agent"] = self._named_document("agent", AGENTS)
        document["execution"] = self._kept_table("execution", {"use": self._tables["execution"].use})
        for name in ("validation", "assessment"):
            if self._tables.get(name) is not None:
                document[name] = self._kept_table(name, self._tables[name].model_dump())
        own = [
            {"path": self._absolute_text(("skills", index, "path"), skill.path)}
            | ({"digest": skill.digest} if skill.digest else {})
            for index, skill in enumerate(self._tables["skills"])
        ]
        tables = own if skills is None else [dict(skill) for skill in skills]
        if tables:
            document["skills"] = tables
        return document

    def named_parts(self) -> list[tuple[str, Callable[[], object]]]:
        """The tables that name something outside the spec, each with the check that it is there."""
        return [
            ("benchmark", self._benchmark),
            ("program", self._program),
            ("agent", self._agent),
            ("execution", self._execution),
            ("skills", self._skills),
        ]

    # The parts: each raises ProblemsFoundError with what is wrong in its own table.

    def _benchmark(self) -> Benchmark:
        value = self._named_object("benchmark", BENCHMARKS)
        missing = missing_members(value, Benchmark)
        if missing:
            self._fail(
                ("benchmark", "use"),
                f"this gives {_what(value)}, which is no Benchmark: it lacks {', '.join(missing)}",
            )
        return cast("Benchmark", value)

    def _agent(self) -> CodingAgent:
        value = self._named_object("agent", AGENTS, self._agent_arguments)
        if not callable(inspect.getattr_static(value, "build_invocation", None)):
            self._fail(
                ("agent", "use"), f"this gives {_what(value)}, which is no Agent: it lacks build_invocation(task)"
            )
        return cast("CodingAgent", value)

    def _program(self) -> Program:
        table: ProgramTable = self._tables["program"]
        key = "path" if table.path is not None else "use" if table.use is not None else "from"
        try:
            if table.use is not None:
                program = self._program_from_call()
            else:
                directory = self._at_home(table.path) if table.path is not None else self._recorded_program(table)
                program = Program.from_directory(directory)
        except ProgramError as error:
            hint = _policy_directories(self._at_home(table.path)) if table.path is not None else ""
            self._fail(("program", key), f"{error}{hint}")
        if table.digest is not None and table.digest != program.digest:
            self._fail(
                ("program", "digest"),
                f"the Program has changed: its digest is {program.digest}; drop the key if that is meant",
            )
        return program

    def _program_from_call(self) -> Program:
        value = self._named_object("program", None)
        if not isinstance(value, Program):
            self._fail(("program", "use"), f"this gives {_what(value)}; it must return an evopolicygym.Program")
        return value

    def _recorded_program(self, table: ProgramTable) -> Path:
        assert table.source is not None
        path: KeyPath = ("program", "from")
        record, _, wanted = table.source.rpartition(":")
        if not record or "/" in wanted:
            record, wanted = table.source, ""
        directory = self._at_home(record)
        if not (directory / "run.json").is_file():
            self._fail(path, f"{directory} is no Record: there is no run.json in it")
        if not wanted:
            wanted = self._selected_submission(directory)
        if wanted == "initial":
            return directory / "initial" / "program"
        published = sorted(entry.name for entry in (directory / "submissions").glob("submission-*"))
        if wanted not in published:
            shown = f"it has {published[0]} to {published[-1]}" if published else "it has none"
            self._fail(
                path,
                f'the Record has no Submission "{wanted}"; {shown}, and "initial".{did_you_mean(wanted, published)}',
            )
        return directory / "submissions" / wanted / "program"

    def _selected_submission(self, directory: Path) -> str:
        from evopolicygym.record import open_run

        selected = open_run(directory).manifest.get("selected_submission_id")
        if not isinstance(selected, str):
            self._fail(
                ("program", "from"),
                f"the Run in {directory} selected no Submission; name one: {directory.name}:submission-000001",
            )
        return selected

    def _execution(self) -> Execution:
        table = self._tables["execution"]
        if table.use == "unsafe-process":
            return ProcessExecution.unsafe(workers=table.workers)
        from evopolicygym.execution import SandboxExecution

        arguments = table.arguments | ({} if table.workers is None else {"workers": table.workers})
        try:
            return cast("Execution", construct(SandboxExecution, arguments, "evopolicygym.execution:SandboxExecution"))
        except UnusableNameError as problem:
            self._fail(("execution", problem.argument or "use"), str(problem))

    def _skills(self) -> tuple[AgentSkill, ...]:
        skills: list[AgentSkill] = []
        problems: list[Problem] = []
        for index, table in enumerate(self._tables["skills"]):
            try:
                skill = AgentSkill.from_directory(self._at_home(table.path))
            except AgentSkillError as error:
                problems.append(self._source.problem(("skills", index, "path"), str(error)))
                continue
            if table.digest is not None and table.digest != skill.digest:
                problems.append(
                    self._source.problem(
                        ("skills", index, "digest"), f"the Skill has changed: its digest is {skill.digest}"
                    )
                )
            if skill.name in [other.name for other in skills]:
                problems.append(
                    self._source.problem(
                        ("skills", index, "path"), f'a Skill named "{skill.name}" stands above already'
                    )
                )
            skills.append(skill)
        if problems:
            raise ProblemsFoundError(problems)
        try:
            return check_skills(skills)
        except AgentSkillError as error:
            self._fail(("skills",), str(error))

    def _record_to(self) -> Path:
        try:
            target = record_directory(
                self._tables["run"].record_to,
                self.path.parent,
                name=self.name,
                seed=self.config.seed,
                now=datetime.now(),
            )
        except ValueError as error:
            self._fail(("run", "record_to"), str(error))
        program = self._tables["program"].path
        if program is not None and target.is_relative_to(self._at_home(program)):
            self._fail(
                ("run", "record_to"),
                f"{target} lies inside the Program {program!r}, so that the next Run would start from this Record, "
                "too; choose a place outside",
            )
        return target

    # Names and places.

    def _agent_arguments(self, target: object, arguments: dict[str, object]) -> dict[str, object]:
        """A command's own directory is, like every path of a spec, relative to the spec file."""
        if not (isinstance(target, type) and issubclass(target, CommandAgent)):
            return arguments
        directory = arguments.get("directory", ".")
        return arguments | ({"directory": str(self._at_home(directory))} if isinstance(directory, str) else {})

    def _named_object(
        self,
        name: str,
        group: str | None,
        placed: Callable[[object, dict[str, object]], dict[str, object]] | None = None,
    ) -> object:
        table: OpenTable = self._tables[name]
        use = str(table.use)  # type: ignore[attr-defined]  # every table that is asked for has it
        directories = self._python_path()
        look_up_in(directories)
        try:
            import_path = absolute_import_path(use, group)
            target = load_attribute(import_path, directories)
        except UnusableNameError as problem:
            self._fail((name, "use"), str(problem))
        try:
            arguments = table.arguments if placed is None else placed(target, table.arguments)
            return construct(target, arguments, import_path)
        except UnusableNameError as problem:
            self._fail((name, problem.argument or "use"), str(problem))

    def _python_path(self) -> list[Path]:
        return [self._at_home(place) for place in self._tables["run"].python_path]

    def _at_home(self, text: str) -> Path:
        return Path(os.path.normpath(self.path.parent / expand_home(text)))

    def _fail(self, path: KeyPath, message: str) -> Never:
        raise ProblemsFoundError([self._source.problem(path, message)])

    # The resolved document.

    def _run_document(self) -> dict[str, object]:
        table = self._tables["run"]
        values: dict[str, object] = {
            "name": self.name,
            "record_to": absolute_template(
                str(self._source.raw(("run", "record_to")) or table.record_to), table.record_to, self.path.parent
            ),
            "python_path": [
                self._absolute_text(("run", "python_path", index), place)
                for index, place in enumerate(table.python_path)
            ],
        }
        for key in RunConfig.__pydantic_fields__:  # type: ignore[attr-defined]  # pydantic dataclasses have it
            if key not in ("validation", "assessment"):
                value = getattr(self.config, key)
                default = type(table).model_fields[key].default
                # TOML has no null; a key whose default is "no limit" is left out.
                if value is not None or default is not None:
                    values[key] = NO_VALUE if value is None else value
        written = {"record_to", "python_path"}
        return {key: value if key in written else self._kept(("run", key), value) for key, value in values.items()}

    def _named_document(self, name: str, group: str | None) -> dict[str, object]:
        use = self._tables[name].use
        raw_use = self._kept((name, "use"), use)
        absolute = absolute_import_path(use, group)
        table = cast("dict[str, object]", self._source.document[name])
        look_up_in(self._python_path())
        target = load_attribute(absolute, self._python_path())
        defaults = default_arguments(target)
        given = {key: value for key, value in table.items() if key != "use"}
        document = {"use": absolute if raw_use == use else raw_use} | defaults | given
        if name == "agent" and isinstance(target, type) and issubclass(target, CommandAgent):
            directory = self._tables["agent"].arguments.get("directory", ".")
            if isinstance(directory, str):
                document["directory"] = self._absolute_text(("agent", "directory"), directory)
        return document

    def _program_document(self) -> dict[str, object]:
        table: ProgramTable = self._tables["program"]
        raw = cast("dict[str, object]", self._source.document["program"])
        if table.path is not None:
            return dict(raw) | {"path": self._absolute_text(("program", "path"), table.path)}
        if table.source is not None:
            return dict(raw) | {"from": self._absolute_text(("program", "from"), table.source)}
        return dict(raw)

    def _kept_table(self, name: str, values: Mapping[str, object]) -> dict[str, object]:
        raw = cast("dict[str, object]", self._source.document[name])
        kept = {key: self._kept((name, key), value) for key, value in values.items() if value is not None}
        return kept | {key: value for key, value in raw.items() if key not in kept}

    def _kept(self, path: KeyPath, value: object) -> object:
        raw = self._source.raw(path)
        return raw if isinstance(raw, str) and "${" in raw else value

    def _absolute_text(self, path: KeyPath, value: str) -> str:
        raw = self._source.raw(path)
        text = raw if isinstance(raw, str) and "${" in raw else value
        if expand_home(value).is_absolute():
            return text
        return os.path.normpath(self.path.parent / text) if text == value else f"{self.path.parent}/{text}"


def load_spec(
    path: str | os.PathLike[str],
    overrides: Sequence[str] = (),
    *,
    record_to: str | None = None,
    records: Path | None = None,
) -> Spec:
    """Read and check a run spec; nothing that it names is imported unless there is something to complain about.

    Args:
        path: a TOML file.
        overrides: ``"table.key=TOML-value"``, each as after ``--set``.
        record_to: in place of the spec's ``record_to``, relative to the working directory.
        records: directory for the Record if the spec has no ``record_to``; ``runs`` beside the spec if None.

    Raises:
        SpecError: everything that is wrong, at once: place, key, value found, what is allowed.
    """
    source = read_source(Path(path), overrides)
    run_table = source.document.setdefault("run", {})
    if not isinstance(run_table, dict):
        pass  # that is told below
    elif record_to is not None:
        absolute = os.path.normpath(Path.cwd() / expand_home(record_to))
        source.override(("run", "record_to"), absolute, f"--record-to {record_to}")
    elif records is not None and "record_to" not in run_table:
        escaped = literal_text(str(records).replace("{", "{{").replace("}", "}}"))
        source.override(("run", "record_to"), f"{escaped}/{{name}}-{{time}}", "your default directory for Records")
    try:
        document = expand(source, os.environ)
    except ProblemsFoundError as found:
        raise spec_error(source.display, found.problems) from None
    tables, problems = check_document(source, document)
    parts = _Parts(problems)
    config = None
    if "run" in tables and {"validation", "assessment"} & set(document) <= set(tables):
        config = parts.take(lambda: run_config(source, tables))
    spec = Spec(source, tables, config)
    if problems:
        # The tables that are well-formed may still name what does not exist: say all of it at once.
        if "run" not in tables:
            tables["run"] = RunTable()  # where names are looked up by default
        for name, part in spec.named_parts():
            if name in tables:
                parts.take(part)
    parts.check(source.display)
    return spec


def spec_schema() -> dict[str, object]:
    """The JSON Schema (draft 2020-12) of a run spec, for editors and other tools."""
    schema = SpecDocument.model_json_schema(by_alias=True)
    schema = cast("dict[str, Any]", _without_null(schema))
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "EvoPolicyGym run spec"
    schema["$defs"]["ProgramTable"]["oneOf"] = [{"required": [key]} for key in ("path", "use", "from")]
    return cast("dict[str, object]", schema)


def _without_null(node: object) -> object:
    """TOML has no null: drop it from the schema wherever it is one of several."""
    if isinstance(node, list):
        return [_without_null(item) for item in node]
    if not isinstance(node, dict):
        return node
    cleaned = {key: _without_null(item) for key, item in node.items() if not (key == "default" and item is None)}
    options = cleaned.get("anyOf")
    if isinstance(options, list):
        left = [option for option in options if option != {"type": "null"}]
        if len(left) == 1 and isinstance(left[0], dict):
            del cleaned["anyOf"]
            cleaned = left[0] | cleaned
        else:
            cleaned["anyOf"] = left
    if isinstance(cleaned.get("title"), str) and "properties" not in cleaned:
        del cleaned["title"]
    return cleaned


def _policy_directories(path: Path) -> str:
    """A hint at the Policy directories beside one that is not there."""
    if path.exists():
        return ""
    nearby = sorted(entry.parent.name for entry in path.parent.glob("*/policy.py"))[:5]
    return f"; Policy directories there: {', '.join(nearby)}" if nearby else ""


def _what(value: object) -> str:
    kind = type(value).__qualname__
    return f"an {kind}" if kind[0] in "aeiouAEIOU" else f"a {kind}"
