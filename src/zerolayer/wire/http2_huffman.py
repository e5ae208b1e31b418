"""Strings of HPACK in Huffman coding (RFC 7541 section 5.2), a byte at a time.

``hpack`` steps through half bytes; two steps of its table are one of ours, made when they are first met.
"""

from __future__ import annotations

from typing import Final

from hpack.huffman_table import HUFFMAN_COMPLETE, HUFFMAN_EMIT_SYMBOL, HUFFMAN_FAIL, HUFFMAN_TABLE

_STEPS: Final[dict[int, tuple[int, bytes, bool]]] = {}  # at most 65,536; state and byte -> state, symbols, may end


class BadHuffman(Exception):
    """No text has this coding."""


def decode_huffman(string: bytes) -> bytes:
    """Raises ``BadHuffman``."""
    state, may_end = 0, True
    decoded = b""
    for byte in string:
        step = _STEPS.get(state << 8 | byte) or _step(state, byte)
        state, symbols, may_end = step
        decoded += symbols
    if not may_end:
        raise BadHuffman
    return decoded


def _step(state: int, byte: int) -> tuple[int, bytes, bool]:
    begun, symbols, flags = state, b"", 0
    for nibble in (byte >> 4, byte & 0xF):
        state, flags, symbol = HUFFMAN_TABLE[state << 4 | nibble]
        if flags & HUFFMAN_FAIL:
            raise BadHuffman
        if flags & HUFFMAN_EMIT_SYMBOL:
            symbols += bytes((symbol,))
    _STEPS[begun << 8 | byte] = step = state, symbols, bool(flags & HUFFMAN_COMPLETE)
    return step
