"""Neither Policy nor Agent can roll out the simulator outside its budget."""

from benchmarks_for_tests import EchoBenchmark, acting, program

from evopolicygym.authoring import EpisodeSpec
from evopolicygym.benchmarks.gymnasium import GymnasiumBenchmark
from evopolicygym.evaluation import Evaluator, PlannedEpisode
from evopolicygym.execution import ProcessExecution, SandboxExecution
from evopolicygym.program import Program

IMPORTING = """
def imported(name):
    try:
        __import__(name)
    except ImportError as error:
        return str(error)
    return 'imported'
"""


class SimulatingBenchmark(EchoBenchmark):
    simulator_modules = ("gymnasium",)


def printed(execution: SandboxExecution, benchmark: EchoBenchmark, submitted: Program) -> str:
    with Evaluator(benchmark, execution, episode_timeout_seconds=20) as evaluator:
        evaluation = evaluator.evaluate(submitted, [PlannedEpisode(EpisodeSpec(0), 0)])
    return evaluation.diagnostics[0].stdout


def test_a_policy_cannot_import_the_simulator_but_all_else(tmp_path):
    body = "print([imported(name) for name in ('gymnasium', 'numpy', 'evopolicygym.policy')])\nreturn 1"
    submitted = program(tmp_path / "program", acting(body, before=IMPORTING))
    told = printed(SandboxExecution(workers=1), SimulatingBenchmark(steps=1), submitted)
    assert told.startswith("[\"No module named 'gymnasium': the sandbox hides it")
    assert told.endswith("'imported', 'imported']\n")


def test_nothing_is_hidden_where_the_user_says_so(tmp_path):
    submitted = program(tmp_path / "program", acting("print(imported('gymnasium'))\nreturn 1", before=IMPORTING))
    assert printed(SandboxExecution(workers=1, hide=[]), SimulatingBenchmark(steps=1), submitted) == "imported\n"


def test_gymnasium_names_itself_as_what_is_to_be_hidden():
    facts = SandboxExecution().facts_for(GymnasiumBenchmark("CartPole-v1"))
    assert "gymnasium" in facts["hidden_modules"]
    assert "evopolicygym" not in facts["hidden_modules"]
    assert "numpy" not in facts["hidden_modules"]
    assert facts["hiding"] == "advisory: the Agent has a network"
    assert SandboxExecution(network="none").facts_for(EchoBenchmark())["hiding"] == "enforced"


def test_gymnasium_gives_the_same_results_in_a_sandbox(tmp_path):
    submitted = program(tmp_path / "program", acting("return 1 if observation[2] + 0.3 * observation[3] > 0 else 0"))
    plan = [PlannedEpisode(EpisodeSpec(seed), seed) for seed in range(4)]
    results = []
    for execution in (ProcessExecution.unsafe(workers=2), SandboxExecution(workers=2)):
        with Evaluator(GymnasiumBenchmark("CartPole-v1"), execution, episode_timeout_seconds=20) as evaluator:
            evaluation = evaluator.evaluate(submitted, plan)
        assert {episode.status for episode in evaluation.episodes} == {"completed"}, evaluation.diagnostics
        feedback = evaluation.feedback
        artifacts = [artifact.read_bytes() for artifact in feedback.artifacts]
        results.append((evaluation.episodes, feedback.score, feedback.content, artifacts))
    assert results[0] == results[1]
