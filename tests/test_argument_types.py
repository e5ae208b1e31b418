"""Numbers on a command line."""

from __future__ import annotations

import argparse
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerolayer.argument_types import listed, number, port, whole


@given(st.integers(-5, 15))
def test_a_whole_number_within_its_bounds_is_taken_and_no_other(value: int) -> None:
    if 0 <= value <= 10:
        assert whole(0, 10)(str(value)) == value
    else:
        with pytest.raises(argparse.ArgumentTypeError, match=r"is no whole number from 0 to 10$"):
            whole(0, 10)(str(value))


@pytest.mark.parametrize("text", ["", " ", "1.0", "1e3", "+1", "-1", "0x1", "\u0661", "1_0", "9" * 5000])
def test_what_is_not_written_in_digits_is_no_whole_number(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="whole number from 0 to"):
        whole(0, sys.maxsize)(text)


@pytest.mark.parametrize("text", ["", "x", "nan", "inf", "-0.5", "1000001"])
def test_a_number_is_finite_and_within_its_bounds(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=r"is no number from 0 to 1,000,000$"):
        number(0, 1e6)(text)


def test_numbers_may_have_a_fraction_and_come_as_a_list() -> None:
    assert listed(number(0, 1))("0.5,1,0") == (0.5, 1.0, 0.0)


def test_a_port_is_one_that_can_be_connected_to() -> None:
    assert (port("1"), port("65535")) == (1, 65535)
    for text in ("0", "65536"):
        with pytest.raises(argparse.ArgumentTypeError):
            port(text)
