"""What is taken from one Run for a comparison, and which Runs may be paired."""

from collections.abc import Mapping

from evopolicygym.cli.documents import ComparedRun
from evopolicygym.cli.recorded import RecordedRun

# Ends in which the machine, the Benchmark or the Agent's provider failed, or nobody let the Run end: what such a Run
# came to says nothing of its Agent.
_RUN_ENDS = {"evaluation_failed", "validation_failed", "assessment_failed", "interrupted", "crashed", "running"}
# The same of the Agent's process, whoever handed off afterwards.
_AGENT_ENDS = {
    *("usage_limit", "authentication", "overloaded", "network"),
    *("not_started", "invalid_options", "incompatible", "refused_as_root", "stub"),
    *("interrupted", "fault", "lost"),
}
# Of an Agent's identity: what its name says already, and what is meant to differ.
_NO_SETTINGS = {"name", "kind", "provider", "seed"}
# Limits and choices that must agree for scores to be compared; the seed is meant to differ.
_CONFIG_KEYS = (
    "split",
    "episode_budget",
    "episode_pool_size",
    "max_submissions",
    "max_episodes_per_submission",
    "episode_timeout_seconds",
    "agent_timeout_seconds",
    "finish_budget_policy",
    "when_unfinished",
    "policy_diagnostics",
    "validation",
    "assessment",
)


def compared_run(name: str, run: RecordedRun) -> ComparedRun:
    """One Run as a row; scores of a Run that its infrastructure failed are left out."""
    view, manifest = run.view, run.record.manifest
    failed = infrastructure_failed(run)
    curve = {} if failed else _table(run.diagnostics, "trajectory")
    edits = _table(run.diagnostics, "edits")
    validated = view.validation.get(view.selected or "")
    config, host = _table(manifest, "config"), _table(manifest, "host")
    return {
        "run": name,
        "benchmark_id": view.benchmark_id,
        "environment_digest": _text(_table(manifest, "benchmark").get("environment_digest")),
        "agent": view.agent,
        "agent_settings": _agent_settings(run),
        "outcome": run.outcome,
        "agent_end": view.agent_end,
        "infrastructure_failure": failed,
        "submissions": len(view.published),
        "episodes_spent": view.episodes_used,
        "episode_budget": view.episode_budget,
        "best_training": None if failed or view.best is None else view.best.score,
        "validation": None if failed or validated is None else validated.score,
        "assessment": None if failed else view.assessment_score,
        "score_area": _real(curve.get("score_area")),
        "gain_area": _real(curve.get("gain_area")),
        "episodes_to_half_gain": _whole(curve.get("episodes_to_half_gain")),
        "episodes_to_most_gain": _whole(curve.get("episodes_to_most_gain")),
        "validation_gap": _real(curve.get("validation_gap")),
        "heldout_gap": _real(curve.get("heldout_gap")),
        "parametric_edits": _whole(edits.get("parametric")) or 0,
        "structural_edits": _whole(edits.get("structural")) or 0,
        "policy_failures": sum(row.policy_failures or 0 for row in view.published),
        "agent_seconds": view.agent_seconds,
        "turns": view.turns,
        "tool_calls": view.tool_calls,
        "input_tokens": view.input_tokens,
        "output_tokens": view.output_tokens,
        "cost_usd": view.cost_usd,
        "seed": _whole(config.get("seed")),
        "seed_strength": view.seed_strength or None,
        "policy_diagnostics": _text(config.get("policy_diagnostics")),
        "execution": _text(host.get("execution")),
        "pool_digest": _text(_table(manifest, "pool").get("digest")),
    }


def infrastructure_failed(run: RecordedRun) -> bool:
    """Whether a Run's end is none of its Agent's doing."""
    recorded = _table(run.record.manifest, "agent_end")
    end = recorded.get("reason") or run.view.agent_end
    resumable = recorded.get("resumable") is True or run.view.agent_resumable
    return run.outcome in _RUN_ENDS or resumable or end in _AGENT_ENDS


def differences(runs: Mapping[str, RecordedRun]) -> dict[str, dict[str, list[str]]]:
    """What the Runs do not have in common, of all that must agree: aspect → value → names of Runs."""
    aspects: dict[str, dict[str, list[str]]] = {}
    for name, run in runs.items():
        for aspect, value in _aspects(run).items():
            aspects.setdefault(aspect, {}).setdefault(value, []).append(name)
    found = {aspect: values for aspect, values in aspects.items() if len(values) > 1}
    if "Benchmark" in found:  # another Benchmark has another environment
        found.pop("environment", None)
    return found


def pairing_key(run: RecordedRun) -> tuple[str, str] | None:
    """What must be equal for two Runs to share their training Episodes; None if it is not known."""
    manifest = run.record.manifest
    environment = _text(_table(manifest, "benchmark").get("environment_digest"))
    pool = _text(_table(manifest, "pool").get("digest"))
    return None if environment is None or pool is None else (environment, pool)


def private_pairing_key(run: RecordedRun) -> tuple[object, ...] | None:
    """What must be equal for two Runs to share their held-out Episodes; None if it is not known."""
    manifest = run.record.manifest
    environment = _text(_table(manifest, "benchmark").get("environment_digest"))
    seed = _whole(_table(manifest, "config").get("seed"))
    view = run.view
    if environment is None or seed is None or view.assessment_score is None:
        return None
    # A longer plan need not begin with a shorter one: that is up to the Benchmark.
    return environment, view.benchmark_id, seed, view.assessment_split, view.assessment_episodes


def heldout_rewards(run: RecordedRun) -> dict[int, float | None]:
    """Reward of each held-out Episode by its position, from the journal."""
    rewards: dict[int, float | None] = {}
    for event in run.record.events("assessment_episode_completed"):
        position, reward = event.fields.get("position"), event.fields.get("reward")
        if isinstance(position, int):
            rewards[position] = float(reward) if isinstance(reward, int | float) else None
    return rewards


def _aspects(run: RecordedRun) -> dict[str, str]:
    manifest = run.record.manifest
    config, host = _table(manifest, "config"), _table(manifest, "host")
    aspects = {
        "Benchmark": run.view.benchmark_id,
        "Agent": run.view.agent,
        "Agent settings": _agent_settings(run) or "none",
        "environment": (_text(_table(manifest, "benchmark").get("environment_digest")) or "")[:19],
        "initial Program": run.view.program_digest[:19],
        "isolation": _text(host.get("execution")) or "",
        "seed strength": run.view.seed_strength,
    }
    aspects |= {key.replace("_", " "): _told(config[key]) for key in _CONFIG_KEYS if key in config}
    return {aspect: value for aspect, value in aspects.items() if value}


def _agent_settings(run: RecordedRun) -> str:
    """Model, effort and the like: what two Runs of one Agent may differ in."""
    identity = _table(_table(run.record.manifest, "agent"), "identity")
    told = {key: value for key, value in identity.items() if key not in _NO_SETTINGS}
    kept = {key: value for key, value in told.items() if value is not None and value is not False}
    return ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in kept.items())


def _told(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {item}" for key, item in value.items())
    return "none" if value is None else str(value)


def _table(value: Mapping[str, object], name: str) -> Mapping[str, object]:
    found = value.get(name)
    return found if isinstance(found, Mapping) else {}


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _real(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
