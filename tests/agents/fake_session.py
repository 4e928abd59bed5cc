"""A small ``evopolicygym-session``: budget and refusals of a Run, and a score that is a function of params.json."""

import json
import os
import sys
from pathlib import Path

SETTINGS = Path(os.environ["FAKE_SESSION"])


def refuse(code, message):
    print(json.dumps({"ok": False, "error": {"code": code, "message": message}}), file=sys.stderr)
    raise SystemExit(1)


def answer(result):
    print(json.dumps({"ok": True, "result": result}))


def expand(selector):
    indices = []
    for item in selector.split(","):
        start, colon, end = item.partition(":")
        indices += range(int(start), int(end)) if colon else [int(start)]
    return indices


def vector(node):
    if isinstance(node, float):
        return [node]
    children = node.values() if isinstance(node, dict) else node if isinstance(node, list) else []
    return [value for child in children for value in vector(child)]


def episode_score(values, index):
    """Best (0) at 1, 2, 3 …; each Episode shifts that by a little of its own."""
    shift = ((index * 7919) % 13 - 6) / 100
    return -sum((value - (place + 1) - shift) ** 2 for place, value in enumerate(values))


def submit(state, selector):
    if state.get("refuse_submissions"):
        refuse("program_refused", "program/policy.py is missing")
    indices = expand(selector)
    cap = state["max_episodes_per_submission"] or state["pool_size"]
    left, submissions = state["episodes_remaining"], state["submissions_remaining"]
    if not indices or len(indices) > min(left, cap) or max(indices) >= state["pool_size"] or submissions < 1:
        refuse("over_budget", f"{len(indices)} Episodes cannot be had; {left} are left")
    reachable = len(indices) + (submissions - 1) * min(cap, state["pool_size"])
    if state["finish_budget_policy"] == "require_budget_exhaustion" and left > reachable:
        refuse("budget_unreachable", "the rest could never be spent")
    values = vector(json.loads(Path("program/params.json").read_text()))
    sign = -1 if state["score_direction"] == "minimize" else 1
    score = sign * sum(episode_score(values, index) for index in indices) / len(indices)
    state["episodes_remaining"] -= len(indices)
    state["submissions_remaining"] -= 1
    number = len(state["published"]) + 1
    name = f"submission-{number:06d}"
    state["published"].append({"submission_id": name, "score": score, "values": values, "indices": indices})
    folder = Path("feedback/submissions", name)
    folder.mkdir(parents=True)
    episodes = [{"episode_index": index, "status": "completed", "failure": None} for index in indices]
    (folder / "feedback.json").write_text(json.dumps({"episodes": episodes}))
    return {"submission_id": name, "score": score, "feedback": f"{folder}/feedback.json"}


def main():
    state = json.loads(SETTINGS.read_text())
    command, *rest = sys.argv[1:]
    if command == "status":
        answer(state)
    elif command == "submit":
        assert rest[:2] == ["program", "--episodes"], rest
        receipt = submit(state, rest[2])
        SETTINGS.write_text(json.dumps(state))
        answer(receipt)
    elif command == "finish":
        if len(rest) > state["max_candidates"] or not {e["submission_id"] for e in state["published"]}.issuperset(rest):
            refuse("unknown_submission", "name published Submissions")
        if state["finish_budget_policy"] == "require_budget_exhaustion" and state["episodes_remaining"]:
            refuse("budget_remaining", "Episodes are left")
        state["finished"] = rest
        SETTINGS.write_text(json.dumps(state))
        answer({"candidate_submission_ids": rest})
    else:
        raise SystemExit(f"unknown command {command}")


main()
