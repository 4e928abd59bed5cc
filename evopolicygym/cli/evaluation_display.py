"""The live table of ``evaluate``: how far it is, how fast, what the mean is so far, and the latest Episodes."""

import statistics
import time
from collections import deque
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Column, Table
from rich.text import Text

from evopolicygym.analysis import mean_interval
from evopolicygym.cli.drawing import Drawing
from evopolicygym.cli.numbers import duration_text
from evopolicygym.evaluation import EpisodeCompleted
from evopolicygym.run.console import inert_text, score_text

_FIXED_LINES = 6
_MOST_ROWS = 12


class Playing:
    """What is known so far of one Program's Evaluation; told on one thread, drawn on another.

    Args:
        label: how the Program is called.
        planned: Episodes.
    """

    def __init__(self, label: str, planned: int) -> None:
        self.label = label
        self.planned = planned
        self.completed = 0
        self.failed = 0
        self.started: float | None = None
        self.ended: float | None = None
        self.rewards: list[float] = []
        self.latest: deque[EpisodeCompleted] = deque(maxlen=_MOST_ROWS)

    def on_episode(self, episode: EpisodeCompleted) -> None:
        """Take one Episode in."""
        if episode.summary.reward is not None:
            self.rewards.append(episode.summary.reward)
        self.failed += episode.summary.failure is not None
        self.latest.append(episode)
        self.completed += 1
        if self.completed == self.planned:
            self.ended = time.monotonic()


class EvaluationDisplay:
    """Draws Evaluations, one after the other, while they go on."""

    def __init__(self, playing: Sequence[Playing]) -> None:
        self._playing = playing
        self._drawing = Drawing(self._frame)

    def __enter__(self) -> Self:
        self._drawing.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._drawing.__exit__(kind, error, traceback)

    def _frame(self, width: int, height: int) -> RenderableType:
        now = time.monotonic()
        parts: list[RenderableType] = []
        for playing in self._playing:
            if playing.started is None:
                playing.started = now
            parts.append(_progress(playing, width, now))
            if playing.completed < playing.planned:
                parts.append(_episodes(playing, max(1, height - _FIXED_LINES)))
                break
        return Group(*parts)


def _progress(playing: Playing, width: int, now: float) -> RenderableType:
    grid = Table.grid(Column(no_wrap=True), Column(no_wrap=True), padding=(0, 2))
    bar_width = max(8, min(32, width - 40))
    bar = ProgressBar(total=playing.planned, completed=playing.completed, width=bar_width, complete_style="cyan")
    elapsed = max(1e-9, (playing.ended or now) - (playing.started or now))
    counts = Text(f"{playing.completed} of {playing.planned} Episodes")
    if playing.completed and elapsed > 0.2:
        rate = playing.completed / elapsed
        left = (playing.planned - playing.completed) / rate
        counts.append(f"  {rate:.1f}/s" if rate < 10 else f"  {rate:.0f}/s", style="dim")
        counts.append(f"  {duration_text(left)} left" if left else "", style="dim")
    grid.add_row(bar, counts)
    title = Text("Evaluating ", no_wrap=True, overflow="ellipsis").append(inert_text(playing.label, 200), style="bold")
    mean = Text(no_wrap=True, overflow="ellipsis")
    rewards = playing.rewards[:]
    if rewards:
        mean.append(f"mean {score_text(statistics.fmean(rewards))}", style="green")
        interval = mean_interval(rewards)
        if interval:
            mean.append(f"  95 % interval {score_text(interval[0])} to {score_text(interval[1])}", style="dim")
    if playing.failed:
        mean.append(f"  {playing.failed} failed", style="red")
    return Group(title, grid, mean)


def _episodes(playing: Playing, rows: int) -> RenderableType:
    table = Table(box=None, padding=(0, 1), pad_edge=False, header_style="dim")
    for name in ("Episode", "Reward", "Steps", "Seconds"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for episode in list(playing.latest)[-rows:]:
        summary = episode.summary
        failure = summary.failure or ""
        where = episode.diagnostics.exception_type or ""
        table.add_row(
            Text(str(episode.position)),
            Text(score_text(summary.reward)),
            Text(str(summary.steps)),
            Text(f"{episode.seconds:.2f}"),
            Text(inert_text(f"{failure} {where}".strip(), 60), style="red"),
        )
    return table
