"""Whole Runs with the real programs and a scripted model. Started by scripts/test-agents, which installs them.

    python tests/agents_real/suite.py [--only TEXT] [--jobs N] NAME=DIRECTORY …

Each NAME=DIRECTORY names one program and the directory of its executable. Prints a table; fails if a case does.
"""

import argparse
import concurrent.futures
import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import tomli_w
from cases import Case, cases_for
from programs import PROGRAMS, Program, furnish_home

from evopolicygym import EvaluationConfig, evaluate
from evopolicygym.agents.scripted_model import ScriptedModel, Tokens
from evopolicygym.agents.survey import PROVIDERS, program_version
from evopolicygym.benchmarks.gymnasium import GymnasiumBenchmark
from evopolicygym.execution import ProcessExecution
from evopolicygym.identities import assessment_seed
from evopolicygym.program import Program as PolicyProgram
from evopolicygym.record import open_run

HERE = Path(__file__).parent
QUICKSTART = HERE.parents[1] / "configs" / "quickstart" / "program"
SECRET = "sk-made-up-by-the-suite-0123456789"
CASE_SECONDS = 150.0
GONE_SECONDS = 20.0
RUN_SEED = 0x5EED_0F_7E57_0001
ASSESSED = 6


class CaseFailedError(Exception):
    """A case did not come out as it must."""


@dataclass
class Outcome:
    """What came of a case."""

    program: Program
    home: Path
    record: Path
    stderr: str
    answers: tuple[Tokens, ...]
    requests: tuple[tuple[str, Mapping[str, object]], ...]
    manifest: dict[str, object] = field(default_factory=dict)
    transcript: list[dict[str, object]] = field(default_factory=list)

    def require(self, holds: bool, message: str) -> None:
        """Fail the case unless it holds."""
        if not holds:
            raise CaseFailedError(message)

    def log(self, name: str) -> str:
        """A file of the Agent's folder."""
        return (self.record / "agent" / name).read_text(errors="replace")

    def require_policy(self, submission_id: str, source: str) -> None:
        """The Program that was selected is the one that the model wrote."""
        selected = self.manifest["selected_submission_id"]
        self.require(selected == submission_id, f"{submission_id} must be selected, found {selected}")
        published = (self.record / "submissions" / submission_id / "program" / "policy.py").read_text()
        self.require(published == source, "the published Policy is not the one that the model wrote")

    def require_scores(self) -> None:
        """The Assessment says what an evaluation of the same Program on the same Episodes says."""
        assessed = self.manifest["assessment"]
        self.require(isinstance(assessed, dict), "there must be an Assessment")
        assert isinstance(assessed, dict)
        program = PolicyProgram.from_directory(
            self.record / "submissions" / str(self.manifest["selected_submission_id"]) / "program"
        )
        again = evaluate(
            program,
            GymnasiumBenchmark(env_id="CartPole-v1"),
            execution=ProcessExecution.unsafe(workers=0),
            config=EvaluationConfig(split="test", episodes=ASSESSED, seed=assessment_seed(RUN_SEED)),
        )
        self.require(
            assessed["score"] == again.feedback.score,
            f"the Assessment says {assessed['score']}, an evaluation of the same {again.feedback.score}",
        )
        scores = [submission.score for submission in open_run(self.record).submissions]
        self.require(scores == sorted(scores) and scores[0] < scores[-1], f"the scores must improve: {scores}")

    def require_tokens(self) -> None:
        """run.json tells the tokens that the server sent, and a cost where the program knows one."""
        usage = self.usage
        sent = {
            "input_tokens": sum(tokens.read for tokens in self.answers),
            "cached_tokens": sum(tokens.cached for tokens in self.answers),
            "output_tokens": sum(tokens.written for tokens in self.answers),
        }
        told = {name: usage[name] for name in sent}
        self.require(told == sent, f"the server sent {sent}, run.json tells {told}")
        cost = usage["cost_usd"]
        self.require((cost is not None) == (self.program.name == "claude-code"), f"a cost of {cost}")

    @property
    def usage(self) -> dict[str, object]:
        """The totals of run.json."""
        agent = self.manifest.get("agent")
        usage = agent.get("usage") if isinstance(agent, dict) else None
        return usage if isinstance(usage, dict) else {}


@dataclass(frozen=True)
class Line:
    """One line of the table."""

    program: str
    version: str
    case: str
    ended: str
    seconds: float
    tokens: str
    problem: str | None


def run_case(program: Program, version: str, directory: Path, case: Case, places: Path) -> Line:
    """Run one case, in a place of its own."""
    place = Path(tempfile.mkdtemp(prefix="case-", dir=places))
    started = time.monotonic()
    ended, tokens, problem = "-", "-", None
    try:
        outcome = _play(program, directory, case, place)
        end = outcome.manifest.get("agent_end")
        reason = end.get("reason") if isinstance(end, dict) else None
        ended = f"{outcome.manifest.get('terminal_reason', '-')}" + (f" ({reason})" if reason else "")
        if outcome.usage:
            tokens = f"{outcome.usage['input_tokens']}/{outcome.usage['output_tokens']}"
    except CaseFailedError as failure:
        problem = str(failure)
    finally:
        _remove(place)
    return Line(program.name, version, case.name, ended, time.monotonic() - started, tokens, problem)


def _play(program: Program, directory: Path, case: Case, place: Path) -> Outcome:
    home, record = place / "home", place / "record"
    furnish_home(home, program)
    with contextlib.ExitStack() as stack:
        address = f"http://127.0.0.1:{_closed_port()}"
        model = None
        if case.server:
            model = stack.enter_context(ScriptedModel(case.steps, fault=case.fault, retry_after=case.retry_after))
            address = model.url
        words = {"api": address + program.api, "old_node_kimi": str(_kimi_without_node(place, directory))}
        if case.furnish is not None:
            case.furnish(home, words["api"])
        before = _contents(home)
        spec = _write_spec(program, case, place, record, words)
        stderr, code = _run_host(program, directory, case, place, record, spec, words)
        outcome = Outcome(
            program,
            home,
            record,
            stderr,
            model.answers if model else (),
            model.requests if model else (),
        )
    _check(outcome, case, code, before)
    return outcome


def _check(outcome: Outcome, case: Case, code: int, before: dict[str, str]) -> None:
    left = _wait_until_gone(str(outcome.record))
    outcome.require(not left, f"these processes were left: {left}")
    outcome.require(code == case.exit_code, f"exit code {code}, must be {case.exit_code}: {outcome.stderr[-1500:]}")
    if not case.home_may_change:
        after = _contents(outcome.home)
        changed = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
        outcome.require(not changed, f"the user's home was changed: {changed}")
    if outcome.record.is_dir():
        outcome.manifest = json.loads((outcome.record / "run.json").read_text())
        transcript = outcome.record / "agent" / "transcript.jsonl"
        if transcript.exists() and case.terminal_reason is not None:
            outcome.transcript = [json.loads(line) for line in transcript.read_text().splitlines()]
    outcome.require(
        not (outcome.record / "workspace" / "analysis" / "survived").exists(), "the tool's command lived on"
    )
    if case.terminal_reason is not None:
        reason = outcome.manifest.get("terminal_reason")
        outcome.require(reason == case.terminal_reason, f"terminal reason {reason}, must be {case.terminal_reason}")
        outcome.require(
            not _files_with(outcome.record, SECRET), f"the key stands in {_files_with(outcome.record, SECRET)}"
        )
    elif case.exit_code == 2:
        outcome.require(not outcome.record.exists(), "there must be no Record")
    if case.end_reason is not None:
        end = outcome.manifest["agent_end"]
        outcome.require(isinstance(end, dict) and end["reason"] == case.end_reason, f"agent_end is {end}")
    if case.check is not None:
        case.check(outcome)


def _write_spec(program: Program, case: Case, place: Path, record: Path, words: Mapping[str, str]) -> Path:
    agent: dict[str, object] = {"use": program.name, **dict(program.options)}
    agent |= {"base_url": "{api}", "executable": program.executable} | dict(case.options)
    for name, value in list(agent.items()):
        if value is None:
            del agent[name]
        elif isinstance(value, str):
            agent[name] = _filled(value, words)
        elif isinstance(value, list):
            agent[name] = [_filled(item, words) for item in value]
    document: dict[str, object] = {
        "run": {
            "record_to": str(record),
            "seed": RUN_SEED,
            "episode_budget": 30,
            "max_submissions": 5,
            "agent_timeout_seconds": 100.0,
            "python_path": [str(HERE)],
            **case.run,
        },
        "benchmark": {"use": case.benchmark} if case.benchmark else {"use": "gymnasium", "env_id": "CartPole-v1"},
        "program": {"path": str(QUICKSTART)},
        "agent": agent,
        "execution": dict(case.execution),
        "validation": {"episodes_per_candidate": 4, "max_candidates": 2},
        "assessment": {"episodes": ASSESSED},
    }
    path = place / "spec.toml"
    path.write_text(tomli_w.dumps(document))
    return path


def _run_host(
    program: Program,
    directory: Path,
    case: Case,
    place: Path,
    record: Path,
    spec: Path,
    words: Mapping[str, str],
) -> tuple[str, int]:
    environment = {
        "HOME": str(place / "home"),
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), str(directory), os.environ.get("PATH", os.defpath)]),
        "LANG": "C.UTF-8",
        "XDG_STATE_HOME": str(place / "xdg-state"),
        "TMPDIR": str(place),
        "EVOPOLICYGYM_WORKERS": "1",
        program.key_variable: SECRET,
        **{name: _filled(value, words) for name, value in case.environment.items()},
    }
    log = place / "host.log"
    command = [sys.executable, "-m", "evopolicygym", "run", str(spec), "--progress", "plain"]
    with log.open("wb") as output:
        host = subprocess.Popen(
            command,
            cwd=place,
            env={name: value for name, value in environment.items() if value},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        try:
            if case.signal is not None:
                _wait_for_file(record / "workspace" / "analysis" / "started", host)
                host.send_signal(signal.Signals[case.signal])
            code = host.wait(CASE_SECONDS)
        except subprocess.TimeoutExpired:
            host.kill()
            host.wait()
            raise CaseFailedError(f"not over after {CASE_SECONDS:g} s: {log.read_text()[-1500:]}") from None
    return log.read_text(errors="replace"), code


def _filled(text: str, words: Mapping[str, str]) -> str:
    return re.sub(r"\{(\w+)\}", lambda found: words.get(found[1], found[0]), text)


def _wait_for_file(path: Path, host: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + CASE_SECONDS
    while not path.exists():
        if host.poll() is not None or time.monotonic() > deadline:
            host.kill()
            host.wait()
            raise CaseFailedError(f"{path.name} did not appear")
        time.sleep(0.05)


def _wait_until_gone(marker: str) -> list[str]:
    """Processes whose environment or command line names the Record, and so those of the program and its tools."""
    deadline = time.monotonic() + GONE_SECONDS
    while (found := _processes(marker)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return found


def _processes(marker: str) -> list[str]:
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal() or int(entry.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            command = (entry / "cmdline").read_bytes()
            if marker.encode() in (entry / "environ").read_bytes() + command:
                found.append(f"{entry.name} {command.replace(bytes(1), b' ').decode(errors='replace')[:100]}")
    return found


def _contents(directory: Path) -> dict[str, str]:
    return {
        str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest()
        if path.is_file()
        else "directory"
        for path in directory.rglob("*")
    }


def _files_with(directory: Path, text: str) -> list[str]:
    files = (path for path in directory.rglob("*") if path.is_file() and not path.is_symlink())
    return [str(path.relative_to(directory)) for path in files if text.encode() in path.read_bytes()]


def _closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _kimi_without_node(place: Path, directory: Path) -> Path:
    """The program away from the Node.js that was installed beside it, and beside a false, old one."""
    bare = place / "bare"
    bare.mkdir()
    (bare / "kimi").symlink_to((directory / "kimi").resolve())
    node = bare / "node"
    node.write_text(
        "#!/bin/sh\necho \"SyntaxError: The requested module 'node:zlib' does not provide an export named"
        " 'createZstdDecompress'\" >&2\necho 'Node.js v20.20.2' >&2\nexit 1\n"
    )
    node.chmod(0o755)
    return bare / "kimi"


def _remove(place: Path) -> None:
    for path in [place, *place.rglob("*")]:
        if path.is_dir() and not path.is_symlink():
            path.chmod(0o700)
    shutil.rmtree(place, ignore_errors=True)


def bring_loopback_up() -> None:
    """In a fresh network namespace even loopback is down."""
    get_flags, set_flags, up = 0x8913, 0x8914, 0x1
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as anything:
        name = b"lo".ljust(16, b"\0")
        answer = fcntl.ioctl(anything, get_flags, name + bytes(24))
        (flags,) = struct.unpack_from("h", answer, 16)
        fcntl.ioctl(anything, set_flags, name + struct.pack("h", flags | up) + bytes(22))


def _version(name: str, directory: Path) -> str:
    provider = next(provider for provider in PROVIDERS if provider.name == name)
    version, problem = program_version(provider, str(directory / provider.executable), os.environ)
    if version is None:
        raise SystemExit(f"{name} cannot be used: {problem}")
    return version


def print_table(lines: list[Line]) -> None:
    """The table, and what went wrong below it."""
    header = ("CLI", "version", "case", "terminal reason", "seconds", "tokens in/out", "")
    rows = [
        (
            line.program,
            line.version,
            line.case,
            line.ended,
            f"{line.seconds:.1f}",
            line.tokens,
            "FAILED" if line.problem else "ok",
        )
        for line in lines
    ]
    widths = [max(len(row[column]) for row in [header, *rows]) for column in range(len(header))]
    for row in [header, *rows]:
        print("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())
    for line in lines:
        if line.problem:
            print(f"\n{line.program}: {line.case}: {line.problem}")
    failed = sum(1 for line in lines if line.problem)
    print(f"\n{len(lines) - failed} passed, {failed} failed")


def main() -> int:
    """The suite."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="+", metavar="NAME=DIRECTORY")
    parser.add_argument("--only", default="", help="only cases whose name holds this text")
    parser.add_argument("--jobs", type=int, default=4, help="how many cases at a time; most of the time they wait")
    parser.add_argument("--own-network", action="store_true", help="this is a fresh network namespace")
    options = parser.parse_args()
    if options.own_network:
        bring_loopback_up()
    chosen = [(PROGRAMS[name], Path(place)) for name, _, place in (text.partition("=") for text in options.programs)]
    versions = {program.name: _version(program.name, directory) for program, directory in chosen}
    places = Path(tempfile.mkdtemp(prefix="epg-agents-"))
    root = os.geteuid() == 0
    wanted = [
        (program, directory, case)
        for program, directory in chosen
        for case in cases_for(program.name, root=root)
        if options.only in f"{program.name}: {case.name}"
    ]
    try:
        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            running = [
                pool.submit(run_case, program, versions[program.name], directory, case, places)
                for program, directory, case in wanted
            ]
            lines = [future.result() for future in running]
    finally:
        _remove(places)
    print_table(lines)
    return 1 if not lines or any(line.problem for line in lines) else 0


if __name__ == "__main__":
    raise SystemExit(main())
