"""Finding the lines of some events without parsing the others."""

import io

from evopolicygym.record.scanning import lines_of_events


def found(journal: bytes, *names: str) -> list[tuple[int, bytes]]:
    return list(lines_of_events(io.BytesIO(journal), names))


def test_lines_of_the_events_come_with_their_numbers() -> None:
    journal = b'{"event":"a"}\n{"event":"b"}\n{"event": "a", "x": 1}\n{"event":"c"}\n'
    assert found(journal, "a", "c") == [
        (1, b'{"event":"a"}'),
        (3, b'{"event": "a", "x": 1}'),
        (4, b'{"event":"c"}'),
    ]


def test_a_torn_last_line_is_left_out() -> None:
    assert found(b'{"event":"a"}\n{"event":"a"', "a") == [(1, b'{"event":"a"}')]


def test_a_line_that_holds_it_twice_comes_once() -> None:
    line = b'{"event":"a","text":"\\"event\\":\\"a\\"","event":"a"}'
    assert found(line + b"\n", "a") == [(1, line)]


def test_a_name_that_begins_like_another_is_not_it() -> None:
    assert found(b'{"event":"episode_completed"}\n', "episode") == []


def test_lines_across_blocks_are_whole_and_counted() -> None:
    other = b'{"event":"b","text":"%s"}\n' % (b"x" * 999)
    wanted = b'{"event":"a","n":%d}'
    journal = b"".join(other * 300 + wanted % n + b"\n" for n in range(4))
    assert found(journal, "a") == [(301 * (n + 1), wanted % n) for n in range(4)]


def test_a_line_without_end_costs_no_memory_and_hides_none_after_it() -> None:
    journal = b'{"event":"a"}\n' + b"x" * (17 * 1024 * 1024) + b'\n{"event":"a"}\n'
    assert [line for _, line in found(journal, "a")] == [b'{"event":"a"}'] * 2
