"""A linear Policy: push to the right if a weighted sum of the state is positive."""

import json
from pathlib import Path

from evopolicygym.policy import PolicyContext

PARAMETERS = json.loads(Path(__file__).with_name("params.json").read_text())


class LinearPolicy:
    def act(self, observation: list[float]) -> int:
        position, velocity, angle, angular_velocity = observation
        pull = (
            PARAMETERS["position"] * position
            + PARAMETERS["velocity"] * velocity
            + PARAMETERS["angle"] * angle
            + PARAMETERS["angular_velocity"] * angular_velocity
        )
        return 1 if pull > 0 else 0


def make_policy(context: PolicyContext) -> LinearPolicy:
    return LinearPolicy()
