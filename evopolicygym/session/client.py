"""The Agent's command ``evopolicygym-session``: one request to the Host, one line of JSON back.

This file stands alone: the standard library only, nothing of this package, so that a sandbox can hand out this
one file and run it with ``python -I``. Agents call it dozens of times, so it starts fast.
"""

import json
import os
import socket
import sys

PROTOCOL = 1
MAX_LINE_BYTES = 1024 * 1024
SOCKET_VARIABLE = "EVOPOLICYGYM_SESSION_SOCKET"
WORKSPACE_VARIABLE = "EVOPOLICYGYM_WORKSPACE"

EXIT_OK = 0
EXIT_REFUSED = 1
EXIT_ERROR = 2
EXIT_INTERRUPTED = 130

# What sun_path holds on every system that we run on, its closing zero byte left out.
_SOCKET_PATH_BYTES = 100
_READ_BYTES = 65536

_HELP = """\
usage: evopolicygym-session COMMAND ...

Talks to the Host of this Run. Every answer is one line of JSON: on stdout with exit code 0 if the request was
carried out; on stderr with exit code 1 if the Host refused it (nothing was charged), 2 if the command was
written wrongly or the Host cannot be reached.

commands:
  submit program --episodes SELECTOR [--no-wait]
                           evaluate the Program on Episodes of the pool; charges one unit of budget an Episode
  status                   what is left (Episodes, Submissions, seconds), what runs, what is published
  wait [SUBMISSION]        wait for a Submission (default: the running one), then answer as submit does
  finish SUBMISSION ...    hand off the named Submissions, best first, and end the Run's Agent phase

'evopolicygym-session COMMAND --help' tells more.
"""

_COMMAND_HELP = {
    "submit": """\
usage: evopolicygym-session submit program --episodes SELECTOR [--no-wait]

Captures the directory 'program' of the workspace, reserves one unit of budget for each Episode, evaluates, and
answers with the score, what is left, and the path of feedback.json.

  program                  the workspace's program directory, nothing else; run this in the workspace
  --episodes SELECTOR      indices of the pool: comma-separated items, each an index (3) or a half-open range
                           (0:4 is 0, 1, 2, 3), increasing, without blanks; for example "0:2,4:8"
  --no-wait                answer as soon as the Program is captured and the budget is reserved; 'wait' gives
                           the result later

If this command is killed while it waits, the Evaluation goes on: find it again with 'status' and 'wait'.
""",
    "status": """\
usage: evopolicygym-session status

Answers with the limits of the Run, what is left of them, the running Submission and the published ones.
""",
    "wait": """\
usage: evopolicygym-session wait [SUBMISSION]

Waits until the Submission (default: the running one, else the newest) is published or has failed, and answers
as 'submit' does. Asking for one that is published already answers at once.

  SUBMISSION               an id such as submission-000002
""",
    "finish": """\
usage: evopolicygym-session finish SUBMISSION [SUBMISSION ...]

Hands off the named published Submissions, in order of preference, and closes the Session: nothing can be
submitted afterwards. 'status' tells how many may be named (max_candidates).

  SUBMISSION               an id such as submission-000002
""",
}


class ClientError(Exception):
    """The command is written wrongly (``usage``) or the Host cannot be reached (``connection``)."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def main(argv: list[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: the arguments after the command's name; None takes those of the process.

    Returns:
        the exit code: 0 carried out, 1 refused by the Host, 2 usage or connection error, 130 interrupted.
    """
    arguments = sys.argv[1:] if argv is None else argv
    try:
        text = _help_text(arguments)
        if text is not None:
            return _write(1, text, EXIT_OK)
        request = _request(arguments)
        line, ok = _ask(request)
    except ClientError as error:
        return _write(2, _error_line(error.code, error.message), EXIT_ERROR)
    except KeyboardInterrupt:
        message = "interrupted; an Evaluation that was started goes on: ask with status or wait"
        return _write(2, _error_line("interrupted", message), EXIT_INTERRUPTED)
    return _write(1, line, EXIT_OK) if ok else _write(2, line, EXIT_REFUSED)


def _help_text(arguments: list[str]) -> str | None:
    """The help that was asked for; the value of ``--episodes`` is never taken for it."""
    if not arguments:
        return None
    if arguments[0] in ("-h", "--help", "help"):
        return _HELP
    asked = any(
        argument in ("-h", "--help") and arguments[before] != "--episodes"
        for before, argument in enumerate(arguments[1:])
    )
    return _COMMAND_HELP.get(arguments[0]) if asked else None


def _request(arguments: list[str]) -> dict[str, object]:
    if not arguments:
        raise _usage("no command is given")
    command, rest = arguments[0], arguments[1:]
    if command == "submit":
        return _submit_request(rest)
    if command not in _COMMAND_HELP:
        raise _usage(f"{command!r} is no command")
    _refuse_options(command, rest)
    if command == "status":
        if rest:
            raise _usage(f"status takes no argument, found {rest[0]!r}", command)
        return {"command": command}
    if command == "wait":
        if len(rest) > 1:
            raise _usage(f"wait takes one Submission at most, found {len(rest)}", command)
        return {"command": command, "submission_id": rest[0] if rest else None}
    if not rest:
        raise _usage("finish needs the id of at least one published Submission", command)
    return {"command": command, "submission_ids": rest}


def _submit_request(arguments: list[str]) -> dict[str, object]:
    paths: list[str] = []
    selectors: list[str] = []
    wait = True
    words = iter(arguments)
    for word in words:
        if word == "--episodes":
            value = next(words, None)
            if value is None:
                raise _usage("--episodes needs a selector after it", "submit")
            selectors.append(value)
        elif word.startswith("--episodes="):
            selectors.append(word.partition("=")[2])
        elif word == "--no-wait":
            wait = False
        elif word.startswith("-"):
            raise _usage(f"submit has no option {word!r}", "submit")
        else:
            paths.append(word)
    if len(paths) != 1:
        raise _usage(f"submit takes one directory, program; found {len(paths)}", "submit")
    if len(selectors) != 1:
        raise _usage(f"submit needs --episodes SELECTOR once; found it {len(selectors)} times", "submit")
    try:
        resolved = os.path.realpath(paths[0])
    except OSError as error:
        raise _usage(f"{paths[0]!r} cannot be resolved ({error}); run this in the workspace", "submit") from None
    return {
        "command": "submit",
        "program": paths[0],
        "resolved_program": resolved,
        "episodes": selectors[0],
        "wait": wait,
    }


def _refuse_options(command: str, arguments: list[str]) -> None:
    for argument in arguments:
        if argument.startswith("-"):
            raise _usage(f"{command} has no option {argument!r}", command)


def _usage(message: str, command: str | None = None) -> ClientError:
    if command is None:
        return ClientError("usage", f"{message}; use submit, status, wait or finish (--help explains them)")
    form = _COMMAND_HELP[command].partition("\n")[0].removeprefix("usage: ")
    return ClientError("usage", f"{message}; use: {form}")


def _absolute_path(variable: str) -> str:
    value = os.environ.get(variable, "")
    if not value.startswith("/"):
        found = f"is {value!r}, not an absolute path" if value else "is not set"
        raise ClientError("usage", f"{variable} {found}; this command works only in a process that a Run has started")
    return value


def _ask(request: dict[str, object]) -> tuple[str, bool]:
    """Send the request and wait for the answer, however long the Host needs."""
    path = _absolute_path(SOCKET_VARIABLE)
    _absolute_path(WORKSPACE_VARIABLE)
    sent = json.dumps({"protocol": PROTOCOL, **request}).encode() + b"\n"
    if len(sent) > MAX_LINE_BYTES:
        raise ClientError("usage", f"the request has {len(sent)} bytes; at most {MAX_LINE_BYTES} can be sent")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        try:
            _connect(connection, path)
        except OSError as error:
            raise ClientError(
                "connection",
                f"no Host answers at {path} ({error.strerror or error}); the Run is over or its Host is gone, "
                "and nothing can be submitted any more",
            ) from None
        try:
            connection.sendall(sent)
        except OSError:
            pass  # the Host may have answered before it had read everything; the answer tells why
        line = _receive_line(connection)
    return line, _is_success(line)


def _connect(connection: socket.socket, path: str) -> None:
    if len(os.fsencode(path)) > _SOCKET_PATH_BYTES:
        folder, path = os.path.split(path)
        os.chdir(folder)
    connection.connect(path)


def _receive_line(connection: socket.socket) -> str:
    received = bytearray()
    while not received.endswith(b"\n"):
        try:
            chunk = connection.recv(_READ_BYTES)
        except OSError:
            chunk = b""
        if not chunk:
            raise ClientError(
                "connection",
                "the Host closed the connection before it answered; ask with status what became of the request",
            )
        received += chunk
        if len(received) > MAX_LINE_BYTES:
            raise ClientError("connection", f"the answer is longer than {MAX_LINE_BYTES} bytes")
    return received.decode("utf-8", "backslashreplace")


def _is_success(line: str) -> bool:
    try:
        answer = json.loads(line)
    except ValueError:
        answer = None
    if not isinstance(answer, dict) or not isinstance(answer.get("ok"), bool):
        raise ClientError("connection", f"what listens at ${SOCKET_VARIABLE} does not speak as a Host does")
    return answer["ok"] is True


def _error_line(code: str, message: str) -> str:
    return json.dumps({"ok": False, "error": {"code": code, "message": message}}) + "\n"


def _write(descriptor: int, text: str, exit_code: int) -> int:
    """Write to the descriptor itself: whole, and without a traceback if nobody reads any more."""
    data = text.encode("utf-8", "backslashreplace")
    try:
        while data:
            data = data[os.write(descriptor, data) :]
    except OSError:
        return exit_code or EXIT_ERROR
    return exit_code


if __name__ == "__main__":
    sys.exit(main())
