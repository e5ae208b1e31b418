"""Where a ledger is by itself, and where there is none."""

from pathlib import Path

import pytest

from zerolayer.contract import load
from zerolayer.guard.ledger.place import ledger_folder

HOME = {"HOME": "/home/me"}


def place(environ=HOME, **flags):
    return ledger_folder(load(None, {}, flags).contract, environ)


def test_by_itself_it_is_in_the_users_state_folder_by_port():
    assert place(port="9000") == Path("/home/me/.local/state/zerolayer/ledger-9000")


def test_another_state_folder_is_obeyed_when_it_is_absolute():
    assert place({**HOME, "XDG_STATE_HOME": "/state"}) == Path("/state/zerolayer/ledger-8000")
    assert place({**HOME, "XDG_STATE_HOME": "state"}) == Path("/home/me/.local/state/zerolayer/ledger-8000")


@pytest.mark.parametrize("flags", [{"ledger": "off"}, {"port": "0"}])
def test_there_is_none_where_it_is_off_or_the_port_is_not_known_before(flags):
    assert place(**flags) is None


def test_a_named_folder_is_taken_whatever_the_port():
    assert place(ledger="/var/lib/zl", port="0") == Path("/var/lib/zl")
