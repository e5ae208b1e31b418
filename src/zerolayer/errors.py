"""One tree of errors; every error knows its HTTP status, its gRPC code and what a client should do.

An error says what happened, what the limit is and what to do. Its text is made of constants and numbers only: no
prompt, no key and no text of another library ever enters a message that leaves the process.
"""

from __future__ import annotations

import os
from functools import cached_property
from typing import ClassVar, Final

HELP: Final = "docs/troubleshooting.md#"


def system_reason(error: OSError) -> str:
    """Why the system refused, in its own words, as in ``No such file or directory``: no path, and no other text."""
    return os.strerror(error.errno) if error.errno else "no reason was given"


class ZerolayerError(Exception):
    """Base of all errors that are meant to be read by a person or a client.

    ``status`` is the HTTP status, ``grpc_code`` the code of https://grpc.io/docs/guides/status-codes/, ``kind`` the
    ``type`` member and ``code`` the ``code`` member of OpenAI's error object.
    """

    status: ClassVar[int] = 500
    grpc_code: ClassVar[int] = 13
    kind: ClassVar[str] = "server_error"
    code: ClassVar[str] = "internal_error"
    limit = ""  # the limit that it is about, as a label of ``zerolayer:limit_total``; empty for none
    param: str | None = None

    def __init__(self, message: str, *, param: str | None = None, limit: str = "") -> None:
        self.message = message
        if param is not None:
            self.param = param
        if limit:
            self.limit = limit

    @property
    def help(self) -> str:
        """Where the documentation has its cause and its remedy: the row of its code."""
        return HELP + self.code

    def __str__(self) -> str:
        return self.message


class InvalidRequest(ZerolayerError):
    """The request itself is wrong; sending it again cannot help."""

    status = 400
    grpc_code = 3
    kind = "invalid_request_error"
    code = "invalid_request"


class ContextTooLong(InvalidRequest):
    """Prompt plus requested tokens do not fit a slot."""

    code = "context_length_exceeded"
    limit = "slot_tokens"


class VocabularyChanged(InvalidRequest):
    """The client's token ids are of another vocabulary than the model's."""

    status = 412
    grpc_code = 10
    code = "vocabulary_changed"


class Unauthenticated(ZerolayerError):
    """No valid key."""

    status = 401
    grpc_code = 16
    kind = "authentication_error"
    code = "invalid_api_key"


class PermissionRefused(ZerolayerError):
    """The key is valid, and may not do this."""

    status = 403
    grpc_code = 7
    kind = "permission_error"
    code = "permission_denied"


class OriginRefused(ZerolayerError):
    """A browser page of another origin asked, and the contract does not allow that origin."""

    status = 403
    grpc_code = 7
    kind = "permission_error"
    code = "origin_refused"


class NotFound(ZerolayerError):
    """No such path or model."""

    status = 404
    grpc_code = 5
    kind = "invalid_request_error"
    code = "not_found"


class ModelNotFound(NotFound):
    """``model`` names nothing that this service serves."""

    code = "model_not_found"


class UnknownMethod(NotFound):
    """gRPC: no such service or method, or a form of it that this server does not speak."""

    grpc_code = 12
    code = "unknown_method"


class MethodNotAllowed(ZerolayerError):
    """The path exists, the method does not."""

    status = 405
    grpc_code = 12
    kind = "invalid_request_error"
    code = "method_not_allowed"


class RequestTimeout(ZerolayerError):
    """The client took longer to send its request than the idle limit allows."""

    status = 408
    grpc_code = 4
    kind = "invalid_request_error"
    code = "request_timeout"


class DeadlineExceeded(ZerolayerError):
    """The deadline that the client set passed before the reply was complete."""

    status = 504
    grpc_code = 4
    code = "deadline_exceeded"


class BodyTooLarge(ZerolayerError):
    """The body is larger than ``limits.body_bytes``."""

    status = 413
    grpc_code = 8
    kind = "invalid_request_error"
    code = "request_too_large"
    limit = "body_bytes"


class UnsupportedMediaType(ZerolayerError):
    """The body is not declared as JSON, or is compressed."""

    status = 415
    grpc_code = 3
    kind = "invalid_request_error"
    code = "unsupported_media_type"


class UnsupportedEncoding(UnsupportedMediaType):
    """A body, or a gRPC message, is compressed; the refusal names what is taken, which is ``identity`` alone."""

    grpc_code = 12


class NotCompressed(InvalidRequest):
    """gRPC: a message says that it is compressed, and its call does not say how. INTERNAL by gRPC's own rules."""

    grpc_code = 13


class HeadersTooLarge(ZerolayerError):
    """Request line and headers are larger than the protocol limit."""

    status = 431
    grpc_code = 8
    kind = "invalid_request_error"
    code = "headers_too_large"
    limit = "head_bytes"


class Infeasible(ZerolayerError):
    """The request can never be served within its limits, whatever the load."""

    status = 422
    grpc_code = 9
    kind = "invalid_request_error"
    code = "infeasible"


class DeadlineExpired(ZerolayerError):
    """The deadline that a request came with had passed when it arrived."""

    status = 422
    grpc_code = 4
    kind = "invalid_request_error"
    code = "deadline_expired"


class DeadlineMissed(ZerolayerError):
    """A request that was admitted is not done at its deadline; it ends here, rather than late without a word."""

    status = 504
    grpc_code = 4
    code = "deadline_missed"


class StaleInput(ZerolayerError):
    """The input is older than the request or the contract allows."""

    status = 409
    grpc_code = 9
    kind = "invalid_request_error"
    code = "stale_input"


class RetryLater(ZerolayerError):
    """Not now, but at a known time. ``retry_after_ms`` is an integer of at least 1, rounded up.

    ``template`` is the text, in which ``{ms}`` stands for the time: replies are rendered from prepared bytes of it.
    With a ``ticket`` the start is booked: whoever sends the same request again at that time is served.
    """

    status = 429
    grpc_code = 8
    kind = "rate_limit_error"

    __slots__ = ("retry_after_ms", "template", "ticket")  # under load it is made for most requests

    def __init__(self, template: str, retry_after_ms: int, ticket: str | None = None, limit: str = "") -> None:
        self.retry_after_ms = retry_after_ms if retry_after_ms > 0 else 1
        self.template = template
        self.ticket = ticket
        if limit:
            self.limit = limit

    @cached_property
    def message(self) -> str:  # type: ignore[override]
        """Made when somebody asks: most replies are rendered without it."""
        return self.template.replace("{ms}", str(self.retry_after_ms))


class SlotsBusy(RetryLater):
    """No slot can start the request now."""

    code = "slots_busy"


class RateLimited(RetryLater):
    """The key, or its tenant, has used what it may use in this time."""

    code = "rate_limit_exceeded"


class BudgetSpent(ZerolayerError):
    """A prepaid budget is used up, or a request is larger than its limit: coming back soon cannot help."""

    status = 429
    grpc_code = 8
    kind = "insufficient_quota"
    code = "insufficient_quota"


class BeyondHorizon(ZerolayerError):
    """No slot can start the request in time, or soon enough to promise anything. A retry now cannot help."""

    status = 429
    grpc_code = 8
    kind = "rate_limit_error"
    code = "beyond_horizon"


class DraftRefused(BeyondHorizon):
    """A request that only fills the prompt cache finds its one place taken. It is never booked."""

    code = "draft_refused"


class Unavailable(ZerolayerError):
    """The server is starting, draining or broken.

    A server that drains comes back as another process, and ``retry_after_ms`` is about what that takes. ``peers`` are
    the URLs of nodes that take the request now.
    """

    status = 503
    grpc_code = 14
    kind = "server_error"
    code = "unavailable"

    def __init__(
        self, message: str, *, param: str | None = None, peers: tuple[str, ...] = (), retry_after_ms: int = 1000
    ) -> None:
        super().__init__(message, param=param)
        self.peers = peers
        self.retry_after_ms = retry_after_ms


class EngineFailed(ZerolayerError):
    """A step failed; the streams it carried end with this error."""

    code = "engine_failed"


class StartupError(ZerolayerError):
    """The server cannot start as asked; the message names the remedy. Never sent to a client."""

    code = "startup_error"


class DeployFailed(ZerolayerError):
    """Another model was not put in the place of the one that is served, which is served on; the message says why."""

    status = 409
    grpc_code = 9
    kind = "invalid_request_error"
    code = "deploy_failed"


class ContractError(StartupError):
    """``contract.toml``, an environment variable or a flag is not acceptable."""

    code = "contract_error"


class TakeoverFailed(StartupError):
    """A running server could not be taken over; it goes on serving. The message names the remedy."""

    code = "takeover_failed"


class LedgerError(StartupError):
    """The ledger cannot be read or written; the message names the remedy."""

    code = "ledger_error"


class LedgerDamaged(LedgerError):
    """A ledger's chain does not hold: something in it was changed, or is missing. Never sent to a client."""

    code = "ledger_damaged"


class UsageError(ZerolayerError):
    """A command's arguments do not go together, or name nothing that exists; exit code 2. Never sent to a client."""

    code = "usage_error"


class ModelFileError(StartupError):
    """A model file is damaged, truncated, hostile or of a kind that is not supported."""

    code = "model_file_error"
