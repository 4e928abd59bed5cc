import itertools
import json
import subprocess
import sys

import pytest

from evopolicygym.agents import AgentTask, ParameterTuner
from evopolicygym.agents.parameter_tuner.failure import TunerError
from evopolicygym.agents.parameter_tuner.parameters import read_parameters, write_json
from evopolicygym.agents.parameter_tuner.plan import Limits, plan_search, shares, window
from evopolicygym.agents.parameter_tuner.search import CovarianceSearch, scales

DOCUMENT = {"layers": [{"w": [[0.5, -1.0], [2e3, 0.0]], "units": 2}], "on": True, "name": "x", "none": None, "b": 1.5}


def written(tmp_path, text):
    path = tmp_path / "params.json"
    path.write_text(text)
    return path


def test_floats_are_found_however_deep_and_nothing_else(tmp_path):
    parameters = read_parameters(written(tmp_path, json.dumps(DOCUMENT)))
    assert parameters.values == (0.5, -1.0, 2000.0, 0.0, 1.5)
    assert parameters.names[0] == "layers[0].w[0][0]"
    assert parameters.names[-1] == "b"


def test_values_go_back_to_where_they_came_from(tmp_path):
    parameters = read_parameters(written(tmp_path, json.dumps(DOCUMENT)))
    assert parameters.with_values(parameters.values) == DOCUMENT
    changed = parameters.with_values((1.0, 2.0, 3.0, 4.0, 5.0))
    assert changed == DOCUMENT | {"layers": [{"w": [[1.0, 2.0], [3.0, 4.0]], "units": 2}], "b": 5.0}


def test_a_number_alone_is_a_document(tmp_path):
    assert read_parameters(written(tmp_path, "2.5")).with_values([3]) == 3.0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "no JSON"),
        ("{}", "no number"),
        ("[1, 2]", r"write 0\.0"),
        ("[NaN]", "must be finite"),
        ("[1e999]", "finite"),
    ],
)
def test_a_file_that_cannot_be_tuned_says_why(tmp_path, text, words):
    with pytest.raises(TunerError, match=words):
        read_parameters(written(tmp_path, text))


def test_a_written_file_is_strict_json_and_leaves_nothing_beside_it(tmp_path):
    staging = tmp_path / "staging"
    staging.mkdir()
    write_json(tmp_path / "params.json", {"a": [1.0]}, staging=staging)
    assert json.loads((tmp_path / "params.json").read_text()) == {"a": [1.0]}
    assert list(staging.iterdir()) == []
    with pytest.raises(ValueError, match="JSON"):
        write_json(tmp_path / "params.json", [float("inf")], staging=staging)


def limits(episodes, submissions, **fields):
    given = {"pool_size": 100, "largest_submission": 100}
    return Limits(episodes=episodes, submissions=submissions, **(given | fields))


@pytest.mark.parametrize("dimension", [1, 2, 5, 50, 1000])
def test_a_plan_fits_its_budget(dimension):
    sizes = itertools.product([1, 2, 7, 30, 300, 1000, 100_000], [1, 2, 5, 8, 20, 30, 60, 1000], [1, 10, 100])
    for episodes, submissions, largest in sizes:
        budget = limits(episodes, submissions, largest_submission=largest, max_candidates=3)
        plan = plan_search(budget, dimension)
        assert plan.candidates >= 0
        assert 1 <= plan.episodes_per_candidate <= largest
        assert 1 + plan.candidates + plan.finalists <= submissions
        search = (1 + plan.candidates) * plan.episodes_per_candidate
        assert search + plan.finalists * plan.episodes_per_finalist <= episodes


def test_a_usual_budget_pays_for_several_generations_and_a_final():
    plan = plan_search(limits(300, 30, max_candidates=3), 5)
    assert plan.generations >= 3
    assert plan.finalists >= 3
    assert plan.episodes_per_finalist >= 2 * plan.episodes_per_candidate


def test_many_submissions_become_more_episodes_a_candidate_not_endless_generations():
    plan = plan_search(limits(10_000, 10_000), 4)
    assert plan.episodes_per_candidate > 10


def test_what_the_caller_fixed_stays():
    plan = plan_search(limits(1000, 100), 5, population_size=9, episodes_per_candidate=4, generations=3)
    assert (plan.population_size, plan.episodes_per_candidate, plan.candidates) == (9, 4, 27)


def test_spending_all_sets_the_least_that_the_next_submission_may_take():
    assert limits(35, 4, largest_submission=10, spend_all=True).least == 5
    assert limits(35, 4, largest_submission=10).least == 1


def test_a_window_goes_around_the_end_of_the_pool_in_order():
    assert window(0, 3, 10) == (0, 1, 2)
    assert window(8, 4, 10) == (0, 1, 8, 9)
    assert window(25, 2, 10) == (5, 6)


def test_shares_add_up_and_differ_by_one():
    assert shares(11, 4) == (3, 3, 3, 2)


def test_each_parameter_moves_by_its_own_size_or_the_typical_one():
    assert scales([0.0, 0.0]) == (1.0, 1.0)
    assert scales([100.0, 0.0, 1.0, -0.5]) == (100.0, 1.0, 1.0, 1.0)


def test_the_search_finds_the_minimum_of_a_badly_scaled_bowl():
    search = CovarianceSearch([100.0, 0.1], seed=1, population_size=8, sigma=0.5)
    for _ in range(40):
        asked = [search.ask() for _ in range(8)]
        search.tell([((a - 140) / 100) ** 2 + ((b + 0.2) / 0.1) ** 2 for a, b in asked])
    assert search.mean == pytest.approx((140, -0.2), rel=0.02)


def test_a_tuner_starts_the_hosts_interpreter_with_its_options():
    made = ParameterTuner(seed=3, sigma=0.25, population_size=8).build_invocation(AgentTask("x"))
    assert made.command[0] == sys.executable
    assert made.command[4:] == ("--seed", "3", "--sigma", "0.25", "--population-size", "8")
    assert made.recorded_command == made.command
    assert made.name == "parameter-tuner"


@pytest.mark.parametrize(
    "options",
    [{"seed": -1}, {"seed": True}, {"seed": 2**64}, {"sigma": 0}, {"sigma": float("nan")}, {"population_size": 1},
     {"episodes_per_candidate": 0}, {"generations": 1.5}],
)  # fmt: skip
def test_a_wrong_option_is_a_value_error_that_names_it(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        ParameterTuner(**options)


def test_a_missing_extra_is_told_with_the_command_that_brings_it(tmp_path):
    script = (
        "import sys; sys.modules['cmaes'] = None\n"
        "from evopolicygym.agents.parameter_tuner.__main__ import main\n"
        "sys.exit(main([]))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, check=False, timeout=60)
    assert done.returncode == 1
    assert b"pip install 'evopolicygym[tuner]'" in done.stderr


def test_importing_the_agents_loads_nothing_heavy():
    script = (
        "import sys\n"
        "from evopolicygym.agents import CommandAgent, ParameterTuner\n"
        "ParameterTuner()\n"
        "print(sorted({'numpy', 'cmaes', 'pydantic'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True, timeout=60)
    assert done.stdout.strip() == b"[]"
