import json
import urllib.error
import urllib.request

import pytest

from evopolicygym.agents.scripted_model import ScriptedModel, Step, Tokens

STEPS = (Step(text="first", shell="uname"), Step(text="done"))
SHELLS = {
    "/v1/responses": {"tools": [{"type": "function", "name": "exec_command"}]},
    "/v1/messages": {"tools": [{"name": "Bash"}], "stream": True},
    "/v1/chat/completions": {"tools": [{"type": "function", "function": {"name": "Bash"}}], "stream": True},
}
RESULTS = {
    "/v1/responses": {"input": [{"type": "function_call_output"}]},
    "/v1/messages": {"messages": [{"content": [{"type": "tool_result"}]}]},
    "/v1/chat/completions": {"messages": [{"role": "tool"}]},
}


def ask(model, path, body):
    request = urllib.request.Request(f"{model.url}{path}", json.dumps(body).encode())
    with urllib.request.urlopen(request) as answer:
        return answer.read().decode()


@pytest.mark.parametrize("path", SHELLS)
def test_the_script_goes_on_with_the_results_that_a_request_shows(path):
    with ScriptedModel(STEPS) as model:
        assert "first" in ask(model, path, SHELLS[path])
        assert "first" in ask(model, path, SHELLS[path])
        assert "done" in ask(model, path, SHELLS[path] | RESULTS[path])
        assert model.answers == (Tokens(),) * 3
        assert [asked for asked, _ in model.requests] == [path] * 3


@pytest.mark.parametrize("path", SHELLS)
def test_a_request_without_a_shell_gets_a_word_and_no_command(path):
    with ScriptedModel(STEPS) as model:
        answer = ask(model, path, {"stream": True})
    assert "ok" in answer
    assert "uname" not in answer


@pytest.mark.parametrize(("fault", "status"), [("401", 401), ("429", 429), ("quota", 429), ("529", 529)])
def test_a_fault_answers_every_request(fault, status):
    with ScriptedModel(STEPS, fault=fault, retry_after=5) as model:
        for path in SHELLS:
            with pytest.raises(urllib.error.HTTPError) as refused:
                ask(model, path, SHELLS[path])
            assert refused.value.code == status
            assert refused.value.headers.get("retry-after") == ("5" if status == 429 else None)
            refused.value.close()
        assert model.answers == ()


def test_silence_ends_with_the_server():
    with ScriptedModel(STEPS, fault="silence") as model:
        request = urllib.request.Request(f"{model.url}/v1/messages", b"{}")
        with pytest.raises(TimeoutError):
            urllib.request.urlopen(request, timeout=0.2)
