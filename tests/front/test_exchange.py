"""An exchange by itself: its name, its account, and a reply that is written once."""

from __future__ import annotations

import gc
import time
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerolayer.front.caller import Caller
from zerolayer.front.exchange import NEVER, Exchange
from zerolayer.front.site import ConnectionLimits, Site
from zerolayer.guard.identity import ANYONE
from zerolayer.observe.glue import GlueMeter
from zerolayer.observe.metrics import Metrics
from zerolayer.observe.stages import Stage
from zerolayer.wire.http1_head import Head, first_values


class Carrier:
    """Remembers the replies."""

    draining = False

    def __init__(self, site: Site) -> None:
        self.common = site.http1
        self.replies: list[tuple[object, ...]] = []

    def reply(self, status, common, headers, body, *, keep_alive, head_only) -> None:
        self.replies.append((status, common, headers, body, keep_alive, head_only))

    def whole_stream(self, common, headers, data, trailers, *, keep_alive) -> None:
        self.replies.append((common, headers, data, trailers, keep_alive))

    def open_stream(self, _common, _headers, data, *, keep_alive) -> None:
        self.replies.append((data, keep_alive))

    def end_stream(self, data, trailers, *, keep_alive) -> None:
        self.replies.append((data, trailers, keep_alive))


class Clock:
    now_ns = 100

    def __call__(self) -> int:
        self.now_ns += 1
        return self.now_ns


def _site() -> Site:
    return Site(ConnectionLimits(), Clock(), lambda: 0.0, "m", lambda: b"free=1", Metrics("m"), GlueMeter())


def _head(method: str = "POST", *headers: tuple[bytes, bytes], keep_alive: bool = True) -> Head:
    return Head(method, "/x", "", headers, 1, keep_alive, False, 0, first_values(headers))


@pytest.fixture
def site() -> Site:
    return _site()


@pytest.fixture
def carrier(site) -> Carrier:
    return Carrier(site)


def test_a_new_exchange_has_said_and_decided_nothing(site, carrier):
    head = _head()
    exchange = Exchange(carrier, site, head, 7)
    assert exchange.head is head
    assert exchange.identity is ANYONE
    assert (exchange.action, exchange.intake, exchange.on_gone, exchange.receipt, exchange.explain) == (None,) * 5
    assert (exchange.body, exchange.allow, exchange.more_headers) == (b"", b"", ())
    assert (exchange.streaming, exchange.tells_when, exchange.deadline_ns) == (False, None, NEVER)
    assert (exchange.stages.started_ns, site.glue.busy_ns(9)) == (7, 2)


def test_a_head_that_was_unreadable_is_one_without_anything(site, carrier):
    assert (Exchange(carrier, site, None, 0).head.method, Exchange(carrier, site, None, 0).head.headers) == ("", ())


@given(st.binary(max_size=5) | st.integers(120, 140).map(lambda size: b"n" * size))
def test_a_request_keeps_its_own_name_where_that_is_short_and_visible(name):
    site = _site()
    made = Exchange(Carrier(site), site, _head("POST", (b"x-request-id", name)), 0).id
    is_name = 0 < len(name) <= 128 and all(0x21 <= byte <= 0x7E for byte in name)
    assert (made == name) is is_name
    assert is_name or len(made) == 20


@pytest.mark.parametrize(
    ("caller", "credential"),
    [
        (Caller(address="192.0.2.7"), "192.0.2.7"),
        (Caller(address="2001:db8:1:2:3::4"), "2001:db8:1:2::/64"),
        (Caller(address="2001:db8:1:2::9"), "2001:db8:1:2::/64"),
        (Caller(address="2001:db8:1:3::9"), "2001:db8:1:3::/64"),
        (Caller(address="fe80::1%eth0"), "fe80::/64"),
        (Caller(address="2001:db8::1", subject="router"), "router"),
        (Caller(pid=1, uid=1000, gid=1000), "uid 1000"),
    ],
)
def test_bookings_without_a_key_belong_to_who_can_be_told_apart(site, carrier, caller, credential):
    carrier.caller = caller
    assert Exchange(carrier, site, _head(), 0).credential == credential


def test_names_that_were_made_differ(site, carrier):
    assert len({Exchange(carrier, site, _head(), 0).id for _ in range(300)} | {site.ids.new()}) == 301


def test_only_the_first_reply_is_written(site, carrier):
    exchange = Exchange(carrier, site, _head(), 100)
    exchange.more_headers = ((b"a", b"b"),)
    exchange.reply(200, ((b"c", b"d"),), b"body", spelled=b"e: f\r\n")
    exchange.reply(500, (), b"late")
    ((status, common, headers, body, keep_alive, head_only),) = carrier.replies
    assert (status, headers, body, keep_alive, head_only) == (200, ((b"a", b"b"), (b"c", b"d")), b"body", True, False)
    assert common.startswith(b"server: zerolayer/m")
    assert common.endswith(b"\r\ne: f\r\n")


def test_a_stream_that_ends_with_its_first_events_is_written_whole(site, carrier):
    exchange = Exchange(carrier, site, _head(), 100)
    exchange.media, exchange.more_headers = ((b"a", b"b"),), ((b"c", b"d"),)
    exchange.end_stream(b"all", ((b"e", b"f"),))
    exchange.end_stream(b"late")
    ((common, headers, data, trailers, keep_alive),) = carrier.replies
    assert (headers, data, trailers, keep_alive) == (((b"a", b"b"), (b"c", b"d")), b"all", ((b"e", b"f"),), True)
    assert common.startswith(b"server: zerolayer/m")
    assert exchange.streaming
    assert site.glue.busy_ns(1000) > 0


@pytest.mark.parametrize(("head", "draining"), [(_head(), False), (_head(keep_alive=False), False), (_head(), True)])
def test_a_stream_that_has_begun_ends_once(site, carrier, head, draining):
    exchange = Exchange(carrier, site, head, 100)
    exchange.stream(b"first")
    carrier.draining = draining
    exchange.end_stream(b"last")
    exchange.end_stream(b"late")
    assert carrier.replies[1:] == [(b"last", (), head.keep_alive and not draining)]


@pytest.mark.parametrize("given_", [(), (b"a", (), b"more")])
def test_a_stream_ends_with_events_and_trailers_only(site, carrier, given_):
    with pytest.raises(TypeError):
        Exchange(carrier, site, _head(), 0).end_stream(*given_)
    with pytest.raises(TypeError):
        Exchange.__new__(Exchange).end_stream(b"a")


@pytest.mark.parametrize(
    ("keep_alive", "head", "draining"),
    [(False, _head(), False), (True, _head(keep_alive=False), False), (True, _head(), True)],
)
def test_a_connection_ends_where_anybody_says_so(site, carrier, keep_alive, head, draining):
    carrier.draining = draining
    Exchange(carrier, site, head, 0).reply(200, (), b"", keep_alive=keep_alive)
    assert carrier.replies[0][4] is False


def test_the_reply_to_a_head_request_is_one(site, carrier):
    Exchange(carrier, site, _head("HEAD"), 0).reply(200, (), b"x")
    assert carrier.replies[0][5] is True


def test_time_from_the_first_byte_to_the_reply_is_in_the_account(site, carrier):
    exchange = Exchange(carrier, site, _head(), 100)
    exchange.mark(int(Stage.PARSE))
    exchange.reply(200, (), b"")
    spent = exchange.stages.spent_ns()
    assert (spent[Stage.PARSE], spent[Stage.FRAME], spent[Stage.WRITE]) == (1, 1, 1)
    assert site.glue.busy_ns(1000) == 3


def test_who_is_gone_writes_nothing_and_is_told_once(site, carrier):
    exchange, gone = Exchange(carrier, site, _head(), 0), []
    exchange.on_gone = lambda: gone.append(1)
    exchange.gone()
    exchange.gone()
    exchange.reply(200, (), b"")
    assert (gone, carrier.replies) == ([1], [])


def test_what_the_carrier_raises_is_raised(site, carrier):
    def fail(*_given, **_named) -> None:
        raise KeyError

    carrier.reply = fail
    with pytest.raises(KeyError):
        Exchange(carrier, site, _head(), 0).reply(200, (), b"")


def test_an_exchange_that_never_began_does_nothing():
    empty = Exchange.__new__(Exchange)
    for call in (lambda: empty.mark(0), lambda: empty.reply(200, (), b""), lambda: empty.head):
        with pytest.raises((TypeError, AttributeError)):
            call()


@pytest.mark.parametrize("wrong", ["site", "head"])
def test_an_exchange_is_of_a_site_and_a_head(site, carrier, wrong):
    given_ = {"site": site, "head": _head()} | {wrong: object()}
    with pytest.raises(TypeError):
        Exchange(carrier, given_["site"], given_["head"], 0)


def test_an_exchange_is_made_by_places(site, carrier):
    for given_, named in (((carrier, site, _head()), {"first_byte_ns": 0}), ((carrier, site, _head()), {})):
        with pytest.raises(TypeError):
            Exchange(*given_, **named)
    with pytest.raises(TypeError):
        Exchange(carrier, site, _head(), "now")


def test_pythons_own_clocks_tell_what_they_tell_python(carrier):
    site = Site(ConnectionLimits(), time.monotonic_ns, time.time, "m", lambda: b"", Metrics("m"), GlueMeter())
    carrier.common = site.http1
    before_ns, before_s = time.monotonic_ns(), time.time()
    exchange = Exchange(carrier, site, _head(), before_ns)
    exchange.reply(200, (), b"")
    after_ns, after_s = time.monotonic_ns(), time.time()
    assert before_ns <= exchange.stages.last_ns <= after_ns
    told = float(carrier.replies[0][1].partition(b"x-server-time: ")[2].partition(b"\r\n")[0])
    assert before_s - 1e-6 <= told <= after_s


def test_an_exchange_begins_once(site, carrier):
    exchange = Exchange(carrier, site, _head(), 0)
    with pytest.raises(TypeError):
        exchange.__init__(carrier, site, _head(), 0)


@pytest.mark.parametrize("stage", [-1, len(Stage)])
def test_there_are_no_other_stages(site, carrier, stage):
    with pytest.raises(IndexError):
        Exchange(carrier, site, _head(), 0).mark(stage)


def test_an_answered_exchange_is_not_left_to_the_garbage_collector(site, carrier):
    gc.collect()
    gc.disable()
    try:
        before = sum(isinstance(each, Exchange) for each in gc.get_objects())
        exchange = Exchange(carrier, site, _head(), 0)
        exchange.action = partial(Exchange.mark, exchange)
        exchange.reply(200, (), b"")
        del exchange
        assert sum(isinstance(each, Exchange) for each in gc.get_objects()) == before
    finally:
        gc.enable()
