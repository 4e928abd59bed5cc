"""What hostile code tries inside a sandbox; each attempt is source that returns what it got hold of, or raises.

Names in capitals are filled in by the tests: what the Host has, and nobody inside may reach.
"""

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import evopolicygym

# What both a Policy and an Agent try, and neither may get.
OF_BOTH = {
    "reads /etc/shadow": "return open('/etc/shadow').read()",
    "reads a file of the caller's home": "return open(HOME_SECRET).read()",
    "lists the caller's home": "return [name for name in os.listdir(os.path.dirname(HOME_SECRET)) if 'secret' in name]",
    "reads the journal": "return open(RECORD + '/events.jsonl').read()",
    "reads the manifest": "return open(RECORD + '/run.json').read()",
    "reads the Submissions": "return os.listdir(RECORD + '/submissions')",
    "reads another Run": "return open(OTHER_RUN + '/events.jsonl').read()",
    "sees the Host in /proc": "return open(f'/proc/{HOST_PID}/cmdline').read()",
    "reads the Host's memory map": "return open(f'/proc/{HOST_PID}/maps').read()",
    "opens the Host's memory": "return open(f'/proc/{HOST_PID}/mem', 'rb').read(1) or 'opened'",
    "reaches the Host's root by /proc": "return os.listdir(f'/proc/{HOST_PID}/root')",
    "signals the Host": "os.kill(HOST_PID, 0)\nreturn 'signalled'",
    "traces the Host": "return call('ptrace', libc.ptrace(16, HOST_PID, 0, 0))",
    "reads the Host's memory": """
buffer = ctypes.create_string_buffer(8)
own = (ctypes.c_void_p * 2)(ctypes.addressof(buffer), 8)
return call('process_vm_readv', libc.process_vm_readv(HOST_PID, own, 1, own, 1, 0))""",
    "has another user namespace": "return call('unshare', libc.unshare(0x10000000))",
    "has another mount namespace": "return call('unshare', libc.unshare(0x00020000))",
    "forks into another user namespace": "return call('clone', libc.syscall(CLONE, 0x10000000 | 17, 0, 0, 0, 0))",
    "mounts a tmpfs": "return call('mount', libc.mount(b'x', b'/usr', b'tmpfs', 0, None))",
    "makes a mount writable": "return call('mount', libc.mount(None, b'/usr', None, 0x1020, None))",
    "unmounts": "return call('umount', libc.umount2(b'/usr', 2))",
    "changes its root": "os.chroot('/')\nreturn 'changed'",
    "joins a namespace": "return call('setns', libc.setns(os.open('/proc/self/ns/mnt', os.O_RDONLY), 0))",
    "makes a device": "os.mknod(SCRATCH + '/disk', 0o600 | stat.S_IFBLK, os.makedev(254, 0))\nreturn 'made'",
    "uses io_uring": "return call('io_uring_setup', libc.syscall(425, 1, ctypes.create_string_buffer(120)))",
    "uses the kernel's keys": "return call('keyctl', libc.syscall(KEYCTL, 0, -3, 1))",
    "loads a BPF program": "return call('bpf', libc.syscall(BPF, 0, ctypes.create_string_buffer(120), 120))",
    "becomes another user": "os.setresuid(4242, 4242, 4242)\nreturn os.getuid()",
    "may gain privileges by a set-user-ID program": """
if call('prctl', libc.prctl(39, 0, 0, 0, 0)).endswith('1'): raise PermissionError('no new privileges')
return 'may'""",
    "has a capability left": """
held = [number for number in range(41) if libc.prctl(23, number, 0, 0, 0) == 1]
if not held: raise PermissionError('none')
return held""",
    "writes to the system": "open('/usr/lib/left', 'w')\nreturn 'written'",
    "writes to the interpreter's packages": "open(os.path.dirname(json.__file__) + '/left.py', 'w')\nreturn 'written'",
    "writes to evopolicygym": "open(PACKAGE + '/left.py', 'w')\nreturn 'written'",
    "writes to /": "open('/left', 'w')\nreturn 'written'",
    "changes the machine's /dev/null": "os.chmod('/dev/null', 0o600)\nreturn 'changed'",
    "touches the machine's /dev/null": "os.utime('/dev/null')\nreturn 'touched'",
    "reads a disk": "return open('/dev/vda', 'rb').read(1) or open('/dev/sda', 'rb').read(1)",
    "types into the caller's terminal": "return [fcntl.ioctl(n, 0x5412, b'x') for n in range(3)]",
    "types into a terminal by its name": "return fcntl.ioctl(os.open('/dev/tty', os.O_RDWR), 0x5412, b'x')",
    "imports what is hidden": "import target_benchmark\nreturn target_benchmark.SECRET_SCENARIO",
    "finds the source of what is hidden": "return open(BENCHMARK_SOURCE).read()",
    "takes a descriptor of another process": "return call('pidfd_getfd', libc.syscall(438, os.pidfd_open(1), 0, 0))",
    "takes a descriptor of the Host": "return call('pidfd_getfd', libc.syscall(438, os.pidfd_open(HOST_PID), 0, 0))",
    "handles page faults": "return call('userfaultfd', libc.syscall(USERFAULTFD, 1))",
    "names a file by its handle": """
handle, mount = ctypes.create_string_buffer(b'\\x80' + bytes(135), 136), ctypes.c_int()
return call('name_to_handle_at', libc.syscall(HANDLE, -100, b'/usr', handle, ctypes.byref(mount), 0))""",
    "makes a sparse file of 50 GB": """
os.truncate(os.open(SCRATCH + '/x', os.O_CREAT | os.O_RDWR), 50 << 30)
return 'made'""",
    "opens 10^6 files": "return len([open('/dev/null') for _ in range(10**6)])",
    "connects to an abstract socket": "return connect(socket.AF_UNIX, '\\0' + ABSTRACT)",
    "connects to a Unix socket of the Host": "return connect(socket.AF_UNIX, UNIX)",
}

OF_POLICIES = {
    "connects by TCP": "return connect(socket.AF_INET, ('127.0.0.1', TCP_PORT))",
    "sends by UDP": "return socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', TCP_PORT))",
    "has a netlink socket": "return socket.socket(socket.AF_NETLINK, socket.SOCK_RAW).fileno()",
    "listens at an abstract socket": "socket.socket(socket.AF_UNIX).bind('\\0left')\nreturn 'bound'",
    "sends from a pair to an address": """
one, _ = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
return one.sendto(b'x', '\\0' + ABSTRACT)""",
    "has a program of the system": "return subprocess.run(['/bin/sh', '-c', 'echo out'], capture_output=True).stdout",
    "has shared memory of System V": "return call('shmget', libc.shmget(1234, 4096, 0o1666))",
    "has a message queue of System V": "return call('msgget', libc.msgget(1234, 0o1666))",
    "has semaphores of System V": "return call('semget', libc.semget(1234, 1, 0o1666))",
    "has POSIX shared memory": "open('/dev/shm/left', 'w')\nreturn 'written'",
    "has a POSIX message queue": """
library = ctypes.CDLL('librt.so.1', use_errno=True)
return call('mq_open', library.mq_open(b'/left', 66, 0o600, None))""",
    "has anonymous files without bound": "return os.memfd_create('x')",
    "kills the template": "os.kill(1, 9)\nos.kill(1, 19)\ntime.sleep(0.05)\nraise PermissionError('it lives')",
    "reads the template's memory": """
buffer = ctypes.create_string_buffer(8)
own = (ctypes.c_void_p * 2)(ctypes.addressof(buffer), 8)
return call('process_vm_readv', libc.process_vm_readv(1, own, 1, own, 1, 0))""",
    "traces the template": "return call('ptrace', libc.ptrace(16, 1, 0, 0))",
    "lowers the template's limits": "resource.prlimit(1, resource.RLIMIT_NOFILE, (0, 0))\nreturn 'set'",
    "raises its own limits": "resource.setrlimit(resource.RLIMIT_NOFILE, (100_000, 100_000))\nreturn 'set'",
    "slows the template down": "os.setpriority(os.PRIO_PROCESS, 1, 19)\nreturn 'set'",
    "moves the template": "os.sched_setaffinity(1, {0})\nreturn 'set'",
    "has inherited a descriptor": """
found = []
for number in range(5, 4096):
    try: found.append((number, os.fstat(number).st_mode))
    except OSError: pass
if found: return found
raise PermissionError('none')""",
    "writes to /tmp": "open('/tmp/left', 'w')\nreturn 'written'",
    "writes to /var/tmp": "open('/var/tmp/left', 'w')\nreturn 'written'",
    "writes to its Program": "open('left.py', 'w')\nreturn 'written'",
    "writes byte code of its Program": "open('__pycache__/left', 'w')\nreturn 'written'",
    "changes its Program's times": "os.utime('policy.py', (1, 1))\nreturn 'changed'",
    "writes beside its scratch": "open(SCRATCH + '/../left', 'w')\nreturn 'written'",
    "writes where byte code is made": """
places = [f'{os.path.dirname(os.getcwd())}-compile/program/left.py']
open(places[0], 'w')
return 'written'""",
    "marks its scratch's inode": "return fcntl.ioctl(os.open(SCRATCH, os.O_RDONLY), 0x40086602, b'\\x40' + bytes(7))",
    "marks the directory of its scratch by a younger system call": """
attributes = (0x80).to_bytes(8, 'little') + bytes(16)  # FS_XFLAG_NODUMP
return call('file_setattr', libc.syscall(469, -100, os.path.dirname(SCRATCH).encode(), attributes, 24, 0))""",
    "finds another process": """
found = []
for number in range(1, 1 << 16):
    if number not in (1, os.getpid()):
        try: os.kill(number, 0)
        except ProcessLookupError: continue
        except PermissionError: pass
        found.append(number)
if found: return found
raise PermissionError('none')""",
    "writes 50 GB": """
with open(SCRATCH + '/large', 'wb') as file:
    for _ in range(50 * 1024): file.write(bytes(1024 * 1024))
return 'written'""",
    "takes 100 GB of memory": "return len(bytearray(100 << 30))",
    "starts 10^5 threads": """
def idle(): time.sleep(600)
for _ in range(10**5): threading.Thread(target=idle, daemon=True).start()
return 'started'""",
    "forks without end": """
children = 0
while children < 10**5:
    if os.fork() == 0:
        while True:
            try: os.fork()
            except OSError: time.sleep(0.01)
    children += 1
return children""",
}

OF_AGENTS = {
    "writes into feedback/": "open('feedback/forged', 'w')\nreturn 'written'",
    "writes into feedback/submissions": "open('feedback/submissions/forged', 'w')\nreturn 'written'",
    "writes into skills/": "open('skills/forged', 'w')\nreturn 'written'",
    "makes feedback/ writable": "os.chmod('feedback', 0o777)\nreturn 'changed'",
    "renames feedback/": "os.rename('feedback', 'old')\nreturn 'renamed'",
    "removes skills/": "shutil.rmtree('skills')\nreturn 'removed'",
    "replaces feedback/": "os.mkdir('new')\nos.rename('new', 'feedback')\nreturn 'replaced'",
    "renames the workspace": "os.rename('../workspace', '../old')\nreturn 'renamed'",
    "writes into its own evidence": """
with open(RECORD + '/agent/transcript.jsonl', 'a') as file: file.write('evidence'[::-1])
raise PermissionError('the Record is looked at afterwards: this is a file of its own')""",
    "changes its instructions": "open(RECORD + '/agent/instructions.md', 'a')\nreturn 'written'",
    "changes its instructions by its standard input": """
with open(0, closefd=False) as task: assert 'evopolicygym' in task.read()
open('/proc/self/fd/0', 'r+')
return 'opened'""",
    "traces the sandbox's first process": "return call('ptrace', libc.ptrace(0x4206, 1, 0, 0))",
    "opens the memory of the sandbox's first process": "open('/proc/1/mem', 'r+b')\nreturn 'opened'",
    "opens a descriptor of the sandbox's first process": "return os.readlink('/proc/1/fd/1') or open('/proc/1/fd/1')",
    "types into a terminal of its own": "return fcntl.ioctl(os.openpty()[1], 0x5412, b'x')",
    "types into a terminal by a longer request": """
return call('ioctl', libc.ioctl(os.openpty()[1], ctypes.c_ulong(0x100005412), b'x'))""",
    "sets what the kernel does with crashes": "open('/proc/sys/kernel/core_pattern', 'w')\nreturn 'opened'",
    "sets how the kernel swaps": "open('/proc/sys/vm/swappiness', 'w')\nreturn 'opened'",
    "sees more than its own processes": """
found = [name for name in os.listdir('/proc') if name.isdigit() and int(name) > 2]
found = [name for name in found if int(name) != os.getpid()]
if found: return found
raise PermissionError('none')""",
    "has shared memory of System V of the Host": "return call('shmget', libc.shmget(SYSV_KEY, 0, 0))",
    "reaches the Host's /dev/shm": "return open('/dev/shm/' + SHM_NAME).read()",
    "reaches the Host's /tmp": "return open(TMP_SECRET).read()",
    "takes the Session's socket away": "os.unlink(os.environ['EVOPOLICYGYM_SESSION_SOCKET'])\nreturn 'removed'",
}

PRELUDE = """
import ctypes, fcntl, json, os, resource, shutil, socket, stat, subprocess, sys, threading, time

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
CLONE, KEYCTL, BPF, HANDLE, USERFAULTFD = (
    (56, 250, 321, 303, 323) if os.uname().machine == 'x86_64' else (220, 219, 280, 264, 282)
)
SCRATCH = os.environ['TMPDIR']

def call(name, result):
    if result == -1:
        raise OSError(ctypes.get_errno(), name)
    return f'{name}: {result}'

def connect(family, address):
    with socket.socket(family) as connection:
        connection.settimeout(2)
        connection.connect(address)
    return 'connected'

def attempted(attempt):
    try:
        got = attempt()
    except BaseException as error:
        return 'held', f'{type(error).__name__}: {error}'[:300]
    return ('got', repr(got)[:300])
"""


def source(attempts: dict[str, str], facts: dict[str, object]) -> str:
    """Definitions of all attempts, as functions in the list ``ATTEMPTS``, for a Python of the hostile's own."""
    functions = []
    for number, body in enumerate(attempts.values()):
        indented = "\n".join("    " + line for line in body.strip().splitlines())
        functions.append(f"def attempt_{number}():\n{indented}\n")
    names = ", ".join(f"attempt_{number}" for number in range(len(attempts)))
    given = "\n".join(f"{name} = {value!r}" for name, value in facts.items())
    return f"{PRELUDE}\n{given}\n\n" + "\n".join(functions) + f"\nATTEMPTS = [{names}]\n"


@contextlib.contextmanager
def host_facts(folder: Path) -> Iterator[dict[str, object]]:
    """Things of the Host that code in a sandbox looks for, by the names that the attempts have for them."""
    home = Path.home() / "secret-of-the-caller"
    home.write_text("secret")
    for name in ("record", "other-run"):
        (folder / name / "submissions").mkdir(parents=True)
        (folder / name / "events.jsonl").write_text("secret")
        (folder / name / "run.json").write_text("secret")
    abstract = f"evopolicygym-test-{os.getpid()}"
    with (
        socket.socket(socket.AF_UNIX) as abstract_socket,
        socket.socket(socket.AF_UNIX) as unix,
        socket.create_server(("127.0.0.1", 0)) as tcp,
    ):
        abstract_socket.bind("\0" + abstract)
        abstract_socket.listen()
        unix.bind(str(folder / "socket"))
        unix.listen()
        yield {
            "HOME_SECRET": str(home),
            "RECORD": str(folder / "record"),
            "OTHER_RUN": str(folder / "other-run"),
            "HOST_PID": os.getpid(),
            "ABSTRACT": abstract,
            "UNIX": str(folder / "socket"),
            "TCP_PORT": tcp.getsockname()[1],
            "PACKAGE": str(Path(evopolicygym.__file__).parent),
            "BENCHMARK_SOURCE": str(Path(__file__).with_name("target_benchmark.py")),
        }
    home.unlink()
