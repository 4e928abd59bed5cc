"""Going on with a Run whose Host is gone, or which ended without being finished."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from evopolicygym.agents import CodingAgent
from evopolicygym.authoring import Benchmark
from evopolicygym.errors import RecordError
from evopolicygym.evaluation.evaluator import Execution
from evopolicygym.record import RUN_SCHEMA, RecordLock, RecordWriter, RunObserver, RunRecord, open_run
from evopolicygym.results import RunResult, SubmissionResult
from evopolicygym.run.lifecycle import Standing, ledger_limits, live
from evopolicygym.run.limits import (
    PARTS,
    check_changeable,
    differing_limits,
    limits_of_document,
    override_texts,
    overrides_of_parts,
    parse_overrides,
    refuse_other_limits,
    with_overrides,
)
from evopolicygym.run.manifest import final_manifest, first_manifest
from evopolicygym.run.preparation import AgentStart, PreparedRun, plan_start, prepare_in
from evopolicygym.run.progress import RunProgress
from evopolicygym.run.recovery import (
    kept_assessment,
    kept_candidates,
    next_attempt,
    read_initial,
    read_progress,
    read_published,
    recorded_result,
)
from evopolicygym.run.task import continued_task_text
from evopolicygym.run_config import RunConfig
from evopolicygym.spec import RecordedParts, load_spec

__all__ = ["resume"]


def resume(
    path: str | os.PathLike[str],
    *,
    benchmark: Benchmark | None = None,
    agent: CodingAgent | None = None,
    execution: Execution | None = None,
    overrides: Mapping[str, object] | None = None,
    part_overrides: Sequence[str] = (),
    add_time_seconds: float = 0.0,
    agent_retries: int = 0,
    select: bool = False,
    observer: RunObserver | None = None,
) -> RunResult:
    """Go on with a Run from its Record, until it is finished or ends otherwise once more.

    What was published stays, what was spent stays spent, and what is complete is not repeated: neither the Agent's
    part after a hand-off, nor a candidate's Validation, nor the Assessment.

    Args:
        path: the Record.
        benchmark: the Benchmark that the Run began with; needed if the Record has no ``spec.toml``.
        agent: the Agent for a further start; needed likewise, unless no start is owed.
        execution: where Policies run; needed likewise.
        overrides: limits that change, by name, such as ``{"episode_budget": 60, "validation.max_candidates": 2}``.
        part_overrides: changes of the Agent or the execution that the Record's ``spec.toml`` names, such as
            ``"execution.workers=4"``.
        add_time_seconds: more wall-clock time for the Agent, added to ``agent_timeout_seconds``.
        agent_retries: how often the Agent is started once more if it crashes, stalls or cannot reach its model.
        select: hand off the published Submissions with the best training scores; the Agent is not started.
        observer: is told every event from now on.

    Returns:
        The result of the whole Run. A Run that is finished is left as it is.

    Raises:
        RecordError: the Record is in use, is damaged (the text names the file and the line), belongs to another
            Benchmark, or cannot go on as asked for; nothing was changed.
        SpecError: its ``spec.toml`` cannot be resolved any more.
        AgentRunError: the Agent cannot be started here; nothing was changed.
        ExecutionUnavailableError: the isolation that the Run has cannot be had here; nothing was changed.
        KeyboardInterrupt: SIGINT or SIGTERM arrived; the Record was committed first.
    """
    wish = Wish(
        benchmark=benchmark,
        agent=agent,
        execution=execution,
        overrides=dict(overrides or {}),
        part_overrides=tuple(part_overrides),
        add_time_seconds=add_time_seconds,
        agent_retries=agent_retries,
        select=select,
    )
    wish.check()
    record = open_run(path)
    with RecordLock(record.layout) as lock:
        record = open_run(path)  # as it is now that nobody else writes it
        if record.schema not in (None, RUN_SCHEMA):
            raise RecordError(f"{record.layout.manifest}: a Record of the form {record.schema!r:.60} cannot be resumed")
        progress, last_seq = read_progress(record)
        if progress.terminal_reason == "finished":
            return _finished(record, progress, lock, last_seq)
        prepared, standing, chosen = plan(record, progress, wish)
        return live(
            prepared,
            standing,
            execution=chosen,
            open_writer=lambda: RecordWriter.reopen(
                lock,
                last_seq=last_seq,
                published=standing.published,
                bulk_feedback_retention_bytes=prepared.config.bulk_feedback_retention_bytes,
            ),
            observer=observer,
        )


@dataclass(frozen=True, slots=True)
class Wish:
    """What the caller of :func:`resume` asks for; its arguments, under their names."""

    benchmark: Benchmark | None = None
    agent: CodingAgent | None = None
    execution: Execution | None = None
    overrides: Mapping[str, object] = field(default_factory=dict)
    part_overrides: tuple[str, ...] = ()
    add_time_seconds: float = 0.0
    agent_retries: int = 0
    select: bool = False

    def check(self) -> None:
        """Raise ValueError for a number that is none."""
        if not 0 <= self.add_time_seconds < float("inf"):
            raise ValueError(f"add_time_seconds must be a number of seconds >= 0, found {self.add_time_seconds!r}")
        if type(self.agent_retries) is not int or self.agent_retries < 0:
            raise ValueError(f"agent_retries must be an int >= 0, found {self.agent_retries!r}")
        for text in self.part_overrides:
            if not text.startswith(PARTS) or "=" not in text:
                raise ValueError(f"a part override looks like agent.model=… or execution.workers=…, not {text!r:.80}")
        if self.add_time_seconds and "agent_timeout_seconds" in self.overrides:
            raise ValueError("add_time_seconds and agent_timeout_seconds both change the Agent's time; give one")


def _recorded_parts(record: RunRecord, overrides: Sequence[str] = ()) -> RecordedParts | None:
    if not os.path.lexists(record.layout.spec):
        if overrides:
            raise RecordError(
                f"{record.path} has no spec.toml, so {overrides[0]} changes nothing; pass the object itself"
            )
        return None
    return load_spec(record.layout.spec, overrides).recorded_parts()


def plan(record: RunRecord, progress: RunProgress, wish: Wish) -> tuple[PreparedRun, Standing, Execution]:
    """Everything that can be checked and planned before anything is written or started.

    Raises:
        RecordError, SpecError, AgentRunError: as :func:`resume`.
    """
    parts = _recorded_parts(record, (*overrides_of_parts(progress.overrides), *wish.part_overrides))
    benchmark = wish.benchmark or (parts.benchmark if parts else None)
    execution = wish.execution or (parts.execution if parts else None)
    missing = [name for name, part in (("benchmark", benchmark), ("execution", execution)) if part is None]
    if benchmark is None or execution is None:
        raise RecordError(
            f"{record.path} has no spec.toml that names its parts: resume it from Python, with "
            f"{' and '.join(f'{name}=…' for name in missing)}"
        )
    config, texts = _limits(record, progress, wish, parts)
    _refuse_other_benchmark(record, progress, benchmark)
    if wish.execution is None:
        _refuse_other_execution(record, progress, wish, execution, benchmark)
    program, skills = read_initial(record, progress)
    published = read_published(record, progress)
    prepared = prepare_in(record.layout, benchmark, config=config, initial_program=program, skills=skills)
    assert progress.started is not None
    if prepared.pool_digest != progress.started["pool_digest"]:
        raise RecordError(
            f"{record.layout.journal}:1: the Benchmark plans other training Episodes now than this line tells; its "
            "code, its arguments or the run seed have changed, so the Run cannot go on"
        )
    start, agent = _start(record, progress, wish, parts, prepared, sandboxed=execution.encloses_agent)
    standing = Standing(
        progress=progress,
        manifest=_manifest(record, progress, prepared, start, repeatable=parts is not None),
        published=published,
        validated=kept_candidates(record.layout, progress, config, published),
        assessed=kept_assessment(record.layout, progress, config, published),
        start=start,
        agent=agent,
        agent_retries=wish.agent_retries,
        select=wish.select,
        overrides=texts,
    )
    return prepared, standing, execution


def _limits(
    record: RunRecord, progress: RunProgress, wish: Wish, parts: RecordedParts | None
) -> tuple[RunConfig, tuple[str, ...]]:
    """The limits from now on, and what of them the journal has to be told."""
    recorded = _recorded_limits(record, parts)
    try:
        before = parse_overrides(progress.overrides)
        recorded = with_overrides(recorded, before)
    except ValueError as error:
        raise RecordError(f"{record.layout.journal}: {error}") from error
    wanted = dict(wish.overrides)
    if wish.add_time_seconds:
        wanted["agent_timeout_seconds"] = recorded.agent_timeout_seconds + wish.add_time_seconds
    try:
        config = with_overrides(recorded, wanted)
        found = None if parts is None else with_overrides(parts.config, {**before, **wanted})
    except ValueError as error:
        raise RecordError(f"{record.path}: an override cannot be taken: {error}") from error
    changed = dict(parse_overrides(override_texts(recorded, wanted)))
    check_changeable(changed, validation_begun=progress.validation_begun, assessment_begun=progress.assessment_begun)
    for key, expected, value in [] if found is None else differing_limits(config, found):
        raise RecordError(
            f"{record.layout.spec}: {key} is {value!r} there, and the Run has {expected!r}; a limit changes only if "
            f"that is said: --set {_spec_key(key)}={value!r}"
        )
    assert progress.started is not None
    source = record.layout.manifest if record.manifest else record.layout.spec
    refuse_other_limits(config, progress.started, {**before, **wanted}, source=source)
    return config, (*override_texts(recorded, wanted), *wish.part_overrides)


def _recorded_limits(record: RunRecord, parts: RecordedParts | None) -> RunConfig:
    try:
        return limits_of_document(record.manifest.get("config"))
    except ValueError as error:
        if parts is None:
            damage = next(iter(record.damage), f"run.json: {error}")
            raise RecordError(f"{record.path}/{damage}; without it the limits of the Run are lost") from error
        return parts.config  # they are written twice, and the journal's first line tells whether they are right


def _spec_key(key: str) -> str:
    return key if "." in key else f"run.{key}"


def _refuse_other_benchmark(record: RunRecord, progress: RunProgress, benchmark: Benchmark) -> None:
    assert progress.started is not None
    spec = benchmark.spec
    for name, now, then in (
        ("id", spec.id, progress.started["benchmark_id"]),
        ("environment digest", spec.environment_digest, progress.started["environment_digest"]),
        ("primary metric", spec.primary_metric, progress.started["primary_metric"]),
        ("score direction", spec.score_direction, progress.started["score_direction"]),
    ):
        if now != then:
            raise RecordError(
                f"{record.layout.journal}:1: the Run began with another Benchmark: its {name} was {then!r}, and is "
                f"{now!r} now"
            )


_EXECUTION_CHOICES = ("policy_limits", "agent_limits", "agent_network", "agent_log_in")


def _refuse_other_execution(
    record: RunRecord, progress: RunProgress, wish: Wish, execution: Execution, benchmark: Benchmark
) -> None:
    """A Run measures Policies under the same limits from its start to its end, unless somebody has said otherwise."""
    began_with = record.manifest.get("host")
    if _is_said("execution.", progress, wish) or not isinstance(began_with, dict) or "execution" not in began_with:
        return

    def choices(kind: object, facts: object) -> dict[str, object]:
        found = facts if isinstance(facts, Mapping) else {}
        return {"use": kind} | {name: found[name] for name in _EXECUTION_CHOICES if name in found}

    kind = began_with.get("execution")
    now = choices(execution.kind, execution.facts_for(benchmark))
    then = choices(kind, began_with.get(str(kind)))
    for name in [name for name in {**then, **now} if then.get(name) != now.get(name)][:1]:
        raise RecordError(
            f"{record.layout.spec}: {name} of its execution is {now.get(name)!r}, and the Run began with "
            f"{then.get(name)!r}, as {record.layout.manifest.name} tells; if it is to go on so, say it, as in "
            "--set execution.use=…"
        )


def _start(
    record: RunRecord,
    progress: RunProgress,
    wish: Wish,
    parts: RecordedParts | None,
    prepared: PreparedRun,
    *,
    sandboxed: bool,
) -> tuple[AgentStart | None, CodingAgent | None]:
    """The Agent's next start, if one is owed and can be made."""
    config = prepared.config
    if progress.ledger.candidates:
        return None, None
    if wish.select:
        if not progress.ledger.published:
            raise RecordError(f"{record.path}: no Submission was published, so none can be handed off")
        return None, None
    seconds_left = config.agent_timeout_seconds - progress.agent_seconds
    if seconds_left <= 0:
        if progress.agent_ended_unsettled is not None:
            return None, None  # what comes of it is still to be said
        raise RecordError(
            f"{record.path}: the Agent has used its {config.agent_timeout_seconds:g} s ({record.layout.journal.name} "
            f"tells of {progress.agent_seconds:.1f} s in {len(progress.attempts)} starts); give it more with "
            "--add-time SECONDS (add_time_seconds), or hand off its best Submissions with --select (select=True)"
        )
    agent = wish.agent or (parts.agent() if parts else None)
    if agent is None:
        raise RecordError(f"{record.path}: the Agent has to be started again, and no spec.toml names it; pass agent=…")
    number = next_attempt(record.layout, progress)
    text = prepared.task
    if progress.attempts or progress.ledger.submissions:
        text = continued_task_text(text, progress, ledger_limits(config), attempt=number, seconds_left=seconds_left)
    start = plan_start(agent, text, record.layout, attempt=number, sandboxed=sandboxed)
    if wish.agent is None:
        _refuse_other_agent(record, progress, wish, start)
    return start, agent


def _is_said(part: str, progress: RunProgress, wish: Wish) -> bool:
    return any(text.startswith(part) for text in (*progress.overrides, *wish.part_overrides))


def _refuse_other_agent(record: RunRecord, progress: RunProgress, wish: Wish, start: AgentStart) -> None:
    """A Run measures one Agent, unless somebody has said that it goes on with another."""
    began_with = record.manifest.get("agent")
    if _is_said("agent.", progress, wish) or not isinstance(began_with, dict):
        return
    identity = start.invocation.identity
    now = identity if isinstance(identity, str) else dict(identity)
    if now != began_with.get("identity"):
        raise RecordError(
            f"{record.layout.spec}: its Agent is {now}, and the Run began with {began_with.get('identity')}; if it is "
            "to go on with another, say so, as in --set agent.model=…"
        )


def _manifest(
    record: RunRecord, progress: RunProgress, prepared: PreparedRun, start: AgentStart | None, *, repeatable: bool
) -> Mapping[str, object]:
    """What ``run.json`` says; made anew if it is damaged."""
    if record.schema is not None and isinstance(record.manifest.get("agent"), dict):
        return record.manifest
    agent: dict[str, object] = {"identity": progress.started["agent"] if progress.started else None}
    if start is not None:
        agent["command"] = list(start.invocation.recorded_command)
    began = datetime.fromtimestamp(progress.started_unix_ns / 1e9, UTC)
    return first_manifest(prepared, agent=agent, execution_facts={}, repeatable=repeatable, started=began)


def finished_result(record: RunRecord, progress: RunProgress) -> tuple[RunResult, tuple[SubmissionResult, ...]]:
    """The result of a Run that is finished, read back, and all that was published.

    Raises:
        RecordError: the Record is damaged.
    """
    parts = None if isinstance(record.manifest.get("config"), dict) else _recorded_parts(record)
    try:
        config = with_overrides(_recorded_limits(record, parts), parse_overrides(progress.overrides))
    except ValueError as error:
        raise RecordError(f"{record.layout.journal}: {error}") from error
    published = read_published(record, progress)
    validated = kept_candidates(record.layout, progress, config, published)
    assessed = kept_assessment(record.layout, progress, config, published)
    return recorded_result(progress, config, published, validated, assessed), published


def _finished(record: RunRecord, progress: RunProgress, lock: RecordLock, last_seq: int) -> RunResult:
    """Of a Run that needs nothing more, but perhaps the last version of its manifest."""
    result, published = finished_result(record, progress)
    if record.manifest.get("terminal_reason") != "finished":  # the Host was killed between line and manifest
        with RecordWriter.reopen(lock, last_seq=last_seq, published=published) as writer:
            writer.write_manifest(
                final_manifest(
                    record.manifest,
                    submissions=published,
                    progress=progress,
                    environment_names=None,
                    agent_told={},
                    result=result,
                    error=None,
                    execution_facts={},
                    ended=datetime.now(UTC),
                )
            )
    return result
