"""Episode records as bytes in an unlinked file, decoded item by item when they are looked at.

An Episode takes one stretch of the file:

    initial observation, encoded
    rows: for each step its action, its observation and its metrics (nothing if None), each encoded
    lengths: for each step the three lengths, u32
    rewards: f64 a step
    flags: u8 a step: 1 terminated, 2 truncated, 4 metrics

A file holds all Episodes that one worker runs in one Evaluation: a descriptor for each Episode would not do
where only 128 may be open, and memory grows with neither.
"""

import os
import tempfile
from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate
from types import MappingProxyType

from evopolicygym.authoring import EpisodeRecord, Step, Transition, TransitionSequence
from evopolicygym.evaluation.plan import PlannedEpisode
from evopolicygym.execution.codec import decode_trusted, encode_trusted
from evopolicygym.policy import PolicyValue
from evopolicygym.results import PolicyFailure

__all__ = ["EncodedEpisode", "RecordFile", "RecordWriter", "decode_record"]

TERMINATED, TRUNCATED, METRICS = 1, 2, 4

# Observations are held until they are so many bytes: a file system takes few large writes faster than many small ones.
_HELD_MAX_BYTES = 512 * 1024

# Pieces of this size on average are written where they are, if they are no more than one system call takes.
_LARGE_BYTES = 1024
_PIECES_MAX = 1024

# Iterating reads this much at once.
_READ_BYTES = 256 * 1024


class RecordFile:
    """An unlinked temporary file, open as long as somebody refers to it."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    @classmethod
    def create(cls) -> "RecordFile":
        """A new, empty one."""
        with tempfile.TemporaryFile(prefix="evopolicygym-records-") as file:
            return cls(os.dup(file.fileno()))

    def read(self, offset: int, size: int) -> bytes:
        """Exactly ``size`` bytes.

        Raises:
            OSError: they cannot be read.
        """
        data = os.pread(self.descriptor, size, offset)
        while len(data) < size:  # more than 2 GiB, or a signal
            more = os.pread(self.descriptor, size - len(data), offset + len(data))
            if not more:
                raise OSError(f"an Episode's record ends {size - len(data)} bytes early")
            data += more
        return data

    def close(self) -> None:
        """Close it; safe to call again."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def __del__(self) -> None:
        self.close()


@dataclass(frozen=True, slots=True)
class EncodedEpisode:
    """Where an Episode's record lies in its file.

    Args:
        offset: of its stretch.
        initial_bytes: of the initial observation.
        row_bytes: of all rows.
        steps: number of rows.
    """

    offset: int
    initial_bytes: int
    row_bytes: int
    steps: int


class RecordWriter:
    """Writes Episodes one after the other to the end of a file that nobody else writes to."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._end = 0
        self._offset = 0
        self._initial_bytes = 0
        self._held = 0
        self._rows: list[bytes] = []
        self._lengths = array("I")
        self._rewards = array("d")
        self._flags = bytearray()

    def begin(self, observation: bytes, tensor_data: bytes) -> None:
        """Begin an Episode with its first observation; one that was begun before and not finished is forgotten."""
        self._offset = self._end
        self._held = 0
        self._initial_bytes = len(observation) + len(tensor_data)
        self._rows = [observation, tensor_data]
        self._write_out()
        self._lengths = array("I")
        self._rewards = array("d")
        self._flags = bytearray()

    def add(self, action: bytes, observation: bytes, tensor_data: bytes, step: Step) -> None:
        """Add one step, whose action and observation (in two parts) are encoded already."""
        if step.metrics is None:
            metrics, flags = b"", step.terminated + 2 * step.truncated
        else:
            metrics, flags = encode_trusted(dict(step.metrics)), step.terminated + 2 * step.truncated + METRICS
        self._flags.append(flags)
        self._rewards.append(step.reward)
        rows = self._rows
        rows.append(action)
        rows.append(observation)
        if tensor_data:
            rows.append(tensor_data)
        rows.append(metrics)
        self._lengths.extend((len(action), len(observation) + len(tensor_data), len(metrics)))
        self._held += len(observation) + len(tensor_data)
        if self._held > _HELD_MAX_BYTES:
            self._write_out()

    @property
    def rewards(self) -> Iterable[float]:
        """The rewards of the Episode so far."""
        return self._rewards

    @property
    def steps(self) -> int:
        """The number of steps of the Episode so far."""
        return len(self._flags)

    def finish(self) -> EncodedEpisode:
        """End the Episode; where its record lies."""
        self._write_out()
        row_bytes = self._end - self._offset - self._initial_bytes
        self._rows += (self._lengths.tobytes(), self._rewards.tobytes(), bytes(self._flags))
        self._write_out()
        return EncodedEpisode(self._offset, self._initial_bytes, row_bytes, len(self._flags))

    def _write_out(self) -> None:
        # Large pieces go as they are; many small ones are cheaper joined first.
        are_large = self._held > _LARGE_BYTES * len(self._rows) and len(self._rows) <= _PIECES_MAX
        pieces = self._rows if are_large else [b"".join(self._rows)]
        self._held = 0
        size = sum(map(len, pieces))
        written = os.pwritev(self._descriptor, pieces, self._end)
        rest = memoryview(b"" if written == size else b"".join(pieces))[written:]
        self._end += written
        while rest:
            written = os.pwrite(self._descriptor, rest, self._end)
            self._end += written
            rest = rest[written:]
        self._rows.clear()


def decode_record(
    file: RecordFile, encoded: EncodedEpisode, planned: PlannedEpisode, failure: PolicyFailure | None
) -> EpisodeRecord:
    """The record of an Episode; its transitions are decoded when they are looked at."""
    initial = decode_trusted(file.read(encoded.offset, encoded.initial_bytes))
    return EpisodeRecord(
        planned.episode, planned.policy_seed, initial, EncodedTransitions(file, encoded), policy_failure=failure
    )


class EncodedTransitions(TransitionSequence):
    """The transitions of one Episode, in a file."""

    __slots__ = ("_file", "_index", "_rows_at", "_steps", "_tail_at")

    def __init__(self, file: RecordFile, encoded: EncodedEpisode) -> None:
        self._file = file
        self._steps = encoded.steps
        self._rows_at = encoded.offset + encoded.initial_bytes
        self._tail_at = self._rows_at + encoded.row_bytes
        self._index: _Index | None = None

    def __len__(self) -> int:
        return self._steps

    def transition(self, index: int) -> Transition:
        """Item ``index``, 0 <= index < len."""
        layout = self._layout()
        start, end = layout.span(index)
        reward = array("d", self._file.read(self._tail_at + 12 * self._steps + 8 * index, 8))[0]
        flags = self._file.read(self._tail_at + 20 * self._steps + index, 1)[0]
        row = self._file.read(self._rows_at + start, end - start)
        return _transition(row, 0, *layout.lengths(index), reward, flags)

    def __iter__(self) -> Iterator[Transition]:
        layout = self._layout()
        rewards = self._rewards()
        flags = self._file.read(self._tail_at + 20 * self._steps, self._steps)
        index = 0
        while index < self._steps:
            # As many rows as fit in one read, one at least.
            first, start = index, layout.span(index)[0]
            index += 1
            while index < self._steps and layout.span(index)[1] - start <= _READ_BYTES:
                index += 1
            rows = self._file.read(self._rows_at + start, layout.span(index - 1)[1] - start)
            for position in range(first, index):
                at = layout.span(position)[0] - start
                yield _transition(rows, at, *layout.lengths(position), rewards[position], flags[position])

    def rewards(self) -> Iterable[float]:
        """The reward of every step, in order; nothing else is decoded."""
        return self._rewards()

    def _rewards(self) -> "array[float]":
        return array("d", self._file.read(self._tail_at + 12 * self._steps, 8 * self._steps))

    def _layout(self) -> "_Index":
        if self._index is None:
            self._index = _Index(array("I", self._file.read(self._tail_at, 12 * self._steps)))
        return self._index


class _Index:
    """Where each row lies; a few numbers if all rows are alike, 20 bytes a row if not."""

    def __init__(self, lengths: "array[int]") -> None:
        first = tuple(lengths[:3])
        if lengths == array("I", first) * (len(lengths) // 3):
            self._uniform: tuple[int, ...] | None = first
            self._stride = sum(first)
        else:
            self._uniform = None
            self._lengths = lengths
            rows = map(sum, zip(lengths[0::3], lengths[1::3], lengths[2::3], strict=True))
            self._starts = array("Q", accumulate(rows, initial=0))

    def span(self, index: int) -> tuple[int, int]:
        if self._uniform is not None:
            return index * self._stride, (index + 1) * self._stride
        return self._starts[index], self._starts[index + 1]

    def lengths(self, index: int) -> tuple[int, int, int]:
        found = self._uniform if self._uniform is not None else self._lengths[3 * index : 3 * index + 3]
        return found[0], found[1], found[2]


_write = object.__setattr__


def _transition(
    rows: bytes, at: int, action_bytes: int, observation_bytes: int, metrics_bytes: int, reward: float, flags: int
) -> Transition:
    # Past the constructors: everything in here has passed them once already.
    observation_at = at + action_bytes
    metrics_at = observation_at + observation_bytes
    metrics: Mapping[str, PolicyValue] | None = None
    if flags & METRICS:
        decoded = decode_trusted(rows[metrics_at : metrics_at + metrics_bytes])
        assert isinstance(decoded, dict)
        metrics = MappingProxyType(decoded)
    step = object.__new__(Step)
    _write(step, "observation", decode_trusted(rows[observation_at:metrics_at]))
    _write(step, "reward", reward)
    _write(step, "terminated", bool(flags & TERMINATED))
    _write(step, "truncated", bool(flags & TRUNCATED))
    _write(step, "metrics", metrics)
    transition = object.__new__(Transition)
    _write(transition, "action", decode_trusted(rows[at:observation_at]))
    _write(transition, "step", step)
    return transition
