"""Requests with ``max_tokens`` 0: they fill the prompt cache, and cost nobody a slot, a booking or a step."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
from echo_service import Service, chat, expect_soon, post, read_reply

TEXT = "d" * 100  # with a chunk of 64 tokens a draft reads 16 at a time: seven steps


def draft(text: str = TEXT, *headers: str) -> bytes:
    return chat(text, *headers, max_tokens=0)


def held(serve, **given) -> Service:
    service = serve(**given)
    service.hold_steps()
    return service


def taken(service: Service) -> bool:
    return bool(service.on_loop(lambda: service.server.admission.drafts.taken))


def started(service: Service) -> bool:
    return service.running() == 1


def test_a_draft_has_an_empty_answer_and_tells_how_long_its_prompt_is(serve):
    reply = serve().ask(draft())
    assert reply.status == 200
    assert reply.json["choices"][0]["message"]["content"] == ""
    assert reply.json["choices"][0]["finish_reason"] == "length"
    assert (reply.json["usage"]["prompt_tokens"], reply.json["usage"]["completion_tokens"]) == (101, 0)


def test_a_draft_of_plain_text_has_an_empty_answer_too(serve):
    reply = serve().ask(post("/v1/completions", {"model": "echo", "prompt": "abc", "max_tokens": 0}))
    assert (reply.status, reply.json["choices"][0]["text"]) == (200, "")


def test_a_draft_takes_no_slot(serve):
    service = held(serve, slots=1)
    with service.connect() as client:
        client.sendall(draft())
        expect_soon(lambda: started(service))
        assert service.free_slots() == 1


def test_whoever_walks_in_is_served_before_the_draft_goes_on(serve):
    service = held(serve, slots=1)
    with service.connect() as typist, service.connect() as other:
        typist.sendall(draft())
        expect_soon(lambda: started(service))
        service.step(2)
        expect_soon(lambda: service.stepped() == 2)
        other.sendall(chat("abc", max_tokens=3))
        expect_soon(lambda: service.running() == 2)
        service.step(4)  # one chunk that had begun; then three for the other's answer
        assert read_reply(other).status == 200
        assert started(service)
        service.step(10)
        assert read_reply(typist).status == 200


def test_a_draft_waits_while_an_answer_runs_and_is_read_after_it(serve):
    service = held(serve, slots=2)
    with service.connect() as typist, service.connect() as other:
        other.sendall(chat("abc", max_tokens=3))
        expect_soon(lambda: started(service))
        typist.sendall(draft())
        expect_soon(lambda: service.running() == 2)
        service.step(3)
        assert read_reply(other).status == 200
        assert service.stepped() == 3
        service.step(7)
        assert read_reply(typist).status == 200


def test_a_second_draft_is_refused_for_good_and_not_booked(serve):
    service = held(serve)
    with service.connect() as client:
        client.sendall(draft())
        expect_soon(lambda: taken(service))
        reply = service.ask(draft("e" * 100))
    assert (reply.status, reply.error["code"]) == (429, "draft_refused")
    assert reply.headers["x-should-retry"] == "false"
    assert not {"x-zl-ticket", "retry-after-ms"} & reply.headers.keys()
    assert service.on_loop(lambda: len(service.server.admission.tickets)) == 0


@pytest.mark.parametrize("steps", [1, 3])
def test_the_next_keystroke_ends_a_draft_and_makes_room_for_another_one(serve, steps):
    service = held(serve)
    with service.connect() as client:
        client.sendall(draft())
        expect_soon(lambda: started(service))
        service.step(steps)
        expect_soon(lambda: service.stepped() == steps)
    service.step()
    expect_soon(lambda: not taken(service))
    service.step(20)
    assert service.ask(draft("e" * 100)).status == 200


def test_a_draft_ends_at_its_deadline(serve):
    service = held(serve)
    with service.connect() as client:
        client.sendall(draft(TEXT, "x-zl-deadline-ms: 100"))
        reply = read_reply(client)
    assert (reply.status, reply.error["code"]) == (504, "deadline_missed")
    service.step()
    expect_soon(lambda: not taken(service))


def test_a_draft_that_does_not_fit_a_slot_is_refused_and_leaves_its_place(serve):
    service = serve(slot_tokens=96)
    assert service.ask(draft("d" * 96)).error["code"] == "context_length_exceeded"
    assert not taken(service)


def test_a_server_that_takes_no_work_takes_no_draft(serve):
    service = serve()
    with ExitStack() as stack:
        client = stack.enter_context(service.connect())
        service.hold_steps()
        client.sendall(chat("abc"))
        expect_soon(lambda: started(service))
        from zerolayer.errors import Unavailable

        service.on_loop(lambda: service.server.guard.close(Unavailable("away")))
        assert service.ask(draft()).status == 503


def test_what_a_draft_costs_is_its_tenants(serve):
    service = serve(step_us=2000)
    assert service.ask(draft()).status == 200
    totals = service.on_loop(lambda: service.server.meter.totals)
    assert sum(ns for tenant, ns in totals.items() if tenant != "_idle") >= 7 * 2_000_000


def test_a_draft_is_in_no_latency(serve):
    service = serve()
    service.ask(draft())
    page = service.server.measuring.render().decode()
    assert 'vllm:time_to_first_token_seconds_count{model_name="echo"} 0' in page


def test_a_failed_step_ends_the_draft_with_an_error(serve):
    from zerolayer.errors import EngineFailed

    service = serve()
    service.engine.broken = EngineFailed("broken on purpose")
    assert service.ask(draft()).status == 500
    service.engine.broken = None
    assert service.ask(draft()).status == 200


def test_several_answers_or_a_form_are_no_draft(serve):
    reply = serve().ask(chat("a", max_tokens=0, n=2))
    assert (reply.status, reply.error["param"]) == (400, "max_tokens")


def test_a_draft_holds_nobody_up_with_a_grammar_that_it_does_not_need(serve):
    service = serve()
    compiled = []
    service.server.guard.reader.grammars.of = compiled.append
    tool = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}
    reply = service.ask(chat(TEXT, max_tokens=0, tools=[tool], tool_choice="required"))
    assert (reply.status, compiled) == (200, [])


def test_a_booking_is_given_back_for_others_to_have(serve):
    service = held(serve, slots=1)
    with service.connect() as client:
        client.sendall(chat("a" * 50))
        expect_soon(lambda: started(service))
        ticket = service.ask(chat("b")).headers["x-zl-ticket"]
        assert service.on_loop(lambda: len(service.server.admission.tickets)) == 1
        gone = service.ask(f"DELETE /v1/bookings/{ticket} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
        assert gone.status == 204
        assert service.on_loop(lambda: len(service.server.admission.tickets)) == 0


def test_whoever_holds_no_such_booking_learns_nothing(serve):
    reply = serve().ask(b"DELETE /v1/bookings/nobodys HTTP/1.1\r\nhost: localhost\r\n\r\n")
    assert (reply.status, reply.body) == (204, b"")
