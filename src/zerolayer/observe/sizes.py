"""Requests by their size and by what they cost, under the names that vLLM's dashboards read. One writer: the loop."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import add
from typing import Final

from zerolayer.observe.exposition import Histogram, histograms, single

_NS_PER_S: Final = 1_000_000_000
_TOKENS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000)
_ANSWERS: Final = (1, 2, 5, 10, 20)
_STEP_TOKENS: Final = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
_TOKEN_S: Final = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
)  # fmt: skip
_REQUEST_S: Final = (
    0.01, 0.025, 0.05, 0.1, 0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0,
)  # fmt: skip


class Sizes:
    """Counted once a request, and for many steps at once, rendered on scrape.

    ``asked``: a request that will run wants so many answers to each of its prompts. ``started``: it gets its slot, for
    an answer of at most so many tokens. ``steps``: steps read and chose so many tokens together, each.
    """

    def __init__(self) -> None:
        self._prompt = Histogram(_TOKENS)
        self._generated = Histogram(_TOKENS)
        self._allowed = Histogram(_TOKENS)
        self._answers = Histogram(_ANSWERS)
        self._step = Histogram(_STEP_TOKENS)
        self.token_time = Histogram(_TOKEN_S, _NS_PER_S)
        self._queue = Histogram(_REQUEST_S, _NS_PER_S)
        self._decode = Histogram(_REQUEST_S, _NS_PER_S)
        self._inference = Histogram(_REQUEST_S, _NS_PER_S)
        self._prompt_tokens = 0
        self._cached_tokens = 0
        self.asked = self._answers.observe
        self.started = self._allowed.observe
        self.steps = self._step.add

    def finished(
        self,
        prompt: Sequence[int],
        cached: Sequence[int],
        generated: Sequence[int],
        wait_ns: Sequence[int],
        prefill_ns: Sequence[int],
        decode_ns: Sequence[int],
    ) -> None:
        """Answers are complete: tokens of each one's prompt, of it cached, and of itself; and where its time went."""
        self._prompt.add(prompt)
        self._generated.add(generated)
        self._prompt_tokens += sum(prompt)
        self._cached_tokens += sum(cached)
        self._queue.add(wait_ns)
        self._decode.add(decode_ns)
        self._inference.add([*map(add, prefill_ns, decode_ns)])
        pairs = zip(decode_ns, generated, strict=True)
        self.token_time.add([decode / (tokens - 1) for decode, tokens in pairs if tokens > 1])

    def fold(self) -> None:
        """As ``Histogram.fold``, for what is counted where it happens."""
        for histogram in (self._answers, self._allowed):
            histogram.fold()

    def lines(self, labels: str) -> Iterator[str]:
        """The samples with HELP and TYPE."""
        shown = (
            ("request_prompt_tokens", "Prompt tokens of a finished request.", self._prompt),
            ("request_generation_tokens", "Tokens of a finished answer.", self._generated),
            ("request_params_max_tokens", "The longest answer that was allowed.", self._allowed),
            ("request_max_num_generation_tokens", "The same; here no answer outgrows another.", self._allowed),
            ("request_params_n", "Answers to a prompt.", self._answers),
            ("iteration_tokens_total", "Tokens that a step read and chose.", self._step),
            ("request_time_per_output_token_seconds", "Steps after the first token, by token.", self.token_time),
            ("request_queue_time_seconds", "Waiting for a step border; there is no queue.", self._queue),
            ("request_decode_time_seconds", "Steps after the first token.", self._decode),
            ("request_inference_time_seconds", "Steps that held a row of the request.", self._inference),
        )
        yield from histograms("vllm:{}", labels, shown)
        for name, about, value in (
            ("prompt_tokens_cached_total", "Prompt tokens kept from earlier requests.", self._cached_tokens),
            ("prefix_cache_queries_total", "Prompt tokens that were looked for.", self._prompt_tokens),
            ("prefix_cache_hits_total", "And were found.", self._cached_tokens),
        ):
            yield from single(f"vllm:{name}", "counter", about, labels, value)
