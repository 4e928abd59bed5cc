"""What the Agent may see of failures, and what only the Host keeps."""

import json

import pytest
from record_values import COMPLETED, FAILED, crash

from evopolicygym.evaluation import EpisodeDiagnostics
from evopolicygym.record import diagnostics_summary, visible_diagnostics
from evopolicygym.record.diagnostics import policy_log
from evopolicygym.results import EpisodeSummary

TIMEOUT = EpisodeSummary("policy_failed", None, 1, "timeout")


def test_failures_of_one_kind_at_one_place_are_counted_together() -> None:
    episodes = [FAILED, FAILED, TIMEOUT, COMPLETED, FAILED]
    details = [
        crash("index 7"),
        crash("index 9"),
        EpisodeDiagnostics(),
        EpisodeDiagnostics(),
        crash(where="policy.py:40 in act"),
    ]
    visible = visible_diagnostics([0, 1, 4, 5, 6], episodes, details, policy_diagnostics="traceback")
    assert visible["failed_episodes"] == 4
    assert visible["groups"] == [
        {
            "count": 2,
            "failure": "exception",
            "exception_type": "IndexError",
            "message": "index 7",
            "where": "policy.py:31 in act",
        },
        {"count": 1, "failure": "timeout", "exception_type": None, "message": None, "where": None},
        {
            "count": 1,
            "failure": "exception",
            "exception_type": "IndexError",
            "message": "index 7 is out of range",
            "where": "policy.py:40 in act",
        },
    ]


def test_traceback_tells_type_message_and_frames_of_failed_episodes_only() -> None:
    details = [crash(stdout="printed"), EpisodeDiagnostics(stdout="printed")]
    visible = visible_diagnostics([3, 8], [FAILED, COMPLETED], details, policy_diagnostics="traceback")
    assert visible["episodes"] == [
        {
            "episode_index": 3,
            "failure": "exception",
            "exception_type": "IndexError",
            "message": "index 7 is out of range",
            "frames": ["policy.py:9 in make_policy", "policy.py:31 in act"],
        }
    ]


def test_output_adds_what_each_episode_printed() -> None:
    visible = visible_diagnostics(
        [3, 8], [FAILED, COMPLETED], [crash(), EpisodeDiagnostics(stdout="hello\n")], policy_diagnostics="output"
    )
    assert visible["episodes"][1] == {"episode_index": 8, "stdout": "hello\n"}  # type: ignore[index]


def test_none_tells_the_failure_code_alone() -> None:
    visible = visible_diagnostics(
        [0, 1], [FAILED, FAILED], [crash(stdout="secret"), crash()], policy_diagnostics="none"
    )
    assert visible == {
        "policy_diagnostics": "none",
        "failed_episodes": 2,
        "groups": [{"count": 2, "failure": "exception"}],
        "episodes": [],
    }


@pytest.mark.parametrize("character", ["x", "ü", "😀", "\ud800", "\x1b"])
def test_a_flood_is_bounded_and_valid_unicode(character: str) -> None:
    flood = character * 1_000_000
    details = EpisodeDiagnostics(flood, flood, (flood,) * 1000, flood, flood, flood)
    visible = visible_diagnostics([0], [FAILED], [details], policy_diagnostics="output")
    (episode,) = visible["episodes"]  # type: ignore[misc]
    told = "".join([episode["exception_type"], episode["message"], *episode["frames"]])
    assert len(told.encode()) <= 2 * 1024
    assert len((episode["stdout"] + episode["stderr"]).encode()) <= 8 * 1024
    assert len(json.dumps(diagnostics_summary(visible), ensure_ascii=False).encode()) < 4 * 1024
    log = policy_log([0], [FAILED], [details])
    assert len(log.decode("utf-8")) <= 66 * 1024


def test_what_one_stream_leaves_the_other_may_use() -> None:
    details = EpisodeDiagnostics(stdout="o" * 100, stderr="e" * 100_000 + "end")
    visible = visible_diagnostics([0], [COMPLETED], [details], policy_diagnostics="output")
    (episode,) = visible["episodes"]  # type: ignore[misc]
    assert episode["stdout"] == "o" * 100
    assert len(episode["stderr"].encode()) == 8 * 1024 - 100
    assert episode["stderr"].endswith("end")


def test_text_of_a_policy_is_inert() -> None:
    details = EpisodeDiagnostics("E", "red \x1b[31m\x00 text\r\nsecond\tline")
    visible = visible_diagnostics([0], [FAILED], [details], policy_diagnostics="traceback")
    assert visible["episodes"][0]["message"] == "red �[31m� text\nsecond\tline"  # type: ignore[index]


def test_many_kinds_of_failure_are_cut_to_the_most_frequent() -> None:
    details = [crash(where=f"policy.py:{line} in act") for line in range(50)] + [crash()] * 2
    visible = visible_diagnostics(range(52), [FAILED] * 52, details, policy_diagnostics="traceback")
    groups = visible["groups"]
    assert isinstance(groups, list)
    assert groups[0]["count"] == 3
    assert (len(groups), visible["groups_left_out"]) == (20, 30)


def test_the_log_holds_all_of_it_for_episodes_that_failed_or_printed() -> None:
    log = policy_log(
        [3, 4, 5],
        [FAILED, COMPLETED, COMPLETED],
        [crash(), EpisodeDiagnostics(), EpisodeDiagnostics(stderr="warned\n")],
    )
    first, second = map(json.loads, log.splitlines())
    assert first["traceback"].startswith("Traceback")
    assert (first["episode_index"], first["position"], first["failure"]) == (3, 0, "exception")
    assert second == {
        "position": 2,
        "episode_index": 5,
        "status": "completed",
        "failure": None,
        "stderr": "warned\n",
    }


def test_an_unknown_choice_is_refused() -> None:
    with pytest.raises(ValueError, match="'none', 'traceback' or 'output', not 'all'"):
        visible_diagnostics([], [], [], policy_diagnostics="all")
