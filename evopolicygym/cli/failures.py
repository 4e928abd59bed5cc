"""How a command ends: exit codes, and one readable message in place of a traceback."""

import os
import signal
import sys
import traceback
import warnings
from collections.abc import Callable
from types import FrameType
from typing import NoReturn, TextIO

from evopolicygym.cli.encoding import use_plain_characters
from evopolicygym.cli.streams import (
    STANDARD_OUTPUT,
    lead_nowhere,
    settle_standard_streams,
    use_standard_streams,
    write_error,
)
from evopolicygym.errors import (
    AgentRunError,
    AgentSkillError,
    EvoPolicyGymError,
    ExecutionUnavailableError,
    ProgramError,
    RecordError,
    SpecError,
)

EXIT_FINISHED = 0
EXIT_ENDED_OTHERWISE = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130
# As a shell reports a tool that SIGPIPE ended: the reader of our output has gone, which is no failure of ours.
EXIT_READER_GONE = 141

# Nothing was started: what was asked for is wrong or is not there.
_USAGE_ERRORS = (
    SpecError,
    ProgramError,
    AgentSkillError,
    AgentRunError,
    RecordError,
    ExecutionUnavailableError,
)

_debug = False


def show_tracebacks(wanted: bool) -> None:
    """Callback of ``--debug``."""
    global _debug
    _debug = _debug or wanted


def guarded(application: Callable[[], object]) -> NoReturn:
    """Call the application; whatever happens ends in an exit code and at most one message."""
    signal.signal(signal.SIGINT, _interrupt_once)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # ignored, it would hide how the programs that we start end
    use_standard_streams()
    use_plain_characters()
    warnings.showwarning = _note
    code = _guarded(application)
    ignore_interrupts()
    settle_standard_streams()
    sys.exit(code)


def ignore_interrupts() -> None:
    """Ctrl-C is often pressed more than once; the later ones must not break into what the first one set going."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _interrupt_once(_number: int, _frame: FrameType | None) -> None:
    ignore_interrupts()
    raise KeyboardInterrupt


def complain(message: str) -> None:
    """One message on standard error."""
    write_error(f"evopolicygym: {message}\n")


def _note(
    message: Warning | str,
    category: type[Warning],  # noqa: ARG001  # the signature of warnings.showwarning
    filename: str,  # noqa: ARG001
    lineno: int,  # noqa: ARG001
    file: TextIO | None = None,
    line: str | None = None,  # noqa: ARG001
) -> None:
    if file is None:
        write_error(f"evopolicygym: note: {message}\n")
    else:
        file.write(f"evopolicygym: note: {message}\n")


def _guarded(application: Callable[[], object]) -> int | str | None:
    code: int | str | None
    try:
        application()
        code = EXIT_FINISHED
    except SystemExit as end:
        code = end.code
    except KeyboardInterrupt:
        complain("interrupted")
        code = EXIT_INTERRUPTED
    except BrokenPipeError:
        code = _leave_pipe()
    except EvoPolicyGymError as error:
        _explain(error, str(error))
        code = EXIT_USAGE if isinstance(error, _USAGE_ERRORS) else EXIT_ENDED_OTHERWISE
    except OSError as error:  # a full disk, a file that may not be read
        code = _explain_system_error(error)
    except MemoryError as error:
        _explain(error, "there is not enough memory, or a limit on it is too low (ulimit -v)")
        code = EXIT_ENDED_OTHERWISE
    except Exception as error:  # noqa: BLE001  # the last line of defence: a user is told what happened
        if str(error) == "can't start new thread":
            message = f"{error}: a limit on processes or memory is too low (ulimit -u, ulimit -v)"
        else:
            message = f"{type(error).__name__}: {error}\nThis is a bug or a broken installation; --debug shows where"
        _explain(error, message)
        code = EXIT_ENDED_OTHERWISE
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        code = _leave_pipe()
    except OSError as error:
        code = _explain_system_error(error)
    return code


def _explain(error: BaseException, message: str) -> None:
    if _debug:
        traceback.print_exception(error)
    complain(message)


def _leave_pipe() -> int:
    lead_nowhere(1)
    return EXIT_READER_GONE


def _explain_system_error(error: OSError) -> int:
    where = error.filename or ("the working directory" if _is_nowhere() else "")
    _explain(error, f"{error.strerror or error}" + (f": {where}" if where else ""))
    if error.filename == STANDARD_OUTPUT:
        lead_nowhere(1)  # it is flushed once more
    return EXIT_ENDED_OTHERWISE


def _is_nowhere() -> bool:
    try:
        os.getcwd()  # noqa: PTH109  # only whether there is one
    except OSError:
        return True
    return False
