"""The service ``zerolayer.v1.Inference`` over gRPC."""

from __future__ import annotations

from typing import Final

from zerolayer.errors import ZerolayerError
from zerolayer.front.exchange import Action, Exchange
from zerolayer.front.grpc import GrpcCall, Method
from zerolayer.front.inference import Inference
from zerolayer.wire.grpc import OK_TRAILERS, frame, status_trailers

SERVICE: Final = b"zerolayer.v1.Inference"


class GrpcFraming:
    """Messages of a call, each with its prefix; the status in trailers. A ``schema_form.Framing``."""

    always_streams = True

    def prepare(self, exchange: Exchange) -> None:
        """Nothing: the call has made the exchange its own."""

    def wrap(self, message: bytes) -> bytes:
        return frame(message)

    def end(self, exchange: Exchange, message: bytes) -> None:
        exchange.end_stream(frame(message), OK_TRAILERS)

    def fail(self, exchange: Exchange, error: ZerolayerError) -> None:
        exchange.end_stream(b"", status_trailers(error))

    def reply(self, exchange: Exchange, message: bytes) -> None:
        exchange.end_stream(frame(message), OK_TRAILERS)


def inference_methods(inference: Inference) -> dict[str, Method]:
    """Path -> method; ``inference`` must be of a ``GrpcFraming``."""
    service = SERVICE.decode("ascii")
    return {
        f"/{service}/Generate": _method(inference.generate),
        f"/{service}/CountTokens": _method(inference.count_tokens),
        f"/{service}/Health": _method(inference.health),
    }


def _method(action: Action) -> Method:
    def run(call: GrpcCall, message: bytes | None) -> None:
        call.exchange.body = message or b""
        action(call.exchange)

    return Method(run)
