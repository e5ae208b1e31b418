"""One line an event, whatever is in it."""

import io
import json
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerolayer.observe.logs import JsonLines, TextLines, start_logging


def record(event="came", *, level=logging.INFO, exc_info=None, **fields):
    made = logging.LogRecord("zerolayer.test", level, __file__, 1, event, (), exc_info)
    made.created = 1_790_000_000.25
    vars(made).update(fields)
    return made


def test_a_line_of_text_says_when_how_bad_where_from_and_what():
    line = TextLines().format(record("draining", grace_s=10, path="/var/l"))
    assert line == "2026-09-21T14:13:20.250Z INFO zerolayer.test draining grace_s=10 path=/var/l"


def test_a_line_of_json_says_the_same():
    line = json.loads(JsonLines().format(record("draining", grace_s=10)))
    assert line == {
        "time": "2026-09-21T14:13:20.250Z",
        "level": "INFO",
        "logger": "zerolayer.test",
        "event": "draining",
        "grace_s": 10,
    }


def test_a_value_with_spaces_or_quotes_is_quoted():
    assert TextLines().format(record(name_='a "b" c=d')).endswith(r'name_="a \"b\" c=d"')


def test_a_line_feed_and_an_escape_sequence_are_written_out():
    line = TextLines().format(record("a\nb", request_id="x\r\n2026 INFO forged", colour="\x1b[31m"))
    assert r"a\nb" in line
    assert r"\x1b[31m" in line
    assert "\n" not in line


@pytest.mark.parametrize("lines", [TextLines(), JsonLines()])
@given(event=st.text(max_size=50), value=st.text(max_size=50))
def test_no_line_ever_holds_a_control_character(lines, event, value):
    line = lines.format(record(event.replace("%", ""), value=value))
    assert line.isprintable()


def test_of_an_exception_type_and_place_are_told_and_not_its_text():
    try:
        raise ValueError("the secret prompt")
    except ValueError as error:
        made = record("a request failed", exc_info=(type(error), error, error.__traceback__))
    for lines in (TextLines(), JsonLines()):
        line = lines.format(made)
        assert "ValueError" in line
        assert "test_logs.py:" in line
        assert "secret" not in line
        assert "\n" not in line


@pytest.fixture
def root():
    logger = logging.getLogger()
    handlers, level = list(logger.handlers), logger.level
    access = logging.getLogger("zerolayer.access")
    yield logger
    logger.handlers[:], access.level = handlers, logging.NOTSET
    logger.setLevel(level)


@pytest.mark.parametrize(("access", "lines"), [(False, 0), (True, 1)])
def test_requests_are_told_only_where_that_was_asked_for(root, access, lines):
    stream = io.StringIO()
    start_logging("text", "info", access=access, stream=stream)
    logging.getLogger("zerolayer.access").info("request", extra={"status": 200})
    assert len(stream.getvalue().splitlines()) == lines
