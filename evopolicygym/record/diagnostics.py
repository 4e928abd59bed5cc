"""What is kept of failed Policies: all of it for the Host, a chosen, bounded part for the Agent.

Types, messages, frames and output come from untrusted code: they are cut, made valid Unicode, and stripped
of control characters before they are written anywhere.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from evopolicygym.record.strict_json import json_line, valid_text

if TYPE_CHECKING:
    from evopolicygym.evaluation import EpisodeDiagnostics
    from evopolicygym.results import EpisodeSummary

__all__ = ["diagnostics_summary", "policy_log", "visible_diagnostics"]

FAILURE_MAX_BYTES = 2 * 1024
OUTPUT_MAX_BYTES = 8 * 1024
LOG_MAX_BYTES = 64 * 1024
MAX_GROUPS = 20

_TYPE_MAX_BYTES = 200
_GROUP_MESSAGE_MAX_BYTES = 300
_LOG_FAILURE_MAX_BYTES = 8 * 1024
_LOG_TRACEBACK_MAX_BYTES = 24 * 1024

_CONTROLS = {code: "\ufffd" for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\t\n"}


def visible_diagnostics(
    episode_indices: Sequence[int],
    episodes: Sequence["EpisodeSummary"],
    diagnostics: Sequence["EpisodeDiagnostics"],
    *,
    policy_diagnostics: str,
) -> dict[str, object]:
    """What ``feedback.json`` tells the Agent of its Policy's failures and output.

    Args:
        episode_indices: the pool index of each Episode, in plan order.
        episodes: their summaries, in the same order.
        diagnostics: what is known of each, in the same order; may be empty.
        policy_diagnostics: ``"none"`` (failure codes alone), ``"traceback"`` (also exception type, message
            and the frames inside the Program, 2 KiB a failed Episode) or ``"output"`` (also the last 8 KiB
            of stdout and stderr together, of each Episode).

    Returns:
        ``{"policy_diagnostics", "failed_episodes", "groups", "episodes"}``; the groups count failures of one
        kind at one place, most frequent first.

    Raises:
        ValueError: an unknown ``policy_diagnostics``, or sequences of different lengths.
    """
    if policy_diagnostics not in ("none", "traceback", "output"):
        raise ValueError(f"policy_diagnostics must be 'none', 'traceback' or 'output', not {policy_diagnostics!r}")
    known = _paired(episodes, diagnostics)
    if policy_diagnostics == "none":
        known = [(episode, None) for episode, _ in known]
    told: list[dict[str, object]] = []
    for index, (episode, details) in zip(episode_indices, known, strict=True):
        entry = _visible_episode(episode, details, with_output=policy_diagnostics == "output")
        if entry:
            told.append({"episode_index": index, **entry})
    return {"policy_diagnostics": policy_diagnostics, **_grouped(known), "episodes": told}


def diagnostics_summary(visible: Mapping[str, object]) -> dict[str, object]:
    """The bounded part of :func:`visible_diagnostics` that a receipt has room for: counts and groups."""
    return {key: value for key, value in visible.items() if key != "episodes"}


def _paired(
    episodes: Sequence["EpisodeSummary"], diagnostics: Sequence["EpisodeDiagnostics"]
) -> list[tuple["EpisodeSummary", "EpisodeDiagnostics | None"]]:
    if not diagnostics:
        return [(episode, None) for episode in episodes]
    return list(zip(episodes, diagnostics, strict=True))


def _visible_episode(
    episode: "EpisodeSummary", details: "EpisodeDiagnostics | None", *, with_output: bool
) -> dict[str, object]:
    if details is None:
        return {}
    entry: dict[str, object] = {}
    if episode.failure is not None:
        entry = {"failure": episode.failure, **_failure(details, FAILURE_MAX_BYTES)}
    if with_output:
        entry.update(_output(details, OUTPUT_MAX_BYTES))
    return entry


def _failure(details: "EpisodeDiagnostics", limit: int) -> dict[str, object]:
    """Type, message and frames in at most ``limit`` bytes; innermost frames and the message's start survive."""
    entry: dict[str, object] = {}
    if details.exception_type is not None:
        kind = head(details.exception_type, _TYPE_MAX_BYTES)
        entry["exception_type"] = kind
        limit -= len(kind.encode())
    if details.message is not None:
        message = head(details.message, limit // 2 if details.frames else limit)
        entry["message"] = message
        limit -= len(message.encode())
    if details.frames:
        frames: list[str] = []
        for frame in reversed(details.frames):
            text = head(frame, _TYPE_MAX_BYTES)
            limit -= len(text.encode())
            if limit < 0:
                break
            frames.insert(0, text)
        entry["frames"] = frames
    return entry


def _output(details: "EpisodeDiagnostics", limit: int) -> dict[str, object]:
    """The ends of stdout and stderr in at most ``limit`` bytes together; each may use what the other leaves."""
    stdout, stderr = tail(details.stdout, limit), tail(details.stderr, limit)
    sizes = len(stdout.encode()), len(stderr.encode())
    if sum(sizes) > limit:
        for_stderr = max(limit // 2, limit - sizes[0])
        stderr = tail(stderr, for_stderr)
        stdout = tail(stdout, limit - len(stderr.encode()))
    return {name: text for name, text in (("stdout", stdout), ("stderr", stderr)) if text}


def _grouped(known: Sequence[tuple["EpisodeSummary", "EpisodeDiagnostics | None"]]) -> dict[str, object]:
    groups: dict[tuple[object, ...], dict[str, object]] = {}
    counts: dict[tuple[object, ...], int] = {}
    for episode, details in known:
        if episode.failure is None:
            continue
        group: dict[str, object] = {"failure": episode.failure}
        if details is not None:
            group["exception_type"] = _head_or_none(details.exception_type, _TYPE_MAX_BYTES)
            group["message"] = _head_or_none(details.message, _GROUP_MESSAGE_MAX_BYTES)
            group["where"] = _head_or_none(details.frames[-1] if details.frames else None, _TYPE_MAX_BYTES)
        # Messages often hold a number that differs each time; the first one stands for its group.
        key = (group["failure"], group.get("exception_type"), group.get("where"))
        counts[key] = counts.get(key, 0) + 1
        groups.setdefault(key, group)
    ranked = sorted(groups, key=lambda key: -counts[key])
    summary: dict[str, object] = {
        "failed_episodes": sum(counts.values()),
        "groups": [{"count": counts[key], **groups[key]} for key in ranked[:MAX_GROUPS]],
    }
    if len(ranked) > MAX_GROUPS:
        summary["groups_left_out"] = len(ranked) - MAX_GROUPS
    return summary


def policy_log(
    episode_indices: Sequence[int],
    episodes: Sequence["EpisodeSummary"],
    diagnostics: Sequence["EpisodeDiagnostics"],
) -> bytes:
    """The Host's log: one JSON line for each Episode that failed or printed, at most 64 KiB of text each.

    Raises:
        ValueError: sequences of different lengths.
    """
    lines: list[bytes] = []
    for position, (index, (episode, details)) in enumerate(
        zip(episode_indices, _paired(episodes, diagnostics), strict=True)
    ):
        if details is None or not (episode.failure or details.stdout or details.stderr):
            continue
        entry = _failure(details, _LOG_FAILURE_MAX_BYTES)
        if details.traceback is not None:
            entry["traceback"] = tail(details.traceback, _LOG_TRACEBACK_MAX_BYTES)
        entry.update(_output(details, LOG_MAX_BYTES - _LOG_FAILURE_MAX_BYTES - _LOG_TRACEBACK_MAX_BYTES))
        place = {
            "position": position,
            "episode_index": index,
            "status": episode.status,
            "failure": episode.failure,
        }
        lines.append(json_line({**place, **entry}))
    return b"".join(lines)


def head(text: str, limit: int) -> str:
    """The start of ``text`` in at most ``limit`` bytes of UTF-8, inert; a cut ends in ``…``."""
    encoded = inert(text[: limit + 1]).encode()
    if len(encoded) <= limit:
        return encoded.decode()
    return encoded[: max(0, limit - 3)].decode(errors="ignore") + "…"


def tail(text: str, limit: int) -> str:
    """The end of ``text`` in at most ``limit`` bytes of UTF-8, inert; a cut begins with ``…``."""
    encoded = inert(text[-limit - 1 :]).encode()
    if len(encoded) <= limit:
        return encoded.decode()
    return "…" + encoded[len(encoded) - limit + 3 :].decode(errors="ignore")


def _head_or_none(text: str | None, limit: int) -> str | None:
    return None if text is None else head(text, limit)


def inert(text: str) -> str:
    """``text`` as valid Unicode in which only newline and tab are left of the control characters."""
    return valid_text(text.replace("\r\n", "\n")).translate(_CONTROLS)
