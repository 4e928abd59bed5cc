"""The Episode selector."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evopolicygym.selector import SelectorError, format_selector, parse_ranges, parse_selector


@pytest.mark.parametrize(
    ("text", "indices"),
    [
        ("0", (0,)),
        ("59", (59,)),
        ("0:2,4:8", (0, 1, 4, 5, 6, 7)),
        ("0:2,2:4", (0, 1, 2, 3)),
        ("0,2,4", (0, 2, 4)),
        ("3:4", (3,)),
        ("58:60", (58, 59)),
    ],
)
def test_a_selector_names_its_indices_in_order(text: str, indices: tuple[int, ...]) -> None:
    assert parse_selector(text, pool_size=60) == indices


REFUSED = [
    ("", "is empty"),
    ("3:3", "for index 3 alone write 3"),
    ("5:2", "runs backwards"),
    ("0:2,1:3", "already reach 1"),
    ("1,1", "increase strictly"),
    ("2,1", "increase strictly"),
    (" 0", "blank"),
    ("0 ", "blank"),
    ("0, 1", "blank"),
    ("0\n", "blank"),
    ("\u00a00", "blank"),
    ("-1", "only the digits"),
    ("+1", "only the digits"),
    ("1_0", "only the digits"),
    ("1e3", "only the digits"),
    ("0x1", "only the digits"),
    ("1.0", "only the digits"),
    ("٣", "only the digits"),
    ("²", "only the digits"),
    ("all", "only the digits"),
    ("\ud800", "only the digits"),
    ("\x1b[2J", "only the digits"),
    ("0:", "has no end"),
    (":3", "has no start"),
    (":", "has no start"),
    ("0:4:2", "2 colons"),
    (",", "comma too many"),
    ("0,", "comma too many"),
    ("0,,1", "comma too many"),
    ("60", "use indices 0 to 59"),
    ("0:61", "end at most 60"),
    ("60:61", "end at most 60"),
    ("0:99999999999", "end at most 60"),
    ("9" * 100_000, "use indices 0 to 59"),
    ("007", "leading zero; write 7"),
    ("00", "leading zero; write 0"),
    ("0:010", "leading zero; write 10"),
]


@pytest.mark.parametrize(("text", "reason"), REFUSED, ids=[ascii(text)[:20] for text, _ in REFUSED])
def test_anything_else_is_refused_with_its_reason(text: str, reason: str) -> None:
    with pytest.raises(SelectorError) as refused:
        parse_selector(text, pool_size=60)
    assert reason in refused.value.reason
    assert len(refused.value.reason) < 300
    assert refused.value.reason.isprintable()


def test_more_indices_than_allowed_are_refused_before_they_are_expanded() -> None:
    with pytest.raises(SelectorError, match="it names 10000000000000000 Episodes; name at most 10"):
        parse_selector("0:10000000000000000", pool_size=10**16, max_count=10)


def test_ranges_are_not_expanded() -> None:
    assert parse_ranges("0:99999999999", pool_size=10**12) == (range(99999999999),)


@given(st.sets(st.integers(0, 200), min_size=1))
def test_a_formatted_selector_reads_back(indices: set[int]) -> None:
    ordered = tuple(sorted(indices))
    assert parse_selector(format_selector(ordered), pool_size=201) == ordered


def test_the_canonical_form_joins_neighbours() -> None:
    assert format_selector((0, 1, 4, 6, 7)) == "0:2,4,6:8"


@pytest.mark.parametrize("indices", [(), (1, 1), (2, 1), (-1,), (True,)])
def test_no_selector_is_formatted_for_wrong_indices(indices: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"indices"):
        format_selector(indices)


@given(st.text(alphabet="0123456789:, -x٣", max_size=20))
def test_whatever_is_accepted_is_increasing_and_inside_of_the_pool(text: str) -> None:
    try:
        indices = parse_selector(text, pool_size=50)
    except SelectorError:
        return
    assert indices
    assert list(indices) == sorted(set(indices))
    assert indices[0] >= 0
    assert indices[-1] < 50
