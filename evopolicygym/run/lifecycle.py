"""One Run's life: prepare, Agent phase, selection, Assessment, commit."""

import os
import signal
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import evopolicygym
from evopolicygym.agents import AgentTask, CodingAgent
from evopolicygym.analysis import run_diagnostics
from evopolicygym.authoring import Benchmark
from evopolicygym.errors import BenchmarkError, EvaluationError
from evopolicygym.evaluation import Evaluator
from evopolicygym.execution import ProcessExecution
from evopolicygym.process import Supervisor
from evopolicygym.program import Program
from evopolicygym.record import RUN_SCHEMA, RecordWriter, RunObserver, events
from evopolicygym.results import RunResult, SubmissionResult, TerminalReason
from evopolicygym.run.agent_phase import AgentClock, AgentPhase, PhaseEnd
from evopolicygym.run.config import RunConfig
from evopolicygym.run.desk import SessionDesk
from evopolicygym.run.interruption import Interruption
from evopolicygym.run.manifest import (
    assessment_report,
    final_manifest,
    first_manifest,
    seed_strength,
    validation_report,
)
from evopolicygym.run.outcome import Outcome
from evopolicygym.run.preparation import PreparedRun, prepare
from evopolicygym.run.private_phases import PrivateEvaluations, RunInterrupted
from evopolicygym.run.selection import best_submissions
from evopolicygym.session import LedgerLimits, LedgerState, Session
from evopolicygym.skills import AgentSkill

__all__ = ["run", "run_with_spec"]


def run(
    initial_program: Program,
    benchmark: Benchmark,
    *,
    agent: CodingAgent,
    execution: ProcessExecution,
    record_to: str | os.PathLike[str],
    config: RunConfig | None = None,
    skills: Sequence[AgentSkill] = (),
    observer: RunObserver | None = None,
) -> RunResult:
    """Let one Agent improve a Policy on a budget, then select and measure what it hands off.

    Args:
        initial_program: what the Agent starts from.
        benchmark: the task.
        agent: who improves it.
        execution: where Policies run.
        record_to: the Record's directory; it must not exist, its parent is made if missing.
        config: limits and choices; defaults to ``RunConfig()``.
        skills: instructions that the Agent finds in its workspace.
        observer: is told every event of the journal.

    Returns:
        The result; the same, and more, stands in the Record.

    Raises:
        TypeError, ValueError: an argument is wrong; nothing was written.
        AgentRunError: the Agent cannot be started here; nothing was written.
        BenchmarkError: the Benchmark breaks its contract; nothing was written.
        RecordError: ``record_to`` exists, or the Record cannot be written.
        KeyboardInterrupt: SIGINT or SIGTERM arrived; the Record was committed first.
    """
    return run_with_spec(
        initial_program,
        benchmark,
        agent=agent,
        execution=execution,
        record_to=record_to,
        config=config,
        skills=skills,
        observer=observer,
        spec_document=None,
    )


def run_with_spec(
    initial_program: Program,
    benchmark: Benchmark,
    *,
    agent: CodingAgent,
    execution: ProcessExecution,
    record_to: str | os.PathLike[str],
    config: RunConfig | None = None,
    skills: Sequence[AgentSkill] = (),
    observer: RunObserver | None = None,
    spec_document: Mapping[str, object] | None,
) -> RunResult:
    """:func:`run`, with the resolved run spec that the Record keeps as ``spec.toml`` (None: there is none)."""
    prepared = prepare(initial_program, benchmark, agent=agent, record_to=record_to, config=config, skills=skills)
    with (
        Interruption() as interruption,
        Supervisor() as supervisor,
        Evaluator(
            benchmark,
            execution,
            episode_timeout_seconds=prepared.config.episode_timeout_seconds,
            environment_timeout_seconds=prepared.config.environment_timeout_seconds,
            supervisor=supervisor,
            on_notice=lambda message: life.notice(message),  # called by evaluate() only, when there is a life
        ) as evaluator,
        RecordWriter.create(
            prepared.record_to, bulk_feedback_retention_bytes=prepared.config.bulk_feedback_retention_bytes
        ) as writer,
    ):
        if observer is not None:
            writer.journal.subscribe(observer)
        life = _Life(prepared, writer, evaluator, supervisor, interruption, spec_document)
        result = life.live()
    if result.terminal_reason == "interrupted":
        raise KeyboardInterrupt
    return result


class _Life:
    def __init__(
        self,
        prepared: PreparedRun,
        writer: RecordWriter,
        evaluator: Evaluator,
        supervisor: Supervisor,
        interruption: Interruption,
        spec_document: Mapping[str, object] | None,
    ) -> None:
        self._prepared = prepared
        self._config = prepared.config
        self._writer = writer
        self._journal = writer.journal
        self._evaluator = evaluator
        self._supervisor = supervisor
        self._interruption = interruption
        self._spec_document = spec_document
        self._clock = AgentClock(self._config.agent_timeout_seconds)
        self._desk = SessionDesk(prepared, writer, evaluator, self._clock.remaining)
        self._limits = _ledger_limits(prepared.config)
        self._episodes_spent = 0

    def live(self) -> RunResult:
        """The whole life, from the first file to the last."""
        first = self._open_record()
        if self._evaluator.facts["execution"] == "unsafe-process":
            self.notice("unsafe-process is not a sandbox: Policies and the Agent run with your rights")
        with self._open_session() as session:
            self._journal.subscribe(session)
            phase_end = self._agent_phase(session)
            outcome = self._outcome_of(phase_end, session.state)
            self._episodes_spent = self._config.episode_budget - self._limits.episodes_remaining(session.state)
        if outcome.candidates:
            try:
                self._select(outcome)
                self._assess(outcome)
            except RunInterrupted:
                outcome.terminal_reason = "interrupted"
                self._note_interruption("assessment" if outcome.selected else "validation")
        return self._commit(first, phase_end, outcome)

    def notice(self, message: str) -> None:
        """Journal something that a reader should know."""
        self._journal.append(events.Notice(message=message))

    def _open_record(self) -> dict[str, object]:
        prepared, config = self._prepared, self._config
        started = datetime.now(UTC)
        self._writer.write_initial(prepared.initial_program, prepared.skills)
        self._writer.write_text("agent/instructions.md", prepared.invocation.instructions or prepared.task)
        self._writer.write_json(
            "agent/invocation.json",
            {
                "command": list(prepared.invocation.recorded_command),
                "identity": _plain(prepared.invocation.identity),
                "inherited_environment": list(prepared.invocation.inherited_environment),
                "set_environment": sorted(prepared.invocation.environment),
                "task_delivery": prepared.invocation.task_delivery,
                "stdout_media_type": prepared.invocation.stdout_media_type,
            },
        )
        if self._spec_document is not None:
            import tomli_w

            self._writer.write_text("spec.toml", tomli_w.dumps(dict(self._spec_document)))
        manifest = first_manifest(
            prepared,
            execution_facts=self._evaluator.facts,
            repeatable=self._spec_document is not None,
            started=started,
        )
        self._writer.write_manifest(manifest)
        assert config.max_submissions is not None
        assert config.episode_pool_size is not None
        self._journal.append(
            events.RunStarted(
                schema=RUN_SCHEMA,
                library_version=evopolicygym.__version__,
                benchmark_id=prepared.spec.id,
                environment_digest=prepared.spec.environment_digest,
                program_digest=prepared.initial_program.digest,
                agent=prepared.invocation.name,
                split=config.split,
                seed_strength=seed_strength(config.seed),
                pool_size=config.episode_pool_size,
                pool_digest=prepared.pool_digest,
                episode_budget=config.episode_budget,
                max_submissions=config.max_submissions,
                max_episodes_per_submission=config.max_episodes_per_submission,
                finish_budget_policy=config.finish_budget_policy,
                max_candidates=config.max_candidates,
                agent_timeout_seconds=config.agent_timeout_seconds,
                primary_metric=prepared.spec.primary_metric,
                score_direction=prepared.spec.score_direction,
                validation_episodes=config.validation.episodes_per_candidate if config.validation else None,
                assessment_episodes=config.assessment.episodes if config.assessment else None,
            )
        )
        return manifest

    def _open_session(self) -> Session:
        return Session(
            self._limits,
            self._desk,
            workspace=self._writer.layout.workspace,
            primary_metric=self._prepared.spec.primary_metric,
            score_direction=self._prepared.spec.score_direction,
        )

    def _agent_phase(self, session: Session) -> PhaseEnd:
        phase = AgentPhase(
            writer=self._writer,
            supervisor=self._supervisor,
            session=session,
            task=AgentTask(self._prepared.task),
            invocation=self._prepared.invocation,
            interruption=self._interruption,
            clock=self._clock,
        )
        try:
            return phase.run()
        finally:
            self._desk.seal()

    def _outcome_of(self, phase_end: PhaseEnd, ledger: LedgerState) -> Outcome:
        if phase_end.cause == "interrupted":
            self._note_interruption("agent")
            return Outcome("interrupted", candidates=ledger.candidates)
        if phase_end.cause == "fault":
            return Outcome("evaluation_failed", error=phase_end.message)
        if ledger.candidates:
            return Outcome("finished", candidates=ledger.candidates, handed_off_by="agent")
        reason = self._unfinished_reason(phase_end, ledger)
        if self._config.when_unfinished == "discard" or phase_end.resumable or not self._desk.submissions:
            return Outcome(reason)
        best = best_submissions(
            self._desk.submissions,
            direction=self._prepared.spec.score_direction,
            count=self._config.max_candidates,
        )
        self._journal.append(events.FinishRequested(candidate_submission_ids=best, handed_off_by="host"))
        return Outcome("finished", candidates=best, handed_off_by="host")

    def _unfinished_reason(self, phase_end: PhaseEnd, ledger: LedgerState) -> TerminalReason:
        if phase_end.cause == "timed_out":
            return "agent_timed_out"
        if phase_end.cause == "not_started" or not phase_end.clean:
            return "agent_failed"
        spent = not self._limits.episodes_remaining(ledger) or not self._limits.submissions_remaining(ledger)
        return "budget_exhausted" if spent else "agent_exited"

    def _private_evaluations(self) -> PrivateEvaluations:
        return PrivateEvaluations(
            self._prepared.benchmark,
            self._prepared.spec,
            run_seed=self._config.seed,
            evaluator=self._evaluator,
            journal=self._journal,
            interruption=self._interruption,
        )

    def _submission(self, submission_id: str) -> SubmissionResult:
        return next(s for s in self._desk.submissions if s.submission_id == submission_id)

    def _select(self, outcome: Outcome) -> None:
        if outcome.terminal_reason != "finished":
            return
        if self._config.validation is None:
            outcome.selected = outcome.candidates[0]
            self._journal.append(events.CandidateSelected(submission_id=outcome.selected, selected_by="only_candidate"))
            return
        candidates = [self._submission(submission_id) for submission_id in outcome.candidates]
        try:
            validation = self._private_evaluations().validate(candidates, self._config.validation)
        except (EvaluationError, BenchmarkError) as error:
            outcome.terminal_reason = "validation_failed"
            outcome.error = f"{type(error).__name__}: {error}"
            self._journal.append(events.ValidationFailed(message=outcome.error))
            return
        self._writer.write_json("validation/report.json", validation_report(validation))
        outcome.validation = validation
        outcome.selected = validation.selected_submission_id
        self._journal.append(events.CandidateSelected(submission_id=outcome.selected, selected_by="validation"))

    def _assess(self, outcome: Outcome) -> None:
        if outcome.selected is None or self._config.assessment is None:
            return
        try:
            assessment = self._private_evaluations().assess(self._submission(outcome.selected), self._config.assessment)
        except (EvaluationError, BenchmarkError) as error:
            outcome.terminal_reason = "assessment_failed"
            outcome.error = f"{type(error).__name__}: {error}"
            self._journal.append(events.AssessmentFailed(message=outcome.error))
            return
        self._writer.write_json("assessment/report.json", assessment_report(assessment))
        outcome.assessment = assessment

    def _note_interruption(self, phase: str) -> None:
        number = self._interruption.signal
        name = signal.Signals(number).name if number is not None else "unknown"
        self._journal.append(events.Interrupted(phase=phase, signal=name))

    def _commit(self, first: Mapping[str, object], phase_end: PhaseEnd, outcome: Outcome) -> RunResult:
        result = RunResult(
            final_program=None if outcome.selected is None else self._submission(outcome.selected).program,
            final_submission_id=outcome.selected,
            submissions=tuple(self._desk.submissions),
            terminal_reason=outcome.terminal_reason,
            candidate_submission_ids=outcome.candidates,
            validation=outcome.validation,
            assessment=outcome.assessment,
        )
        self._journal.append(events.RunCommitted(terminal_reason=outcome.terminal_reason))
        self._writer.write_manifest(
            final_manifest(
                first,
                submissions=self._desk.submissions,
                seconds=self._desk.seconds,
                phase_end=phase_end,
                outcome=outcome,
                execution_facts=self._evaluator.facts,
                ended=datetime.now(UTC),
            )
            | {"diagnostics": self._diagnostics(outcome)}
        )
        return result

    def _diagnostics(self, outcome: Outcome) -> dict[str, object]:
        return run_diagnostics(
            self._prepared.initial_program,
            self._desk.submissions,
            episode_budget=self._config.episode_budget,
            episodes_spent=self._episodes_spent,
            score_direction=self._prepared.spec.score_direction,
            selected_submission_id=outcome.selected,
            validation=outcome.validation,
            assessment=outcome.assessment,
        )


def _ledger_limits(config: RunConfig) -> LedgerLimits:
    assert config.max_submissions is not None
    assert config.episode_pool_size is not None
    return LedgerLimits(
        episode_budget=config.episode_budget,
        max_submissions=config.max_submissions,
        pool_size=config.episode_pool_size,
        max_episodes_per_submission=config.max_episodes_per_submission,
        finish_budget_policy=config.finish_budget_policy,
        max_candidates=config.max_candidates,
    )


def _plain(identity: str | Mapping[str, object]) -> object:
    return identity if isinstance(identity, str) else dict(identity)
