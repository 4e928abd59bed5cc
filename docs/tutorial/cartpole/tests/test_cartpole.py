"""The Benchmark keeps its contract, and the physics is what the paper says."""

import pickle

import pytest
from cartpole import CartPoleBenchmark, baseline_program
from cartpole.physics import FORCE, State, advance

from evopolicygym import EvaluationConfig, evaluate
from evopolicygym.authoring import BenchmarkFixture, EpisodeRecord, InvalidAction, check_benchmark
from evopolicygym.execution import ProcessExecution

BENCHMARK = CartPoleBenchmark()


def test_it_keeps_the_contract():
    [first, second] = BENCHMARK.episodes("train", seed=0, count=2)
    fixtures = [
        BenchmarkFixture(first, (1,) * 500),
        BenchmarkFixture(second, (0, 1) * 250),
        BenchmarkFixture(second, (0, "left")),
    ]

    check_benchmark(BENCHMARK, fixtures=fixtures).raise_for_errors()


def test_splits_never_share_an_episode():
    seeds = {
        split: {episode.environment_seed for episode in BENCHMARK.episodes(split, seed=0, count=500)}
        for split in ("train", "validation", "test")
    }

    assert all(len(found) == 500 for found in seeds.values())
    assert not seeds["train"] & seeds["validation"]
    assert not seeds["train"] & seeds["test"]
    assert not seeds["validation"] & seeds["test"]


def test_an_unknown_split_is_refused():
    with pytest.raises(ValueError, match="allowed: train, validation, test"):
        BENCHMARK.episodes("holdout", seed=0, count=1)


@pytest.mark.parametrize("action", [2, -1, True, 1.0, "1", None, [1]])
def test_anything_but_zero_and_one_is_an_invalid_action(action):
    environment = BENCHMARK.make_environment(BENCHMARK.episodes("train", seed=0, count=1)[0])
    environment.reset()

    with pytest.raises(InvalidAction):
        environment.step(action)


def test_a_pushed_cart_moves_and_its_pole_leans_the_other_way():
    state = advance(advance(State(0.0, 0.0, 0.0, 0.0), FORCE), FORCE)

    assert state.position > 0
    assert state.angle < 0


def test_the_first_push_gives_the_accelerations_of_the_equations():
    # Upright and at rest the equations reduce to θ̈ = -F / (l (4/3 M - m)) and ẍ = (F - m l θ̈) / M.
    state = advance(State(0.0, 0.0, 0.0, 0.0), 10.0)
    angular = -10.0 / (0.5 * (4 / 3 * 1.1 - 0.1))

    assert state.angular_velocity == pytest.approx(0.02 * angular)
    assert state.velocity == pytest.approx(0.02 * (10.0 - 0.05 * angular) / 1.1)


def test_left_and_right_are_alike():
    right, left = State(0.1, 0.2, 0.03, -0.4), State(-0.1, -0.2, -0.03, 0.4)
    for _ in range(20):
        right, left = advance(right, FORCE), advance(left, -FORCE)

    assert left == State(-right.position, -right.velocity, -right.angle, -right.angular_velocity)


def test_a_failed_episode_counts_nothing():
    [episode] = BENCHMARK.episodes("train", seed=0, count=1)
    record = EpisodeRecord(episode, 1, None, (), "exception")
    feedback = BENCHMARK.feedback([record])

    assert feedback.score == 0
    assert feedback.content["ends"] == {"failed_exception": 1}


def test_feedback_does_not_tell_which_episodes_were_played():
    episodes = BENCHMARK.episodes("train", seed=0, count=3)
    feedback = BENCHMARK.feedback([EpisodeRecord(episode, 1, None, (), "timeout") for episode in episodes])

    for episode in episodes:
        assert str(episode.environment_seed) not in repr(feedback)


def test_it_can_be_sent_to_a_worker():
    assert pickle.loads(pickle.dumps(BENCHMARK)).spec == BENCHMARK.spec


def test_the_baseline_is_weak_but_works():
    result = evaluate(
        baseline_program(),
        BENCHMARK,
        execution=ProcessExecution.unsafe(workers=1),
        config=EvaluationConfig(split="train", episodes=10, seed=0),
    )

    assert all(episode.status == "completed" for episode in result.episodes)
    assert 20 < result.feedback.score < 80
