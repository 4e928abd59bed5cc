"""A Host is struck at every moment of a Run, and nothing that was promised is lost.

Each case is real: a Host process with an Agent process, a real signal or a failing write, then a resume to the end.
With EVOPOLICYGYM_TORTURE=all every single change of a file is struck, else every fifteenth.
"""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from queue import SimpleQueue

import pytest
from run_scenarios import journal, manifest, processes_mentioning, wait_for
from torture_host import EPISODE_BUDGET

from evopolicygym.execution.private_directory import PrivateDirectory
from evopolicygym.record import EVENT_TYPES, RecordLock, open_run

TESTS = Path(__file__).parent.parent
HOSTS = 3
STRIDE = 1 if os.environ.get("EVOPOLICYGYM_TORTURE") == "all" else 15
CHANGES = 260  # a little more than a whole Run makes of its files; the last cases strike nothing

OF_A_RUN = (
    *("run_started", "notice", "agent_started", "agent_event", "submission_refused", "evaluation_started"),
    *("episode_completed", "submission_published", "finish_refused", "finish_requested", "agent_ended"),
    *("validation_started", "validation_episode_completed", "validation_candidate_completed", "candidate_selected"),
    *("assessment_started", "assessment_episode_completed", "assessment_completed", "run_committed"),
)
OF_A_RESUME = ("run_resumed", *(name for name in OF_A_RUN if name not in ("run_started", "notice")))
OF_A_FAULT = {
    "evaluation_failed": {"fail_at_step": 2},
    "validation_failed": {"fail_split": "validation"},
    "assessment_failed": {"fail_split": "test"},
}


class Hosts:
    """Host processes that run cases side by side; each case is asked for once and its answer kept."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.temporary = Path(tempfile.mkdtemp(prefix="epg-", dir="/tmp"))  # sockets live there: it must be short
        self._idle: SimpleQueue[subprocess.Popen[str]] = SimpleQueue()
        self._started: list[subprocess.Popen[str]] = []
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join([str(TESTS.parent), str(TESTS)]),
            "TMPDIR": str(self.temporary),
        }
        for _ in range(HOSTS):
            host = subprocess.Popen(
                [sys.executable, str(TESTS / "torture_host.py")],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=environment,
            )
            self._started.append(host)
            assert host.stdout is not None
            assert host.stdout.readline() == "ready\n"
            self._idle.put(host)
        self._threads = ThreadPoolExecutor(HOSTS)
        self._lock = threading.Lock()
        self._asked: dict[str, Future[Path]] = {}

    def ask(self, folder: Path, action: str, **more: object) -> dict[str, object]:
        host = self._idle.get()
        try:
            assert host.stdin is not None
            assert host.stdout is not None
            host.stdin.write(json.dumps({"folder": str(folder), "action": action, **more}) + "\n")
            host.stdin.flush()
            answer: dict[str, object] = json.loads(host.stdout.readline())
        finally:
            self._idle.put(host)
        return answer

    def new_folder(self, name: str) -> Path:
        folder = self._folder / name
        folder.mkdir()
        return folder

    def close(self) -> None:
        self._threads.shutdown(cancel_futures=True)
        for host in self._started:
            assert host.stdin is not None
            assert host.stdout is not None
            host.stdin.close()
            host.stdout.close()
            host.wait(30)

    def begin(self, name: str) -> Future[Path]:
        """Start a case in the background, if it was not."""
        with self._lock:
            if name not in self._asked:
                self._asked[name] = self._threads.submit(CASES[name], self)
            return self._asked[name]

    def of(self, name: str) -> Path:
        """Wait for one case; raises what went wrong in it."""
        return self.begin(name).result()


def survived(folder: Path, *, ended: bool = False) -> None:
    """What must hold after any strike, before anybody mends anything."""
    record = folder / "record"
    if not record.exists():
        return
    assert wait_for(lambda: processes_mentioning(str(record)) == []), "a process is left"
    if not began(record):
        return  # nothing was promised yet
    run = open_run(record)
    assert run.check() == []
    RecordLock(run.layout).release()
    receipts_are_kept(record)
    if ended:
        assert run.status == "finished"


def receipts(record: Path) -> list[dict[str, object]]:
    with contextlib.suppress(FileNotFoundError):
        lines = (record / "workspace/analysis/receipts.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]
    return []


def receipts_are_kept(record: Path) -> None:
    run = open_run(record)
    published = [event.fields["submission_id"] for event in run.events("submission_published")]
    for receipt in receipts(record):
        assert receipt["submission_id"] in published
        tree = record / "submissions" / str(receipt["submission_id"])
        assert (tree / "program/policy.py").read_text() == receipt["policy"]
        feedback = (tree / "feedback.json").read_bytes()
        if receipt["feedback"] is not None:
            assert sha256(feedback).hexdigest() == receipt["feedback_sha256"]
        told = json.loads(feedback)
        for key in ("program_digest", "score", "episode_indices", "episodes_used", "episodes_remaining"):
            assert told[key] == receipt[key]


def budget_is_conserved(record: Path) -> None:
    """Spent and left make the whole, line by line; nothing is charged twice, nothing given back."""
    left, ids = EPISODE_BUDGET, []
    for event in journal(record):
        if event["event"] == "evaluation_started":
            left -= int(event["episode_count"])  # type: ignore[call-overload]  # a number
            assert event["episodes_remaining"] == left
            ids.append(event["submission_id"])
    assert ids == [f"submission-{number:06d}" for number in range(1, len(ids) + 1)]
    assert left >= 0


def resumed_to_the_end(hosts: Hosts, folder: Path) -> None:
    record = folder / "record"
    before = published_trees(record)
    answer = hosts.ask(folder, "resume")
    assert answer["outcome"] == "finished", answer
    survived(folder, ended=True)
    budget_is_conserved(record)
    after = published_trees(record)
    assert {name: after.get(name) for name in before} == before
    final = manifest(record)
    assert final["status"] == final["terminal_reason"] == "finished"
    assert final["validation"]["candidates"]  # type: ignore[index]  # a table
    assert final["assessment"]["score"] == 5.0 == answer["assessment"]  # type: ignore[index]  # as above
    assert [item["submission_id"] for item in final["submissions"]] == sorted(after)  # type: ignore[attr-defined]
    assert final["selected_submission_id"] == answer["final"]
    told_missing = any(e["event"] == "notice" and "could not be written" in str(e["message"]) for e in journal(record))
    for name in () if told_missing else after:
        copy = record / "workspace/feedback/submissions" / name / "feedback.json"
        assert copy.read_bytes() == (record / "submissions" / name / "feedback.json").read_bytes()
    assert [path.name for path in (record / "submissions").iterdir() if path.name.startswith(".staging")] == []
    names = [event["event"] for event in journal(record)]
    candidates = [e["submission_id"] for e in journal(record) if e["event"] == "validation_candidate_completed"]
    assert len(set(candidates)) == len(candidates)
    assert names.count("candidate_selected") == names.count("assessment_completed") == 1
    assert [event["seq"] for event in journal(record)] == list(range(1, len(names) + 1))


def published_trees(record: Path) -> dict[str, str]:
    """Id and content of every Submission that the journal says to be published."""
    trees = {}
    for event in open_run(record).events("submission_published"):
        name = str(event.fields["submission_id"])
        digest = sha256()
        tree = record / "submissions" / name
        for path in sorted(tree.rglob("*")):
            digest.update(str(path.relative_to(tree)).encode())
            if path.is_file():
                digest.update(path.read_bytes())
        trees[name] = digest.hexdigest()
    return trees


def struck_run(how: str, event: str, **benchmark: object):
    def case(hosts: Hosts) -> Path:
        folder = hosts.new_folder(f"run-{how}-{event}")
        answer = hosts.ask(folder, "run", strike={"how": how, "event": event}, benchmark=benchmark)
        if how == "SIGKILL":
            assert answer["code"] == -9, answer
        else:
            assert answer["outcome"] in ("KeyboardInterrupt", "finished", event), answer
            assert manifest(folder / "record")["terminal_reason"] in ("interrupted", "finished", event)
        survived(folder)
        resumed_to_the_end(hosts, folder)
        return folder

    return case


def struck_resume(how: str, event: str):
    """The Host is killed in the middle of the Agent's work, and the next one is struck again."""

    def case(hosts: Hosts) -> Path:
        folder = hosts.new_folder(f"resume-{how}-{event}")
        shutil.copytree(hosts.of("base") / "record", folder / "record", symlinks=True)
        answer = hosts.ask(folder, "resume", strike={"how": how, "event": event})
        if how == "SIGKILL":
            assert answer["code"] == -9, answer
        else:
            assert answer["outcome"] in ("KeyboardInterrupt", "finished"), answer
        survived(folder)
        resumed_to_the_end(hosts, folder)
        return folder

    return case


def base_of_resumes(hosts: Hosts) -> Path:
    folder = hosts.new_folder("base")
    answer = hosts.ask(folder, "run", strike={"how": "SIGKILL", "event": "submission_published"})
    assert answer["code"] == -9
    return folder


def struck_change(how: str, nth: int, action: str):
    def case(hosts: Hosts) -> Path:
        folder = hosts.new_folder(f"{action}-{how}-{nth}")
        if action == "resume":
            shutil.copytree(hosts.of("base") / "record", folder / "record", symlinks=True)
        answer = hosts.ask(folder, action, strike={"how": how, "nth": nth})
        if how != "SIGKILL":
            told = answer["outcome"] in RECORDED_ENDS or answer["outcome"] in ("RecordError", "OSError")
            assert told, answer
        survived(folder)
        if (folder / "record").exists() and began(folder / "record"):
            resumed_to_the_end(hosts, folder)
        elif action == "run" and how != "SIGKILL":
            assert not (folder / "record").exists(), "what never began is left behind"
        return folder

    return case


def nothing_temporary_is_left(temporary: Path) -> None:
    """What killed Hosts have left there goes with the next that takes a private directory."""
    PrivateDirectory(temporary).close()
    # One directory a user tells which cores are taken; it stays.
    left = [path.name for path in temporary.iterdir() if not path.name.startswith("evopolicygym-cores-")]
    shutil.rmtree(temporary)
    assert left == []


RECORDED_ENDS = ("finished", "agent_failed", "evaluation_failed", "validation_failed", "assessment_failed")


def began(record: Path) -> bool:
    return (record / "events.jsonl").exists() and b'"run_started"' in (record / "events.jsonl").read_bytes()


def at_events() -> dict[str, object]:
    cases: dict[str, object] = {"base": base_of_resumes}
    for how in ("SIGKILL", "SIGINT"):
        cases |= {f"run-{how}-{event}": struck_run(how, event) for event in OF_A_RUN}
        cases |= {f"run-{how}-{event}": struck_run(how, event, **fault) for event, fault in OF_A_FAULT.items()}
        cases |= {f"resume-{how}-{event}": struck_resume(how, event) for event in OF_A_RESUME}
    return cases


def at_changes() -> dict[str, object]:
    cases = {}
    for number, nth in enumerate(range(1, CHANGES, STRIDE)):
        for offset, how in enumerate(("SIGKILL", "ENOSPC")):
            # Each kind strikes other changes than the one before, so that a sample covers more of them.
            struck = nth + (offset * STRIDE) // 2
            action = "resume" if STRIDE > 1 and number % 4 == 3 else "run"
            cases[f"{action}-{how}-{struck}"] = struck_change(how, struck, action)
            if STRIDE == 1:
                cases[f"resume-{how}-{struck}"] = struck_change(how, struck, "resume")
    for number, how in enumerate(("EIO", "EROFS", "EMFILE")):
        sample = range(1, CHANGES) if STRIDE == 1 else range(20 + number, CHANGES, 97)
        cases |= {f"run-{how}-{nth}": struck_change(how, nth, "run") for nth in sample}
    return cases


CASES = at_events() | at_changes()


@pytest.fixture(scope="module")
def hosts(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    started = Hosts(tmp_path_factory.mktemp("torture"))
    started.begin("base")
    if "PYTEST_XDIST_WORKER" not in os.environ:  # test workers share the cases, and run side by side as it is
        for item in request.session.items:
            if isinstance(item, pytest.Function) and item.path == request.path and hasattr(item, "callspec"):
                started.begin(item.callspec.params["name"])
    try:
        yield started
    finally:
        started.close()
    nothing_temporary_is_left(started.temporary)


@pytest.mark.parametrize("name", CASES)
def test_a_struck_run_goes_on_to_its_end_and_loses_nothing(hosts, name):
    hosts.of(name)


def test_every_event_is_struck():
    struck = {*OF_A_RUN, *OF_A_FAULT, *OF_A_RESUME, "interrupted"}
    assert struck == set(EVENT_TYPES)
