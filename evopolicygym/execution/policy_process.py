"""Inside a Policy process: set it up, load the Program, answer observations with actions until killed.

Runs in a fresh fork of the template (or a freshly spawned interpreter) that has never run submitted code.
Everything that does not belong to this Episode is closed before the Program is loaded.
"""

# ruff: noqa: PTH103, PTH116, PTH120 (pathlib costs more to import than all of this)

from __future__ import annotations

import gc
import importlib.util
import io
import marshal
import os
import random
import struct
import sys
import traceback
from importlib.machinery import ModuleSpec, SourceFileLoader
from types import CodeType, ModuleType

from evopolicygym.execution import codec, frames
from evopolicygym.policy import PolicyContext, copy_policy_value

TYPE_CHECKING = False  # type checkers take it as true; importing typing would cost every template process
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import TracebackType
    from typing import NoReturn

    from evopolicygym.policy import PolicyValue

__all__ = [
    "compile_program",
    "load_code",
    "make_context",
    "make_module",
    "modules_to_forget",
    "preload",
    "prepare_streams",
    "run_policy_process",
    "seed_generators",
]

# The channel's descriptors in the Policy process.
CHANNEL_IN = 3
CHANNEL_OUT = 4

# Bounds of a failure report; the Host side enforces its own.
_MESSAGE_CHARACTERS = 2_000
_TRACEBACK_CHARACTERS = 20_000
_FRAMES_MAX = 32

# Descriptors above the channel are closed up to this number. The template has closed all that it was not meant to
# have, and new ones get the lowest numbers that are free.
_DESCRIPTORS_MAX = 4096

_READY = frames.frame(frames.READY, b"")

# A byte code file: magic number, flags (0: valid for the source with this time and size), time, size.
_BYTE_CODE_HEADER = struct.Struct("<4sIII")

# What a Program cannot shadow: this process runs on them.
_NEVER_SHADOWED = frozenset({"evopolicygym", "sys", "builtins", "importlib", "os", "io", "codecs", "encodings", "site"})


def make_context(parts: tuple[bytes, bytes, bytes, bytes]) -> PolicyContext:
    """The context of a Benchmark, with seed 0, from its four encoded mappings."""
    observation_space, action_space, metadata, parameters = map(codec.decode_trusted, parts)
    return PolicyContext(observation_space, action_space, metadata, parameters, 0)  # type: ignore[arg-type]  # mappings


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


def prepare_streams() -> None:
    """Have standard output and error pass on every line at once: what was printed before a hang is then known."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace", line_buffering=True)


def modules_to_forget(shadowed: Iterable[str]) -> list[str]:
    """The loaded modules that a Program with these top-level names replaces, as in an interpreter of its own."""
    names = set(shadowed) - _NEVER_SHADOWED
    return [loaded for loaded in sys.modules if loaded.partition(".")[0] in names]


def compile_program(directory: str, paths: Iterable[str], written_to: str) -> None:
    """Write byte code beside the source of a Program, as an import would; nothing of it is run.

    Called in a process of its own: the source is hostile. ``written_to`` is the directory by its writable name.
    """
    for path in paths:
        source = f"{directory}/{path}"
        try:
            status = os.stat(source)
            with open(source, "rb") as file:
                code = compile(file.read(), source, "exec", dont_inherit=True)
            cached = importlib.util.cache_from_source(f"{written_to}/{path}")
            os.makedirs(os.path.dirname(cached), exist_ok=True)
            with open(cached, "wb") as file:
                file.write(_BYTE_CODE_HEADER.pack(importlib.util.MAGIC_NUMBER, 0, int(status.st_mtime), status.st_size))
                file.write(marshal.dumps(code))
        except Exception:  # noqa: BLE001 (the Policy process meets the same error and reports it)
            continue


def seed_generators(policy_seed: int) -> None:
    """Seed the global generators of ``random`` and, if it is loaded, of NumPy."""
    random.seed(policy_seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed([policy_seed & 0xFFFFFFFF, policy_seed >> 32])


def load_code(directory: str) -> CodeType | None:
    """The code of ``policy.py`` as `compile_program` has left it; None if it has not."""
    try:
        with open(importlib.util.cache_from_source(f"{directory}/policy.py"), "rb") as file:
            data = file.read()
        code = marshal.loads(memoryview(data)[_BYTE_CODE_HEADER.size :])
    except (OSError, ValueError, EOFError, TypeError):
        return None
    return code if isinstance(code, CodeType) else None


def make_module(directory: str) -> ModuleType:
    """The module ``policy`` before its code has run."""
    module = ModuleType("policy")
    module.__file__ = f"{directory}/policy.py"
    module.__loader__ = SourceFileLoader("policy", module.__file__)
    module.__spec__ = ModuleSpec("policy", module.__loader__, origin=module.__file__)
    return module


def run_policy_process(
    *,
    channel: tuple[int, int],
    output: tuple[int, int],
    directory: str,
    forgotten: Iterable[str],
    code: CodeType | None,
    context: PolicyContext,
    module: ModuleType,
    confine: Callable[[], None] | None,
) -> NoReturn:
    """Become the Policy process of one Episode; never returns. The global generators are seeded already.

    What this function does is done a thousand times over, and in a forked process the first use of anything costs a
    copied page: hence its bareness.

    Args:
        channel: descriptors to read observations from and to write actions to, in ascending order; nearly always
            `CHANNEL_IN` and `CHANNEL_OUT` already.
        output: descriptors that become standard output and standard error.
        directory: the copy of the Program; the working directory, and first on ``sys.path``.
        forgotten: loaded modules that stand in the way of the Program's own.
        code: of ``policy.py``, if it is known already.
        context: what ``make_policy`` gets.
        module: the module ``policy``, empty.
        confine: gives up what a Policy may not do; None where nothing confines it.
    """
    try:
        os.setsid()
        os.dup2(output[0], 1)
        os.dup2(output[1], 2)
        if channel[0] != CHANNEL_IN:
            os.dup2(channel[0], CHANNEL_IN, False)
        if channel[1] != CHANNEL_OUT:
            os.dup2(channel[1], CHANNEL_OUT, False)
        if confine is not None:
            confine()
        os.closerange(CHANNEL_OUT + 1, _DESCRIPTORS_MAX)
        os.chdir(directory)
        for name in forgotten:
            del sys.modules[name]
        sys.path.insert(0, directory)
        gc.enable()
        os.register_at_fork(after_in_child=random.seed)  # see the template
        os.write(CHANNEL_OUT, _READY)
        _serve(directory, code, module, context)
    except BaseException:  # noqa: BLE001 (before READY: a fault of ours or of the machine)
        os.write(CHANNEL_OUT, traceback.format_exc()[-_MESSAGE_CHARACTERS:].encode())
    finally:
        # Whatever happens, the stack of the template below must not be unwound in this process.
        os._exit(70)


def _serve(directory: str, code: CodeType | None, module: ModuleType, context: PolicyContext) -> None:
    """Load the Program, make the Policy, answer until the channel ends."""
    try:
        act = _load(directory, code, module, context)
        _answer(act)
    except BaseException as error:  # noqa: BLE001 (SystemExit, KeyboardInterrupt: Policy code raised)
        payload = codec.encode(_report(error, directory))
        _flush()
        frames.write_blocking(CHANNEL_OUT, frames.frame(frames.FAILED, payload))
    _flush()
    os._exit(0)


def _load(
    directory: str, code: CodeType | None, module: ModuleType, context: PolicyContext
) -> Callable[[object], object]:
    if code is None:
        with open(f"{directory}/policy.py", "rb") as file:
            code = compile(file.read(), file.name, "exec", dont_inherit=True)
    sys.modules["policy"] = module
    exec(code, module.__dict__)
    make_policy = getattr(module, "make_policy", None)
    if not callable(make_policy):
        raise TypeError("policy.py must define a function make_policy(context)")
    policy = make_policy(context)
    act = getattr(policy, "act", None)
    if not callable(act):
        raise TypeError(f"make_policy(context) must return an object with a method act, not {type(policy).__name__}")
    found: Callable[[object], object] = act
    return found


def _answer(act: Callable[[object], object]) -> None:
    # Local names, since this loop runs once a step; and what the Policy's code rebinds later does not matter.
    read, read_rest, write = os.read, frames.read_rest, os.write
    decode, encode = codec.decode_trusted, codec.encode
    pack = frames.HEADER.pack
    kind, offset, whole, read_bytes = frames.ACTION, frames.HEADER.size, frames.ATOMIC_BYTES, frames.READ_BYTES
    # The streams that the process began with; the Policy may have put others in their place.
    flush_stdout: Callable[[], None] = sys.__stdout__.flush if sys.__stdout__ else _do_nothing
    flush_stderr: Callable[[], None] = sys.__stderr__.flush if sys.__stderr__ else _do_nothing
    head = b""  # what stood before the data of the last observation, if that was a large tensor
    tensor_bytes = 0
    observation: PolicyValue = None
    while data := read(CHANNEL_IN, len(head) or read_bytes):
        if head and data == head:
            # One more of the same kind: its data are read into their place, and not copied out of a frame.
            observation = codec.tensor_like(observation, frames.read_exactly(CHANNEL_IN, tensor_bytes))
        else:
            if head or len(data) >= whole:
                data = read_rest(CHANNEL_IN, data)
            observation = decode(data, offset)
            tensor_bytes = codec.large_tensor_bytes(observation) if len(data) >= whole else 0
            head = data[: len(data) - tensor_bytes] if tensor_bytes else b""
        action = act(observation)
        try:
            payload = encode(action)
        except (TypeError, ValueError) as error:
            return _refuse(_refusal(action, error))
        if len(payload) >= frames.FRAME_MAX_BYTES:
            return _refuse(f"the action takes {len(payload)} bytes; at most {frames.FRAME_MAX_BYTES - 1} can be sent")
        try:
            flush_stdout()
            flush_stderr()
        except Exception:  # noqa: BLE001 (closed by the Policy)
            flush_stdout = flush_stderr = _do_nothing
        answer = pack(len(payload) + 1, kind) + payload
        written = write(CHANNEL_OUT, answer)
        if written != len(answer):
            frames.write_blocking(CHANNEL_OUT, answer[written:])
    return None


def _do_nothing() -> None:
    pass


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
            if stream is not None:
                stream.flush()
        except BaseException:  # noqa: BLE001 (the Policy may have closed or replaced it)
            continue


def _report(error: BaseException, directory: str) -> dict[str, object]:
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
