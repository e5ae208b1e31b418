"""How the numbers of a tensor are stored in a GGUF file (ggml.h, ``enum ggml_type``)."""

from __future__ import annotations

from enum import StrEnum
from typing import Self


class TensorType(StrEnum):
    """A storage type: name, number in the file, numbers in a block, bytes that a block takes."""

    number: int
    block: int
    block_bytes: int

    def __new__(cls, name: str, number: int, block: int, block_bytes: int) -> Self:
        """A member is its name; the other columns of its row become attributes."""
        member = str.__new__(cls, name)
        member._value_ = name
        member.number = number
        member.block = block
        member.block_bytes = block_bytes
        return member

    F32 = "F32", 0, 1, 4
    F16 = "F16", 1, 1, 2
    Q4_0 = "Q4_0", 2, 32, 18
    Q4_1 = "Q4_1", 3, 32, 20
    Q5_0 = "Q5_0", 6, 32, 22
    Q5_1 = "Q5_1", 7, 32, 24
    Q8_0 = "Q8_0", 8, 32, 34
    Q8_1 = "Q8_1", 9, 32, 36
    Q2_K = "Q2_K", 10, 256, 84
    Q3_K = "Q3_K", 11, 256, 110
    Q4_K = "Q4_K", 12, 256, 144
    Q5_K = "Q5_K", 13, 256, 176
    Q6_K = "Q6_K", 14, 256, 210
    Q8_K = "Q8_K", 15, 256, 292
    IQ2_XXS = "IQ2_XXS", 16, 256, 66
    IQ2_XS = "IQ2_XS", 17, 256, 74
    IQ3_XXS = "IQ3_XXS", 18, 256, 98
    IQ1_S = "IQ1_S", 19, 256, 50
    IQ4_NL = "IQ4_NL", 20, 32, 18
    IQ3_S = "IQ3_S", 21, 256, 110
    IQ2_S = "IQ2_S", 22, 256, 82
    IQ4_XS = "IQ4_XS", 23, 256, 136
    I8 = "I8", 24, 1, 1
    I16 = "I16", 25, 1, 2
    I32 = "I32", 26, 1, 4
    I64 = "I64", 27, 1, 8
    F64 = "F64", 28, 1, 8
    IQ1_M = "IQ1_M", 29, 256, 56
    BF16 = "BF16", 30, 1, 2
    TQ1_0 = "TQ1_0", 34, 256, 54
    TQ2_0 = "TQ2_0", 35, 256, 66
    MXFP4 = "MXFP4", 39, 32, 17


TYPE_OF_NUMBER: dict[int, TensorType] = {kind.number: kind for kind in TensorType}
