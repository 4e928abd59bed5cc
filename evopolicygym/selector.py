"""The Episode selector: which indices of the pool a Submission asks for, as text such as ``0:2,4:8``.

A selector is a comma-separated list of items, each one index ``i`` or one half-open range ``start:end``. It
holds no blanks, is never empty, and its indices increase strictly. The text comes from the Agent: it is
checked as ranges, and only ranges that were found good are expanded.
"""

from collections.abc import Iterable, Sequence

__all__ = ["SelectorError", "format_selector", "parse_ranges", "parse_selector"]

_ASCII_DIGITS = frozenset("0123456789")
_SHOWN_CHARACTERS = 40
_FORM = 'write items such as 3 or 0:4 (0, 1, 2, 3), separated by commas, for example "0:2,4:8"'


class SelectorError(ValueError):
    """A selector is refused.

    Attributes:
        reason: one sentence: what was found and what to write instead.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def parse_selector(text: str, *, pool_size: int, max_count: int | None = None) -> tuple[int, ...]:
    """The indices that a selector names, in increasing order.

    Args:
        text: the selector.
        pool_size: number of Episodes in the pool; every index must be below it.
        max_count: how many indices it may name; None for no limit but the pool.

    Raises:
        SelectorError: the text is no selector, leaves the pool, or names too many indices. Nothing is
            expanded before this is known.
    """
    ranges = parse_ranges(text, pool_size=pool_size)
    count = sum(map(len, ranges))
    if max_count is not None and count > max_count:
        raise SelectorError(f"it names {count} Episodes; name at most {max_count}")
    return tuple(index for indices in ranges for index in indices)


def parse_ranges(text: str, *, pool_size: int) -> tuple[range, ...]:
    """The ranges of a selector, checked but not expanded: one ``range`` for each item.

    Raises:
        SelectorError: the text is no selector or leaves the pool.
    """
    if not text:
        raise SelectorError(f"the selector is empty; {_FORM}")
    ranges: list[range] = []
    least = 0
    for item in text.split(","):
        found = _parse_item(item, pool_size)
        if found.start < least:
            raise SelectorError(
                f"{_shown(item)} starts at {found.start}, but the items before it already reach "
                f"{least - 1}; indices must increase strictly and none may be named twice"
            )
        ranges.append(found)
        least = found.stop
    return tuple(ranges)


def format_selector(indices: Iterable[int]) -> str:
    """The shortest canonical selector of indices: ``(0, 1, 4, 6, 7)`` becomes ``0:2,4,6:8``.

    Args:
        indices: at least one index, none negative, strictly increasing.

    Raises:
        ValueError: they are none of that.
    """
    runs: list[tuple[int, int]] = []
    for index in indices:
        least = runs[-1][1] if runs else 0
        if type(index) is not int or index < least:
            raise ValueError(f"indices must be ints >= 0 that increase strictly, found {index!r}")
        if runs and index == least:
            runs[-1] = (runs[-1][0], index + 1)
        else:
            runs.append((index, index + 1))
    if not runs:
        raise ValueError("there is no selector for no indices")
    return ",".join(str(start) if end == start + 1 else f"{start}:{end}" for start, end in runs)


def _parse_item(item: str, pool_size: int) -> range:
    if not item:
        raise SelectorError(f"there is an empty item (a comma too many); {_FORM}")
    bounds = item.split(":")
    if len(bounds) > 2:
        raise SelectorError(f"{_shown(item)} has {len(bounds) - 1} colons; a range is start:end")
    for bound, name in zip(bounds, ("start", "end"), strict=False):
        _check_number(item, bound, name)
    start, end = _bounded(bounds, pool_size)
    if len(bounds) == 1:
        if start >= pool_size:
            raise SelectorError(f"index {_shown_number(item)} is not in the pool; {_pool(pool_size)}")
        return range(start, start + 1)
    if end > pool_size:
        raise SelectorError(f"{_shown(item)} leaves the pool; {_pool(pool_size)} (end at most {pool_size})")
    if start == end:
        raise SelectorError(
            f"{_shown(item)} is empty, since the end of a range is not part of it; for index {start} alone "
            f"write {start}"
        )
    if start > end:
        raise SelectorError(f"{_shown(item)} runs backwards; write the smaller number first")
    return range(start, end)


def _check_number(item: str, number: str, name: str) -> None:
    if not number:
        raise SelectorError(f"{_shown(item)} has no {name}; write both start and end of a range")
    if any(character.isspace() for character in number):
        raise SelectorError(f"{_shown(item)} holds a blank; write the selector without any")
    if not _ASCII_DIGITS.issuperset(number):
        raise SelectorError(f"{_shown(item)} is no index: only the digits 0 to 9 make one; {_FORM}")
    if number[0] == "0" and len(number) > 1:
        plain = number.lstrip("0") or "0"
        raise SelectorError(f"{_shown(item)} has a leading zero; write {_shown_number(plain)}")


def _bounded(bounds: Sequence[str], pool_size: int) -> tuple[int, int]:
    """Both ends as ints; a number with more digits than the pool has is replaced by one beyond the pool."""
    digits = len(str(pool_size))
    numbers = [int(bound) if len(bound) <= digits else pool_size + 1 for bound in bounds]
    return numbers[0], numbers[-1]


def _pool(pool_size: int) -> str:
    return f"it has {pool_size} Episodes: use indices 0 to {pool_size - 1}"


def _shown(text: str) -> str:
    """Hostile text made short and printable: ``repr`` escapes controls, separators and lone surrogates."""
    return repr(text) if len(text) <= _SHOWN_CHARACTERS else repr(text[:_SHOWN_CHARACTERS]) + "…"


def _shown_number(digits: str) -> str:
    return digits if len(digits) <= _SHOWN_CHARACTERS else digits[:_SHOWN_CHARACTERS] + "…"
