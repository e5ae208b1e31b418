"""The service ``zerolayer.v1.Inference`` over gRPC."""

from __future__ import annotations

from typing import Final

from zerolayer.errors import ZerolayerError
from zerolayer.front.exchange import Action, Exchange
from zerolayer.front.inference import Inference
from zerolayer.front.schema_form import Values
from zerolayer.wire._native import own_names
from zerolayer.wire.grpc import OK_TRAILERS, frame, status_trailers

SERVICE: Final = b"zerolayer.v1.Inference"


class GrpcFraming:
    """Messages of a call, each with its prefix; the status in trailers. A ``schema_form.Framing``."""

    always_streams = True

    def prepare(self, exchange: Exchange) -> Values:
        """The call has made the exchange its own. In gRPC's metadata our own names are without their x-."""
        return own_names(exchange.head.values)

    def wrap(self, message: bytes) -> bytes:
        return frame(message)

    def end(self, exchange: Exchange, message: bytes) -> None:
        exchange.end_stream(frame(message), OK_TRAILERS)

    def fail(self, exchange: Exchange, error: ZerolayerError) -> None:
        exchange.end_stream(b"", status_trailers(error))

    def reply(self, exchange: Exchange, message: bytes) -> None:
        exchange.end_stream(frame(message), OK_TRAILERS)


def inference_actions(inference: Inference) -> dict[str, Action]:
    """Path -> what a call of it does, its message being the exchange's body; ``inference`` is of a ``GrpcFraming``."""
    service = SERVICE.decode("ascii")
    return {
        f"/{service}/Generate": inference.generate,
        f"/{service}/CountTokens": inference.count_tokens,
        f"/{service}/Health": inference.health,
    }
