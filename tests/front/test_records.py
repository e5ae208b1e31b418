"""What is written down of a request, whatever becomes of it: once, and before its reply ends."""

from __future__ import annotations

import pytest
from echo_service import chat, expect_soon, get, post, read_reply

from zerolayer.errors import EngineFailed
from zerolayer.front.receipt import RECORDED
from zerolayer.guard.ledger.record import Entry, Flag, Match, Meter, Outcome
from zerolayer.guard.ledger.segment import Chain


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "ledger"


@pytest.fixture
def recorded(serve, folder):
    """Start services that write to ``folder``."""

    def start(**given):
        return serve(ledger=str(folder), **given)

    return start


def records(folder):
    return [link.record() for link in Chain(folder)]


def entries(folder):
    return [record for record in records(folder) if isinstance(record, Entry)]


@pytest.mark.parametrize("stream", [False, True])
def test_a_reply_has_its_record_before_its_last_byte(recorded, folder, stream):
    service = recorded()
    reply = service.ask(chat("hello", stream=stream))
    (entry,) = entries(folder)  # read at once: nothing is waited for
    assert reply.status == 200
    assert (entry.outcome, entry.status, entry.code) == (Outcome.FINISHED, 200, b"stop")
    assert entry.request_id.decode() == reply.headers["x-request-id"]
    assert (entry.prompt_tokens, entry.completion_tokens) == (6, 6)
    assert bool(entry.flags & Flag.STREAMED) is stream
    assert entry.route == b"chat.completions"
    assert entry.tenant == b"_anyone"


def test_a_record_says_what_was_applied_and_where_the_time_went(recorded, folder):
    service = recorded()
    service.ask(post("/v1/completions", {"model": "echo", "prompt": "hello", "max_tokens": 3}))
    (entry,) = entries(folder)
    assert (entry.max_tokens, entry.deadline_ms, entry.code) == (3, 60_000, b"length")
    assert 0 < entry.first_token_us <= sum(entry.stages_us)
    assert entry.core_ns > 0


def test_what_a_reply_cost_is_told_in_it_too(recorded, folder):
    service = recorded()
    told = service.ask(chat("hello")).json["zerolayer"]["compute_us"]
    (entry,) = entries(folder)
    assert told == entry.core_ns // 1000 > 0


def test_a_client_that_goes_away_is_recorded_once_with_what_it_used(recorded, folder):
    service = recorded(slots=1)
    service.hold_steps()
    with service.connect() as client:
        client.sendall(chat("a" * 200, stream=True))
        service.step(6)  # four for the prompt, the last of which brings a token
        expect_soon(lambda: service.told() == 6)
    expect_soon(lambda: len(entries(folder)) == 1)
    (entry,) = entries(folder)
    assert entry.outcome == Outcome.ABORTED
    assert entry.completion_tokens >= 1
    assert entry.core_ns > 0


def test_of_a_prompt_that_was_not_read_to_its_end_only_what_was_read_counts(recorded, folder):
    service = recorded(slots=1)
    service.hold_steps()
    with service.connect() as client:
        client.sendall(chat("a" * 300))
        service.step(2)
        expect_soon(lambda: service.told() == 2)
    expect_soon(lambda: len(entries(folder)) == 1)
    (entry,) = entries(folder)
    assert entry.prompt_tokens == 128
    assert entry.completion_tokens == 0


@pytest.mark.parametrize("stream", [False, True])
def test_a_reply_that_the_engine_fails_is_recorded_as_failed(recorded, folder, stream):
    service = recorded()
    service.engine.broken = EngineFailed("the engine broke")
    service.ask(chat("hello", stream=stream))
    (entry,) = entries(folder)
    assert (entry.outcome, entry.code) == (Outcome.FAILED, b"engine_failed")


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b'{"model":"nobody","messages":[{"role":"user","content":"a"}]}', 404, b"model_not_found"),
        (b'{"model":"echo"', 400, b"invalid_request"),
        (b'{"model":"echo","max_tokens":-1,"messages":[]}', 400, b"invalid_request"),
    ],
)
def test_what_is_refused_for_good_is_recorded_as_refused(recorded, folder, body, status, code):
    service = recorded()
    reply = service.ask(post("/v1/chat/completions", body))
    (entry,) = entries(folder)
    assert reply.status == status
    assert (entry.outcome, entry.status, entry.code) == (Outcome.REFUSED, status, code)


def test_a_body_that_is_too_large_is_recorded_as_refused(recorded, folder):
    service = recorded()
    assert service.ask(chat("a" * 1_100_000)).status == 413
    assert [entry.code for entry in entries(folder)] == [b"request_too_large"]


def test_a_refusal_that_says_when_to_come_back_is_no_end_and_no_record(recorded, folder):
    service = recorded(slots=1)
    service.hold_steps()
    with service.connect() as client:
        client.sendall(chat("a" * 50))
        expect_soon(lambda: service.running() == 1)
        assert service.ask(chat("one too many")).status == 429
        service.step(200)
        assert read_reply(client).status == 200
    assert [entry.status for entry in entries(folder)] == [200]


def test_requests_that_compute_nothing_are_not_recorded(recorded, folder):
    service = recorded()
    service.ask(get("/v1/models"))
    service.ask(get("/readyz"))
    service.ask(get("/nowhere"))
    assert entries(folder) == []


def test_a_server_that_ends_records_the_replies_that_it_cuts(recorded, folder):
    service = recorded(slots=1)
    service.hold_steps()
    with service.connect() as client:
        client.sendall(chat("a" * 50, stream=True))
        expect_soon(lambda: service.running() == 1)
        service.close()
    assert [entry.outcome for entry in entries(folder)] == [Outcome.ABORTED]


def test_all_records_of_a_server_sum_to_its_wall_time_times_cores(recorded, folder):
    service = recorded(slots=2, step_us=1000)
    meter = service.server.meter
    for number in range(20):
        if number % 3:
            service.ask(chat("a" * number, stop=["aaa"]))
        else:
            with service.connect() as client:
                client.sendall(chat("b" * 200, stream=True))
                client.recv(64)
    expect_soon(lambda: service.running() == 0)
    service.close()
    found = records(folder)
    charged = sum(record.core_ns for record in found if isinstance(record, Entry | Meter))
    assert charged == pytest.approx(meter.wall_ns * meter.cores, rel=1e-3)
    spans = [record.span_us for record in found if isinstance(record, Meter) and record.tenant == b"_idle"]
    assert sum(spans) * 1000 == pytest.approx(meter.wall_ns, rel=1e-3)


def test_metrics_say_who_used_what_and_it_sums_up(recorded):
    service = recorded()
    service.ask(chat("hello"))
    page = service.ask(get("/metrics"), service.server.admin_port).body.decode()
    values = {}
    for line in page.splitlines():
        name, _, value = line.rpartition(" ")
        values[name.replace('model_name="echo"', "").replace("{,", "{")] = value
    spent = {name: float(value) for name, value in values.items() if name.startswith("zerolayer:compute_micro")}
    assert set(spent) == {
        'zerolayer:compute_microseconds_total{tenant="_anyone"}',
        'zerolayer:compute_microseconds_total{tenant="_idle"}',
    }
    cores = float(values["zerolayer:engine_cores{}"])
    assert sum(spent.values()) == pytest.approx(float(values["zerolayer:accounted_microseconds_total{}"]) * cores)
    assert int(values["zerolayer:ledger_records_total{}"]) == 2  # the note of the start, and the request


def test_while_the_disk_takes_nothing_nobody_is_admitted(recorded, folder):
    service = recorded()
    paper, full = service.server.records.ledger._paper, [True]

    def allocate(descriptor, offset, size):
        if full[0]:
            raise OSError(28, "No space left on device")

    paper._allocate, paper._room = allocate, paper.size
    assert service.ask(chat("the last one")).status == 200
    expect_soon(lambda: service.ask(chat("refused")).status == 503)
    full[0] = False
    expect_soon(lambda: service.ask(chat("served again")).status == 200)
    assert len({entry.request_id for entry in entries(folder)}) == len(entries(folder)) >= 2


def test_without_a_ledger_requests_are_served_all_the_same(serve):
    assert serve(ledger="off").ask(chat("hello")).status == 200


def amounts(service, text, **given):
    reply = service.ask(chat(text, **given))
    assert reply.status == 200
    return reply


@pytest.mark.parametrize("stream", [False, True])
def test_at_level_matches_amounts_and_dates_are_kept_with_their_logprob_and_sources(recorded, folder, stream):
    service = recorded(sections={"ledger": {"audit": "matches"}})
    reply = amounts(service, "pay 1,250.00 EUR by 2026-11-29", stream=stream)
    found = [record for record in records(folder) if isinstance(record, Match)]
    assert [match.text for match in found] == [b"1,250.00 EUR", b"2026-11-29"]
    assert [match.logprob for match in found] == [-0.5, -0.5]
    assert [(match.token, match.tokens, match.offset) for match in found] == [(4, 12, 4), (20, 10, 20)]
    assert [[(place.message, place.offset) for place in match.sources] for match in found] == [[(0, 4)], [(0, 20)]]
    assert {match.request_id.decode() for match in found} == {reply.headers["x-request-id"]}
    assert b"logprob" not in reply.body.replace(b'"logprobs":null', b"")


def test_at_level_metadata_no_text_is_kept(recorded, folder):
    amounts(recorded(), "pay 1,250.00 EUR by 2026-11-29")
    assert not any(isinstance(record, Match) for record in records(folder))
    assert b"1,250" not in b"".join(path.read_bytes() for path in folder.iterdir())


def test_at_level_off_only_what_is_charged_is_kept(recorded, folder):
    amounts(recorded(sections={"ledger": {"audit": "off"}}), "hello")
    (entry,) = entries(folder)
    assert (entry.request_id, entry.route, entry.code, sum(entry.stages_us)) == (b"", b"", b"", 0)
    assert entry.flags & Flag.UNNAMED
    assert entry.completion_tokens == 6


KEEPS = {"cache": {"answers_mb": 1}}


def test_an_equal_request_gets_the_kept_answer_and_costs_nothing(recorded, folder):
    service = recorded(sections=KEEPS)
    first = service.ask(chat("hello", temperature=0))
    opened = service.engine.opened
    second = service.ask(chat("hello", temperature=0))
    assert (first.headers["x-zl-cache"], second.headers["x-zl-cache"]) == ("miss", "hit")
    assert second.json["choices"] == first.json["choices"]
    assert second.json["usage"]["prompt_tokens_details"]["cached_tokens"] == 6
    assert service.engine.opened == opened
    computed, kept = entries(folder)
    assert not computed.flags & Flag.ANSWER_CACHED
    assert kept.flags & Flag.ANSWER_CACHED
    assert (kept.core_ns, kept.completion_tokens, kept.cached_tokens) == (0, 6, 6)


def test_a_kept_answer_may_be_streamed_and_the_other_way_round(recorded):
    service = recorded(sections=KEEPS)
    for stream in (False, True, False):
        reply = service.ask(chat("hello", temperature=0, stream=stream))
        assert "hello" in (reply.text if stream else reply.json["choices"][0]["message"]["content"])


def test_a_kept_answer_needs_no_slot(recorded):
    service = recorded(sections=KEEPS, slots=1)
    service.ask(chat("hello", temperature=0))
    service.hold_steps()
    with service.connect() as client:
        client.sendall(chat("a" * 50))
        expect_soon(lambda: service.running() == 1)
        assert service.ask(chat("hello", temperature=0)).status == 200
        service.step(200)


@pytest.mark.parametrize("changed", [{"temperature": 1}, {"max_tokens": 3}, {"seed": 1}, {"stop": ["l"]}])
def test_another_request_is_computed(recorded, changed):
    service = recorded(sections=KEEPS)
    service.ask(chat("hello", temperature=0))
    opened = service.engine.opened
    reply = service.ask(chat("hello", **{"temperature": 0, **changed}))
    assert reply.headers.get("x-zl-cache") != "hit"
    assert service.engine.opened == opened + 1


@pytest.mark.parametrize(("wish", "told"), [("no-cache", "miss"), ("no-store", None)])
def test_a_client_may_ask_for_a_new_answer(recorded, wish, told):
    service = recorded(sections=KEEPS)
    service.ask(chat("hello", temperature=0))
    asked = chat("hello", f"cache-control: {wish}", temperature=0)
    assert service.ask(asked).headers.get("x-zl-cache") == told


def test_by_default_no_answer_is_kept(recorded):
    service = recorded()
    for _ in range(2):
        assert "x-zl-cache" not in service.ask(chat("hello", temperature=0)).headers


SEVERAL = {"section": {"n": 4}}


@pytest.mark.parametrize("stream", [False, True])
def test_several_answers_are_one_record_whose_prompt_is_counted_once(recorded, folder, stream):
    service = recorded(**SEVERAL)
    assert service.ask(chat("hello", n=3, stream=stream)).status == 200
    (entry,) = entries(folder)
    assert (entry.outcome, entry.prompt_tokens, entry.completion_tokens) == (Outcome.FINISHED, 6, 18)


def test_of_several_answers_that_are_cut_all_is_recorded_and_nothing_stays_held(recorded, folder):
    service = recorded(**SEVERAL, sections={"tenants": {"concurrent": 5, "tokens_per_minute": 100_000}})
    service.hold_steps()
    with service.connect() as client:
        client.sendall(chat("a" * 100, n=3, stream=True))
        service.step(8)
        expect_soon(lambda: service.told() == 8)
    expect_soon(lambda: len(entries(folder)) == 1)
    service.step(100)
    expect_soon(lambda: service.free_slots() == 4)
    (entry,) = entries(folder)
    assert entry.outcome == Outcome.ABORTED
    assert entry.completion_tokens >= 3
    (account,) = service.on_loop(service.server.guard.budgets.accounts)
    assert (account.running, account.held_tokens, account.held_us, account.held_requests) == (0, 0, 0, 0)


def test_several_answers_that_all_end_leave_nothing_held(recorded):
    service = recorded(**SEVERAL, sections={"tenants": {"concurrent": 5, "tokens_per_minute": 100_000}})
    service.ask(chat("hello", n=3))
    (account,) = service.on_loop(service.server.guard.budgets.accounts)
    assert (account.running, account.held_tokens, account.held_us, account.held_requests) == (0, 0, 0, 0)


@pytest.mark.parametrize(
    ("path", "body", "route"),
    [
        ("/v1/messages", {"max_tokens": 20, "messages": [{"role": "user", "content": "hello"}]}, b"messages"),
        ("/v1/responses", {"input": "hello"}, b"responses"),
    ],
)
def test_the_other_apis_are_recorded_under_their_names(recorded, folder, path, body, route):
    assert recorded().ask(post(path, {"model": "echo", **body})).status == 200
    (entry,) = entries(folder)
    assert (entry.route, entry.outcome, entry.completion_tokens) == (route, Outcome.FINISHED, 6)


def test_every_path_that_generates_is_one_that_is_recorded(serve):
    service = serve()
    posts = {path for path, actions in service.server.tables.service_paths.items() if "POST" in actions}
    others = {"/v1/count_tokens", "/v1/messages/count_tokens", "/v1/responses/input_tokens", "/v1/responses/"}
    generating = {path for path in posts if path.startswith("/v1/") and "lease" not in path}
    assert generating - others <= set(RECORDED)
