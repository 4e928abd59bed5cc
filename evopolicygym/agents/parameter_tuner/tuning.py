"""The tuner's work from start to hand-off: initial parameters, generations, a final on fresh Episodes."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from evopolicygym.agents.parameter_tuner.failure import TunerError
from evopolicygym.agents.parameter_tuner.parameters import Parameters, read_parameters, write_json
from evopolicygym.agents.parameter_tuner.plan import Plan, plan_search, shares, window
from evopolicygym.agents.parameter_tuner.reporting import Reporter
from evopolicygym.agents.parameter_tuner.search import DEFAULT_SIGMA, CovarianceSearch
from evopolicygym.agents.parameter_tuner.session import Receipt, SessionCommand, SessionRefusedError, Status

__all__ = ["Options", "tune"]

RESERVED_SECONDS = 5.0
"""Kept for the hand-off; a tenth of the time left at the start where that is less."""

SLOWER_THAN_EXPECTED = 1.5
"""Episodes may get longer as Policies get better."""

NAMES_SHOWN = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the caller fixed; None leaves the choice to the plan.

    Args:
        seed: Of the search's random numbers.
        sigma: First standard deviation in units of each parameter's scale.
        population_size: Candidates of one generation.
        episodes_per_candidate: Episodes of each.
        generations: The most generations.
    """

    seed: int = 0
    sigma: float | None = None
    population_size: int | None = None
    episodes_per_candidate: int | None = None
    generations: int | None = None


@dataclass(slots=True)
class _Entry:
    """One vector of parameters and all that was learnt of it; the newest Submission stands for it."""

    values: tuple[float, ...]
    submission_ids: list[str] = field(default_factory=list)
    losses: list[tuple[float, int]] = field(default_factory=list)
    failures: int = 0
    final_loss: float | None = None

    @property
    def mean_loss(self) -> float:
        """Over all Episodes that it played."""
        episodes = sum(count for _, count in self.losses)
        return sum(loss * count for loss, count in self.losses) / episodes


class _StopSearchError(Exception):
    """No further Submission is wise or allowed."""


class _Tuning:
    def __init__(
        self, session: SessionCommand, reporter: Reporter, workspace: Path, parameters: Parameters, status: Status
    ) -> None:
        self._session = session
        self._reporter = reporter
        self._workspace = workspace
        self._parameters = parameters
        self._written = parameters.values
        self._sign = -1.0 if status.maximize else 1.0
        self.limits = status.limits
        self._deadline = time.monotonic() + status.seconds - min(RESERVED_SECONDS, status.seconds / 10)
        self._seconds_per_episode = 0.0
        self._cursor = 0
        self.entries: dict[tuple[float, ...], _Entry] = {}
        self.refused = False

    def search(self, plan: Plan, options: Options) -> CovarianceSearch:
        """The initial parameters, then generation after generation on Episodes of their own."""
        search = CovarianceSearch(
            self._parameters.values,
            seed=options.seed,
            population_size=plan.population_size,
            sigma=options.sigma or DEFAULT_SIGMA,
        )
        first = self._submit(self._parameters.values, plan.episodes_per_candidate)
        self._reporter.said(f"initial parameters: {self._described(first)}")
        losses: list[float] = []
        for _ in range(plan.candidates):
            receipt = self._submit(search.ask(), plan.episodes_per_candidate)
            losses.append(self._sign * receipt.score)
            if len(losses) < search.population_size:
                continue
            self._told(search, losses)
            losses = []
            self._cursor += plan.episodes_per_candidate
            if search.exhausted:
                self._reporter.said("the search has shrunk to a point; more candidates would teach nothing")
                break
        if losses:
            self._cursor += plan.episodes_per_candidate
        return search

    def _told(self, search: CovarianceSearch, losses: list[float]) -> None:
        search.tell(losses)
        scores = sorted((self._sign * loss for loss in losses), reverse=self._sign < 0)
        best = self.ranked()[0]
        self._reporter.said(
            f"generation {search.generations}: best {scores[0]:.6g}, median {scores[len(scores) // 2]:.6g}, best so far"
            f" {self._sign * best.mean_loss:.6g}; {self.limits.episodes} Episodes"
            f" and {self.limits.submissions} Submissions left"
        )

    def final(self, plan: Plan, mean: tuple[float, ...] | None) -> None:
        """Play the best, and the centre of the search, on the same Episodes that none of them has seen."""
        if not plan.finalists or not self.limits.most or not self.entries:
            return
        chosen = [entry.values for entry in self.ranked()]
        if mean is not None:
            chosen.insert(min(plan.finalists - 1, len(chosen)), mean)
        finalists = list(dict.fromkeys(chosen))[: min(plan.finalists, self.limits.submissions)]
        episodes = min(self.limits.largest_submission, self.limits.episodes // len(finalists))
        affordable = self._affordable_episodes() // len(finalists)
        if not self.limits.spend_all:
            episodes = min(episodes, affordable)
        if episodes < 1:
            self._reporter.said("no time or no Episodes are left for a final")
            return
        self._reporter.said(f"final: {len(finalists)} candidates, {episodes} fresh Episodes each")
        for values in finalists:
            receipt = self._submit(values, episodes, timed=False)
            self.entries[values].final_loss = self._sign * receipt.score
            self._reporter.said(f"finalist: {self._described(receipt)}")
        self._cursor += episodes

    def spend_rest(self) -> None:
        """Where the Run asks for it: the rest of the budget, on the best, so that nothing is wasted."""
        while self.limits.spend_all and self.limits.most:
            best = self.ranked() or [_Entry(self._parameters.values)]
            parts = -(-self.limits.episodes // self.limits.largest_submission)
            for position, episodes in enumerate(shares(self.limits.episodes, parts)):
                self._submit(best[position % len(best)].values, episodes, timed=False)

    def ranked(self) -> list[_Entry]:
        """Best first: those of the final by it, then the others; ties by all Episodes, failures, and newness."""
        entries = list(self.entries.values())
        newest_first = reversed(entries)
        return sorted(
            newest_first,
            key=lambda entry: (
                entry.final_loss is None,
                entry.mean_loss if entry.final_loss is None else entry.final_loss,
                entry.mean_loss,
                entry.failures,
            ),
        )

    def restore(self, values: Sequence[float]) -> None:
        """Leave these parameters in ``program/``; as long as they are the initial ones, the file stays as it was."""
        if tuple(values) == self._written:
            return
        self._written = tuple(values)
        write_json(
            self._workspace / "program" / "params.json",
            self._parameters.with_values(values),
            staging=self._workspace / "analysis",
        )

    def _submit(self, values: tuple[float, ...], wanted: int, *, timed: bool = True) -> Receipt:
        episodes = max(min(wanted, self.limits.most), self.limits.least)
        if episodes > self.limits.most:
            raise _StopSearchError("the budget is spent")
        if timed and not self.limits.spend_all and self._affordable_episodes() < episodes:
            raise _StopSearchError("the Agent's time is nearly up")
        self.restore(values)
        indices = window(self._cursor, episodes, self.limits.pool_size)
        try:
            receipt = self._session.submit(indices)
        except SessionRefusedError as error:
            self.refused = True
            raise _StopSearchError(f"the Host refused a Submission: {error}") from error
        self.limits = self.limits.after(episodes)
        self._seconds_per_episode = max(self._seconds_per_episode * 0.8, receipt.seconds / episodes)
        entry = self.entries.setdefault(values, _Entry(values))
        entry.submission_ids.append(receipt.submission_id)
        entry.losses.append((self._sign * receipt.score, episodes))
        entry.failures += sum(receipt.failures.values())
        self._reporter.tried(
            {
                "submission_id": receipt.submission_id,
                "score": receipt.score,
                "episodes": list(indices),
                "failures": dict(receipt.failures),
                "parameters": list(values),
            }
        )
        return receipt

    def _affordable_episodes(self) -> int:
        """How many Episodes the time left pays for."""
        left = self._deadline - time.monotonic()
        if left <= 0:
            return 0
        if not self._seconds_per_episode:
            return self.limits.episodes
        return int(left / (self._seconds_per_episode * SLOWER_THAN_EXPECTED))

    def _described(self, receipt: Receipt) -> str:
        text = f"{receipt.submission_id} scores {receipt.score:.6g} over {receipt.episodes} Episodes"
        if receipt.failures:
            kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(receipt.failures.items()))
            text += f"; Policy failures: {kinds}"
        return f"{text} ({receipt.problem})" if receipt.problem else text


def tune(workspace: Path, options: Options, reporter: Reporter) -> None:
    """Tune ``program/params.json`` of a workspace, and hand off the best.

    Raises:
        TunerError: there is nothing to tune, or nothing to hand off, or the Host cannot be reached.
    """
    parameters = read_parameters(workspace / "program" / "params.json")
    session = SessionCommand(workspace, reporter)
    status = session.status()
    if status.running:
        session.wait()
        status = session.status()
    if not status.limits.most and not status.published:
        raise TunerError("no budget is left, and nothing is published that could be handed off")
    tuning = _Tuning(session, reporter, workspace, parameters, status)
    if status.limits.most:
        _spend(tuning, status, parameters, options, reporter)
    _hand_off(tuning, status, session, reporter)


def _spend(tuning: _Tuning, status: Status, parameters: Parameters, options: Options, reporter: Reporter) -> None:
    plan = plan_search(
        status.limits,
        len(parameters.values),
        population_size=options.population_size,
        episodes_per_candidate=options.episodes_per_candidate,
        generations=options.generations,
    )
    reporter.started(_introduction(plan, status, parameters))
    mean: tuple[float, ...] | None = None
    try:
        search = tuning.search(plan, options)
        mean = search.mean if search.generations else None
    except _StopSearchError as stop:
        reporter.said(f"the search ends here: {stop}")
    if tuning.refused:
        return
    try:
        tuning.final(plan, mean)
        tuning.spend_rest()
    except _StopSearchError as stop:
        reporter.said(f"the final ends here: {stop}")


def _hand_off(tuning: _Tuning, status: Status, session: SessionCommand, reporter: Reporter) -> None:
    ranked = tuning.ranked()
    ids = [entry.submission_ids[-1] for entry in ranked]
    # After a restart the earlier Submissions still count, but their parameters are not known here.
    earlier = sorted(status.published, key=lambda item: -item[1] if status.maximize else item[1])
    ids += [submission_id for submission_id, _ in earlier]
    chosen = ids[: status.limits.max_candidates]
    if not chosen:
        raise TunerError("nothing was published, so there is nothing to hand off; the reason stands above")
    if ranked:
        tuning.restore(ranked[0].values)
    try:
        session.finish(chosen)
    except SessionRefusedError as error:
        raise TunerError(f"the Host refused the hand-off: {error}") from error
    reporter.ended(f"Handed off, best first: {', '.join(chosen)}.", failed=False)


def _introduction(plan: Plan, status: Status, parameters: Parameters) -> str:
    names = parameters.names
    shown = ", ".join(names[:NAMES_SHOWN]) + (
        f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
    )
    goal = "highest" if status.maximize else "lowest"
    final = (
        f"then a final of {plan.finalists} on about {plan.episodes_per_finalist} fresh Episodes each"
        if plan.finalists
        else "no final"
    )
    return (
        f"CMA-ES over {len(names)} parameters ({shown}) for the {goal} {status.metric}: the initial parameters,"
        f" {plan.candidates} candidates in generations of {plan.population_size},"
        f" {plan.episodes_per_candidate} Episodes each, {final}."
    )
