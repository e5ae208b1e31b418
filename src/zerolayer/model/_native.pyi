"""The compiled engine; implemented in src/zerolayer/native/module.cpp, where the shapes are said."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

def kernel_sets() -> list[str]: ...
def uniform(seed: int, position: int) -> float: ...

class Tensor:
    def __init__(self, type: int, data: NDArray[np.uint8], rows: int, columns: int) -> None: ...

class Engine:
    @staticmethod
    def create(
        layers: int,
        hidden: int,
        heads: int,
        kv_heads: int,
        head_dim: int,
        intermediate: int,
        vocabulary: int,
        rms_eps: float,
        rope_base: float,
        slots: int,
        slot_tokens: int,
        chunk_tokens: int,
        threads: int,
        prefixes: int,
        prefix_tokens: int,
        exact: bool,
        kernels: str,
    ) -> Engine: ...
    def load_qkv(self, layer: int, q: Tensor, k: Tensor, v: Tensor, interleaved: bool) -> None: ...
    def load_qkv_bias(
        self, layer: int, q: NDArray[np.float32], k: NDArray[np.float32], v: NDArray[np.float32]
    ) -> None: ...
    def load_output(self, layer: int, output: Tensor) -> None: ...
    def load_gate_up(self, layer: int, gate: Tensor, up: Tensor) -> None: ...
    def load_down(self, layer: int, down: Tensor) -> None: ...
    def load_norms(self, layer: int, attention: NDArray[np.float32], mlp: NDArray[np.float32]) -> None: ...
    def load_embedding(self, embedding: Tensor) -> None: ...
    def load_head(self, head: Tensor, norm: NDArray[np.float32]) -> None: ...
    def load_rope_factors(self, factors: NDArray[np.float32]) -> None: ...
    def open(
        self,
        slot: int,
        prompt: NDArray[np.int32],
        max_tokens: int,
        temperature: float,
        top_p: float,
        top_k: int,
        min_p: float,
        repetition_penalty: float,
        presence_penalty: float,
        frequency_penalty: float,
        seed: int,
        top_logprobs: int,
        stops: Sequence[int],
        prefix: int = 0,
        shared: int = 0,
    ) -> None: ...
    def pin(self, cores: Sequence[int]) -> int: ...
    def save_prefix(self, slot: int, prefix: int, tokens: int) -> None: ...
    def close(self, slot: int) -> None: ...
    def prefill_left(self, slot: int) -> int: ...
    def step(
        self, decode: Sequence[int], prefill_slot: int, prefill_tokens: int
    ) -> list[tuple[int, int, int, tuple[float, list[tuple[int, float]]] | None]]: ...
    def logits(self, tokens: NDArray[np.int32], out: NDArray[np.float32]) -> None: ...
    @property
    def kernels(self) -> str: ...
    @property
    def bytes(self) -> int: ...
    @property
    def huge_bytes(self) -> int: ...
