"""The reference itself: it must be right before anything is measured against it."""

from __future__ import annotations

import dataclasses
import ipaddress
import socket
from pathlib import Path

import numpy as np
import pytest

from reference.llama import ReferenceModel, log_softmax, perplexity
from reference.sampling import chi_square_excess, distribution
from reference.server import own_host
from reference.tiny_model import CONSTANT, LLAMA, QWEN2, SHAPES, TinyShape, vocabulary, write_tiny_model
from zerolayer.wire.schema import Sampling

IDS = [3, 99, 204, 77, 5, 77, 301, 12]


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_positions_do_not_see_the_future(tmp_path: Path, shape: TinyShape) -> None:
    model = ReferenceModel.load(write_tiny_model(tmp_path / "m.gguf", shape))
    assert np.allclose(model.logits(IDS)[:4], model.logits([*IDS[:4], 40, 41])[:4], atol=1e-4)


@pytest.mark.parametrize("shape", [LLAMA, QWEN2], ids=lambda shape: shape.name)
def test_rope_sees_distances_only(tmp_path: Path, shape: TinyShape) -> None:
    """A repeated token sees only copies of itself, at whatever distances, and always predicts the same."""
    model = ReferenceModel.load(write_tiny_model(tmp_path / "m.gguf", dataclasses.replace(shape, layers=1)))
    rows = model.logits([9] * 6)
    assert np.allclose(rows, rows[0], atol=1e-3)


def test_the_order_of_tokens_matters(tmp_path: Path) -> None:
    model = ReferenceModel.load(write_tiny_model(tmp_path / "m.gguf", LLAMA))
    assert not np.allclose(model.logits([5, 6, 7])[-1], model.logits([6, 5, 7])[-1], atol=0.1)


def test_the_constant_model_ignores_its_input(tmp_path: Path) -> None:
    model = ReferenceModel.load(write_tiny_model(tmp_path / "m.gguf", CONSTANT))
    assert np.ptp(model.logits(IDS), axis=0).max() == 0


def test_every_merge_of_the_tiny_vocabulary_makes_a_piece_from_two_pieces() -> None:
    pieces, types, merges = vocabulary()
    assert len(pieces) == len(set(pieces)) == len(types) == 307
    for merge in merges:
        left, right = merge.split(" ")
        assert {left, right, left + right} <= set(pieces)


def test_perplexity_of_uniform_logits_is_the_vocabulary() -> None:
    assert perplexity(np.zeros((5, 32)), [1, 2, 3, 4, 5]) == pytest.approx(32)


def test_log_softmax_sums_to_one() -> None:
    assert np.exp(log_softmax(np.array([[1e4, 1e4 - 3, -1e4]]))).sum() == pytest.approx(1)


LOGITS = np.log([0.4, 0.3, 0.2, 0.06, 0.04])


@pytest.mark.parametrize(
    ("sampling", "expected"),
    [
        (Sampling(), [0.4, 0.3, 0.2, 0.06, 0.04]),
        (Sampling(temperature=0), [1, 0, 0, 0, 0]),
        (Sampling(top_k=2), [4 / 7, 3 / 7, 0, 0, 0]),
        (Sampling(top_p=0.7001), [4 / 9, 3 / 9, 2 / 9, 0, 0]),
        (Sampling(top_p=0.6999), [4 / 7, 3 / 7, 0, 0, 0]),
        (Sampling(min_p=0.16), [0.4 / 0.9, 0.3 / 0.9, 0.2 / 0.9, 0, 0]),
        (Sampling(top_k=2, top_p=0.57), [1, 0, 0, 0, 0]),  # 0.4 of 0.7 is more than 0.57
        (
            Sampling(temperature=0.5),
            np.square([0.4, 0.3, 0.2, 0.06, 0.04]) / np.square([0.4, 0.3, 0.2, 0.06, 0.04]).sum(),
        ),
    ],
    ids=str,
)
def test_distributions_by_hand(sampling: Sampling, expected: list[float]) -> None:
    assert distribution(LOGITS, sampling) == pytest.approx(np.array(expected))


def test_chi_square_accepts_the_truth_and_refuses_the_impossible() -> None:
    p = np.array([0.5, 0.25, 0.25, 0.0])
    fair = np.random.default_rng(0).multinomial(4000, p)
    assert chi_square_excess(fair, p) < 3
    assert chi_square_excess(np.array([2100, 900, 1000, 0]), p) > 3
    assert chi_square_excess(np.array([2000, 1000, 999, 1]), p) == float("inf")


def test_a_port_of_an_own_host_is_free_whoever_has_it_on_another_address() -> None:
    host = own_host()
    assert ipaddress.ip_address(host).is_loopback
    with socket.create_server(("127.0.0.1", 0)) as taken, socket.create_server((host, taken.getsockname()[1])):
        assert own_host() != host
