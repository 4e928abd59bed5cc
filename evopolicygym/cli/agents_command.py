"""``evopolicygym agents``: which Agents are known, which of them are found here, and how they are logged in."""

import importlib.metadata
import json
import os
import sys
from dataclasses import asdict

from rich.console import Group
from rich.table import Column, Table
from rich.text import Text

from evopolicygym.agents.survey import AgentStatus, survey
from evopolicygym.cli.agent_probe import Probe, probe_agent
from evopolicygym.cli.consoles import result_console, show
from evopolicygym.cli.failures import EXIT_ENDED_OTHERWISE, EXIT_FINISHED
from evopolicygym.run.console import inert_text


def list_agents(*, probe: bool, as_json: bool) -> int:
    """Print what is known.

    Returns:
        The exit code: 1 if a probe failed.
    """
    found = survey(os.environ)
    probes = {a.name: probe_agent(a.name, a.executable) for a in found if probe and a.executable and not a.problem}
    others = _other_names({status.name for status in found})
    if as_json:
        sys.stdout.write(json.dumps(_document(found, probes, others), indent=2, ensure_ascii=False) + "\n")
    else:
        show(result_console(), *(_section(status, probes.get(status.name)) for status in found), _others(others))
    return EXIT_FINISHED if all(made.works for made in probes.values()) else EXIT_ENDED_OTHERWISE


def _other_names(known: set[str]) -> dict[str, str]:
    entries = importlib.metadata.entry_points(group="evopolicygym.agents")
    return {entry.name: entry.value for entry in sorted(entries, key=lambda e: e.name) if entry.name not in known}


def _document(found: list[AgentStatus], probes: dict[str, Probe], others: dict[str, str]) -> dict[str, object]:
    agents = []
    for status in found:
        made = probes.get(status.name)
        agents.append(
            {
                **asdict(status),
                "older_than_tested": status.older_than_tested,
                "probe": None if made is None else asdict(made),
            }
        )
    return {
        "schema": "evopolicygym/agents-report/v1",
        "agents": agents,
        "others": [{"name": name, "object": target} for name, target in others.items()],
    }


def _section(status: AgentStatus, made: Probe | None) -> Group:
    facts = Table.grid(Column(style="dim", no_wrap=True), Column(overflow="fold"), padding=(0, 2))
    for name, value, style in _facts(status, made):
        facts.add_row(f"  {name}", Text(inert_text(value), style=style))
    mark, style = ("ready", "green") if status.problem is None else ("not usable", "yellow")
    return Group(Text.assemble((status.name, "bold"), "  ", (mark, style)), facts)


def _facts(status: AgentStatus, made: Probe | None) -> list[tuple[str, str, str]]:
    facts = []
    if status.executable is not None:
        facts.append(("found", status.executable, ""))
    if status.version is not None:
        compared = "older than the tested" if status.older_than_tested else "tested with"
        facts.append(("version", f"{status.version} ({compared} {status.tested_version})", ""))
    if status.problem is not None:
        facts.append(("problem", status.problem, "yellow"))
    facts.append(("log-in", status.log_in, "" if status.logged_in else "yellow"))
    if made is not None:
        facts.append(("probe", f"{made.message} ({made.seconds:.1f} s)", "green" if made.works else "red"))
    return facts


def _others(others: dict[str, str]) -> Text:
    names = ", ".join(others) or "none"
    return Text(inert_text(f'Also registered: {names}. Any other: use = "package.module:Class".'), style="dim")
