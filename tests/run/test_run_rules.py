"""The pure rules of a Run: configuration, ranking, task text, secrets."""

import dataclasses
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from run_scenarios import initial_program
from target_benchmark import TargetBenchmark

from evopolicygym import Program
from evopolicygym.artifacts import Feedback
from evopolicygym.results import EpisodeSummary, SubmissionResult, ValidationCandidateResult
from evopolicygym.run import AssessmentConfig, RunConfig, ValidationConfig
from evopolicygym.run.evidence import SecretSearch, StreamRedactor, redact_file, redact_tail, secret_values
from evopolicygym.run.selection import best_submissions, select_candidate
from evopolicygym.run.task import task_text


def test_limits_read_back_resolved():
    assert RunConfig().episode_pool_size == 1000
    assert RunConfig(episode_budget=30).episode_pool_size == 30
    assert RunConfig(max_submissions=None, episode_budget=30).max_submissions == 30


def test_configurations_compare_hash_and_can_be_replaced():
    config = RunConfig(seed=5, validation=ValidationConfig(episodes_per_candidate=2))
    assert config == RunConfig(seed=5, validation=ValidationConfig(episodes_per_candidate=2))
    assert hash(config) == hash(dataclasses.replace(config))
    assert dataclasses.replace(config, seed=6).seed == 6
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.seed = 7


@pytest.mark.parametrize(
    ("limits", "text"),
    [
        ({"seed": -1}, "seed: Input should be greater than or equal to 0"),
        ({"sead": 1, "split": 3}, "split: Input should be a valid string; sead: Unexpected keyword argument"),
        (
            {"max_episodes_per_submission": 5, "episode_budget": 2},
            "max_episodes_per_submission is 5, above the episode_budget (2) or the episode_pool_size (2); lower it",
        ),
    ],
)
def test_wrong_limits_are_told_in_one_line_without_a_link(limits, text):
    with pytest.raises(ValueError, match=f"^{re.escape(text)}$"):
        RunConfig(**limits)


@pytest.mark.parametrize(
    "limits",
    [
        {"seed": -1},
        {"seed": 2**64},
        {"seed": True},
        {"seed": 1.0},
        {"episode_budget": 0},
        {"episode_budget": "30"},
        {"episode_budget": 30.0},
        {"max_submissions": True},
        {"episode_timeout_seconds": "1.5s"},
        {"episode_timeout_seconds": 0},
        {"episode_timeout_seconds": float("nan")},
        {"agent_timeout_seconds": float("inf")},
        {"policy_diagnostics": "all"},
        {"split": ""},
        {"episode_budget": 10, "max_episodes_per_submission": 11},
        {"episode_budget": 10, "episode_pool_size": 5, "max_episodes_per_submission": 6},
        {
            "episode_budget": 100,
            "max_submissions": 3,
            "max_episodes_per_submission": 10,
            "finish_budget_policy": "require_budget_exhaustion",
        },
    ],
)
def test_a_bad_limit_is_a_value_error(limits):
    with pytest.raises(ValueError, match=r".+"):
        RunConfig(**limits)


def test_a_section_of_the_wrong_class_is_a_type_error():
    with pytest.raises(TypeError, match="ValidationConfig"):
        RunConfig(validation=AssessmentConfig(episodes=3))
    with pytest.raises(TypeError, match="AssessmentConfig"):
        RunConfig(assessment={"episodes": 3})


def submission(program: Program, number: int, score: float, failures: int = 0) -> SubmissionResult:
    episodes = tuple(
        EpisodeSummary("policy_failed", None, 0, "exception") if i < failures else EpisodeSummary("completed", 1.0, 1)
        for i in range(3)
    )
    return SubmissionResult(f"submission-{number:06d}", program, (0, 1, 2), 3, 10, Feedback(score), episodes)


def test_the_best_submissions_are_ranked_by_score_then_failures_then_age(tmp_path):
    program = initial_program(tmp_path)
    submissions = [submission(program, 1, 5.0, 1), submission(program, 2, 5.0), submission(program, 3, 7.0, 2)]
    submissions.append(submission(program, 4, 5.0))
    best = best_submissions(submissions, direction="maximize", count=3)
    assert best == ("submission-000003", "submission-000002", "submission-000004")
    assert best_submissions(submissions, direction="minimize", count=1) == ("submission-000002",)


def test_the_candidate_is_selected_by_score_then_failures_then_the_agents_order():
    digest = "sha256:" + "0" * 64
    candidates = [
        ValidationCandidateResult("submission-000003", digest, 1.0, 5, 1),
        ValidationCandidateResult("submission-000002", digest, 1.0, 5, 0),
        ValidationCandidateResult("submission-000001", digest, 1.0, 5, 0),
    ]
    assert select_candidate(candidates, direction="maximize") == "submission-000002"
    assert select_candidate(candidates, direction="minimize") == "submission-000002"


def test_the_task_text_names_every_limit(tmp_path):
    config = RunConfig(
        episode_budget=77,
        episode_pool_size=88,
        max_submissions=9,
        max_episodes_per_submission=11,
        agent_timeout_seconds=1234.0,
        episode_timeout_seconds=5.5,
        validation=ValidationConfig(episodes_per_candidate=3, max_candidates=4),
        finish_budget_policy="require_budget_exhaustion",
        when_unfinished="select",
    )
    text = task_text(TargetBenchmark().spec, config, ())
    for expected in ("77", "0 to 87", "9", "11", "1234", "5.5", "up to 4 Submissions", "must spend the whole"):
        assert expected in text
    assert "mean_right_answers" in text
    assert "higher is better" in text


def test_secrets_are_replaced_wherever_they_stand(tmp_path: Path):
    secrets = secret_values({"KEY": "topsecretvalue", "SHORT": "abc", "LONGER": "topsecretvalue-and-more"})
    assert set(secrets.values()) == {"KEY", "LONGER"}
    log = tmp_path / "log"
    padding = b"." * (1024 * 1024 - 5)  # so that the first one straddles two reads
    log.write_bytes(padding + b"topsecretvalue\n" + b"abc topsecretvalue-and-more\n\xff")
    assert redact_file(log, secrets) == 2
    assert log.read_bytes() == padding + b"[redacted:KEY]\nabc [redacted:LONGER]\n\xff"


@given(
    st.lists(st.text("xy", min_size=1, max_size=6), min_size=1, max_size=3),
    st.lists(st.text("xyz", max_size=9), max_size=8),
)
def test_no_secret_passes_a_stream_however_it_is_cut(secrets: list[str], pieces: list[str]):
    redactor = StreamRedactor({secret.encode(): "N" for secret in secrets})
    passed = b"".join(redactor.feed(piece.encode()) for piece in pieces) + redactor.close()
    assert not any(secret.encode() in passed for secret in secrets)
    kept = passed.replace(b"[redacted:N]", b"")
    assert len("".join(pieces)) - len(kept) >= min(map(len, secrets)) * redactor.count


def test_what_cannot_be_part_of_a_secret_is_passed_on_at_once():
    redactor = StreamRedactor({b"topsecret": "KEY"})
    assert redactor.feed(b"a line\n") == b"a line\n"
    assert redactor.feed(b"a line that ends in tops") == b"a line that ends in "
    assert redactor.feed(b"ecret\n") == b"[redacted:KEY]\n"
    assert redactor.feed(b"top") == b""
    assert redactor.close() == b"top"


@pytest.mark.parametrize("size", range(1, 40))
def test_no_tail_of_a_log_begins_in_a_secret(tmp_path: Path, size: int):
    (tmp_path / "log").write_bytes(b"padding topsecret\nthe end\n")
    assert redact_tail(tmp_path / "log", size, {b"topsecret": "KEY"}) in b"padding [redacted:KEY]\nthe end\n"


def test_a_log_without_secrets_is_left_as_it_is(tmp_path: Path):
    log = tmp_path / "log"
    log.write_bytes(b"nothing")
    before = log.stat()
    assert redact_file(log, secret_values({"KEY": "topsecretvalue"})) == 0
    assert log.stat().st_ino == before.st_ino


def test_secrets_in_a_workspace_are_found_and_no_link_is_followed(tmp_path: Path):
    (tmp_path / "w/a").mkdir(parents=True)
    (tmp_path / "outside").write_text("topsecretvalue")
    (tmp_path / "w/a/notes").write_text("xx topsecretvalue xx")
    (tmp_path / "w/link").symlink_to(tmp_path / "outside")
    search = SecretSearch(tmp_path / "w", secret_values({"KEY": "topsecretvalue"}))
    assert (search.found, search.omitted) == (["a/notes"], None)


def test_a_search_for_secrets_reads_a_huge_file_only_so_far_and_says_so(tmp_path: Path):
    (tmp_path / "notes").write_text("topsecretvalue")
    for name in ("a", "huge"):
        with (tmp_path / name).open("wb") as file:
            file.write(b"topsecretvalue" if name == "a" else b"")
            file.truncate(2**40)
    search = SecretSearch(tmp_path, secret_values({"KEY": "topsecretvalue"}))
    assert (search.found, search.omitted) == (["a", "notes"], "huge")


def test_a_search_for_secrets_goes_only_so_deep_and_so_wide_and_says_so(tmp_path: Path, monkeypatch):
    for name in ("b/c/d/notes", "b/notes", "e", "f", "g"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("topsecretvalue")
    secrets = secret_values({"KEY": "topsecretvalue"})
    monkeypatch.setattr("evopolicygym.run.evidence.MAX_DEPTH", 1)
    search = SecretSearch(tmp_path, secrets)
    assert (search.found, search.omitted) == (["b/notes", "e", "f", "g"], "b/c")
    monkeypatch.setattr("evopolicygym.run.evidence.SEARCHED_ENTRIES", 4)
    search = SecretSearch(tmp_path, secrets)
    assert (search.found, search.omitted) == (["b/notes", "e"], "b/c")
    monkeypatch.setattr("evopolicygym.run.evidence.SEARCHED_BYTES", 5)
    search = SecretSearch(tmp_path, secrets)
    assert (search.found, search.omitted) == ([], "b/c")
