"""The command line: parse, call, show. No rules of the domain live here."""


def main() -> None:
    """Entry point of ``evopolicygym`` and ``python -m evopolicygym``; ends the process with its exit code."""
    from evopolicygym.cli.failures import guarded

    guarded(_application)


def _application() -> None:
    from evopolicygym.cli.app import app

    app(prog_name="evopolicygym")


__all__ = ["main"]
