"""A model server on loopback that says what a script says: Agents can be tried without an account and at no cost.

It speaks just enough of three protocols, each streamed: OpenAI's Responses (``…/responses``, Codex), Anthropic's
Messages (``…/messages``, Claude Code) and OpenAI's chat completions (``…/chat/completions``, Kimi Code).
"""

import json
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Literal, Self, TypeAlias

__all__ = ["Fault", "ScriptedModel", "Step", "Tokens"]

Fault: TypeAlias = Literal["401", "403", "429", "quota", "500", "529", "cut", "silence"]
"""An HTTP status, a used-up quota (429 with a code), a stream cut in the middle, or no answer at all."""

HANG_SECONDS = 600.0
"""How long ``"silence"`` lasts, unless the server is closed before."""

_SHELL_TOOLS = ("exec_command", "shell_command", "shell", "exec", "Bash", "Shell")
_MODEL = "scripted-model"


@dataclass(frozen=True, slots=True)
class Step:
    """What the model says in one answer.

    Args:
        text: Words for people.
        shell: A command for the shell tool; None ends the work.
        reasoning: A summary of its thoughts.
    """

    text: str = ""
    shell: str | None = None
    reasoning: str = ""


@dataclass(frozen=True, slots=True)
class Tokens:
    """What one answer is said to have cost: ``read`` includes ``cached``."""

    read: int = 1000
    cached: int = 200
    written: int = 50


@dataclass(slots=True)
class _Said:
    """What the server remembers."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    answers: list[Tokens] = field(default_factory=list)
    requests: list[tuple[str, Mapping[str, object]]] = field(default_factory=list)


class ScriptedModel:
    """The server; a context manager.

    It keeps no state of a conversation: the step is the number of tool results that the request shows, so a retry gets
    the same step again.

    Args:
        steps: What it says; the last step is said again and again.
        fault: What goes wrong with every request.
        retry_after: Seconds of a ``Retry-After`` header beside a 429.
    """

    def __init__(self, steps: Sequence[Step], *, fault: Fault | None = None, retry_after: int | None = None) -> None:
        self._said = _Said()
        self._closing = threading.Event()
        handler = type("Handler", (_Handler,), {"model": self})
        self._server = _Server(("127.0.0.1", 0), handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self.steps = tuple(steps)
        self.fault = fault
        self.retry_after = retry_after

    @property
    def url(self) -> str:
        """``http://127.0.0.1:port``; the protocols of OpenAI are found below ``/v1`` too."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def answers(self) -> tuple[Tokens, ...]:
        """What the whole answers so far were said to have cost."""
        with self._said.lock:
            return tuple(self._said.answers)

    @property
    def requests(self) -> tuple[tuple[str, Mapping[str, object]], ...]:
        """Path and body of every request for an answer."""
        with self._said.lock:
            return tuple(self._said.requests)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def note_request(self, path: str, body: Mapping[str, object]) -> None:
        """Remember a request."""
        with self._said.lock:
            self._said.requests.append((path, body))

    def note_answer(self, tokens: Tokens) -> None:
        """Remember an answer that was sent whole."""
        with self._said.lock:
            self._said.answers.append(tokens)

    def wait_silently(self) -> None:
        """Say nothing until the server is closed."""
        self._closing.wait(HANG_SECONDS)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """An Agent that is ended hangs up in the middle; anything else is worth a traceback."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]  # as it was called


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    model: ScriptedModel

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the name of the base class
        """Say nothing on standard error."""

    def do_HEAD(self) -> None:
        self._answer(200, {})

    def do_GET(self) -> None:
        if self._path().endswith("/models"):
            entry = {"id": _MODEL, "object": "model", "created": 0, "owned_by": "script", "context_length": 262144}
            self._answer(200, {"object": "list", "data": [entry], "models": []})
        else:
            self._answer(404, {"error": {"message": "the script has no such page", "type": "not_found_error"}})

    def do_POST(self) -> None:
        path, raw = self._path(), self._body()
        protocols = (("/responses", _Responses), ("/messages", _Messages), ("/chat/completions", _Chat))
        protocol = next((made for end, made in protocols if path.endswith(end)), None)
        if path.endswith("/count_tokens"):
            self._answer(200, {"input_tokens": Tokens().read})
        elif protocol is None:
            self._answer(404, {"error": {"message": "the script has no such page", "type": "not_found_error"}})
        else:
            request = json.loads(raw)
            self.model.note_request(path, request)
            try:
                self._speak(protocol(request, self.model.steps))
            except ConnectionError:
                pass  # the Agent is gone

    def _speak(self, answer: "_Responses | _Messages | _Chat") -> None:
        fault = self.model.fault
        if fault == "silence":
            self.model.wait_silently()
        elif fault is not None and fault != "cut":
            status = 429 if fault == "quota" else int(fault)
            wait = self.model.retry_after
            headers = {"retry-after": str(wait)} if status == 429 and wait is not None else {}
            self._answer(status, answer.failure(status, quota=fault == "quota"), headers)
        elif not answer.streamed:
            self._answer(200, answer.whole())
            self.model.note_answer(Tokens())
        else:
            self._stream(answer.events(), cut=fault == "cut")

    def _stream(self, events: Sequence[tuple[str | None, object]], *, cut: bool) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        for name, data in events[:1] if cut else events:
            head = f"event: {name}\n" if name else ""
            text = data if isinstance(data, str) else json.dumps(data)
            self.wfile.write(f"{head}data: {text}\n\n".encode())
            self.wfile.flush()
        if not cut:
            self.model.note_answer(Tokens())

    def _path(self) -> str:
        return self.path.partition("?")[0]

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        pieces = []
        while size := int(self.rfile.readline().partition(b";")[0], 16):
            pieces.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(pieces)

    def _answer(self, status: int, value: object, headers: Mapping[str, str] | None = None) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        for name, text in {
            "Content-Type": "application/json",
            "Content-Length": str(len(body)),
            **(headers or {}),
        }.items():
            self.send_header(name, text)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


_Request: TypeAlias = Mapping[str, object]
_Events: TypeAlias = list[tuple[str | None, object]]


def _objects(value: object) -> list[dict[str, object]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _choose(steps: Sequence[Step], results: int, tools: Sequence[str]) -> tuple[Step, str]:
    """The step, and the tool that runs its command; a request without any such tool (for a title, say) gets a word."""
    tool = next((name for name in _SHELL_TOOLS if name in tools), "")
    step = steps[min(results, len(steps) - 1)]
    return (step, tool) if tool or step.shell is None else (Step("ok"), "")


def _openai_failure(status: int, *, quota: bool) -> object:
    kinds = {401: ("invalid_request_error", "invalid_api_key"), 429: ("requests", "rate_limit_exceeded")}
    kind, code = ("insufficient_quota",) * 2 if quota else kinds.get(status, ("server_error", None))
    return {"error": {"message": f"scripted {status}", "type": kind, "code": code, "param": None}}


class _Responses:
    """OpenAI's Responses."""

    streamed = True

    def __init__(self, request: _Request, steps: Sequence[Step]) -> None:
        items = _objects(request.get("input"))
        results = sum(1 for item in items if str(item.get("type", "")).endswith("_output"))
        self._namespaces: dict[str, object] = {}
        self._step, self._tool = _choose(steps, results, self._tools(request, items))
        self._call = f"call_{time.time_ns()}"

    def _tools(self, request: _Request, items: list[dict[str, object]]) -> list[str]:
        """Models of the "code mode" family get their tools in the input, some of them in namespaces."""
        offered = _objects(request.get("tools"))
        for item in items:
            if item.get("type") == "additional_tools":
                offered += _objects(item.get("tools"))
        names = []
        for tool in offered:
            nested = _objects(tool.get("tools")) if tool.get("type") == "namespace" else []
            for each in nested or [tool]:
                names.append(str(each.get("name") or each.get("type")))
                if nested:
                    self._namespaces[names[-1]] = tool.get("name")
        return names

    def failure(self, status: int, *, quota: bool) -> object:
        """The body of an error."""
        return _openai_failure(status, quota=quota)

    def whole(self) -> object:
        """The answer in one piece."""
        return self._response("completed", self._items())

    def events(self) -> _Events:
        """The answer as a stream."""
        events: _Events = [
            ("response.created", {"type": "response.created", "response": self._response("in_progress", [])})
        ]
        items = self._items()
        for index, item in enumerate(items):
            for kind in ("added", "done"):
                name = f"response.output_item.{kind}"
                events.append((name, {"type": name, "output_index": index, "item": item}))
        events.append(
            ("response.completed", {"type": "response.completed", "response": self._response("completed", items)})
        )
        return events

    def _items(self) -> list[dict[str, object]]:
        items: list[dict[str, object]] = []
        if self._step.reasoning:
            summary = [{"type": "summary_text", "text": self._step.reasoning}]
            items.append({"type": "reasoning", "id": f"rs_{self._call}", "summary": summary})
        if self._step.text:
            content = [{"type": "output_text", "text": self._step.text, "annotations": []}]
            items.append({"type": "message", "id": f"msg_{self._call}", "role": "assistant", "content": content})
        if self._step.shell is not None:
            items.append(self._command(self._step.shell))
        return items

    def _command(self, command: str) -> dict[str, object]:
        item: dict[str, object] = {"call_id": self._call, "name": self._tool, "status": "completed"}
        if self._tool == "exec":  # code mode: a program in JavaScript
            asked = json.dumps({"cmd": command, "yield_time_ms": 30000})
            code = f"const r = await tools.exec_command({asked}); text(r.output ?? JSON.stringify(r));"
            item |= {"type": "custom_tool_call", "id": f"ctc_{self._call}", "input": code}
        else:
            arguments: dict[str, object] = {"command": ["bash", "-lc", command]}
            if self._tool == "exec_command":
                arguments = {"cmd": command, "yield_time_ms": 30000}
            elif self._tool == "shell_command":
                arguments = {"command": command}
            item |= {"type": "function_call", "id": f"fc_{self._call}", "arguments": json.dumps(arguments)}
        if self._tool in self._namespaces:
            item["namespace"] = self._namespaces[self._tool]
        return item

    def _response(self, status: str, items: list[dict[str, object]]) -> dict[str, object]:
        tokens = Tokens()
        response: dict[str, object] = {"id": f"resp_{self._call}", "object": "response", "created_at": int(time.time())}
        response |= {"model": _MODEL, "status": status, "output": items}
        if status == "completed":
            response["usage"] = {
                "input_tokens": tokens.read,
                "input_tokens_details": {"cached_tokens": tokens.cached},
                "output_tokens": tokens.written,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": tokens.read + tokens.written,
            }
        return response


class _Messages:
    """Anthropic's Messages."""

    def __init__(self, request: _Request, steps: Sequence[Step]) -> None:
        self.streamed = request.get("stream") is True
        blocks = [block for message in _objects(request.get("messages")) for block in _objects(message.get("content"))]
        results = sum(1 for block in blocks if block.get("type") == "tool_result")
        tools = [str(tool.get("name")) for tool in _objects(request.get("tools"))]
        self._step, self._tool = _choose(steps, results, tools)
        self._name = f"{time.time_ns()}"
        self._model = request.get("model")

    def failure(self, status: int, *, quota: bool) -> object:
        """The body of an error."""
        del quota
        kinds = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error", 529: "overloaded_error"}
        error = {"type": kinds.get(status, "api_error"), "message": f"scripted {status}"}
        return {"type": "error", "error": error, "request_id": "req_script"}

    def whole(self) -> object:
        """The answer in one piece."""
        return self._message(Tokens().written) | {"content": self._blocks(), "stop_reason": self._stop()}

    def events(self) -> _Events:
        """The answer as a stream."""
        events: list[dict[str, object]] = [{"type": "message_start", "message": self._message(1)}]
        for index, block in enumerate(self._blocks()):
            empty, delta = self._opened(block)
            events.append({"type": "content_block_start", "index": index, "content_block": empty})
            events.append({"type": "content_block_delta", "index": index, "delta": delta})
            events.append({"type": "content_block_stop", "index": index})
        stop = {"stop_reason": self._stop(), "stop_sequence": None}
        events.append({"type": "message_delta", "delta": stop, "usage": self._usage(Tokens().written)})
        events.append({"type": "message_stop"})
        return [(str(event["type"]), event) for event in events]

    def _opened(self, block: dict[str, object]) -> tuple[dict[str, object], dict[str, object]]:
        kind = block["type"]
        if kind == "tool_use":
            return block | {"input": {}}, {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        name = str(kind)
        return block | {name: ""}, {"type": f"{name}_delta", name: block[name]}

    def _blocks(self) -> list[dict[str, object]]:
        blocks: list[dict[str, object]] = []
        if self._step.reasoning:
            blocks.append({"type": "thinking", "thinking": self._step.reasoning, "signature": "c2NyaXB0"})
        if self._step.text:
            blocks.append({"type": "text", "text": self._step.text})
        if self._step.shell is not None:
            asked = {"command": self._step.shell, "description": "a step of the script", "timeout": 120000}
            blocks.append({"type": "tool_use", "id": f"toolu_{self._name}", "name": self._tool, "input": asked})
        return blocks

    def _stop(self) -> str:
        return "end_turn" if self._step.shell is None else "tool_use"

    def _message(self, written: int) -> dict[str, object]:
        message: dict[str, object] = {"id": f"msg_{self._name}", "type": "message", "role": "assistant", "content": []}
        message |= {"model": self._model, "stop_reason": None, "stop_sequence": None}
        return message | {"usage": self._usage(written)}

    def _usage(self, written: int) -> dict[str, int]:
        tokens = Tokens()
        fresh = tokens.read - tokens.cached
        return {
            "input_tokens": fresh,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": tokens.cached,
            "output_tokens": written,
        }


class _Chat:
    """OpenAI's chat completions."""

    def __init__(self, request: _Request, steps: Sequence[Step]) -> None:
        self.streamed = request.get("stream") is True
        results = sum(1 for message in _objects(request.get("messages")) if message.get("role") == "tool")
        functions = [tool.get("function") for tool in _objects(request.get("tools"))]
        tools = [str(function.get("name")) for function in functions if isinstance(function, dict)]
        self._step, self._tool = _choose(steps, results, tools)
        self._head: dict[str, object] = {
            "id": f"chatcmpl-{time.time_ns()}",
            "created": int(time.time()),
            "model": _MODEL,
        }

    def failure(self, status: int, *, quota: bool) -> object:
        """The body of an error."""
        return _openai_failure(status, quota=quota)

    def whole(self) -> object:
        """The answer in one piece."""
        message: dict[str, object] = {"role": "assistant", "content": self._step.text}
        if self._step.shell is not None:
            message["tool_calls"] = self._calls(self._step.shell)
        choice = {"index": 0, "message": message, "finish_reason": self._stop()}
        return self._head | {"object": "chat.completion", "choices": [choice], "usage": self._usage()}

    def events(self) -> _Events:
        """The answer as a stream."""
        deltas: list[dict[str, object]] = [{"role": "assistant", "content": ""}]
        if self._step.reasoning:
            deltas.append({"reasoning_content": self._step.reasoning})
        if self._step.text:
            deltas.append({"content": self._step.text})
        if self._step.shell is not None:
            deltas.append({"tool_calls": self._calls(self._step.shell)})
        events = [self._chunk([{"index": 0, "delta": delta, "finish_reason": None}]) for delta in deltas]
        events.append(self._chunk([{"index": 0, "delta": {}, "finish_reason": self._stop()}]))
        events.append(self._chunk([]) | {"usage": self._usage()})
        return [*((None, event) for event in events), (None, "[DONE]")]

    def _chunk(self, choices: list[dict[str, object]]) -> dict[str, object]:
        return self._head | {"object": "chat.completion.chunk", "choices": choices}

    def _calls(self, command: str) -> list[dict[str, object]]:
        function = {"name": self._tool, "arguments": json.dumps({"command": command, "timeout": 120})}
        return [{"index": 0, "id": f"call_{time.time_ns()}", "type": "function", "function": function}]

    def _stop(self) -> str:
        return "stop" if self._step.shell is None else "tool_calls"

    def _usage(self) -> dict[str, object]:
        tokens = Tokens()
        return {
            "prompt_tokens": tokens.read,
            "completion_tokens": tokens.written,
            "total_tokens": tokens.read + tokens.written,
            "cached_tokens": tokens.cached,
            "prompt_tokens_details": {"cached_tokens": tokens.cached},
        }
