"""What the contract says about bodies, in the terms of the decoders."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from zerolayer.contract import Contract
from zerolayer.wire.body_limits import BodyLimits
from zerolayer.wire.protobuf_request import RequestDecoder
from zerolayer.wire.schema import Sampling


def body_limits(contract: Contract, clamped: Callable[[str], None] | None = None) -> BodyLimits:
    """The section ``limits``, as far as bodies are concerned; ``clamped`` is told of each value that was moved."""
    limits = contract.limits
    made = BodyLimits(
        body_bytes=limits.body_bytes,
        json_messages=limits.json_messages,
        max_tokens=limits.max_tokens,
        temperature=limits.temperature,
        stop=limits.stop,
        n=limits.n,
        top_logprobs=limits.top_logprobs,
        tools=limits.tools,
        schema_bytes=limits.schema_bytes,
        outside=limits.outside,
    )
    return made if clamped is None else msgspec.structs.replace(made, clamped=clamped)


def request_decoder(contract: Contract, limits: BodyLimits | None = None) -> RequestDecoder:
    """A decoder of the schema that knows the contract's constants and programs by name."""
    programs = {
        program.name: Sampling(
            temperature=program.temperature,
            top_p=program.top_p,
            top_k=program.top_k,
            repetition_penalty=program.repetition_penalty,
        )
        for program in contract.program
    }
    systems = {system.name: system.text for system in contract.system}
    return RequestDecoder(limits or body_limits(contract), contract.context.max_messages, systems, programs)
