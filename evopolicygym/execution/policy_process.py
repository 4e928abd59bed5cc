"""Inside a Policy process: set it up, load the Program, answer observations with actions until killed.

Runs in a fresh fork of the template (or a freshly spawned interpreter) that has never run submitted code.
Everything that does not belong to this Episode is closed before the Program is loaded.
"""

# ruff: noqa: PTH (importing pathlib costs more than all of this)

from __future__ import annotations

import fcntl
import gc
import importlib.util
import io
import os
import random
import resource
import sys
import traceback

from evopolicygym.execution import codec, frames
from evopolicygym.policy import PolicyContext, copy_policy_value

TYPE_CHECKING = False  # type checkers take it as true; importing typing would cost every template process
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import TracebackType
    from typing import NoReturn

__all__ = ["make_context", "preload", "run_policy_process"]

# The channel's descriptors in the Policy process.
CHANNEL_IN = 3
CHANNEL_OUT = 4

# Bounds of a failure report; the Host side enforces its own.
_MESSAGE_CHARACTERS = 2_000
_TRACEBACK_CHARACTERS = 20_000
_FRAMES_MAX = 32

# What a Program cannot shadow: this process runs on them.
_NEVER_SHADOWED = frozenset({"evopolicygym", "sys", "builtins", "importlib", "os", "io", "codecs", "encodings", "site"})


def make_context(parts: tuple[bytes, bytes, bytes, bytes]) -> PolicyContext:
    """The context of a Benchmark, with seed 0, from its four encoded mappings."""
    mappings = [codec.decode_trusted(part) for part in parts]
    return PolicyContext(*mappings, policy_seed=0)  # type: ignore[arg-type]  # encoded from mappings


def preload(names: Iterable[str]) -> list[str]:
    """Import third-party modules that the Program will ask for; return those that could be imported."""
    loaded = []
    for name in names:
        try:
            importlib.import_module(name)
        except Exception:  # noqa: BLE001 (the Program meets the same error, in its own process)
            continue
        loaded.append(name)
    if "numpy" in sys.modules:
        # numpy loads it on first use, which would be too late to seed it.
        importlib.import_module("numpy.random")
    return loaded


def run_policy_process(
    *,
    channel: tuple[int, int],
    output: tuple[int, int],
    directory: str,
    scratch: str,
    shadowed: Iterable[str],
    context: PolicyContext,
    policy_seed: int,
) -> NoReturn:
    """Become the Policy process of one Episode; never returns.

    Args:
        channel: descriptors to read observations from and to write actions to.
        output: descriptors that become standard output and standard error.
        directory: the copy of the Program; the working directory, and first on ``sys.path``.
        scratch: the Episode's empty directory.
        shadowed: top-level module names that the Program brings along itself.
        context: what ``make_policy`` gets, but for the seed.
        policy_seed: unsigned 64 bits.
    """
    try:
        _isolate(channel, output)
        os.environ["EVOPOLICYGYM_SCRATCH"] = os.environ["TMPDIR"] = os.environ["HOME"] = scratch
        os.chdir(directory)
        object.__setattr__(context, "policy_seed", policy_seed)
        _seed(policy_seed)
        for name in shadowed:
            if name not in _NEVER_SHADOWED:
                _forget_module(name)
        sys.path.insert(0, directory)
        gc.enable()
        frames.write_blocking(CHANNEL_OUT, frames.frame(frames.READY, b""))
        _serve(directory, context)
    finally:
        # Whatever happens, the stack of the template below must not be unwound in this process.
        os._exit(70)


def _isolate(channel: tuple[int, int], output: tuple[int, int]) -> None:
    os.setsid()
    # Through numbers above all targets, so that no dup2 overwrites a descriptor that is still needed.
    high = [_raise_descriptor(descriptor) for descriptor in (*output, *channel)]
    for target, descriptor in zip((1, 2, CHANNEL_IN, CHANNEL_OUT), high, strict=True):
        os.dup2(descriptor, target, inheritable=target < CHANNEL_IN)
    os.closerange(CHANNEL_OUT + 1, _descriptor_limit())
    sys.stdout = _text_stream(1)
    sys.stderr = _text_stream(2)
    sys.__stdout__, sys.__stderr__ = sys.stdout, sys.stderr  # type: ignore[misc]  # as a new interpreter has them


def _raise_descriptor(descriptor: int) -> int:
    return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, CHANNEL_OUT + 1)


def _descriptor_limit() -> int:
    # Descriptors may be open above a limit that was lowered later; the kernel's own bound is cheap to pass.
    return max(resource.getrlimit(resource.RLIMIT_NOFILE)[1], 65_536) if sys.platform != "linux" else 2**31 - 1


def _text_stream(descriptor: int) -> io.TextIOWrapper:
    binary = io.BufferedWriter(io.FileIO(descriptor, "wb", closefd=False))
    # Lines leave at once: what was printed before a hang is then known.
    return io.TextIOWrapper(binary, encoding="utf-8", errors="backslashreplace", line_buffering=True)


def _seed(policy_seed: int) -> None:
    random.seed(policy_seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed([policy_seed & 0xFFFFFFFF, policy_seed >> 32])


def _forget_module(name: str) -> None:
    for loaded in [known for known in sys.modules if known == name or known.startswith(name + ".")]:
        del sys.modules[loaded]


def _serve(directory: str, context: PolicyContext) -> None:
    """Load the Program, make the Policy, answer until the channel ends."""
    try:
        act = _load(directory, context)
        _answer(act)
    except BaseException as error:  # noqa: BLE001 (SystemExit, KeyboardInterrupt: Policy code raised)
        payload = codec.encode(_report(error, directory))
        _flush()
        frames.write_blocking(CHANNEL_OUT, frames.frame(frames.FAILED, payload))
    _flush()
    os._exit(0)


def _load(directory: str, context: PolicyContext) -> Callable[[object], object]:
    spec = importlib.util.spec_from_file_location("policy", directory + "/policy.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["policy"] = module
    spec.loader.exec_module(module)
    make_policy = getattr(module, "make_policy", None)
    if not callable(make_policy):
        raise TypeError("policy.py must define a function make_policy(context)")
    policy = make_policy(context)
    act = getattr(policy, "act", None)
    if not callable(act):
        raise TypeError(f"make_policy(context) must return an object with a method act, not {type(policy).__name__}")
    return act  # type: ignore[no-any-return]  # checked to be callable


def _answer(act: Callable[[object], object]) -> None:
    # Local names, since this loop runs once a step; and what the Policy's code rebinds later does not matter.
    read, write = frames.read_blocking, os.write
    decode, encode = codec.decode_trusted, codec.encode
    pack = frames.HEADER.pack
    kind, offset = frames.ACTION, frames.HEADER.size
    flush_stdout, flush_stderr = sys.stdout.flush, sys.stderr.flush
    while data := read(CHANNEL_IN):
        action = act(decode(data, offset))
        try:
            payload = encode(action)  # type: ignore[arg-type]  # this is the check
        except (TypeError, ValueError) as error:
            return _refuse(_refusal(action, error))
        if len(payload) >= frames.FRAME_MAX_BYTES:
            return _refuse(f"the action takes {len(payload)} bytes; at most {frames.FRAME_MAX_BYTES - 1} can be sent")
        flush_stdout()
        flush_stderr()
        answer = pack(len(payload) + 1, kind) + payload
        written = write(CHANNEL_OUT, answer)
        if written != len(answer):
            frames.write_blocking(CHANNEL_OUT, answer[written:])
    return None


def _refusal(action: object, error: Exception) -> str:
    try:
        copy_policy_value(action)
    except (TypeError, ValueError) as detailed:  # names the place too
        return f"act returned no PolicyValue: {detailed}"
    return f"act returned no PolicyValue: {error}"


def _refuse(message: str) -> None:
    _flush()
    frames.write_blocking(CHANNEL_OUT, frames.frame(frames.REFUSED, _bounded(message, _MESSAGE_CHARACTERS).encode()))


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BaseException:  # noqa: BLE001 (the Policy may have closed or replaced it)
            continue


def _report(error: BaseException, directory: str) -> dict[str, codec.PolicyValue]:
    """What is told of an exception: type, message, the frames inside the Program, the whole traceback."""
    try:
        message = str(error)
    except BaseException:  # noqa: BLE001 (submitted code again)
        message = "<the exception's text cannot be had>"
    found = _program_frames(error.__traceback__, directory)
    if isinstance(error, SyntaxError) and str(error.filename).startswith(directory + "/"):
        found.append(f"{str(error.filename)[len(directory) + 1 :]}:{error.lineno}")
    try:
        text = "".join(traceback.format_exception(type(error), error, _from_program(error.__traceback__, directory)))
    except BaseException:  # noqa: BLE001 (submitted code again)
        text = ""
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return {
        "type": _bounded(name, 200),
        "message": _bounded(message, _MESSAGE_CHARACTERS),
        "frames": [_bounded(item, 300) for item in found[-_FRAMES_MAX:]],
        "traceback": _bounded(text, _TRACEBACK_CHARACTERS),
    }


def _program_frames(trace: TracebackType | None, directory: str) -> list[str]:
    found = []
    while trace is not None:
        code = trace.tb_frame.f_code
        if code.co_filename.startswith(directory + "/"):
            found.append(f"{code.co_filename[len(directory) + 1 :]}:{trace.tb_lineno} in {code.co_name}")
            if len(found) > 4 * _FRAMES_MAX:
                del found[: 2 * _FRAMES_MAX]  # endless recursion: the innermost tell most
        trace = trace.tb_next
    return found


def _from_program(trace: TracebackType | None, directory: str) -> TracebackType | None:
    """The traceback without our own frames around the Program's."""
    inner = trace
    while inner is not None:
        if inner.tb_frame.f_code.co_filename.startswith(directory + "/"):
            return inner
        inner = inner.tb_next
    return None


def _bounded(text: str, characters: int) -> str:
    """``text`` as valid Unicode of at most so many characters, cut in the middle."""
    if len(text) > characters:
        half = characters // 2
        text = f"{text[:half]} … {text[-half:]}"
    return text.encode("utf-8", "replace").decode()
