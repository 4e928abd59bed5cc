"""The Agent's channel to the Host: ledger (budget rules), session, gateway (socket) and client."""

from evopolicygym.first_use import on_first_use

# A type checker reads this as true. `typing` itself is not imported: `python -m evopolicygym.session` and the
# installed command load this module in every call of an Agent.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from evopolicygym.session.gateway import Gateway, socket_place
    from evopolicygym.session.ledger import LedgerLimits, LedgerState, Refusal, SubmissionEntry
    from evopolicygym.session.protocol import ErrorCode
    from evopolicygym.session.session import PeerGone, Session, SessionHost

__all__ = [
    "ErrorCode",
    "Gateway",
    "LedgerLimits",
    "LedgerState",
    "PeerGone",
    "Refusal",
    "Session",
    "SessionHost",
    "SubmissionEntry",
    "socket_place",
]

__getattr__, __dir__ = on_first_use(
    __name__,
    {
        "ErrorCode": "evopolicygym.session.protocol",
        "Gateway": "evopolicygym.session.gateway",
        "LedgerLimits": "evopolicygym.session.ledger",
        "LedgerState": "evopolicygym.session.ledger",
        "PeerGone": "evopolicygym.session.session",
        "Refusal": "evopolicygym.session.ledger",
        "Session": "evopolicygym.session.session",
        "SessionHost": "evopolicygym.session.session",
        "SubmissionEntry": "evopolicygym.session.ledger",
        "socket_place": "evopolicygym.session.gateway",
    },
)
