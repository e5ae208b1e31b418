"""Strings of HPACK in Huffman coding (RFC 7541 section 5.2); the table is that of ``hpack``."""

from __future__ import annotations

from typing import Final

from hpack.huffman_table import HUFFMAN_TABLE

from zerolayer.wire._native import Huffman


class BadHuffman(Exception):
    """No text has this coding."""


HUFFMAN: Final = Huffman(HUFFMAN_TABLE)


def decode_huffman(string: bytes) -> bytes:
    """Raises ``BadHuffman``."""
    text = HUFFMAN.decode(string)
    if text is None:
        raise BadHuffman
    return text
