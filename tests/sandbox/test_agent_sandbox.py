"""What a hostile Agent may do in a sandbox: work in its workspace, talk to its Session, and no more."""

import ctypes
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import run_scenarios
import sandbox_attempts
from target_benchmark import TargetBenchmark

import evopolicygym
from evopolicygym import RunResult
from evopolicygym.execution import AgentLimits, PolicyLimits, SandboxExecution
from evopolicygym.execution.agent_sandbox import AgentSandbox
from evopolicygym.execution.cgroups import find_control_groups
from evopolicygym.execution.confinement import LANDLOCK_SCOPES_ABI
from evopolicygym.execution.sandbox_launch import limits_held_by
from evopolicygym.process.descendants import descendants
from evopolicygym.run import RunConfig, run
from evopolicygym.skills import AgentSkill

ATTEMPTS = {**sandbox_attempts.OF_BOTH, **sandbox_attempts.OF_AGENTS}

SYSV_KEY = 0x45504701
IPC_CREAT, IPC_RMID = 0o1000, 0


def run_in_sandbox(
    folder: Path,
    script: str,
    execution: SandboxExecution,
    *,
    skills: tuple[AgentSkill, ...] = (),
    seconds: float = 60.0,
) -> tuple[RunResult, Path]:
    folder.mkdir(exist_ok=True)
    record = folder / "record"
    result = run(
        run_scenarios.initial_program(folder),
        TargetBenchmark(),
        agent=run_scenarios.scripted_agent(folder, script, []),
        execution=execution,
        record_to=record,
        config=RunConfig(episode_budget=30, episode_pool_size=60, agent_timeout_seconds=seconds),
        skills=skills,
    )
    return result, record


def told(record: Path) -> dict[str, object]:
    """The JSON object that the Agent printed last."""
    lines = (record / "agent" / "stdout.log").read_text().splitlines()
    assert lines, (record / "agent" / "stderr.log").read_text()
    found: dict[str, object] = json.loads(lines[-1])
    return found


def in_force(record: Path) -> dict[str, object]:
    """What run.json says of the sandbox."""
    host = run_scenarios.manifest(record)["host"]
    assert isinstance(host, dict)
    assert host["execution"] == "sandbox"
    found: dict[str, object] = host["sandbox"]
    return found


@pytest.fixture(scope="module", params=[True, False], ids=["landlock", "no landlock"])
def attacked(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[dict[str, str], RunResult, Path]:
    """One Run whose Agent first makes every attempt, and then does its work."""
    folder = tmp_path_factory.mktemp("attacked")
    skill = folder / "a-skill"
    skill.mkdir()
    (skill / "SKILL.md").write_text("---\nname: a-skill\n---\nHi\n")
    libc = ctypes.CDLL(None)
    shared = libc.shmget(SYSV_KEY, 4096, IPC_CREAT | 0o600)
    with (
        sandbox_attempts.host_facts(folder / "host") as facts,
        tempfile.NamedTemporaryFile(dir="/dev/shm") as memory,
        tempfile.NamedTemporaryFile(dir="/tmp") as temporary,
    ):
        facts |= {
            "RECORD": str(folder / "record"),
            "SYSV_KEY": SYSV_KEY,
            "SHM_NAME": Path(memory.name).name,
            "TMP_SECRET": temporary.name,
        }
        script = (
            sandbox_attempts.source(ATTEMPTS, facts)
            + "\nbefore = [': '.join(attempted(attempt)) for attempt in ATTEMPTS]\n"
            + run_scenarios.WHOLE_JOB.replace("print(", "(")
            + "\nprint(json.dumps(before))\n"
        )
        execution = SandboxExecution(workers=1, hide=["target_benchmark"], landlock=request.param)
        result, record = run_in_sandbox(folder, script, execution, skills=(AgentSkill.from_directory(skill),))
    libc.shmctl(shared, IPC_RMID, None)
    outcomes = told(record)
    return dict(zip(ATTEMPTS, outcomes, strict=True)), result, record


@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_an_agent_gets_nothing_by_an_attempt(attempt, attacked):
    outcomes, _, record = attacked
    got = attempt == "connects to an abstract socket" and in_force(record)["agent_abstract_sockets"] == "reachable"
    assert outcomes[attempt].startswith("got" if got else "held"), outcomes[attempt]


def test_an_agent_that_attacks_can_still_do_its_work(attacked):
    _, result, record = attacked
    assert result.terminal_reason == "finished"
    assert [submission.feedback.score for submission in result.submissions][1] == 5
    assert (record / "workspace" / "skills" / "a-skill" / "SKILL.md").is_file()
    assert not [path for path in record.rglob("*.json*") if b"ecnedive" in path.read_bytes()]
    assert sorted(path.name for path in (record / "workspace" / "feedback").iterdir()) == ["latest.json", "submissions"]


def test_the_record_says_what_was_in_force(attacked):
    _, _, record = attacked
    sandbox = in_force(record)
    landlock = sandbox["landlock_abi"]
    told = subprocess.run(["bwrap", "--version"], capture_output=True, text=True, check=True).stdout
    assert sandbox == {
        "bubblewrap": told.split()[1],
        "namespaces": ["user", "pid", "mount", "ipc", "uts", "cgroup", "net"],
        "landlock_abi": landlock,
        "seccomp": True,
        "capabilities": [],
        "new_privileges": False,
        "episode_isolation": "landlock" if landlock else "namespaces",
        "limits_held_by": limits_held_by(find_control_groups()),
        "policy_limits": asdict(PolicyLimits()),
        "agent_limits": asdict(AgentLimits()),
        "policy_network": "none",
        "agent_network": "shared",
        "agent_abstract_sockets": "unreachable" if landlock >= LANDLOCK_SCOPES_ABI else "reachable",
        "agent_log_in": "read-only",
        "hidden_modules": ["target_benchmark"],
        "hiding": "advisory: the Agent has a network",
    }


def test_an_agent_has_a_home_a_tmp_shared_memory_and_terminals_of_its_own(tmp_path):
    script = (
        f"sys.path.append({str(Path(evopolicygym.__file__).parents[1])!r})"
        + """
home = pathlib.Path.home()
(home / "note").write_text("x")
pathlib.Path("/tmp/note").write_text("x")
pathlib.Path("/dev/shm/note").write_text("x")
pathlib.Path("analysis/note").write_text("x")
open("/dev/null", "w").write("x")
shell = subprocess.run("echo $((1 + 1)) | cat; id -u", shell=True, capture_output=True, text=True)
import evopolicygym.policy
print(json.dumps({"home": str(home), "tty": len(os.openpty()), "shell": shell.stdout, "user": os.getuid(),
                  "random": len(open("/dev/urandom", "rb").read(4))}))
"""
    )
    result, record = run_in_sandbox(tmp_path / "run", script, SandboxExecution(workers=1))
    found = told(record)
    assert result.terminal_reason == "agent_exited"
    assert found["shell"] == f"2\n{os.getuid()}\n"
    assert (found["tty"], found["user"], found["random"]) == (2, os.getuid(), 4)
    assert found["home"] != str(Path.home())
    assert not Path("/tmp/note").exists()
    assert not Path("/dev/shm/note").exists()
    assert (record / "workspace" / "analysis" / "note").read_text() == "x"


def test_what_an_agent_starts_is_gone_with_it(tmp_path):
    script = """
for _ in range(3):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            os.closerange(0, 64)
            time.sleep(600)
        os._exit(0)
time.sleep(0.1)
print(json.dumps({"ended": True}))
"""
    before = descendants(os.getpid())
    _, record = run_in_sandbox(tmp_path / "run", script, SandboxExecution(workers=1))
    assert told(record) == {"ended": True}
    assert descendants(os.getpid()) == before


def test_an_agent_hears_sigterm_when_its_time_is_up(tmp_path):
    script = """
def stop(*_):
    print(json.dumps({"heard": True}), flush=True)
    os._exit(0)
signal.signal(signal.SIGTERM, stop)
time.sleep(600)
"""
    result, record = run_in_sandbox(tmp_path / "run", script, SandboxExecution(workers=1), seconds=1.5)
    assert result.terminal_reason == "agent_timed_out"
    assert told(record) == {"heard": True}


GREEDY = """
def fork():
    children = 0
    try:
        while children < 10_000:
            if os.fork() == 0:
                time.sleep(600)
            children += 1
    except OSError as error:
        return f"{type(error).__name__} after {children < 10_000}"
    return "no end"
print(json.dumps({"fork": fork()}), flush=True)
os.kill(-1, signal.SIGKILL)
"""


def test_a_fork_bomb_of_an_agent_ends_at_its_limit(tmp_path):
    execution = SandboxExecution(workers=1, agent=AgentLimits(processes=64))
    _, record = run_in_sandbox(tmp_path / "run", GREEDY, execution)
    assert told(record) == {"fork": "BlockingIOError after True"}


class WatchedAgents(SandboxExecution):
    """The sandbox as it is where no control groups can be made."""

    def agent_sandbox_for(self, benchmark: object) -> AgentSandbox:
        return replace(super().agent_sandbox_for(benchmark), control_groups=None)


WITHOUT_END = {
    "processes": """
for _ in range(10**5):
    if os.fork() == 0: time.sleep(600)
""",
    "threads": """
import threading
for _ in range(10**5): threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
""",
    "memory": """
held = []
for _ in range(1600):
    held.append(bytearray(b"x") * (64 << 20))
""",
    "shared memory of many processes": """
import mmap
for _ in range(8):
    if os.fork() == 0:
        held = mmap.mmap(-1, 64 << 20)
        held.write(b"x" * (64 << 20))
        time.sleep(2)
        os._exit(0)
if any([os.wait()[1] for _ in range(8)]): sys.exit("some did not get it")
""",
}


@pytest.mark.parametrize("execution", [SandboxExecution, WatchedAgents], ids=["as found", "watched"])
@pytest.mark.parametrize("what", WITHOUT_END)
def test_an_agent_that_takes_without_end_is_ended_and_its_run_is_committed(tmp_path, what, execution):
    script = WITHOUT_END[what] + "\nprint(json.dumps('has it all'))"
    limits = AgentLimits(memory_bytes=256 << 20, processes=64)
    result, record = run_in_sandbox(tmp_path / "run", script, execution(workers=1, agent=limits))
    assert result.terminal_reason == "agent_failed"
    assert "has it all" not in (record / "agent" / "stdout.log").read_text()


@pytest.mark.parametrize(
    ("end", "code", "words"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", -9, "killed by SIGKILL"),
        ("os.kill(os.getpid(), signal.SIGABRT)", -6, "killed by SIGABRT"),
        ("sys.exit(3)", 3, "exit code 3"),
        ("sys.exit(255)", 255, "exit code 255"),
    ],
)
def test_how_an_agent_ended_is_told_as_without_a_sandbox(tmp_path, end, code, words):
    _, record = run_in_sandbox(tmp_path / "run", end, SandboxExecution(workers=1))
    (ended,) = [event for event in run_scenarios.journal(record) if event["event"] == "agent_ended"]
    assert (ended["returncode"], ended["message"]) == (code, words)


def test_without_a_network_an_agent_reaches_its_session_and_nothing_else(tmp_path):
    script = """
import socket
with socket.socket() as listener:
    listener.bind(("127.0.0.1", 0))
interfaces = [name for _, name in socket.if_nameindex()]
print(json.dumps({"status": session("status")[0], "interfaces": interfaces}))
"""
    _, record = run_in_sandbox(tmp_path / "run", script, SandboxExecution(workers=1, network="none"))
    assert told(record) == {"status": 0, "interfaces": ["lo"]}


def test_what_an_agent_may_see_beside_the_system_can_be_named(tmp_path):
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "tool.txt").write_text("a tool")
    script = f"print(json.dumps({{'read': pathlib.Path({str(tmp_path / 'tools' / 'tool.txt')!r}).read_text()}}))"
    execution = SandboxExecution(workers=1, visible=[str(tmp_path / "tools")])
    _, record = run_in_sandbox(tmp_path / "run", script, execution)
    assert told(record) == {"read": "a tool"}


def test_no_record_is_there_even_where_what_holds_it_is_shown(tmp_path):
    runs = tmp_path / "runs"
    (runs / "other").mkdir(parents=True)
    (runs / "other" / "events.jsonl").write_text("secret")
    (runs / "note").write_text("shown")
    script = f"""
runs = pathlib.Path({str(runs)!r})
print(json.dumps([(runs / "note").read_text(), os.listdir(runs / "other"), sorted(os.listdir(runs / "record"))]))
"""
    _, record = run_in_sandbox(runs, script, SandboxExecution(workers=1, visible=[str(runs)]))
    assert told(record) == ["shown", [], ["agent", "workspace"]]


def test_the_session_command_ignores_what_an_agent_puts_on_pythons_path(tmp_path):
    script = """
pathlib.Path("json.py").write_text("raise SystemExit('hijacked')")
os.environ["PYTHONPATH"] = os.getcwd()
done = subprocess.run(["evopolicygym-session", "status"], capture_output=True, text=True)
print(__import__("json").dumps({"code": done.returncode}))
"""
    _, record = run_in_sandbox(tmp_path / "run", script, SandboxExecution(workers=1))
    assert told(record) == {"code": 0}


assert sys.platform == "linux", "the sandbox is tested on Linux"
