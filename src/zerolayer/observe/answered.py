"""What one model answered: requests, tokens, steps and times, under its name (Prometheus text format 0.0.4).

While a request runs its numbers are only put down, as are those of a step; they are added up many at a time, at every
look, and before they become too many. One writer: the event loop.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import compress
from typing import Final

from zerolayer.observe.exposition import Histogram, escape, family, histograms, single
from zerolayer.observe.promises import Promises
from zerolayer.observe.sizes import Sizes
from zerolayer.observe.stages import STAGE_NAMES, Stage, StageClock

_FIRST_TOKEN_S: Final = (
    0.001, 0.0025, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0,
)  # fmt: skip
_BETWEEN_TOKENS_S: Final = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
)  # fmt: skip
_REQUEST_S: Final = (
    0.01, 0.025, 0.05, 0.1, 0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0,
)  # fmt: skip
_NS: Final = 1e-9
_NS_PER_S: Final = 1_000_000_000
_NO_ANSWER: Final = (0, 0, -1)
_TIMES: Final = len(_NO_ANSWER)  # where they begin in what is put down of a request: each stage, and the sum
_NUMBERS: Final = _TIMES + len(Stage) + 1
_FOLD: Final = 256  # requests, or steps; adding up so many takes the loop a fifth of a millisecond


class Answered:
    """Of one model; it may be served again after another one, and goes on where it was."""

    def __init__(self, model_name: str) -> None:
        self._model = escape(model_name)
        self.promises = Promises()
        self.sizes = Sizes()
        self.first_token = Histogram(_FIRST_TOKEN_S)
        self._between_tokens = Histogram(_BETWEEN_TOKENS_S)
        self._end_to_end = Histogram(_REQUEST_S, _NS_PER_S)
        self._prefill = Histogram(_REQUEST_S, _NS_PER_S)
        self._prompt_tokens = 0
        self.generation_tokens = 0
        self.ended: dict[str, int] = {"stop": 0, "length": 0, "tool_calls": 0, "abort": 0, "error": 0}
        self.steps: dict[str, int] = {}
        self.stage_ns = [0] * len(Stage)
        self._put_down: list[int] = []  # ``_NUMBERS`` each
        self._stepped: list[tuple[str, int, int, int, int]] = []

    def step(self, program: str, tokens: int, read: int = 0, gap_ns: int = 0, streams: int = 0) -> None:
        """A step ran, which chose ``tokens`` tokens and read so many of a prompt.

        ``streams`` of the tokens came ``gap_ns`` after the last ones of their streams.
        """
        self._stepped.append((program, tokens, read, gap_ns, streams))
        if len(self._stepped) >= _FOLD:
            self._fold_steps()

    def admitted(self, prompt_tokens: int) -> None:
        """A request got its slot."""
        self._prompt_tokens += prompt_tokens

    def finished(self, reason: str, stages: StageClock, tokens: tuple[int, int, int] = _NO_ANSWER) -> None:
        """An admitted request ended: ``stop``, ``length``, ``tool_calls``, ``abort`` (the client left) or ``error``.

        ``tokens`` of a complete answer: those of its prompt, how many of them were cached, and its own.
        """
        self.ended[reason] += 1
        put_down = self._put_down
        put_down += tokens
        stages.put_down(put_down)
        if len(put_down) >= _FOLD * _NUMBERS:
            self.fold()

    def fold(self) -> None:
        """Add up what was put down since the last time."""
        self._fold_steps()
        for each in (self.first_token, self.sizes, self.promises):
            each.fold()
        ended, self._put_down = self._put_down, []
        if not ended:
            return
        columns = [ended[place::_NUMBERS] for place in range(_NUMBERS)]
        for stage, spent in enumerate(columns[_TIMES:-1]):
            self.stage_ns[stage] += sum(spent)
        self._end_to_end.add(columns[-1])
        self._prefill.add(columns[_TIMES + Stage.PREFILL])
        shown = [*columns[:_TIMES], *[columns[_TIMES + stage] for stage in (Stage.WAIT, Stage.PREFILL, Stage.DECODE)]]
        generated = columns[_TIMES - 1]
        if min(generated) < 0:  # not all of them are complete
            complete = [tokens >= 0 for tokens in generated]
            shown = [[*compress(column, complete)] for column in shown]
        self.sizes.finished(*shown)

    def _fold_steps(self) -> None:
        stepped, self._stepped = self._stepped, []
        steps = self.steps
        for program, tokens, _, gap_ns, streams in stepped:
            steps[program] = steps.get(program, 0) + 1
            self.generation_tokens += tokens
            if streams:
                self._between_tokens.count(gap_ns * _NS, streams)
        self.sizes.steps([tokens + read for _, tokens, read, _, _ in stepped])

    def shown(self) -> dict[str, Histogram]:
        """What the live page draws."""
        return {"first_token": self.first_token, "between_tokens": self._between_tokens, "end_to_end": self._end_to_end}

    def lines(self) -> Iterator[str]:
        """The samples with HELP and TYPE."""
        labels = f'model_name="{self._model}"'
        shown = (
            ("time_to_first_token_seconds", "First byte read to first token.", self.first_token),
            ("inter_token_latency_seconds", "Between two tokens.", self._between_tokens),
            ("e2e_request_latency_seconds", "First byte to last byte.", self._end_to_end),
            ("request_prefill_time_seconds", "Steps up to the first token.", self._prefill),
        )
        yield from histograms("vllm:{}", labels, shown)
        yield from single("vllm:prompt_tokens_total", "counter", "Prompt tokens.", labels, self._prompt_tokens)
        yield from single("vllm:generation_tokens_total", "counter", "Tokens chosen.", labels, self.generation_tokens)
        ended, how = self.ended.items(), "finished_reason"
        yield from family("vllm:request_success_total", "counter", "Requests that ended.", labels, how, ended)
        yield from self.sizes.lines(labels)
        yield from self._genai_lines()
        stages = ((name, spent * _NS) for name, spent in zip(STAGE_NAMES, self.stage_ns, strict=True))
        yield from family("zerolayer:stage_seconds_total", "counter", "Time by stage.", labels, "stage", stages)
        steps = sorted(self.steps.items())
        yield from family("zerolayer:program_steps_total", "counter", "Steps by program.", labels, "program", steps)
        yield from self.promises.lines(labels)

    def _genai_lines(self) -> Iterator[str]:
        """OpenTelemetry's names for the same (semantic conventions for generative AI), as Prometheus spells them."""
        labels = f'gen_ai_request_model="{self._model}",gen_ai_provider_name="zerolayer"'
        shown = (
            ("request_duration", "First byte to last byte.", self._end_to_end),
            ("time_to_first_token", "First byte read to first token.", self.first_token),
            ("time_per_output_token", "Steps after the first token, by token.", self.sizes.token_time),
        )
        yield from histograms("gen_ai_server_{}_seconds", labels, shown)
