"""The command line: parse, call, show. No rules of the domain live here."""


def main() -> None:
    """Entry point of ``evopolicygym`` and ``python -m evopolicygym``; ends the process with its exit code."""
    from evopolicygym.cli.failures import guarded

    guarded()


__all__ = ["main"]
