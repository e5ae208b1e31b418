"""Deadlines, bookings, freshness and stalls seen from outside, on real sockets."""

from __future__ import annotations

import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import openai
import pytest
from echo_service import Service, chat, expect_soon, get, read_reply

STAINLESS = "x-stainless-retry-count: 0"
AGAIN = "x-stainless-retry-count: 1"


def _busy(serve, **given) -> tuple[Service, ExitStack]:
    """A service whose only slot is held by a request that goes on when ``step`` says so."""
    service = serve(slots=1, **given)
    service.hold_steps()
    stack = ExitStack()
    holder = stack.enter_context(service.connect())
    holder.sendall(chat("a" * 20, max_tokens=20, ignore_eos=True))
    expect_soon(lambda: service.running() == 1)
    return service, stack


# What is applied is told


def test_the_limits_that_hold_are_told_in_the_header_and_in_the_account(serve):
    reply = serve().ask(chat("hi", "x-zl-deadline-ms: 1500", "x-slo-ttft-ms: 900", "x-slo-tpot-ms: 200"))
    assert reply.headers["x-zl-deadline-ms"] == "1500;first_token=900;per_token=200"
    account = reply.json["zerolayer"]
    assert (account["deadline_ms"], account["first_token_ms"], account["per_token_ms"]) == (1500, 900, 200)


def test_a_stream_tells_them_too(serve):
    reply = serve().ask(chat("hi", stream=True, deadline_ms=1500))
    assert reply.headers["x-zl-deadline-ms"].startswith("1500;")
    assert reply.events[-2]["zerolayer"]["deadline_ms"] == 1500


def test_the_longest_gap_between_two_tokens_is_advertised(serve):
    card = serve().ask(get("/v1/models")).json["data"][0]
    assert card["zerolayer"]["worst_stall_ms"] >= 1


@pytest.mark.parametrize(("gap_ms", "status"), [(53, 429), (200, 200)])
def test_a_prompt_is_read_beside_a_stream_only_where_its_cadence_allows_for_it(serve, gap_ms, status):
    service = serve(slots=2, step_us=50_000)  # a step takes 50 ms, one with somebody's prompt 55 at most
    with service.connect() as stream:
        stream.sendall(chat("a", f"x-slo-tpot-ms: {gap_ms}", stream=True, max_tokens=100, ignore_eos=True))
        expect_soon(lambda: service.running() == 1)
        assert service.ask(chat("b", max_tokens=1)).status == status


SLOWER = {"step_us": 30_000, "sections": {"deadline": {"per_token_ms": 25}}}  # steps are longer than promised


def test_a_machine_that_is_slower_than_the_contract_serves_and_tells_what_it_can_keep(serve):
    service = serve(**SLOWER)
    reply = service.ask(chat("hi", max_tokens=2))
    assert reply.status == 200
    assert int(re.search(r"per_token=(\d+)", reply.headers["x-zl-deadline-ms"])[1]) >= 30


def test_what_a_client_asks_itself_is_never_widened(serve):
    reply = serve(**SLOWER).ask(chat("hi", "x-slo-tpot-ms: 20", max_tokens=2))
    assert (reply.status, reply.json["error"]["code"]) == (422, "infeasible")


# Refusals by cause


@pytest.mark.parametrize("header", ["x-zl-deadline-ms: abc", "grpc-timeout: 5", "x-slo-ttft-ms: soon"])
def test_a_deadline_that_cannot_be_read_is_400(serve, header):
    reply = serve().ask(chat("hi", header))
    assert (reply.status, reply.headers["x-should-retry"]) == (400, "false")


@pytest.mark.parametrize("header", ["x-zl-deadline-ms: 0", "x-zl-deadline-ms: -1", "grpc-timeout: 0n"])
def test_an_expired_deadline_is_refused_with_no_work_done(serve, header):
    service = serve()
    before = service.loaded.encoder.calls
    reply = service.ask(chat("hi", header))
    assert (reply.status, reply.error["code"]) == (422, "deadline_expired")
    assert service.loaded.encoder.calls == before


def test_a_deadline_counts_from_the_first_byte_of_its_request(serve):
    service, request = serve(), chat("hi", "x-zl-deadline-ms: 100")
    with service.connect() as client:
        client.sendall(request[:-1])
        time.sleep(0.12)
        client.sendall(request[-1:])
        reply = read_reply(client)
    assert (reply.status, reply.error["code"], reply.headers["x-should-retry"]) == (422, "deadline_expired", "false")


def test_what_the_contract_promises_counts_from_the_last_byte(serve):
    service, request = serve(sections={"deadline": {"default_ms": 200}}), chat("hi")
    with service.connect() as client:
        client.sendall(request[:-1])
        time.sleep(0.22)
        client.sendall(request[-1:])
        assert read_reply(client).status == 200


def test_what_can_never_be_in_time_is_422_and_not_retried(serve):
    service = serve(step_us=5_000)
    reply = service.ask(chat("a" * 60, "x-zl-deadline-ms: 50", max_tokens=100))
    assert (reply.status, reply.error["code"]) == (422, "infeasible")
    assert reply.headers["x-should-retry"] == "false"


def test_a_slot_filled_to_the_last_token_is_served_and_one_token_more_is_refused_for_good(serve):
    service = serve(slot_tokens=64)
    assert service.ask(chat("a" * 10, max_tokens=64 - 11)).status == 200
    refused = service.ask(chat("a" * 10, max_tokens=64 - 10))
    assert (refused.status, refused.headers["x-should-retry"]) == (400, "false")
    assert "x-zl-ticket" not in refused.headers


def test_without_max_tokens_all_slots_run_side_by_side_and_the_bound_is_told(serve):
    service = serve(slots=4)
    service.hold_steps()
    with ExitStack() as stack:
        clients = [stack.enter_context(service.connect()) for _ in range(4)]
        for client in clients:
            client.sendall(chat("abc"))
        expect_soon(lambda: service.running() == 4)
        service.step(1_000)
        replies = [read_reply(client) for client in clients]
    assert [reply.status for reply in replies] == [200] * 4
    assert replies[0].json["zerolayer"]["max_tokens"] >= 1


def test_a_refusal_books_and_both_headers_and_a_ticket_say_so(serve):
    service, stack = _busy(serve)
    with stack:
        reply = service.ask(chat("me", STAINLESS))
    assert (reply.status, reply.headers["x-should-retry"]) == (429, "true")
    assert 0 < len(reply.headers["x-zl-ticket"]) <= 64
    assert int(reply.headers["retry-after"]) == -(-int(reply.headers["retry-after-ms"]) // 1000)


def test_a_client_that_reads_whole_seconds_is_told_the_same_by_both_headers(serve):
    service, stack = _busy(serve)
    with stack:
        reply = service.ask(chat("me"))
    assert int(reply.headers["retry-after-ms"]) == 1000 * int(reply.headers["retry-after"])


def test_what_no_slot_can_start_in_time_is_not_asked_to_come_again(serve):
    service, stack = _busy(serve, step_us=5_000)
    with stack:
        reply = service.ask(chat("me", "x-zl-deadline-ms: 60", max_tokens=2))
    assert (reply.status, reply.error["code"]) == (429, "beyond_horizon")
    assert reply.headers["x-should-retry"] == "false"


# Bookings are kept


def test_the_same_request_at_its_time_is_served(serve):
    service, stack = _busy(serve)
    with stack:
        refused = service.ask(chat("me", STAINLESS))
        service.step(1_000)
        expect_soon(lambda: service.free_slots() == 1)
        time.sleep(int(refused.headers["retry-after-ms"]) / 1000)
        assert service.ask(chat("me", AGAIN)).status == 200
    assert service.on_loop(lambda: service.server.admission.attendance.kept) == 1


def test_who_asks_again_too_early_gets_the_same_ticket(serve):
    service, stack = _busy(serve, step_us=20_000)
    with stack:
        first = service.ask(chat("me", STAINLESS))
        second = service.ask(chat("me", AGAIN))
    assert (second.status, second.headers["x-zl-ticket"]) == (429, first.headers["x-zl-ticket"])


def test_a_booked_client_whose_slot_is_a_moment_late_is_held_and_then_served(serve):
    service, stack = _busy(serve)
    with stack:
        refused = service.ask(chat("me", STAINLESS))
        time.sleep(int(refused.headers["retry-after-ms"]) / 1000)
        with service.connect() as client:
            client.sendall(chat("me", AGAIN))
            expect_soon(lambda: service.on_loop(lambda: len(service.server.held)) == 1)
            service.step(1_000)
            assert read_reply(client).status == 200


def test_a_held_client_begins_when_who_was_booked_before_it_has_not_come_though_no_step_runs(serve):
    """Nor does anything else that looks now and then."""
    service, stack = _busy(serve, sweep_s=3_600.0)
    with stack:
        service.ask(chat("stays away", STAINLESS, max_tokens=2))
        refused = service.ask(chat("me", STAINLESS, max_tokens=2))
        comes = time.monotonic() + int(refused.headers["retry-after-ms"]) / 1000
        service.step(1_000)
        expect_soon(lambda: service.free_slots() == 1)
        time.sleep(max(0.0, comes - time.monotonic()))
        assert service.ask(chat("me", AGAIN, max_tokens=2)).status == 200


def test_a_held_client_that_goes_away_gives_its_booking_back(serve):
    service, stack = _busy(serve)
    with stack:
        refused = service.ask(chat("me", STAINLESS))
        time.sleep(int(refused.headers["retry-after-ms"]) / 1000)
        with service.connect() as client:
            client.sendall(chat("me", AGAIN))
            expect_soon(lambda: service.on_loop(lambda: len(service.server.held)) == 1)
        expect_soon(lambda: service.on_loop(lambda: len(service.server.slots.bookings)) == 0)


def test_a_booking_that_nobody_comes_for_lapses(serve):
    service, stack = _busy(serve)
    with stack:
        service.ask(chat("me", STAINLESS))
        assert service.on_loop(lambda: len(service.server.slots.bookings)) == 1
        service.step(1_000)
        expect_soon(lambda: service.on_loop(lambda: len(service.server.slots.bookings)) == 0)
    assert service.on_loop(lambda: service.server.admission.attendance.lapsed) == 1


@pytest.mark.parametrize("stream", [False, True])
def test_stock_openai_clients_with_default_settings_redeem_without_knowing_of_it(serve, stream):
    service = serve(slots=2, step_us=5_000)
    client = openai.OpenAI(base_url=f"http://127.0.0.1:{service.port}/v1", api_key="none")

    def ask(number: int) -> str:
        messages = [{"role": "user", "content": f"number {number} " * 2}]
        answer = client.chat.completions.create(model="echo", messages=messages, max_tokens=60, stream=stream)
        if not stream:
            return answer.choices[0].message.content
        return "".join(chunk.choices[0].delta.content or "" for chunk in answer if chunk.choices)

    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(ask, range(6)))
    assert answers == [f"number {number} " * 2 for number in range(6)]
    attendance = service.on_loop(lambda: service.server.admission.attendance)
    assert (attendance.kept > 0, attendance.lapsed) == (True, 0)


def _metric(service: Service, name: str) -> int:
    page = service.ask(get("/metrics"), service.server.admin_port).body.decode()
    return int(re.search(rf"zerolayer:{name}[^\n]*}} (\d+)", page)[1])


def test_what_became_of_bookings_is_counted(serve):
    service, stack = _busy(serve, step_us=20_000)
    with stack:
        refused = service.ask(chat("me", STAINLESS))
        service.ask(chat("me", AGAIN))
        assert _metric(service, 'booking_total{model_name="echo",outcome="early"') == 1
        service.step(1_000)
        time.sleep(int(refused.headers["retry-after-ms"]) / 1000)
        assert service.ask(chat("me", AGAIN)).status == 200
    assert _metric(service, 'booking_total{model_name="echo",outcome="kept"') == 1
    assert _metric(service, "booking_lateness_seconds_count") == 1
    assert _metric(service, "refusal_seconds_count") == 2
    assert _metric(service, 'refused_total{model_name="echo",reason="slots_busy"') == 2
    assert _metric(service, 'promise_total{model_name="echo",kept="true"') == 2
    assert _metric(service, "deadline_slack_seconds_count") == 2


def test_a_limit_that_did_not_hold_is_counted(serve):
    service = serve()
    service.hold_steps()
    with service.connect() as client:
        client.sendall(chat("abc", "x-slo-ttft-ms: 100", "x-slo-tpot-ms: 100", stream=True, max_tokens=10))
        expect_soon(lambda: service.running() == 1)
        time.sleep(0.15)
        service.step(1)
        expect_soon(lambda: service.stepped() == 1)
        time.sleep(0.15)
        service.step(20)
        assert read_reply(client).status == 200
    assert _metric(service, 'limit_missed_total{model_name="echo",limit="first_token"') == 1
    assert _metric(service, 'limit_missed_total{model_name="echo",limit="per_token"') == 1


# What was admitted is not late without a word


def test_a_stream_that_is_not_done_at_its_deadline_ends_with_a_typed_error(serve):
    service = serve()
    service.hold_steps()
    with service.connect() as client:
        client.sendall(chat("abc", "x-zl-deadline-ms: 300", stream=True, max_tokens=10))
        expect_soon(lambda: service.running() == 1)
        service.step(2)
        time.sleep(0.32)
        service.step(1)
        reply = read_reply(client)
    assert not reply.complete
    assert reply.events[-1]["error"]["code"] == "deadline_missed"


def test_a_reply_that_is_not_done_at_its_deadline_is_504_even_when_no_step_ends(serve):
    service = serve()
    service.hold_steps()
    reply = service.ask(chat("abc", "x-zl-deadline-ms: 150"))
    assert (reply.status, reply.error["code"]) == (504, "deadline_missed")


# Freshness


def _stamp(offset_ms: int) -> str:
    return f"x-zl-event-time-ms: {int(time.time() * 1000) + offset_ms}"


def test_stale_input_is_refused_with_its_age(serve):
    reply = serve().ask(chat("hi", _stamp(-5_000), "x-zl-max-age-ms: 1000"))
    assert (reply.status, reply.error["code"], reply.headers["x-should-retry"]) == (409, "stale_input", "false")


def test_fresh_input_is_answered_with_its_age(serve):
    reply = serve().ask(chat("hi", _stamp(-100), "x-zl-max-age-ms: 5000"))
    assert reply.status == 200
    assert 100 <= int(reply.headers["x-zl-age-ms"]) <= 5_000
    assert reply.json["zerolayer"]["age_ms"] >= 100


def test_input_whose_time_has_not_come_is_waited_for(serve):
    service = serve(sections={"freshness": {"on_stale": "wait"}})
    before = time.time()
    reply = service.ask(chat("hi", _stamp(150), "x-zl-deadline-ms: 5000"))
    assert reply.status == 200
    assert time.time() - before >= 0.149


def test_waiting_for_an_input_is_part_of_the_deadline(serve):
    service = serve(sections={"freshness": {"on_stale": "wait"}})
    reply = service.ask(chat("hi", _stamp(900), "x-zl-deadline-ms: 300"))
    assert (reply.status, reply.error["code"]) == (422, "deadline_expired")


def test_stale_input_is_answered_and_flagged_where_the_contract_says_so(serve):
    reply = serve(sections={"freshness": {"on_stale": "flag"}}).ask(chat("hi", _stamp(-5_000), "x-zl-max-age-ms: 1000"))
    assert (reply.status, reply.headers["x-zl-stale"], reply.json["zerolayer"]["stale"]) == (200, "true", True)


def test_input_that_grows_stale_before_it_starts_is_refused(serve):
    service = serve(slots=1, slot_tokens=8192)
    go_on = threading.Event()
    service.loaded.encoder.before = lambda: go_on.wait(10)
    with service.connect() as client:
        client.sendall(chat("a" * 5000, _stamp(0), "x-zl-max-age-ms: 200"))
        time.sleep(0.25)
        go_on.set()
        reply = read_reply(client)
    assert (reply.status, reply.error["code"]) == (409, "stale_input")
    assert service.free_slots() == 1
