"""A Run for Sessions: a real workspace and real Programs, an Evaluation that ends when a test says so."""

import json
import os
import select
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from evopolicygym.evaluation import Cancellation, EvaluationCancelled
from evopolicygym.program import Program
from evopolicygym.record.events import EpisodeCompleted, Event, RunEvent
from evopolicygym.session import Gateway, LedgerLimits, Session

WAIT_SECONDS = 30.0
CLIENT = Path(__file__).parents[2] / "evopolicygym" / "session" / "client.py"
LIMITS = LedgerLimits(
    episode_budget=30, pool_size=60, max_submissions=20, max_episodes_per_submission=10, max_candidates=2
)


class Desk:
    """Implements SessionHost; ``hold()`` keeps Evaluations running until ``release()``."""

    def __init__(self, folder: Path) -> None:
        self.workspace = folder / "workspace"
        self.program = self.workspace / "program"
        self.program.mkdir(parents=True)
        (self.program / "policy.py").write_text("def make_policy(context):\n    return None\n")
        self.events: list[Event] = []
        self.session: Session | None = None
        self.error: BaseException | None = None
        self.commit_error: OSError | None = None
        self.capturing = threading.Event()
        self.may_capture = threading.Event()
        self.may_capture.set()
        self.evaluating = threading.Event()
        self._release_reader, self._release_writer = os.pipe()
        self._held = False

    def hold(self) -> None:
        self._held = True

    def release(self) -> None:
        self._held = False
        os.write(self._release_writer, b"!")

    def close(self) -> None:
        os.close(self._release_reader)
        os.close(self._release_writer)

    def names(self) -> list[str]:
        return [event.name for event in self.events]

    def capture_program(self) -> Program:
        self.capturing.set()
        assert self.may_capture.wait(WAIT_SECONDS)
        return Program.from_directory(self.program)

    def commit(self, event: Event) -> None:
        if self.commit_error is not None:
            raise self.commit_error
        self.events.append(event)

    def evaluate(
        self,
        submission_id: str,
        program: Program,
        indices: tuple[int, ...],
        episodes_remaining: int,
        cancellation: Cancellation,
    ) -> Mapping[str, object]:
        first = EpisodeCompleted(submission_id, indices[0], 0, "completed", 1.0, 5, None, 0.1)
        assert self.session is not None
        self.session.on_event(RunEvent(first.name, 0, 0, first.fields()))
        self.evaluating.set()
        if self._held:
            ready, _, _ = select.select([self._release_reader, cancellation], [], [], WAIT_SECONDS)
            assert ready, "nobody released the Evaluation"
            if cancellation in ready:
                raise EvaluationCancelled
            os.read(self._release_reader, 1)
        if self.error is not None:
            raise self.error
        return {
            "submission_id": submission_id,
            "program_digest": program.digest,
            "score": 9.5,
            "episode_indices": list(indices),
            "episodes_used": len(indices),
            "episodes_remaining": episodes_remaining,
            "feedback": f"feedback/submissions/{submission_id}/feedback.json",
            "diagnostics": {"failed": 0},
        }

    def seconds_remaining(self) -> float:
        return 1234.56


def make_session(desk: Desk, limits: LedgerLimits = LIMITS) -> Session:
    session = Session(limits, desk, workspace=desk.workspace, primary_metric="mean_return", score_direction="maximize")
    desk.session = session
    return session


class Agent:
    """Runs the real client as an Agent would."""

    def __init__(self, desk: Desk, gateway: Gateway) -> None:
        self.workspace = desk.workspace
        self.socket_path = gateway.socket_path
        self.environment = {
            "PATH": os.environ["PATH"],
            "EVOPOLICYGYM_SESSION_SOCKET": str(gateway.socket_path),
            "EVOPOLICYGYM_WORKSPACE": str(desk.workspace),
        }

    def start(self, *arguments: str, cwd: Path | None = None) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [sys.executable, "-I", str(CLIENT), *arguments],
            cwd=cwd or self.workspace,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def answer(self, process: "subprocess.Popen[str]") -> tuple[int, dict[str, object]]:
        """Exit code and the one line of JSON, which stands where the exit code says."""
        out, err = process.communicate(timeout=WAIT_SECONDS)
        said, silent = (out, err) if process.returncode == 0 else (err, out)
        assert silent == ""
        assert said.count("\n") == 1
        document = json.loads(said)
        assert document["ok"] is (process.returncode == 0)
        return process.returncode, document["result"] if document["ok"] else document["error"]

    def ask(self, *arguments: str, cwd: Path | None = None) -> tuple[int, dict[str, object]]:
        return self.answer(self.start(*arguments, cwd=cwd))


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(tmp_path)
    yield desk
    desk.close()


@pytest.fixture
def session(desk: Desk) -> Iterator[Session]:
    with make_session(desk) as session:
        yield session


@pytest.fixture
def folder() -> Iterator[Path]:
    """Where a socket can be made: its path must be short."""
    with tempfile.TemporaryDirectory(prefix="epg-", dir="/tmp") as short:
        yield Path(short)


@pytest.fixture
def gateway(session: Session, folder: Path) -> Iterator[Gateway]:
    with Gateway(session, folder) as gateway:
        yield gateway


@pytest.fixture
def agent(desk: Desk, gateway: Gateway) -> Agent:
    return Agent(desk, gateway)
