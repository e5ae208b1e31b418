"""No key and no word of a prompt reaches a log or the ledger, whatever happens to the request."""

from __future__ import annotations

import io
import json
import logging

import pytest
from echo_service import chat, get, post

from zerolayer.errors import EngineFailed
from zerolayer.observe.logs import start_logging

KEY = "sk-zl1-nobodyMayReadThisKey"
WORD = "nobodyMayReadThisWord"


@pytest.fixture
def log():
    """Everything that stderr would be told, at the level that tells most."""
    root, stream = logging.getLogger(), io.StringIO()
    handlers, level = list(root.handlers), root.level
    start_logging("text", "debug", access=True, stream=stream)
    yield stream
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.getLogger("zerolayer.access").setLevel(logging.NOTSET)


def asked(service):
    """Requests that end in every way that there is."""
    shown = f"authorization: Bearer {KEY}"
    service.ask(chat(WORD, shown))
    service.ask(chat(WORD, shown, stream=True))
    service.ask(chat(WORD, f"x-api-key: {KEY}", max_tokens=-1))
    service.ask(post("/v1/chat/completions", b'{"model":"echo","messages":[{"content":"%b' % WORD.encode(), shown))
    service.ask(chat(WORD * 60_000, shown))
    service.ask(chat(WORD * 100, shown))
    service.ask(get(f"/v1/{WORD}?key={KEY}", shown))
    service.ask(chat(WORD, "x-zl-deadline-ms: 0"))
    service.engine.broken = EngineFailed(f"the engine saw {WORD}")
    service.ask(chat(WORD, shown, stream=True))


def test_no_log_line_holds_a_key_or_a_prompt(serve, log, tmp_path):
    service = serve(ledger=str(tmp_path / "ledger"), access_log="true")
    asked(service)
    service.close()
    lines = log.getvalue()
    assert lines.count("zerolayer.access request") >= 7
    assert KEY not in lines
    assert WORD not in lines


@pytest.mark.parametrize("level", ["off", "metadata", "matches"])
def test_no_record_holds_a_key_or_a_prompt(serve, tmp_path, level):
    service = serve(ledger=str(tmp_path / "ledger"), sections={"ledger": {"audit": level}})
    asked(service)
    service.close()
    written = b"".join(path.read_bytes() for path in (tmp_path / "ledger").iterdir())
    assert len(written) > 7 * 448
    assert KEY.encode() not in written
    assert WORD.encode() not in written


def test_a_request_id_that_wants_to_forge_a_line_stays_in_its_own(serve, log, tmp_path):
    service = serve(ledger=str(tmp_path / "ledger"), access_log="true")
    service.ask(chat("hello", 'x-request-id: a"b=c\\n'))
    (line,) = [line for line in log.getvalue().splitlines() if "access request" in line]
    assert r'request_id="a\"b=c\\n"' in line
    assert json.dumps(line).count("\\u") == 0
