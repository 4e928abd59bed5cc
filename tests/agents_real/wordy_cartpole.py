"""CartPole with a description so long that the task fits into no argument of a program."""

from dataclasses import replace

from evopolicygym.benchmarks.gymnasium import GymnasiumBenchmark

DESCRIPTION_BYTES = 300 * 1024
LAST_WORDS = "These are the last words of a very long description."


class WordyCartPole(GymnasiumBenchmark):
    def __init__(self) -> None:
        super().__init__(env_id="CartPole-v1")
        sentence = "- Keep the pole up; ${HOME} and {{ braces }} are only words here.\n"
        filling = sentence * (DESCRIPTION_BYTES // len(sentence))
        self.spec = replace(self.spec, description=f"{filling}\n{LAST_WORDS}")
