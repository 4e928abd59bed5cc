"""The commands and their options; each imports what it needs when it is called, so that ``--help`` is instant."""

import enum
from pathlib import Path
from typing import Annotated

import typer

from evopolicygym.cli.failures import show_tracebacks

app = typer.Typer(
    name="evopolicygym",
    help="Measures how well a coding agent improves an executable Policy when interaction costs budget.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


class ProgressMode(enum.StrEnum):
    """How a Run shows what it does."""

    AUTO = "auto"
    LIVE = "live"
    PLAIN = "plain"
    JSON = "json"
    OFF = "off"


Debug = Annotated[
    bool,
    typer.Option(
        "--debug", help="Show tracebacks of errors.", callback=show_tracebacks, expose_value=False, is_eager=True
    ),
]
SpecFile = Annotated[Path, typer.Argument(metavar="SPEC.toml", help="The run spec.", show_default=False)]
Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Override a key, as in --set run.seed=7. Repeatable.", show_default=False
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


def _version(wanted: bool) -> None:
    if wanted:
        from evopolicygym import __version__

        typer.echo(f"evopolicygym {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_version, is_eager=True)
    ] = False,
    debug: Debug = False,
) -> None:
    pass


@app.command()
def run(
    spec: SpecFile,
    overrides: Overrides = None,
    record_to: Annotated[
        str | None,
        typer.Option("--record-to", metavar="DIR", help="Where the Record goes, relative to here.", show_default=False),
    ] = None,
    progress: Annotated[
        ProgressMode | None,
        typer.Option(
            "--progress", help="What to show meanwhile; auto: live on a terminal, else plain.", show_default="auto"
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check everything, print the resolved spec, start nothing.")
    ] = False,
    json: Json = False,
    debug: Debug = False,  # noqa: ARG001  # the callback takes it
) -> None:
    """Let an Agent improve a Policy, and leave a Record."""
    from evopolicygym.cli.run_command import check_only, run_spec

    if dry_run:
        check_only(spec, overrides or [], record_to)
    else:
        mode = None if progress is None else progress.value
        raise typer.Exit(run_spec(spec, overrides or [], record_to, mode, as_json=json))


@app.command()
def resume(
    record: Annotated[Path, typer.Argument(metavar="RUN", help="The Record.", show_default=False)],
    add_time: Annotated[
        float, typer.Option("--add-time", metavar="SECONDS", min=0, help="Give the Agent more time.")
    ] = 0.0,
    agent_retries: Annotated[
        int,
        typer.Option(
            "--agent-retries", min=0, help="Start the Agent again so often if it crashes, stalls or finds no model."
        ),
    ] = 0,
    select: Annotated[
        bool, typer.Option("--select", help="Hand off the best published Submissions; start no Agent.")
    ] = False,
    overrides: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Change a limit, as in --set run.episode_budget=60. Repeatable; it is recorded.",
            show_default=False,
        ),
    ] = None,
    progress: Annotated[
        ProgressMode | None,
        typer.Option(
            "--progress", help="What to show meanwhile; auto: live on a terminal, else plain.", show_default="auto"
        ),
    ] = None,
    json: Json = False,
    debug: Debug = False,  # noqa: ARG001  # the callback takes it
) -> None:
    """Go on with a Run that was interrupted, crashed or ended without being finished."""
    from evopolicygym.cli.resume_command import resume_record

    raise typer.Exit(
        resume_record(
            record,
            overrides or [],
            add_time_seconds=add_time,
            agent_retries=agent_retries,
            select=select,
            progress=None if progress is None else progress.value,
            as_json=json,
        )
    )


@app.command()
def inspect(
    record: Annotated[
        Path | None,
        typer.Argument(
            metavar="RUN", help="A Record, or a folder of them; the latest if left out.", show_default=False
        ),
    ] = None,
    submission: Annotated[
        str | None,
        typer.Argument(
            metavar="SUBMISSION", help="One Submission, such as submission-000003 or 3.", show_default=False
        ),
    ] = None,
    events: Annotated[bool, typer.Option("--events", help="Print the journal, one event a line.")] = False,
    json: Json = False,
    debug: Debug = False,  # noqa: ARG001  # the callback takes it
) -> None:
    """Show what came of a Run."""
    from evopolicygym.cli.inspect_command import inspect_record

    inspect_record(record, submission, show_events=events, as_json=json)


@app.command()
def evaluate(
    spec: SpecFile,
    program: Annotated[
        Path | None,
        typer.Option(
            "--program",
            metavar="DIR",
            help="Evaluate this Policy directory in place of the spec's.",
            show_default=False,
        ),
    ] = None,
    split: Annotated[str, typer.Option("--split", metavar="NAME", help="Split of the Benchmark.")] = "validation",
    episodes: Annotated[int, typer.Option("--episodes", metavar="N", min=1, help="How many Episodes.")] = 20,
    seed: Annotated[
        int, typer.Option("--seed", metavar="N", min=0, max=2**64 - 1, help="Seed of the Episode plan.")
    ] = 0,
    overrides: Overrides = None,
    json: Json = False,
    debug: Debug = False,  # noqa: ARG001  # the callback takes it
) -> None:
    """Evaluate one Program, without any Agent."""
    from evopolicygym.cli.evaluate_command import evaluate_spec

    evaluate_spec(spec, overrides or [], program, split=split, episodes=episodes, seed=seed, as_json=json)


@app.command()
def schema(debug: Debug = False) -> None:  # noqa: ARG001  # the callback takes it
    """Print the JSON Schema of the run spec, for editors."""
    import json

    from evopolicygym.spec import spec_schema

    typer.echo(json.dumps(spec_schema(), indent=2, ensure_ascii=False))


@app.command()
def agents(
    probe: Annotated[
        bool,
        typer.Option("--probe", help="Try each program that is found: one turn with a scripted model, at no cost."),
    ] = False,
    json: Json = False,
    debug: Debug = False,  # noqa: ARG001  # the callback takes it
) -> None:
    """Show which coding agents are found here, and how they are logged in."""
    from evopolicygym.cli.agents_command import list_agents

    raise typer.Exit(list_agents(probe=probe, as_json=json))
