"""Tokens to the text that may be shown: whole characters, stop strings cut, log probabilities beside their text."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Final

from zerolayer.front._native import TranscriptNumbers
from zerolayer.model.engine import SampledToken
from zerolayer.text.decode import Decoder
from zerolayer.text.stop import StopMatcher
from zerolayer.text.tool_calls import ToolCallParser
from zerolayer.text.tool_choice import callable_tools
from zerolayer.text.tool_format import ToolFormat
from zerolayer.text.vocabulary import Vocabulary
from zerolayer.wire.schema import CallDelta, FinishReason, Request, TokenLogprob

_ID_BYTES: Final = 12


class Transcript(TranscriptNumbers):
    """The text of one generation as it grows. ``stops`` are the request's stop strings; none costs nothing.

    ``completion_tokens`` are those so far, ``token_id`` is the last one. A ``silent`` one shows and counts nothing: its
    request wants no answer, only what is said about its prompt.
    """

    __slots__ = ("_logprobs", "_matcher", "_silent", "decoder", "prompt_logprobs", "reason")

    def __init__(self, decoder: Decoder, stops: Sequence[str], *, silent: bool = False) -> None:
        self._silent = silent
        self.prompt_logprobs: Sequence[TokenLogprob] = ()  # from the prompt's second token on, where asked for
        self.decoder = decoder
        self._matcher = StopMatcher(stops) if stops else None
        self._logprobs: list[TokenLogprob] = []
        self.reason: FinishReason | None = None  # set once the text is complete

    def push(self, token: SampledToken) -> str:
        """Take one token; returns the text that may be shown now (perhaps none yet) and sets ``reason``."""
        if token.prompt:
            self.prompt_logprobs = token.prompt
        if self._silent:
            self.reason = FinishReason.LENGTH
            return ""
        self.completion_tokens += 1
        self.token_id = token.token_id
        finish = token.finish
        if finish is None and token.logprob is None and self._matcher is None:
            return self.decoder.push(token.token_id)  # nearly every token
        if finish is FinishReason.STOP:  # an end-of-sequence token: counted, never shown
            text = self.decoder.flush()
        else:
            if token.logprob is not None:
                self._logprobs.append(token.logprob)
            text = self.decoder.push(token.token_id)
            if finish is not None:
                text += self.decoder.flush()
        if self._matcher is not None:
            text, stopped = self._matcher.push(text)
            if stopped:
                self.reason = FinishReason.STOP
                return text
            if finish is not None:
                text += self._matcher.flush()
        self.reason = finish
        return text

    @property
    def plain(self) -> bool:
        """Whether a token that is not the last one adds its text and nothing else."""
        return self._matcher is None and not self._silent and type(self) is Transcript

    @property
    def stopped_by(self) -> str:
        """The stop string that ended the text; "" for none."""
        return "" if self._matcher is None else self._matcher.met

    def take_calls(self) -> Sequence[CallDelta]:
        """Pieces of tool calls since the last call. Of one step they stand after its text; no text follows a call."""
        return ()

    def take_logprobs(self) -> Sequence[TokenLogprob]:
        """Log probabilities of the tokens since the last call; each leaves with the text that it completes."""
        if not self._logprobs:
            return ()
        taken, self._logprobs = self._logprobs, []
        return taken


class CallTranscript(Transcript):
    """A transcript of an answer that may call tools: what is left of its text without the calls.

    Log probabilities are shown of tokens that are text; those of a call are left out.
    """

    __slots__ = ("_parser",)

    def __init__(self, decoder: Decoder, stops: Sequence[str], parser: ToolCallParser) -> None:
        super().__init__(decoder, stops)
        self._parser = parser

    def push(self, token: SampledToken) -> str:
        """As ``Transcript.push``."""
        parser = self._parser
        text = parser.push(super().push(token))
        if self.reason is not None:
            text += parser.flush()
            if parser.calls and self.reason is FinishReason.STOP:
                self.reason = FinishReason.TOOL_CALLS
        if parser.calls:
            self._logprobs.clear()
        return text

    def take_calls(self) -> Sequence[CallDelta]:
        """As ``Transcript.take_calls``."""
        return self._parser.take()


class Transcripts:
    """Makes the transcript of a request. ``form``: how the model writes calls of tools."""

    def __init__(self, vocabulary: Vocabulary, form: ToolFormat) -> None:
        self._vocabulary = vocabulary
        self._form = form
        self._texts = list(vocabulary.texts)  # control tokens that are a part of calls are read, not left out
        for marker in form.markers:
            token_id = vocabulary.special_ids.get(marker)
            if token_id is not None:
                self._texts[token_id] = marker

    def of(self, request: Request, call_prefix: str = "call_") -> Transcript:
        """For one request that is about to run. ``call_prefix`` begins the ids of tool calls."""
        tools = callable_tools(request)
        if not tools:
            return Transcript(Decoder(self._vocabulary), request.stop, silent=request.max_tokens == 0)
        names = {tool.name for tool in tools}
        parser = ToolCallParser(self._form, names, lambda: call_prefix + secrets.token_hex(_ID_BYTES))
        return CallTranscript(Decoder(self._vocabulary, self._texts), request.stop, parser)
