"""What the contract says reaches the decoders."""

from __future__ import annotations

import msgspec

from wire.inference_messages import message
from zerolayer.contract import Contract, Program, System
from zerolayer.front.bodies import body_limits, request_decoder
from zerolayer.wire.schema import Message, Sampling


def test_every_limit_of_bodies_is_the_contracts():
    contract = Contract()
    limits = msgspec.structs.replace(contract.limits, max_tokens=7, temperature=(0.5, 1.0), stop=2, outside="clamp")
    made = body_limits(msgspec.structs.replace(contract, limits=limits))
    assert (made.max_tokens, made.temperature, made.stop, made.outside) == (7, (0.5, 1.0), 2, "clamp")
    assert (made.body_bytes, made.json_messages) == (contract.limits.body_bytes, contract.limits.json_messages)


def test_constants_and_programs_are_known_by_their_names():
    contract = msgspec.structs.replace(
        Contract(), system=(System("terse", "Be brief."),), program=(Program("exact", temperature=0.0, top_k=3),)
    )
    given = message("GenerateRequest")(model="m", system_name="terse", program="exact")
    request = request_decoder(contract).decode(given.SerializeToString())
    assert request.messages == (Message("system", "Be brief."),)
    assert request.sampling == Sampling(temperature=0.0, top_k=3)
