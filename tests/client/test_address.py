"""What is told of a connection that did not come about, or broke."""

from __future__ import annotations

import builtins
import errno
import socket
import ssl

import pytest

from zerolayer.client.address import Address, network_reason

SECRET = "the text of another library"


KINDS = {
    each
    for module in (builtins, socket, ssl)
    for each in vars(module).values()
    if isinstance(each, type) and issubclass(each, OSError)
}


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (socket.gaierror(-2, SECRET), "no name server knows that name"),
        (ssl.SSLCertVerificationError(1, SECRET), "its certificate is none that this machine trusts"),
        (ssl.SSLEOFError(8, SECRET), "TLS failed; perhaps it does not speak https there"),
        (TimeoutError(), "it took too long"),
        (TimeoutError(errno.ETIMEDOUT, SECRET), "it took too long"),
        (OSError(errno.EHOSTUNREACH, SECRET), "No route to host"),
        (OSError(SECRET), "no reason was given"),
        (ConnectionResetError(SECRET), "the connection was lost"),
        (BrokenPipeError(errno.EPIPE, SECRET), "the connection was lost"),
    ],
)
def test_the_reason_is_told_in_words_and_never_in_those_of_another_library(error: OSError, told: str) -> None:
    assert network_reason(error) == told
    message = Address.parse("http://h:1").unreachable(error).message
    assert message == f"http://h:1 cannot be reached: {told}. Check the address."


@pytest.mark.parametrize("kind", sorted(KINDS, key=lambda kind: kind.__name__))
def test_no_class_of_an_error_is_told_by_its_name(kind: type[OSError]) -> None:
    error = kind(SECRET)
    for told in (network_reason(error), Address.parse("http://h:1").silent(error).message):
        assert kind.__name__ not in told
        assert SECRET not in told
