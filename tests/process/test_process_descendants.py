"""Finding and ending descendants; each case runs in a Python of its own, which becomes the owner of orphans."""

import subprocess
import sys

PRELUDE = """
import os, signal, sys, time
from evopolicygym.process.descendants import become_subreaper, descendants, kill_descendants

def fork(body):
    pid = os.fork()
    if pid == 0:
        try:
            body()
        finally:
            os._exit(0)
    return pid

def wait_for(reader, count):
    lines = b""
    while lines.count(b"\\n") < count:
        lines += os.read(reader, 4096)
    return [int(line) for line in lines.split()]

def is_alive(pid):
    try:
        return open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False

reader, writer = os.pipe()

def tell_and_sleep():
    os.write(writer, b"%d\\n" % os.getpid())
    time.sleep(600)
"""


def run(program: str) -> None:
    subprocess.run([sys.executable, "-I", "-c", PRELUDE + program], check=True, timeout=60)


def test_a_process_without_children_has_nothing_to_end() -> None:
    run("assert descendants(os.getpid()) == []; assert kill_descendants() == []")


def test_descendants_are_listed_parents_first_over_several_generations() -> None:
    run("""
def parent():
    fork(tell_and_sleep)
    tell_and_sleep()
child = fork(parent)
both = wait_for(reader, 2)
both.remove(child)
assert descendants(os.getpid()) == [child, *both]
assert kill_descendants() == []
""")


def test_children_of_other_threads_are_found() -> None:
    run("""
import subprocess, threading
done = threading.Event()
def work():
    global child
    child = subprocess.Popen(["sleep", "600"])
    started.set()
    done.wait()
started = threading.Event()
thread = threading.Thread(target=work)
thread.start()
started.wait()
assert descendants(os.getpid()) == [child.pid]
assert kill_descendants() == []
done.set()
thread.join()
assert child.wait() == 0  # its status went to whoever reaped it
""")


def test_a_subreaper_ends_orphans_of_other_sessions() -> None:
    run("""
assert become_subreaper()
def middle():
    os.setsid()
    fork(tell_and_sleep)
child = fork(middle)
[orphan] = wait_for(reader, 1)
assert os.waitpid(child, 0)[0] == child
assert os.getsid(orphan) == child
assert kill_descendants() == []
assert not is_alive(orphan)
""")


def test_dead_children_are_reaped_and_told() -> None:
    run("""
told = {}
child = fork(lambda: os._exit(3))
os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
assert kill_descendants(on_reaped=told.__setitem__) == []
assert {pid: os.waitstatus_to_exitcode(status) for pid, status in told.items()} == {child: 3}
""")


def test_a_spared_child_keeps_its_life_its_tree_and_its_status() -> None:
    run("""
become_subreaper()
def parent():
    fork(tell_and_sleep)
    tell_and_sleep()
spared = fork(parent)
family = wait_for(reader, 2)
other = fork(tell_and_sleep)
wait_for(reader, 1)
assert kill_descendants(spare=[spared]) == []
assert not is_alive(other)
assert [is_alive(pid) for pid in family] == [True, True]
assert kill_descendants(spare=[spared]) == []
os.kill(spared, signal.SIGTERM)
assert os.waitpid(spared, 0) == (spared, signal.SIGTERM)
assert kill_descendants() == []
""")


def test_a_growing_tree_of_forks_is_ended() -> None:
    run("""
become_subreaper()
def grow():
    os.write(writer, b"1\\n")
    end = time.monotonic() + 30
    while time.monotonic() < end:
        if len(os.listdir("/proc")) < 400 and os.fork() == 0:
            os.setsid()
fork(grow)
wait_for(reader, 1)
while len(descendants(os.getpid())) < 50:
    pass
assert kill_descendants() == []
assert descendants(os.getpid()) == []
""")


def test_processes_are_found_by_scanning_where_the_kernel_lists_no_children() -> None:
    run("""
from evopolicygym.process.descendants import _children_by_scan
child = fork(tell_and_sleep)
wait_for(reader, 1)
assert _children_by_scan(os.getpid()) == [child]
assert kill_descendants() == []
""")


def test_importing_it_loads_nothing_heavy() -> None:
    program = """
import sys
before = set(sys.modules)
import evopolicygym.process.descendants
new = set(sys.modules) - before
assert not new & {"dataclasses", "pathlib", "subprocess", "socket", "ctypes", "threading", "inspect"}, new
"""
    subprocess.run([sys.executable, "-I", "-c", program], check=True, timeout=60)
