"""What stands in for the chat template of a model that has none."""

from __future__ import annotations

from collections.abc import Sequence

from zerolayer.errors import InvalidRequest
from zerolayer.wire.schema import Message, Tool


class NoChatTemplate:
    """Refuses conversations: guessing a format would give bad answers that look like the model's own."""

    compiled = False
    why = "the model file has no chat template"

    def encode(self, _messages: Sequence[Message], _tools: Sequence[Tool] = ()) -> list[int]:
        raise InvalidRequest(
            "this model has no chat template, so it takes no conversations; send a prompt to /v1/completions",
            param="messages",
        )
