"""The cart and the pole: equations of motion with friction, and when it is over.

Source: A. G. Barto, R. S. Sutton, C. W. Anderson, "Neuronlike adaptive elements that can solve difficult
learning control problems", IEEE Transactions on Systems, Man, and Cybernetics SMC-13 (1983), pp. 834-846,
appendix. Here gravity is positive and the angle is 0 when the pole stands upright, positive to the right.
"""

from dataclasses import dataclass
from math import copysign, cos, radians, sin

GRAVITY = 9.8  # m/s²
CART_MASS = 1.0  # kg
POLE_MASS = 0.1  # kg
POLE_HALF_LENGTH = 0.5  # m
CART_FRICTION = 0.0005  # of the cart on the track
POLE_FRICTION = 0.000002  # of the pole on the cart
FORCE = 10.0  # N, to the left or to the right
TIME_STEP = 0.02  # s, explicit Euler
POSITION_LIMIT = 2.4  # m
ANGLE_LIMIT = radians(12)

_TOTAL_MASS = CART_MASS + POLE_MASS
_POLE_MOMENT = POLE_MASS * POLE_HALF_LENGTH


@dataclass(frozen=True, slots=True)
class State:
    """Position (m), velocity (m/s), angle (rad), angular velocity (rad/s)."""

    position: float
    velocity: float
    angle: float
    angular_velocity: float

    @property
    def left_track(self) -> bool:
        """Whether the cart ran off its track."""
        return abs(self.position) > POSITION_LIMIT

    @property
    def fell(self) -> bool:
        """Whether the pole leans too far."""
        return abs(self.angle) > ANGLE_LIMIT


def advance(state: State, force: float) -> State:
    """The state one time step later, with ``force`` (N) on the cart."""
    sine, cosine = sin(state.angle), cos(state.angle)
    rubbing = copysign(CART_FRICTION, state.velocity) if state.velocity else 0.0
    swing = _POLE_MOMENT * state.angular_velocity**2 * sine
    angular_acceleration = (
        GRAVITY * sine
        - cosine * (force + swing - rubbing) / _TOTAL_MASS
        - POLE_FRICTION * state.angular_velocity / _POLE_MOMENT
    ) / (POLE_HALF_LENGTH * (4 / 3 - POLE_MASS * cosine**2 / _TOTAL_MASS))
    acceleration = (force + swing - _POLE_MOMENT * angular_acceleration * cosine - rubbing) / _TOTAL_MASS
    return State(
        state.position + TIME_STEP * state.velocity,
        state.velocity + TIME_STEP * acceleration,
        state.angle + TIME_STEP * state.angular_velocity,
        state.angular_velocity + TIME_STEP * angular_acceleration,
    )
