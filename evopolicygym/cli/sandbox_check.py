"""``evopolicygym check --sandbox``: what this machine can do for a sandbox, and what brings what it lacks."""

from rich.table import Column, Table
from rich.text import Text

from evopolicygym.cli.consoles import result_console, show
from evopolicygym.cli.failures import EXIT_FINISHED, EXIT_USAGE
from evopolicygym.cli.report import print_json
from evopolicygym.execution import sandbox_report

__all__ = ["check_sandbox"]


def check_sandbox(*, as_json: bool) -> int:
    """Try the sandbox out and show the findings.

    Returns:
        The exit code: 0 if a sandbox can be had here.
    """
    report = sandbox_report()
    if as_json:
        print_json({"schema": "evopolicygym/sandbox-report/v1", **report.to_json()})
    else:
        grid = Table.grid(
            Column(no_wrap=True), Column(style="dim", no_wrap=True), Column(overflow="fold"), padding=(0, 2)
        )
        for name, found, advice in report.lines:
            mark = (
                Text("ok", style="green") if not advice else Text("!!", style="yellow" if report.available else "red")
            )
            grid.add_row(mark, name, Text(found))
            if advice:
                grid.add_row("", "", Text(advice))
        show(result_console(), grid)
    return EXIT_FINISHED if report.available else EXIT_USAGE
