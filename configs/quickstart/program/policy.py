"""A linear Policy for CartPole: push right where the weighted sum of the observation is positive, else left."""

import json
from pathlib import Path

PARAMETERS = Path(__file__).with_name("params.json")


class LinearPolicy:
    def __init__(self, weights):
        self.weights = weights

    def act(self, observation):
        # observation: cart position, cart velocity, pole angle, pole angular velocity
        force = sum(weight * value for weight, value in zip(self.weights, observation, strict=True))
        return 1 if force > 0 else 0


def make_policy(context):  # noqa: ARG001  # what the Benchmark tells of its spaces; not needed here
    parameters = json.loads(PARAMETERS.read_text(encoding="utf-8"))
    return LinearPolicy(parameters["weights"])
