"""What sampling means, in float64 numpy: the distribution that the engine's choices must follow.

Order: penalties, temperature, min-p, top-k, top-p; each filter sees the distribution that the one before it left,
renormalised.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zerolayer.wire.schema import Sampling


def penalised(
    logits: NDArray[Any], sampling: Sampling, prompt: Sequence[int], output: Sequence[int]
) -> NDArray[np.float64]:
    """Logits after the three penalties.

    Repetition (arXiv:1909.05858): over prompt and output; positive logits are divided, negative ones multiplied.
    Presence and frequency (OpenAI): subtracted once, and once for each occurrence, of tokens in the output only.
    """
    out = np.array(logits, dtype=np.float64)
    seen = sorted({*prompt, *output})
    out[seen] = np.where(
        out[seen] > 0, out[seen] / sampling.repetition_penalty, out[seen] * sampling.repetition_penalty
    )
    for token, count in Counter(output).items():
        out[token] -= sampling.presence_penalty + count * sampling.frequency_penalty
    return out


def distribution(
    logits: NDArray[Any], sampling: Sampling, prompt: Sequence[int] = (), output: Sequence[int] = ()
) -> NDArray[np.float64]:
    """Probability of every token."""
    x = penalised(logits, sampling, prompt, output)
    if sampling.temperature == 0:
        return np.eye(1, len(x), int(x.argmax())).ravel()
    p = _normal(np.exp((x - x.max()) / sampling.temperature))
    p = _normal(np.where(p >= sampling.min_p * p.max(), p, 0))
    order = np.argsort(-p, kind="stable")
    if sampling.top_k:
        p[order[sampling.top_k :]] = 0
        p = _normal(p)
    before = np.cumsum(p[order]) - p[order]  # the probability of all better tokens
    p[order[before >= sampling.top_p]] = 0
    return _normal(p)


def chi_square_excess(counts: NDArray[np.int64], probabilities: NDArray[np.float64]) -> float:
    """By how many standard normal deviations Pearson's statistic is above its mean (Wilson and Hilferty's cube root).

    Tokens that are expected fewer than five times are counted as one. Infinite if a token of probability zero occurred.
    """
    if counts[probabilities == 0].any():
        return float("inf")
    expected = probabilities * counts.sum()
    rare = expected < 5
    observed = np.append(counts[~rare], counts[rare].sum())
    wanted = np.append(expected[~rare], expected[rare].sum())
    observed, wanted = observed[wanted > 0], wanted[wanted > 0]
    freedom = len(wanted) - 1
    if freedom == 0:
        return 0.0
    statistic = float(((observed - wanted) ** 2 / wanted).sum())
    spread = 2 / (9 * freedom)
    return float(((statistic / freedom) ** (1 / 3) - (1 - spread)) / np.sqrt(spread))


def _normal(p: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(p / p.sum())
