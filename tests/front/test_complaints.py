"""What users of other gateways complain about: ``ROWS`` has the tests of each complaint.

Those of the service as a whole are here; the others stand beside what they test.
"""

from __future__ import annotations

import re
import threading
import time
from pathlib import Path

import pytest
from echo_service import chat, expect_soon, get, post

from reference.listed_tests import not_there
from zerolayer.guard.auth.key_files import KEY_SET
from zerolayer.guard.auth.signing import KeyFolder, Wish
from zerolayer.guard.identity import Quota

HERE = "front/test_complaints.py::"
ROWS: dict[int, list[str]] = {
    1: ["front/test_leases.py::test_of_a_limit_of_ten_on_three_nodes_exactly_ten_pass"],
    2: ["guard/budget/test_lease.py::test_of_a_limit_of_ten_on_three_nodes_exactly_ten_pass"],
    3: ["guard/budget/test_budgets.py::test_of_concurrent_first_requests_exactly_the_limit_passes"],
    4: ["guard/budget/test_budgets.py::test_a_thousand_aborted_requests_leave_the_budget_where_it_was"],
    5: [
        "guard/budget/test_budgets.py::test_a_request_is_judged_on_its_true_length_not_on_the_bound",
        "front/test_leases.py::test_a_node_whose_home_does_not_answer_refuses_and_the_others_go_on",
    ],
    6: [HERE + "test_6_a_limit_holds_for_a_key_that_is_known_already"],
    7: [HERE + "test_7_a_limit_of_tokens_counts_prompt_and_answer"],
    8: [HERE + "test_8_a_stream_a_reply_and_the_counter_agree_on_the_tokens"],
    9: ["front/test_anthropic_client.py::test_the_stream_helper_collects_the_message_that_a_plain_call_gives"],
    10: [HERE + "test_10_tokens_are_metered_whether_or_not_the_client_wants_to_know"],
    11: [
        "front/test_records.py::test_a_reply_that_the_engine_fails_is_recorded_as_failed",
        "front/test_records.py::test_of_a_prompt_that_was_not_read_to_its_end_only_what_was_read_counts",
    ],
    12: [
        "front/test_slots.py::test_a_client_that_goes_away_frees_its_slot_within_one_step",
        "front/test_slots.py::test_a_client_that_goes_away_while_its_text_is_tokenised_frees_its_slot_at_once",
        "front/test_records.py::test_a_client_that_goes_away_is_recorded_once_with_what_it_used",
    ],
    13: [
        HERE + "test_13_no_proxy_is_to_collect_a_stream",
        "front/test_slots.py::test_each_step_is_one_write_per_connection",
    ],
    14: ["front/test_anthropic.py::test_a_token_is_an_event_of_its_own_in_a_write_of_its_own"],
    15: [
        HERE + "test_15_nothing_is_left_of_many_requests_and_of_clients_that_leave",
        "front/test_soak.py::test_requests_and_aborts_leave_nothing_behind",
    ],
    16: [
        "client/test_failover.py::test_a_node_that_hangs_costs_its_calls_no_more_than_the_wait_that_was_allowed",
        "client/test_failover.py::test_no_call_fails_when_a_node_is_killed_under_load_and_its_return_is_noticed",
        "front/test_supervision.py::test_the_streams_of_a_stalled_step_end_with_an_error_event",
    ],
    17: [
        "front/test_records.py::test_a_reply_has_its_record_before_its_last_byte",
        "front/test_records.py::test_a_server_that_ends_records_the_replies_that_it_cuts",
        "judges/test_kill.py::test_killed_20_times_under_load_a_server_has_a_record_of_every_reply_that_came_whole",
    ],
    18: [
        "front/test_deadlines.py::test_a_refusal_books_and_both_headers_and_a_ticket_say_so",
        "front/test_deadlines.py::test_the_same_request_at_its_time_is_served",
    ],
    19: ["front/test_keys.py::test_what_is_revoked_is_refused_within_a_second_on_an_open_http2_connection"],
    20: [
        "front/test_keys.py::test_no_key_appears_in_a_reply_or_a_log",
        "front/test_secrets.py::test_no_log_line_holds_a_key_or_a_prompt",
    ],
    21: ["front/test_anthropic.py::test_a_count_is_what_the_call_is_billed_streamed_or_not"],
    22: ["front/test_anthropic.py::test_system_text_comes_first_wherever_it_was_sent"],
    23: [
        "front/test_anthropic.py::test_a_stream_that_fails_after_its_200_has_an_error_event_and_no_end",
        "front/test_openai_client.py::test_a_stream_that_fails_after_its_200_is_an_error_for_the_client",
        "front/test_responses.py::test_a_stream_that_fails_after_its_200_ends_with_response_failed_and_not_cleanly",
    ],
    24: [HERE + "test_24_no_event_is_without_a_choice_unless_usage_was_asked_for"],
    25: [
        "client/test_nodes.py::test_a_conversation_stays_with_its_node",
        "client/test_nodes.py::test_affinity_never_loads_a_node_beyond_its_bound",
    ],
    26: ["front/test_tools.py::test_a_malformed_schema_costs_its_own_400_and_nothing_else"],
}
OPEN_FILES = Path("/proc/self/fd")


def test_every_complaint_has_its_tests():
    assert list(ROWS) == list(range(1, 27))
    assert not_there(ROWS) == []


@pytest.fixture
def limited(serve, tmp_path: Path):
    """A service with keys, and one of them with a limit of two requests and 1,000 tokens a minute."""
    keys, now = KeyFolder(tmp_path / "keys"), int(time.time())
    keys.create(now)
    key = keys.issue(Wish("acme", now + 3600, quota=Quota(requests_per_minute=2, tokens_per_minute=1000)), now)[0]
    return serve(key_set=str(keys.folder / KEY_SET)), f"authorization: Bearer {key}"


def test_6_a_limit_holds_for_a_key_that_is_known_already(limited):
    service, key = limited
    for _ in range(3):
        assert service.ask(get("/v1/models", key)).status == 200
    assert [service.ask(chat("a", key)).status for _ in range(3)] == [200, 200, 429]


def test_7_a_limit_of_tokens_counts_prompt_and_answer(limited):
    service, key = limited
    used = service.ask(chat("a" * 100, key)).json["usage"]
    assert (used["prompt_tokens"], used["completion_tokens"]) == (101, 101)  # its end is a token too
    reply = service.ask(chat("a", key, max_tokens=1))
    left = int(reply.headers["x-ratelimit-remaining-tokens"])
    assert 1000 - 202 - 3 <= left < 1000 - 202 + 50  # and what drained meanwhile


def test_8_a_stream_a_reply_and_the_counter_agree_on_the_tokens(serve):
    service = serve()
    whole = service.ask(chat("Grüße, 世界")).json["usage"]
    options = {"include_usage": True}
    streamed = service.ask(chat("Grüße, 世界", stream=True, stream_options=options)).events[-2]["usage"]
    body = {"model": "echo", "messages": [{"role": "user", "content": "Grüße, 世界"}]}
    counted = service.ask(post("/v1/count_tokens", body)).json["prompt_tokens"]
    assert streamed == whole
    assert counted == whole["prompt_tokens"]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
def test_10_tokens_are_metered_whether_or_not_the_client_wants_to_know(serve, path):
    service = serve()
    body = {"model": "echo", "max_tokens": 9, "stream": True, "messages": [{"role": "user", "content": "abc"}]}
    assert service.ask(post(path, body)).status == 200
    page = service.ask(get("/metrics"), service.server.admin_port).body.decode()
    assert re.search(r"vllm:prompt_tokens_total\{.*\} 4\b", page)
    assert re.search(r"vllm:generation_tokens_total\{.*\} 4\b", page)


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
def test_13_no_proxy_is_to_collect_a_stream(serve, path):
    body = {"model": "echo", "max_tokens": 9, "stream": True, "messages": [{"role": "user", "content": "abc"}]}
    headers = serve().ask(post(path, body)).headers
    assert (headers["x-accel-buffering"], headers["cache-control"]) == ("no", "no-cache")


def test_24_no_event_is_without_a_choice_unless_usage_was_asked_for(serve):
    events = serve().ask(chat("abc", stream=True)).events
    assert all(event["choices"] for event in events[:-1])


def test_15_nothing_is_left_of_many_requests_and_of_clients_that_leave(serve):
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
