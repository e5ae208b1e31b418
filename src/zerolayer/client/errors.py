"""What can go wrong for a client, one class a cause. A caller that handles ``ClientError`` handles them all."""

from __future__ import annotations

import re
from typing import Final

from zerolayer.errors import HELP, ZerolayerError

_CODE: Final = re.compile(r"[a-z_]{1,40}")


class ClientError(ZerolayerError):
    """Base of everything that a ``Client`` raises."""

    code = "client_error"


class InvalidAddress(ClientError):
    """The base URL names no HTTP server."""

    code = "invalid_address"


class NotSupported(ClientError):
    """The client as it is installed cannot do what was asked; the message names what to install."""


class StaleInput(ClientError):
    """An input is older than its policy allows, and no newer one came. Nothing was sent."""


class NotReachable(ClientError):
    """Nothing answers at the address. ``sent``: the request was sent, so it may have been worked on."""

    code = "not_reachable"

    def __init__(self, message: str, *, sent: bool = False) -> None:
        super().__init__(message)
        self.sent = sent


class DeadlinePassed(ClientError):
    """The call's deadline passed before its answer was complete. The connection is closed, which frees the slot."""

    code = "deadline_passed"


class BadReply(ClientError):
    """The other side answered in a form that is not the protocol's."""

    code = "bad_reply"


class BrokenReply(BadReply):
    """The connection ended before the reply did."""

    code = "broken_reply"


class CutStream(ClientError):
    """The stream ended before its end mark: the text so far is not the whole answer."""

    code = "cut_stream"


class Refused(ClientError):
    """The server answered with an error.

    ``status_code`` is the HTTP status (200 when the error came in a stream), ``error_code`` the ``code`` of OpenAI's
    error object, ``retry_after_ms`` the wait that the server asks for before a retry, if it asks for one.
    """

    def __init__(
        self, message: str, *, status_code: int, error_code: str | None = None, retry_after_ms: int | None = None
    ) -> None:
        super().__init__(message)
        self.status_code = status_code
        self.error_code = error_code
        self.retry_after_ms = retry_after_ms

    @property
    def help(self) -> str:
        """The row of the server's code; of another server's code only what can be one of ours is repeated."""
        told = self.error_code or ""
        return HELP + (told if _CODE.fullmatch(told) else self.code)
