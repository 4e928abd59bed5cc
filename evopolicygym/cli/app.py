"""The commands and their options; each imports what it needs when it is called, so that ``--help`` is instant."""

import enum
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from evopolicygym.cli.completion import record_paths, spec_files, submission_names
from evopolicygym.cli.failures import show_tracebacks


def _without_types(parameters: list[Any]) -> list[Any]:
    """Let help show nothing beside options that take no value; Typer would say ``<bool>``."""
    for parameter in parameters:
        if getattr(parameter, "is_flag", False) and parameter.metavar is None:
            parameter.metavar = ""
    return parameters


class Command(TyperCommand):
    """One command."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _without_types(super().get_params(ctx))


class Group(TyperGroup):
    """All commands."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _without_types(super().get_params(ctx))


app = typer.Typer(
    name="evopolicygym",
    cls=Group,
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


class SchemaName(enum.StrEnum):
    """What has a JSON Schema."""

    SPEC = "spec"
    RUN_REPORT = "run-report"
    SUBMISSION_REPORT = "submission-report"
    PROGRAM_DIFF = "program-diff"
    TRANSCRIPT_REPORT = "transcript-report"
    EVALUATION_REPORT = "evaluation-report"
    COMPARISON = "comparison"
    CHECK_REPORT = "check-report"


Debug = Annotated[
    bool,
    typer.Option(
        "--debug",
        help="Show tracebacks of errors.",
        callback=show_tracebacks,
        expose_value=False,
        is_eager=True,
    ),
]
SpecFile = Annotated[
    Path,
    typer.Argument(metavar="SPEC.toml", help="The run spec.", show_default=False, autocompletion=spec_files),
]
Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Override a key, as in --set run.seed=7. Repeatable.", show_default=False
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Pager = Annotated[
    bool,
    typer.Option("--pager/--no-pager", help="Show what is longer than the screen in a pager."),
]
Progress = Annotated[
    ProgressMode | None,
    typer.Option(
        "--progress",
        metavar="MODE",
        help="What to show meanwhile: live, plain, json or off; auto is live on a terminal, else plain.",
        show_default="auto",
    ),
]


def _version(wanted: bool) -> None:
    if wanted:
        from evopolicygym import __version__

        typer.echo(f"evopolicygym {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version and exit.", callback=_version, is_eager=True),
    ] = False,
    debug: Debug = False,
) -> None:
    pass


@app.command(cls=Command)
def run(
    spec: SpecFile,
    overrides: Overrides = None,
    record_to: Annotated[
        str | None,
        typer.Option("--record-to", metavar="DIR", help="Where the Record goes, relative to here.", show_default=False),
    ] = None,
    progress: Progress = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Check everything, print the resolved spec, start nothing."),
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


@app.command(cls=Command)
def resume(
    record: Annotated[Path, typer.Argument(metavar="RUN", help="The Record.", show_default=False)],
    add_time: Annotated[
        float, typer.Option("--add-time", metavar="SECONDS", min=0, help="Give the Agent more time.")
    ] = 0.0,
    agent_retries: Annotated[
        int,
        typer.Option(
            "--agent-retries",
            metavar="N",
            min=0,
            help="Start the Agent again so often if it crashes, stalls or finds no model.",
        ),
    ] = 0,
    select: Annotated[
        bool,
        typer.Option("--select", help="Hand off the best published Submissions; start no Agent."),
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
    progress: Progress = None,
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


@app.command(cls=Command)
def inspect(
    record: Annotated[
        Path | None,
        typer.Argument(
            metavar="RUN",
            help="A Record, or a folder of them; the latest if left out.",
            show_default=False,
            autocompletion=record_paths,
        ),
    ] = None,
    submission: Annotated[
        str | None,
        typer.Argument(
            metavar="SUBMISSION",
            help="One Submission, such as submission-000003 or 3.",
            show_default=False,
            autocompletion=submission_names,
        ),
    ] = None,
    diff: Annotated[
        tuple[str, str] | None,
        typer.Option(
            "--diff",
            metavar="A B",
            help="Compare two Programs: numbers or ids of Submissions, best, selected, initial, or RUN:SUBMISSION.",
            show_default=False,
        ),
    ] = None,
    agent: Annotated[bool, typer.Option("--agent", help="Print what the Agent said and did.")] = False,
    events: Annotated[bool, typer.Option("--events", help="Print the journal, one event a line.")] = False,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Watch a Run that goes on, until it ends.")] = False,
    every: Annotated[bool, typer.Option("--all", help="List every Submission, however many there are.")] = False,
    json: Json = False,
    pager: Pager = True,
    debug: Debug = False,  # noqa: ARG001  # the callback takes it
) -> None:
    """Show what came of a Run."""
    from evopolicygym.cli.inspect_command import Wanted, inspect_record
    from evopolicygym.cli.pager import use_pager

    use_pager(pager)
    wanted = Wanted(submission, diff, agent, events, follow, every, json)
    inspect_record(record, wanted)


@app.command(cls=Command)
def compare(
    records: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN", help="Records, and folders of Records.", show_default=False, autocompletion=record_paths
        ),
    ],
    against: Annotated[
        str | None,
        typer.Option("--against", metavar="RUN", help="Pair the others with this one.", show_default="the first"),
    ] = None,
    json: Json = False,
    csv: Annotated[bool, typer.Option("--csv", help="Print one line of comma-separated values a Run.")] = False,
    pager: Pager = True,
    debug: Debug = False,  # noqa: ARG001  # the callback takes it
) -> None:
    """Compare Runs: scores, budget, trajectory, what they differ in."""
    from evopolicygym.cli.compare_command import compare_runs
    from evopolicygym.cli.pager import use_pager

    use_pager(pager)
    compare_runs(records, against=against, as_json=json, as_csv=csv)


@app.command(cls=Command)
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
    seed: Annotated[int, typer.Option("--seed", metavar="N", min=0, help="Seed of the Episode plan.")] = 0,
    against: Annotated[
        str | None,
        typer.Option(
            "--against",
            metavar="RUN:SUBMISSION",
            help="Compare with the Program of a Record on the same Episodes; RUN alone: the selected one.",
            show_default=False,
        ),
    ] = None,
    overrides: Overrides = None,
    json: Json = False,
    debug: Debug = False,  # noqa: ARG001  # the callback takes it
) -> None:
    """Evaluate one Program, or compare two on the same Episodes, without any Agent."""
    from evopolicygym.cli.evaluate_command import evaluate_spec

    evaluate_spec(
        spec, overrides or [], program, split=split, episodes=episodes, seed=seed, against=against, as_json=json
    )


@app.command(cls=Command)
def check(
    spec: Annotated[
        Path | None,
        typer.Argument(metavar="SPEC.toml", help="The run spec.", show_default=False, autocompletion=spec_files),
    ] = None,
    overrides: Overrides = None,
    sandbox: Annotated[
        bool,
        typer.Option("--sandbox", help="Instead: what this machine can do for a sandbox.", show_default=False),
    ] = False,
    json: Json = False,
    debug: Debug = False,  # noqa: ARG001  # the callback takes it
) -> None:
    """Check the Benchmark's conformance and the Program, and play one Episode of each split."""
    if sandbox:
        from evopolicygym.cli.sandbox_check import check_sandbox

        raise typer.Exit(check_sandbox(as_json=json))
    if spec is None:
        raise typer.BadParameter("name a run spec, or ask with --sandbox what this machine can do for a sandbox")
    from evopolicygym.cli.check_command import check_spec

    raise typer.Exit(check_spec(spec, overrides or [], as_json=json))


@app.command(cls=Command)
def init(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A new or empty directory.", show_default=False)],
    benchmark: Annotated[
        str,
        typer.Option("--benchmark", metavar="ID", help="gymnasium:ID, a registered name, or package.module:attribute."),
    ] = "gymnasium:CartPole-v1",
    debug: Debug = False,  # noqa: ARG001  # the callback takes it
) -> None:
    """Write a starter that runs at once: run spec, Policy, README."""
    from evopolicygym.cli.init_command import init_directory

    init_directory(directory, benchmark)


@app.command(cls=Command)
def schema(
    document: Annotated[
        SchemaName, typer.Argument(metavar="DOCUMENT", help="spec, or a document that --json prints.")
    ] = SchemaName.SPEC,
    debug: Debug = False,  # noqa: ARG001  # the callback takes it
) -> None:
    """Print the JSON Schema of the run spec, or of what a command prints with --json."""
    import json

    if document is SchemaName.SPEC:
        from evopolicygym.spec import spec_schema

        found = spec_schema()
    else:
        from evopolicygym.cli.documents import document_schema

        found = document_schema(document.value)
    typer.echo(json.dumps(found, indent=2, ensure_ascii=False))


@app.command(cls=Command)
def agents(
    probe: Annotated[
        bool,
        typer.Option(
            "--probe",
            help="Try each program that is found: one turn with a scripted model, at no cost.",
        ),
    ] = False,
    json: Json = False,
    debug: Debug = False,  # noqa: ARG001  # the callback takes it
) -> None:
    """Show which coding agents are found here, and how they are logged in."""
    from evopolicygym.cli.agents_command import list_agents

    raise typer.Exit(list_agents(probe=probe, as_json=json))
