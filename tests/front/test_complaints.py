"""What users of other gateways complain about, one test each. Complaints about keys, budgets and logs are judged there.

Elsewhere: a client that leaves in each phase frees its slot (test_slots), a stream is not collected on its way and
comes a token at a time (test_api, test_slots), a retry at the promised time is served (test_deadlines), a cut stream
does not look complete (test_openai_client, test_responses, test_choices).
"""

from __future__ import annotations

import re
import threading
from pathlib import Path

from echo_service import chat, expect_soon, get, post

OPEN_FILES = Path("/proc/self/fd")


def test_a_stream_a_reply_and_the_counter_agree_on_the_tokens(serve):
    service = serve()
    whole = service.ask(chat("Grüße, 世界")).json["usage"]
    options = {"include_usage": True}
    streamed = service.ask(chat("Grüße, 世界", stream=True, stream_options=options)).events[-2]["usage"]
    body = {"model": "echo", "messages": [{"role": "user", "content": "Grüße, 世界"}]}
    counted = service.ask(post("/v1/count_tokens", body)).json["prompt_tokens"]
    assert streamed == whole
    assert counted == whole["prompt_tokens"]


def test_tokens_are_metered_whether_or_not_the_client_wants_to_know(serve):
    service = serve()
    service.ask(chat("abc", stream=True))
    page = service.ask(get("/metrics"), service.server.admin_port).body.decode()
    assert re.search(r"vllm:prompt_tokens_total\{.*\} 4\b", page)
    assert re.search(r"vllm:generation_tokens_total\{.*\} 4\b", page)


def test_no_event_is_without_a_choice_unless_usage_was_asked_for(serve):
    events = serve().ask(chat("abc", stream=True)).events
    assert all(event["choices"] for event in events[:-1])


def test_nothing_is_left_of_many_requests_and_of_clients_that_leave(serve):
    service = serve()

    def some() -> None:
        for count in range(40):
            with service.connect() as client:
                client.sendall(chat("abc", stream=bool(count % 2), n=1 + count % 3))
                if count % 4:
                    client.recv(1)
        expect_soon(lambda: service.free_slots() == 4 and not service.server.connections)

    some()
    before = (len(list(OPEN_FILES.iterdir())), threading.active_count())
    for _ in range(3):
        some()
    assert (len(list(OPEN_FILES.iterdir())), threading.active_count()) <= before
    assert service.running() == 0
