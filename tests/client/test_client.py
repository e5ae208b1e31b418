"""The client against a server that answers byte for byte what a test says."""

from __future__ import annotations

import json
import socket

import pytest

from zerolayer import Client
from zerolayer.client.errors import BadReply, ClientError, CutStream, InvalidAddress, NotReachable, Refused
from zerolayer.client.retry import RetryPolicy
from zerolayer.client.service import Clocks

HI = [{"role": "user", "content": "Hi"}]


class FakeTime:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.slept: list[float] = []

    @property
    def clocks(self) -> Clocks:
        return Clocks(lambda: self.now_ns, lambda: self.now_ns, self.sleep)

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now_ns += int(seconds * 1e9)


def test_an_answer_arrives_as_pieces_of_text_and_an_outcome(scripted, http) -> None:
    stream = Client(scripted(http.models, http.hello).url).chat(HI)
    assert list(stream) == ["Hel", "lo é"]
    outcome = stream.outcome
    assert outcome is not None
    assert (outcome.model, outcome.finish_reason) == ("smollm2", "stop")
    assert (outcome.prompt_tokens, outcome.completion_tokens) == (7, 2)
    assert (outcome.stages_us, outcome.program) == ({"read": 3}, "greedy")


def test_the_outcome_is_not_there_before_the_end(scripted, http) -> None:
    with Client(scripted(http.models, http.hello).url).chat(HI) as stream:
        assert next(stream) == "Hel"
        assert stream.outcome is None


def test_the_request_is_what_the_api_wants(scripted, http) -> None:
    server = scripted(http.hello)
    list(Client(server.url + "/v1/").chat(HI, model="m", max_tokens=5, temperature=0.0))
    head, _, body = server.requests[0].partition(b"\r\n\r\n")
    assert head.startswith(b"POST /v1/chat/completions HTTP/1.1\r\n")
    assert json.loads(body) == {
        "model": "m",
        "messages": HI,
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": 5,
        "temperature": 0.0,
    }


def test_an_option_that_there_is_not_is_refused_before_anything_is_asked(scripted) -> None:
    with pytest.raises(TypeError, match=r"'max_token'.*max_tokens"):
        Client(scripted().url).chat(HI, max_token=5)
    with pytest.raises(TypeError, match=r"'timeout'.*timeout_s"):
        Client(timeout=5)


def test_the_first_model_is_asked_for_once_and_used(scripted, http) -> None:
    server = scripted(http.models, http.hello, http.hello)
    client = Client(server.url)
    list(client.chat(HI))
    list(client.chat(HI))
    assert [request.split(b" ")[0] for request in server.requests] == [b"GET", b"POST", b"POST"]
    assert b'"model": "smollm2"' in server.requests[2]


def test_a_busy_server_is_asked_again_at_the_promised_millisecond_with_the_same_bytes(scripted, http) -> None:
    server, time, told = scripted(http.busy, http.busy, http.hello), FakeTime(), []
    client = Client(server.url, clocks=time.clocks, on_wait=told.append)
    assert "".join(client.chat(HI, model="m")) == "Hello é"
    assert time.slept == [0.12, 0.12]
    assert told == [120, 120]
    bodies = [request.partition(b"\r\n\r\n")[2] for request in server.requests]
    assert bodies[0] == bodies[1] == bodies[2]
    assert [b"x-zl-ticket: t1" in request for request in server.requests] == [False, True, True]


def test_waits_end_with_the_retry_budget(scripted, http) -> None:
    time = FakeTime()
    client = Client(scripted(http.busy, http.busy, http.busy).url, retry_budget_ms=300, clocks=time.clocks)
    with pytest.raises(Refused) as caught:
        client.chat(HI, model="m")
    assert time.slept == [0.12, 0.12]
    assert (caught.value.status_code, caught.value.error_code) == (429, "slots_busy")
    assert (caught.value.message, caught.value.retry_after_ms) == ("All slots are busy.", 120)


def test_a_refusal_that_forbids_a_retry_is_not_retried(scripted, http) -> None:
    reply = http.whole("429 Too Many Requests", b"{}", "retry-after-ms: 5", "x-should-retry: false")
    time = FakeTime()
    with pytest.raises(Refused) as caught:
        Client(scripted(reply).url, clocks=time.clocks).chat(HI, model="m")
    assert (caught.value.retry_after_ms, time.slept) == (None, [])


def test_retry_after_in_seconds_is_obeyed_where_milliseconds_are_missing(scripted, http) -> None:
    time = FakeTime()
    reply = http.whole("429 Too Many Requests", b"{}", "retry-after: 2")
    client = Client(scripted(reply, http.hello).url, clocks=time.clocks)
    list(client.chat(HI, model="m"))
    assert 2.0 < time.slept[0] <= 2.05  # a time that nobody booked: spread, as others were told the same


@pytest.mark.parametrize("value", ["x", "-1", "1.5", "9" * 20, "\u00b2"])
def test_a_retry_time_that_is_no_number_is_none(scripted, http, value: str) -> None:
    reply = http.whole("429 Too Many Requests", b"{}").replace(
        b"\r\n\r\n", f"\r\nretry-after-ms: {value}\r\n\r\n".encode()
    )
    with pytest.raises(Refused) as caught:
        Client(scripted(reply).url, retry=RetryPolicy(spare=0)).chat(HI, model="m")
    assert caught.value.retry_after_ms is None


@pytest.mark.parametrize("body", [b"<html>bad gateway</html>", b"", b"[1]", b'{"error": "text"}', b'{"error": {}}'])
def test_an_error_of_another_shape_is_told_by_its_status(scripted, http, body: bytes) -> None:
    with pytest.raises(Refused, match="status 502"):
        Client(scripted(http.whole("502 Bad Gateway", body)).url).chat(HI, model="m")


def test_a_stream_without_its_end_mark_is_not_an_answer(scripted, http) -> None:
    reply = http.chunked(b'data: {"choices":[{"delta":{"content":"Hel"}}]}\n\n')
    stream = Client(scripted(reply).url).chat(HI, model="m")
    assert next(stream) == "Hel"
    with pytest.raises(CutStream, match="without its end mark"):
        next(stream)
    assert stream.outcome is None


def test_a_connection_that_breaks_in_a_stream_is_not_an_answer(scripted, http) -> None:
    reply = http.chunked(b'data: {"choices":[{"delta":{"content":"Hel"}}]}\n\n', end=False)
    stream = Client(scripted(reply).url).chat(HI, model="m")
    assert next(stream) == "Hel"
    with pytest.raises(CutStream, match="broke off"):
        next(stream)


def test_bytes_that_are_damaged_on_their_way_cut_the_answer_and_its_node_is_left_out(scripted, http) -> None:
    text = b'data: {"choices":[{"delta":{"content":"Hel"}}]}\n\n'
    damaged = http.chunked(text, b"data: {\x00\x01", b"\n\n", end=False)
    client = Client(scripted(damaged).url)
    stream = client.chat(HI, model="m")
    assert next(stream) == "Hel"
    with pytest.raises(CutStream, match="damaged"):
        next(stream)
    assert (client.statistics.cut, client._client._service.nodes[client.nodes[0]].failures) == (1, 1)


def test_an_error_inside_a_stream_is_raised(scripted, http) -> None:
    reply = http.chunked(
        b'data: {"choices":[{"delta":{"content":"Hel"}}]}\n\n',
        b'data: {"error":{"message":"A step failed.","type":"server_error","code":"engine_failed"}}\n\n',
    )
    stream = Client(scripted(reply).url).chat(HI, model="m")
    assert next(stream) == "Hel"
    with pytest.raises(Refused, match=r"A step failed\.") as caught:
        next(stream)
    assert caught.value.error_code == "engine_failed"


@pytest.mark.parametrize(
    "event",
    [
        b"{",
        b"[]",
        b'{"choices":[{}]}',
        b'{"choices":[{"delta":{"content":5}}]}',
        b'{"choices":5}',
        b'{"usage":{}}',
        b'{"chmices":[]}',
    ],
)
def test_a_chunk_of_another_shape_is_a_bad_reply(scripted, http, event: bytes) -> None:
    with pytest.raises(BadReply):
        list(Client(scripted(http.chunked(b"data: " + event + b"\n\n")).url).chat(HI, model="m"))


@pytest.mark.parametrize("body", [b"", b"x", b"{}", b'{"data":[]}', b'{"data":[{}]}', b'{"data":5}'])
def test_a_list_of_models_of_another_shape_is_a_bad_reply(scripted, http, body: bytes) -> None:
    with pytest.raises(BadReply):
        Client(scripted(http.whole("200 OK", body)).url).chat(HI)


def test_what_speaks_no_http_is_a_bad_reply(scripted) -> None:
    with pytest.raises(BadReply, match="HTTP"):
        Client(scripted(b"SSH-2.0-OpenSSH\r\n").url).chat(HI, model="m")


def test_nothing_listening_says_how_to_start_a_server() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(NotReachable, match="zerolayer serve"):
        Client(f"http://127.0.0.1:{port}").chat(HI)


@pytest.mark.parametrize(
    "url", ["", "127.0.0.1:8000", "ftp://a", "http://", "http://a:x", "http://[::1", "http://a:99999"]
)
def test_what_is_no_http_address_is_refused(url: str) -> None:
    with pytest.raises(InvalidAddress, match=r"http://127\.0\.0\.1:8000"):
        Client(url)


def test_every_error_of_a_client_is_a_client_error() -> None:
    for kind in (BadReply, CutStream, InvalidAddress, NotReachable, Refused):
        assert issubclass(kind, ClientError)


def test_leaving_a_stream_early_closes_its_connection(scripted, http) -> None:
    stream = Client(scripted(http.hello).url).chat(HI, model="m")
    next(stream)
    stream.close()
    stream.close()
    assert list(stream) == []


def test_the_key_goes_along_and_is_never_shown(scripted, http) -> None:
    server = scripted(http.models, http.hello)
    client = Client(server.url, api_key="sk-zl1-secret")
    list(client.chat([{"role": "user", "content": "Hi"}]))
    assert all(b"authorization: bearer sk-zl1-secret" in request.lower() for request in server.requests)
    assert "secret" not in repr(client._client._service._addresses)
