"""Feedback about returns: numbers, lines, bounds, and nothing that is private."""

import json

import pytest

from evopolicygym.authoring import EpisodeRecord, EpisodeSpec, Feedback, Step, Transition
from evopolicygym.benchmarks.return_feedback import (
    EPISODES_MAX_BYTES,
    TRACE_MAX_BYTES,
    TRACE_MAX_EPISODES,
    return_feedback,
)
from evopolicygym.policy import TensorValue

SEED = 8_765_432_109_876_543
POLICY_SEED = 7_654_321_098_765_432


def record(*rewards: float, failure=None, observation=(0.25, -1.5)) -> EpisodeRecord:
    value = list(observation) if isinstance(observation, tuple) else observation
    transitions = tuple(
        Transition(1, Step(value, reward, terminated=number == len(rewards)))
        for number, reward in enumerate(rewards, start=1)
    )
    return EpisodeRecord(EpisodeSpec(SEED, {"secret": "scenario"}), POLICY_SEED, value, transitions, failure)


def lines(feedback: Feedback, name: str) -> list[dict]:
    [artifact] = [artifact for artifact in feedback.artifacts if artifact.name == name]
    return [json.loads(line) for line in artifact.content.decode().splitlines()]


def test_the_score_is_the_mean_return():
    assert return_feedback([record(1, 1), record(1, 1, 1, 1)], failure_return=0).score == 3.0


def test_a_failed_episode_counts_the_failure_return():
    feedback = return_feedback([record(5), record(5, 5, failure="timeout")], failure_return=-7.0)

    assert feedback.score == -1.0


def test_the_content_tells_mean_and_spread():
    records = [record(1), record(1, 1), record(4, 1), record(1, 9, failure="exception")]

    assert return_feedback(records, failure_return=0.0).content == {
        "episodes": 4,
        "mean_return": 2.0,
        "standard_deviation": 3.5**0.5,
        "min_return": 0.0,
        "median_return": 1.5,
        "max_return": 5.0,
        "steps": 7,
        "failures": 1,
        "failure_return": 0.0,
    }


def test_every_episode_has_a_line():
    feedback = return_feedback([record(1, 1), record(1, failure="invalid_action")], failure_return=-2.0)

    assert lines(feedback, "episodes.jsonl") == [
        {"position": 0, "status": "completed", "return": 2.0, "length": 2, "failure": None},
        {"position": 1, "status": "policy_failed", "return": -2.0, "length": 1, "failure": "invalid_action"},
    ]


def test_the_trace_begins_with_the_first_observation_and_tells_what_is_left_out():
    assert lines(return_feedback([record(0.5, 2)], failure_return=0.0), "trace.jsonl") == [
        {"position": 0, "step": 0, "observation": [0.25, -1.5]},
        {
            "position": 0,
            "step": 1,
            "action": 1,
            "reward": 0.5,
            "observation": [0.25, -1.5],
            "terminated": False,
            "truncated": False,
        },
        {
            "position": 0,
            "step": 2,
            "action": 1,
            "reward": 2.0,
            "observation": [0.25, -1.5],
            "terminated": True,
            "truncated": False,
        },
        {"omitted": {"episodes": 0, "transitions": 0}},
    ]


def test_the_trace_holds_the_first_episodes_only():
    trace = lines(return_feedback([record(1, 1)] * (TRACE_MAX_EPISODES + 3), failure_return=0.0), "trace.jsonl")

    assert {line["position"] for line in trace[:-1]} == set(range(TRACE_MAX_EPISODES))
    assert trace[-1] == {"omitted": {"episodes": 3, "transitions": 6}}


def test_the_trace_is_bounded_in_bytes_and_counts_what_did_not_fit():
    image = TensorValue("uint8", (100, 100, 3), bytes(30_000))
    feedback = return_feedback([record(*[1.0] * 60, observation=image)] * 2, failure_return=0.0)
    trace = lines(feedback, "trace.jsonl")
    written = sum("action" in line for line in trace)

    assert feedback.artifacts[1].size < TRACE_MAX_BYTES + 200
    assert 0 < written < 60
    assert trace[-1] == {"omitted": {"episodes": 1, "transitions": 120 - written}}


def test_an_observation_beyond_the_bound_leaves_only_the_last_line():
    image = TensorValue("uint8", (1000, 1000), bytes(1_000_000))
    feedback = return_feedback([record(1.0, observation=image)], failure_return=0.0)

    assert lines(feedback, "trace.jsonl") == [{"omitted": {"episodes": 1, "transitions": 1}}]


def test_episode_lines_are_bounded_and_count_what_did_not_fit():
    episodes = return_feedback([record(1.0)] * 60_000, failure_return=0.0).artifacts[0]
    *told, last = episodes.content.decode().splitlines()

    assert episodes.size < EPISODES_MAX_BYTES + 200
    assert json.loads(last) == {"omitted": {"episodes": 60_000 - len(told)}}


def test_the_trace_may_be_evicted_and_the_episodes_stay():
    artifacts = return_feedback([record(1)], failure_return=0.0).artifacts

    assert {artifact.name: artifact.retention for artifact in artifacts} == {
        "episodes.jsonl": "permanent",
        "trace.jsonl": "bulk",
    }


def test_neither_seeds_nor_scenario_are_told():
    feedback = return_feedback([record(1, failure="exception"), record(1)], failure_return=0.0)
    told = repr(feedback)

    for private in (str(SEED), str(POLICY_SEED), "secret", "scenario", "seed"):
        assert private not in told


def test_no_records_are_refused():
    with pytest.raises(ValueError, match="at least one Episode record"):
        return_feedback([], failure_return=0.0)
