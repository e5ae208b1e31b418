"""Tokens to the text that may be shown: whole characters, stop strings cut, log probabilities beside their text."""

from __future__ import annotations

from collections.abc import Sequence

from zerolayer.model.engine import SampledToken
from zerolayer.text.decode import Decoder
from zerolayer.text.stop import StopMatcher
from zerolayer.wire.schema import FinishReason, TokenLogprob


class Transcript:
    """The text of one generation as it grows. ``stops`` are the request's stop strings; none costs nothing."""

    __slots__ = ("_decoder", "_logprobs", "_matcher", "completion_tokens", "reason")

    def __init__(self, decoder: Decoder, stops: Sequence[str]) -> None:
        self._decoder = decoder
        self._matcher = StopMatcher(stops) if stops else None
        self._logprobs: list[TokenLogprob] = []
        self.completion_tokens = 0
        self.reason: FinishReason | None = None  # set once the text is complete

    def push(self, token: SampledToken) -> str:
        """Take one token; returns the text that may be shown now (perhaps none yet) and sets ``reason``."""
        self.completion_tokens += 1
        finish = token.finish
        if finish is None and token.logprob is None and self._matcher is None:
            return self._decoder.push(token.token_id)  # nearly every token
        if finish is FinishReason.STOP:  # an end-of-sequence token: counted, never shown
            text = self._decoder.flush()
        else:
            if token.logprob is not None:
                self._logprobs.append(token.logprob)
            text = self._decoder.push(token.token_id)
            if finish is not None:
                text += self._decoder.flush()
        if self._matcher is not None:
            text, stopped = self._matcher.push(text)
            if stopped:
                self.reason = FinishReason.STOP
                return text
            if finish is not None:
                text += self._matcher.flush()
        self.reason = finish
        return text

    def take_logprobs(self) -> Sequence[TokenLogprob]:
        """Log probabilities of the tokens since the last call; each leaves with the text that it completes."""
        if not self._logprobs:
            return ()
        taken, self._logprobs = self._logprobs, []
        return taken
