"""What a person sees of a chat."""

from __future__ import annotations

import io
import json

import pytest

from zerolayer.client.errors import Refused
from zerolayer.client.terminal import ChatOptions, chat


class Screen(io.StringIO):
    """A standard output that is a terminal."""

    def isatty(self) -> bool:
        return True


def test_an_answer_is_printed_and_ends_its_line(scripted, http, capsys: pytest.CaptureFixture[str]) -> None:
    assert chat(ChatOptions(scripted(http.models, http.hello).url, "Hi")) == 0
    assert capsys.readouterr().out == "Hello é\n"


def test_json_is_one_object_with_a_version(scripted, http, capsys: pytest.CaptureFixture[str]) -> None:
    chat(ChatOptions(scripted(http.models, http.hello).url, "Hi", json=True))
    printed = json.loads(capsys.readouterr().out)
    assert printed == {
        "version": 1,
        "text": "Hello é",
        "model": "smollm2",
        "finish_reason": "stop",
        "prompt_tokens": 7,
        "completion_tokens": 2,
        "stages_us": {"read": 3},
        "program": "greedy",
        "cached_tokens": 0,
    }


def test_a_system_message_comes_first(scripted, http) -> None:
    server = scripted(http.models, http.hello)
    chat(ChatOptions(server.url, "Hi", system="Be brief."))
    body = json.loads(server.requests[1].partition(b"\r\n\r\n")[2])
    assert [message["role"] for message in body["messages"]] == ["system", "user"]


def test_an_answer_cut_at_the_limit_says_so(scripted, http, capsys: pytest.CaptureFixture[str]) -> None:
    event = b'data: {"choices":[{"delta":{},"finish_reason":"length"}]}\n\n'
    chat(ChatOptions(scripted(http.models, http.chunked(event, b"data: [DONE]\n\n")).url, "Hi"))
    assert "--max-tokens" in capsys.readouterr().err


def test_a_model_cannot_steer_a_terminal(scripted, http, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen()
    monkeypatch.setattr("sys.stdout", screen)
    event = json.dumps({"choices": [{"delta": {"content": "a\x1b[31m\x07\x9b2J\tb\n"}}]}).encode()
    reply = http.chunked(b"data: " + event + b"\n\n", b"data: [DONE]\n\n")
    chat(ChatOptions(scripted(http.models, reply).url, "Hi"))
    assert screen.getvalue() == "a\ufffd[31m\ufffd\ufffd2J\tb\n\n"


def test_a_conversation_carries_all_that_was_said(scripted, http, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    server = scripted(http.models, http.hello, http.hello)
    monkeypatch.setattr("sys.stdin", io.StringIO("Hi\n\nAgain\n"))
    assert chat(ChatOptions(server.url)) == 0
    body = json.loads(server.requests[2].partition(b"\r\n\r\n")[2])
    assert [message["content"] for message in body["messages"]] == ["Hi", "Hello é", "Again"]
    assert capsys.readouterr().out == "Hello é\nHello é\n"


def test_an_error_ends_one_answer_and_not_the_conversation(scripted, http, monkeypatch, capsys) -> None:
    failed = http.whole("500 Internal Server Error", b'{"error":{"message":"A step failed."}}')
    server = scripted(http.models, failed, http.hello)
    monkeypatch.setattr("sys.stdin", io.StringIO("Hi\nAgain\n"))
    assert chat(ChatOptions(server.url)) == 0
    printed = capsys.readouterr()
    assert "A step failed." in printed.err
    assert printed.out == "Hello é\n"
    body = json.loads(server.requests[2].partition(b"\r\n\r\n")[2])
    assert [message["content"] for message in body["messages"]] == ["Again"]


def test_waiting_for_a_slot_is_told(scripted, http, capsys: pytest.CaptureFixture[str]) -> None:
    busy = http.busy.replace(b"retry-after-ms: 120", b"retry-after-ms: 1")
    chat(ChatOptions(scripted(http.models, busy, http.hello).url, "Hi"))
    assert "all slots busy, starting in 1 ms" in capsys.readouterr().err


def test_a_refusal_of_a_single_question_is_raised_for_the_command_to_tell(scripted, http) -> None:
    failed = http.whole("400 Bad Request", b'{"error":{"message":"max_tokens is 0."}}')
    with pytest.raises(Refused, match="max_tokens is 0"):
        chat(ChatOptions(scripted(http.models, failed).url, "Hi", max_tokens=0))


def test_text_that_the_screen_cannot_show_is_replaced(scripted, http, capsys: pytest.CaptureFixture[str]) -> None:
    event = b'data: {"choices":[{"delta":{"content":"a\\ud83d"}}]}\n\n'
    chat(ChatOptions(scripted(http.models, http.chunked(event, b"data: [DONE]\n\n")).url, "Hi"))
    assert capsys.readouterr().out == "a?\n"
