"""What is told of a connection that did not come about."""

from __future__ import annotations

import errno
import socket
import ssl

import pytest

from zerolayer.client.address import Address, connect_reason

SECRET = "the text of another library"


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (socket.gaierror(-2, SECRET), "no name server knows that name"),
        (ssl.SSLCertVerificationError(1, SECRET), "its certificate is none that this machine trusts"),
        (ssl.SSLEOFError(8, SECRET), "TLS failed; perhaps it does not speak https there"),
        (TimeoutError(), "it took too long to answer"),
        (TimeoutError(errno.ETIMEDOUT, SECRET), "it took too long to answer"),
        (OSError(errno.EHOSTUNREACH, SECRET), "No route to host"),
        (OSError(SECRET), "no reason was given"),
    ],
)
def test_the_reason_is_told_in_words_and_never_in_those_of_another_library(error: OSError, told: str) -> None:
    assert connect_reason(error) == told
    message = Address.parse("http://h:1").unreachable(error).message
    assert message == f"http://h:1 cannot be reached: {told}. Check the address."
