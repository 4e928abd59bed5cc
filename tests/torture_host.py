"""A Host process for torture: runs and resumes tiny Runs in forked children, and strikes them where it is told to.

Reads one JSON request a line from standard input and answers each with one line. A request names a folder, an action
("run" or "resume") and perhaps a strike: a signal after the n-th line of an event, or a fault at the n-th change of
a file of the Record.
"""

import errno
import json
import os
import signal
import sys
import traceback
from pathlib import Path

from target_benchmark import CONSTANT_POLICY, RIGHT_POLICY, TargetBenchmark

import evopolicygym.record.agent_copy
import evopolicygym.record.journal
import evopolicygym.record.mending
import evopolicygym.record.storage
import evopolicygym.record.writer
from evopolicygym import Program
from evopolicygym.agents import CommandAgent
from evopolicygym.execution import ProcessExecution
from evopolicygym.record.journal import Journal
from evopolicygym.run import AssessmentConfig, RunConfig, ValidationConfig, resume, run

EPISODE_BUDGET = 16
MODULES_THAT_WRITE = (
    evopolicygym.record.agent_copy,
    evopolicygym.record.journal,
    evopolicygym.record.mending,
    evopolicygym.record.storage,
    evopolicygym.record.writer,
)
CHANGES = {"write", "fsync", "mkdir", "rename", "ftruncate", "fchmod", "unlink"}
PATH_CHANGES = ("mkdir", "rename", "replace", "chmod", "unlink")

# It works like a careful Agent: looks at what there is, does what is missing, and keeps what it was told.
AGENT = f"""
import hashlib, json, os, pathlib, socket, sys

RIGHT_POLICY = {RIGHT_POLICY!r}

def session(command, **fields):
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(os.environ["EVOPOLICYGYM_SESSION_SOCKET"])
        connection.sendall(json.dumps({{"protocol": 1, "command": command, **fields}}).encode() + b"\\n")
        return json.loads(connection.makefile().readline())

def keep(receipt):
    feedback = receipt["feedback"] and pathlib.Path(receipt["feedback"]).read_bytes()
    receipt["feedback_sha256"] = feedback and hashlib.sha256(feedback).hexdigest()
    receipt["policy"] = pathlib.Path("program/policy.py").read_text()
    with open("analysis/receipts.jsonl", "a") as file:
        file.write(json.dumps(receipt) + "\\n")

def submit(episodes):
    place = os.path.realpath("program")
    answer = session("submit", program="program", resolved_program=place, episodes=episodes, wait=True)
    if answer["ok"]:
        keep(answer["result"])
    return answer

print("I look around.", flush=True)
published = session("status")["result"]["published"]
submit("oops")
if not published:
    submit("0:2")
pathlib.Path("program/policy.py").write_text(RIGHT_POLICY)
if not any(item["score"] == 5 for item in published):
    submit("0:2,4:5")
session("finish", submission_ids=["submission-000099"])
published = session("status")["result"]["published"]
ids = [item["submission_id"] for item in sorted(published, key=lambda item: -item["score"])]
answer = session("finish", submission_ids=ids[:2])
sys.exit(0 if answer["ok"] else 3)
"""


class Strikes:
    """Counts, and strikes when the number is reached."""

    def __init__(self, strike: dict[str, object]) -> None:
        self._how = strike["how"]
        self._left = int(strike.get("nth", 1))  # type: ignore[arg-type]  # a number
        self.count = 0

    def hit(self) -> None:
        self.count += 1
        self._left -= 1
        if self._how in ("ENOSPC", "EIO", "EROFS", "EMFILE"):
            # A file system that has become read-only stays so.
            if self._left == 0 or (self._left < 0 and self._how == "EROFS"):
                number = getattr(errno, str(self._how))
                raise OSError(number, os.strerror(number))
        elif self._left == 0:
            os.kill(os.getpid(), getattr(signal, str(self._how)))


def strike_at_event(strike: dict[str, object]) -> Strikes:
    strikes = Strikes(strike)
    append = Journal.append

    def struck(self, event):
        appended = append(self, event)
        if event.name == strike["event"]:
            strikes.hit()
        return appended

    Journal.append = struck  # type: ignore[method-assign]  # this process is here to be broken
    return strikes


class StrikingOs:
    """The module ``os`` as the Record's writer sees it, where every change of a file may be struck."""

    def __init__(self, strikes: Strikes) -> None:
        self._strikes = strikes

    def __getattr__(self, name: str) -> object:
        found = getattr(os, name)
        if name == "open":
            return self._open
        if name not in CHANGES:
            return found

        def changing(*arguments, **keywords):
            self._strikes.hit()
            return found(*arguments, **keywords)

        return changing

    def _open(self, path, flags, *arguments, **keywords):
        if flags & os.O_CREAT:
            self._strikes.hit()
        return os.open(path, flags, *arguments, **keywords)


def strike_at_change(strike: dict[str, object]) -> Strikes:
    strikes = Strikes(strike)
    for module in MODULES_THAT_WRITE:
        module.os = StrikingOs(strikes)  # type: ignore[attr-defined]  # as above
    for name in PATH_CHANGES:
        change = getattr(Path, name)

        def changing(self, *arguments, _change=change, **keywords):
            if sys._getframe(1).f_globals["__name__"].startswith("evopolicygym.record"):
                strikes.hit()
            return _change(self, *arguments, **keywords)

        setattr(Path, name, changing)
    return strikes


def act(request: dict[str, object]) -> dict[str, object]:
    folder = Path(str(request["folder"]))
    strike = request.get("strike")
    strikes = None
    if isinstance(strike, dict):
        strikes = strike_at_event(strike) if "event" in strike else strike_at_change(strike)
    benchmark = TargetBenchmark(**request.get("benchmark", {}))  # type: ignore[arg-type]  # as asked for
    (folder / "agent.py").write_text(AGENT)
    agent = CommandAgent([sys.executable, "-I", "-S", str(folder / "agent.py")])
    execution = ProcessExecution.unsafe(workers=0)
    record = folder / "record"
    try:
        if request["action"] == "run":
            (folder / "program").mkdir(exist_ok=True)
            (folder / "program" / "policy.py").write_text(CONSTANT_POLICY)
            result = run(
                Program.from_directory(folder / "program"),
                benchmark,
                agent=agent,
                execution=execution,
                record_to=record,
                config=RunConfig(
                    episode_budget=EPISODE_BUDGET,
                    episode_pool_size=8,
                    agent_timeout_seconds=60.0,
                    seed=7,
                    validation=ValidationConfig(episodes_per_candidate=2, max_candidates=2),
                    assessment=AssessmentConfig(episodes=2),
                ),
            )
        else:
            result = resume(record, benchmark=benchmark, agent=agent, execution=execution)
    except KeyboardInterrupt:
        return {"outcome": "KeyboardInterrupt"}
    except Exception as error:  # noqa: BLE001  # told to the test
        return {
            "outcome": type(error).__name__,
            "message": str(error),
            "traceback": traceback.format_exc(),
            "count": strikes.count if strikes else 0,
        }
    return {
        "outcome": result.terminal_reason,
        "final": result.final_submission_id,
        "submissions": [submission.submission_id for submission in result.submissions],
        "assessment": result.assessment and result.assessment.score,
        "count": strikes.count if strikes else 0,
    }


def in_child(request: dict[str, object]) -> dict[str, object]:
    answer = Path(str(request["folder"])) / "answer.json"
    answer.unlink(missing_ok=True)
    child = os.fork()
    if child == 0:
        code = 0
        try:
            answer.write_text(json.dumps(act(request)))
        except BaseException:  # noqa: BLE001  # the end of a child: it must never go on as its parent
            traceback.print_exc()
            code = 70
        os._exit(code)
    _, status = os.waitpid(child, 0)
    told = json.loads(answer.read_text()) if answer.exists() else {"outcome": None}
    return {**told, "code": os.waitstatus_to_exitcode(status)}


if __name__ == "__main__":
    import evopolicygym.run.lifecycle
    import evopolicygym.run.resumption  # loaded once, for all children

    print("ready", flush=True)
    for line in sys.stdin:
        print(json.dumps(in_child(json.loads(line))), flush=True)
