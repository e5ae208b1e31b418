"""Another model takes the place of the one that is served: nobody is sent away, nothing promised is broken."""

from __future__ import annotations

import gc
import threading
import weakref
from contextlib import ExitStack
from functools import partial

import msgspec
import pytest
from echo_model import EchoEngine
from echo_service import another, chat, expect_soon, get, post, read_reply

from zerolayer.errors import DeployFailed, EngineFailed, StartupError, Unavailable

LONG = "a long answer " * 14  # 196 steps
TRIAL = list(range(1, 17))  # the known input of a heartbeat


def begin(stack: ExitStack, service, text: str = LONG, *headers: str, **members):
    """A stream that has begun."""
    client = stack.enter_context(service.connect())
    client.sendall(chat(text, *headers, stream=True, max_tokens=len(text) + 1, **members))
    first = bytearray(client.recv(1))
    return lambda: read_reply(client, first)


def model_of(reply) -> str:
    return reply.events[0]["model"] if reply.headers.get("transfer-encoding") else reply.json["model"]


def change(service, path: str = "/models/next.gguf"):
    deploying = service.deploy(path)
    deploying.reached("done")
    return deploying


def test_a_stream_ends_on_the_old_model_while_new_requests_are_answered_by_the_new_one(serve):
    service = serve(step_us=2000)
    with ExitStack() as stack:
        finish = begin(stack, service)
        deploying = service.deploy("/models/next.gguf")
        deploying.reached("drain")
        assert model_of(service.ask(chat("hello"))) == "next"
        assert service.running() == 0  # of the new one's
        assert "done" not in deploying.phases
        old = finish()
        assert (old.complete, old.text, model_of(old)) == (True, LONG, "echo")
        deploying.reached("done")
    assert deploying.phases == ["load", "warm", "switch", "drain", "done"]


def test_no_request_fails_during_a_change_under_load(serve):
    service = serve(step_us=500)
    replies, over = [], threading.Event()

    def ask(number: int) -> None:
        while not over.is_set():
            replies.append((f"client {number} ", service.ask(chat(f"client {number} "))))

    clients = [threading.Thread(target=ask, args=(number,)) for number in range(3)]
    for client in clients:
        client.start()
    change(service)
    expect_soon(lambda: model_of(replies[-1][1]) == "next")
    over.set()
    for client in clients:
        client.join(5)
    assert {reply.status for _, reply in replies} == {200}
    assert all(reply.json["choices"][0]["message"]["content"] == text for text, reply in replies)
    assert {model_of(reply) for _, reply in replies} == {"echo", "next"}


def test_a_stream_that_ends_on_the_old_model_is_counted_under_its_name(serve):
    service = serve(step_us=2000)
    with ExitStack() as stack:
        finish = begin(stack, service)
        deploying = service.deploy("/models/next.gguf")
        deploying.reached("drain")
        service.ask(chat("hello"))
        finish()
        deploying.reached("done")
    page = service.ask(get("/metrics"), service.server.admin_port).body.decode()
    assert 'vllm:request_success_total{model_name="echo",finished_reason="stop"} 1' in page
    assert 'vllm:request_success_total{model_name="next",finished_reason="stop"} 1' in page
    assert 'vllm:num_requests_running{model_name="next"} 0' in page


def test_a_request_that_names_the_old_model_is_answered_by_the_new_one(serve):
    service = serve()
    change(service)
    reply = service.ask(chat("hello", model="echo"))
    assert (reply.status, reply.json["model"]) == (200, "next")
    assert [card["id"] for card in service.ask(get("/v1/models")).json["data"]] == ["next", "echo"]


def test_a_change_after_a_change_keeps_every_name_that_clients_know(serve):
    service = serve()
    for path in ("/models/second.gguf", "/models/third.gguf", "/models/second.gguf"):
        change(service, path)
    assert [card["id"] for card in service.ask(get("/v1/models")).json["data"]] == ["second", "echo", "third"]


def test_a_booked_start_is_redeemed_from_the_new_model(serve):
    service = serve(slots=1, slot_tokens=4096, step_us=2000)
    with ExitStack() as stack:
        finish = begin(stack, service, LONG * 3)
        refused = service.ask(chat("booked", "x-stainless-retry-count: 0"))
        assert refused.status == 429
        deploying = service.deploy("/models/next.gguf")
        deploying.reached("drain")
        bookings = service.on_loop(lambda: list(service.server.admission.tickets))
        assert [booking.ticket for booking in bookings], deploying.news
        assert [booking.ticket for booking in bookings] == [refused.headers["x-zl-ticket"]]
        expect_soon(lambda: service.on_loop(lambda: bookings[0].start_ns <= service.server.house.clock_ns()))
        reply = service.ask(chat("booked", "x-stainless-retry-count: 1"))
        assert (reply.status, model_of(reply)) == (200, "next")
        assert finish().text == LONG * 3
        assert service.on_loop(lambda: service.server.metrics.totals(0, 0).bookings["kept"]) == 1
        deploying.reached("done")


def test_a_client_that_is_held_for_its_start_asks_the_new_model(serve):
    service = serve(slots=1, step_us=2000)
    with ExitStack() as stack:
        finish = begin(stack, service)
        assert service.ask(chat("booked", "x-stainless-retry-count: 0")).status == 429
        booking = service.on_loop(lambda: list(service.server.admission.tickets))[0]
        service.hold_steps()
        expect_soon(lambda: booking.start_ns <= service.server.house.clock_ns())
        client = stack.enter_context(service.connect())
        client.sendall(chat("booked", "x-stainless-retry-count: 1"))
        expect_soon(lambda: service.on_loop(lambda: len(service.server.held)) == 1)
        deploying = service.deploy("/models/next.gguf")
        reply = read_reply(client)
        assert (reply.status, model_of(reply)) == (200, "next")
        service.step(1000)
        assert finish().complete
        deploying.reached("done")


def test_a_slower_model_tells_the_later_start_of_a_booking_and_keeps_that(serve):
    service = serve(slots=1, slot_tokens=4096, step_us=500)
    service.next_model = partial(another, service.engine, step_us=4000)
    with ExitStack() as stack:
        finish = begin(stack, service, LONG * 4)
        for text in ("first " * 60, "second " * 40):  # the second one follows on the first, which will take longer
            refused = service.ask(chat(text, "x-stainless-retry-count: 0"))
            assert refused.status == 429
        told = int(refused.headers["retry-after-ms"])
        before = service.server.house.clock_ns()
        deploying = service.deploy("/models/slow.gguf")
        deploying.reached("drain")
        booking = max(service.on_loop(lambda: list(service.server.admission.tickets)), key=lambda one: one.start_ns)
        assert booking.ticket == refused.headers["x-zl-ticket"]
        assert booking.start_ns > before + told * 1_000_000
        again = service.ask(chat("second " * 40, "x-stainless-retry-count: 1"))
        assert (again.status, again.headers["x-zl-ticket"]) == (429, booking.ticket)
        assert service.on_loop(lambda: service.server.metrics.totals(0, 0).bookings["broken"]) == 0
        finish()
        deploying.reached("done")


def test_a_load_that_fails_leaves_the_old_model_serving_and_says_why(serve):
    service = serve()

    def fails(contract, **how):
        raise StartupError("The file is damaged. Download it again.")

    service.next_model = fails
    deploying = service.deploy("/models/next.gguf")
    assert deploying.reached("failed").text == "The file is damaged. Download it again."
    assert model_of(service.ask(chat("hello"))) == "echo"
    assert service.on_loop(lambda: (service.server.room.cost.beside, service.server.steps.cores)) == (None, None)


@pytest.mark.parametrize("fault", ["fails", "differs"])
def test_a_model_that_fails_its_trial_is_not_served(serve, fault):
    service = serve()

    def faulty(contract, **how):
        loaded = another(service.engine, contract, **how)
        engine, trials = loaded.engine, [0]
        step, opened = engine.step, engine.open

        def open_slot(slot, generation):
            trials[0] += list(generation.prompt) == TRIAL
            opened(slot, generation)

        def faulty_step(plan):
            if fault == "fails" and trials[0]:
                engine.broken = EngineFailed("no")
            tokens = step(plan)
            if fault == "differs" and trials[0]:
                return [msgspec.structs.replace(token, token_id=trials[0]) for token in tokens]
            return tokens

        engine.step, engine.open = faulty_step, open_slot
        return loaded

    service.next_model = faulty
    deploying = service.deploy("/models/next.gguf")
    assert "The engine" in deploying.reached("failed").text
    assert model_of(service.ask(chat("hello"))) == "echo"


def test_the_old_model_is_given_back_when_its_last_stream_has_ended(serve):
    service = serve()
    engine = weakref.ref(service.engine)
    gone = weakref.ref(service.loaded)
    service.on_loop(gc.freeze)  # as a server does when it has started
    change(service)
    service.engine = service.next_model = None
    service.loaded = None
    gc.collect()
    gc.unfreeze()
    assert engine() is None
    assert gone() is None
    service.engine = EchoEngine(slots=1, slot_tokens=16, chunk_tokens=16, step_us=0)  # for the end of the test


@pytest.mark.parametrize("freezes", [True, False])
def test_a_change_freezes_what_lives_only_where_the_start_had(serve, freezes):
    """What a program that holds a server finds frozen at its exit is never freed, the native objects among it."""
    service = serve()
    assert gc.get_freeze_count() == 0
    try:
        if freezes:
            service.on_loop(gc.freeze)
        change(service)
        assert (service.on_loop(gc.get_freeze_count) > 0) == freezes
    finally:
        gc.unfreeze()


@pytest.mark.parametrize("when", ["loading", "trying"])
def test_a_model_that_fails_is_given_back(serve, when):
    service, made = serve(), []

    def fails(contract, **how):
        loaded = another(service.engine, contract, **how)
        made.append(weakref.ref(loaded.engine))
        if when == "loading":
            raise StartupError("The file is damaged.")
        loaded.engine.broken = EngineFailed("no")
        return loaded

    service.next_model = fails
    service.on_loop(gc.freeze)
    service.deploy("/models/next.gguf").reached("failed")
    expect_soon(lambda: service.on_loop(lambda: made[0]() is None))
    gc.unfreeze()


def test_a_stream_whose_limits_leave_no_room_for_two_models_holds_the_change_up(serve):
    service = serve(step_us=20_000)
    with ExitStack() as stack:
        finish = begin(stack, service, "strict " * 12, "x-slo-tpot-ms: 45")
        deploying = service.deploy("/models/next.gguf")
        expect_soon(lambda: any("waiting for streams" in news.text for news in deploying.news))
        assert model_of(service.ask(chat("hello"))) == "echo"
        assert finish().text == "strict " * 12
        deploying.reached("done")
    assert service.on_loop(lambda: service.server.metrics.promises.deadlines()["false"]) == 0


def test_one_change_at_a_time(serve):
    service = serve(step_us=2000)
    with ExitStack() as stack:
        finish = begin(stack, service)
        deploying = service.deploy("/models/next.gguf")
        with pytest.raises(DeployFailed, match="another model is being deployed"):
            service.deploy("/models/third.gguf")
        finish()
        deploying.reached("done")


def test_a_change_that_is_called_off_in_time_changes_nothing(serve):
    service = serve()
    may_go_on = threading.Event()

    def waits(contract, *, show, **how):
        may_go_on.wait(10)
        show("weights", 1, 2)
        return another(service.engine, contract, **how)

    service.next_model = waits
    deploying = service.deploy("/models/next.gguf")
    service.on_loop(deploying.ongoing.call_off)
    may_go_on.set()
    expect_soon(lambda: deploying.ongoing.over)
    assert model_of(service.ask(chat("hello"))) == "echo"


def test_a_server_that_drains_takes_no_new_model(serve):
    service = serve()
    service.on_loop(lambda: service.server.guard.close(Unavailable("the end")))
    with pytest.raises(DeployFailed, match="takes no requests"):
        service.deploy("/models/next.gguf")


def test_a_kept_answer_of_the_old_model_is_not_the_new_ones(serve):
    service = serve(sections={"cache": {"answers_mb": 1}})
    ask = partial(service.ask, chat("kept", temperature=0))
    assert [ask().headers["x-zl-cache"] for _ in range(2)] == ["miss", "hit"]
    change(service)
    assert [ask().headers["x-zl-cache"] for _ in range(2)] == ["miss", "hit"]


def test_token_ids_of_the_old_vocabulary_are_refused_by_the_new_model(serve):
    service = serve()
    etag = service.ask(get("/v1/models/echo/vocabulary")).headers["etag"]

    def other_words(contract, **how):
        loaded = another(service.engine, contract, **how)
        loaded.vocabulary.eos_ids = frozenset({0})
        return loaded

    service.next_model = other_words
    change(service)
    assert service.ask(get("/v1/models/echo/vocabulary", f"if-none-match: {etag}")).status == 200
    headers = ("content-type: application/x-protobuf", f"x-zl-vocabulary: {etag}")
    assert service.ask(post("/v1/generate", b"", *headers)).status == 412
