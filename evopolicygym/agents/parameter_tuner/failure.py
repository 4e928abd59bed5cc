"""The one error of the tuner's process: it ends it, with a message for people."""

__all__ = ["TunerError"]


class TunerError(Exception):
    """The tuner cannot go on; the message says why and what to do."""
