"""Requests by their size and by what they cost, under the names that vLLM's dashboards read. One writer: the loop."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt

from zerolayer.observe.exposition import Histogram, head, single
from zerolayer.observe.stages import Stage

_NS: Final = 1e-9
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
    """Counted once a request, and once a step, rendered on scrape."""

    def __init__(self) -> None:
        self._prompt = Histogram(_TOKENS)
        self._generated = Histogram(_TOKENS)
        self._allowed = Histogram(_TOKENS)
        self._answers = Histogram(_ANSWERS)
        self._step = Histogram(_STEP_TOKENS)
        self._token_time = Histogram(_TOKEN_S)
        self._queue = Histogram(_REQUEST_S)
        self._decode = Histogram(_REQUEST_S)
        self._inference = Histogram(_REQUEST_S)
        self._prompt_tokens = 0
        self._cached_tokens = 0

    def asked(self, answers: int) -> None:
        """A request that will run wants so many answers to each of its prompts."""
        self._answers.observe(answers)

    def started(self, max_tokens: int) -> None:
        """A request gets its slot, for an answer of at most so many tokens."""
        self._allowed.observe(max_tokens)

    def step(self, tokens: int) -> None:
        """A step read and chose so many tokens together."""
        self._step.observe(tokens)

    def finished(self, tokens: npt.NDArray[np.int64], spent_ns: npt.NDArray[np.int64]) -> None:
        """Answers are complete, a row each: tokens of the prompt, of it cached, of the answer; time by stage."""
        prompt, cached, generated = tokens.T
        spent = spent_ns * _NS
        decode = spent[:, Stage.DECODE]
        self._prompt.add(prompt)
        self._generated.add(generated)
        self._prompt_tokens += int(prompt.sum())
        self._cached_tokens += int(cached.sum())
        self._queue.add(spent[:, Stage.WAIT])
        self._decode.add(decode)
        self._inference.add(spent[:, Stage.PREFILL] + decode)
        several = generated > 1
        self._token_time.add(decode[several] / (generated[several] - 1))

    def fold(self) -> None:
        """As ``Histogram.fold``, for what is counted where it happens."""
        for histogram in (self._answers, self._allowed, self._step):
            histogram.fold()

    def lines(self, labels: str) -> Iterator[str]:
        """The samples with HELP and TYPE."""
        for name, about, histogram in (
            ("request_prompt_tokens", "Prompt tokens of a finished request.", self._prompt),
            ("request_generation_tokens", "Tokens of a finished answer.", self._generated),
            ("request_params_max_tokens", "The longest answer that was allowed.", self._allowed),
            ("request_max_num_generation_tokens", "The same; here no answer outgrows another.", self._allowed),
            ("request_params_n", "Answers to a prompt.", self._answers),
            ("iteration_tokens_total", "Tokens that a step read and chose.", self._step),
            ("request_time_per_output_token_seconds", "Steps after the first token, by token.", self._token_time),
            ("request_queue_time_seconds", "Waiting for a step border; there is no queue.", self._queue),
            ("request_decode_time_seconds", "Steps after the first token.", self._decode),
            ("request_inference_time_seconds", "Steps that held a row of the request.", self._inference),
        ):
            yield from head(f"vllm:{name}", "histogram", about)
            yield from histogram.lines(f"vllm:{name}", labels)
        for name, about, value in (
            ("prompt_tokens_cached_total", "Prompt tokens kept from earlier requests.", self._cached_tokens),
            ("prefix_cache_queries_total", "Prompt tokens that were looked for.", self._prompt_tokens),
            ("prefix_cache_hits_total", "And were found.", self._cached_tokens),
        ):
            yield from single(f"vllm:{name}", "counter", about, labels, value)
