"""Token ids of the bundled model by the ``tokenizers`` package: another route than the server's own encoder."""

from __future__ import annotations

from collections.abc import Callable

from gguf import GGUFReader
from tokenizers import Regex, Tokenizer, models, pre_tokenizers


def smollm_encoder(reader: GGUFReader) -> Callable[[str], list[int]]:
    """Encoder of an opened GGUF file whose pre-tokeniser is ``smollm``: single digits, then GPT-2's split."""
    pieces = reader.fields["tokenizer.ggml.tokens"].contents()
    merges = [tuple(merge.split(" ")) for merge in reader.fields["tokenizer.ggml.merges"].contents()]
    tokenizer = Tokenizer(models.BPE(vocab={piece: i for i, piece in enumerate(pieces)}, merges=merges))
    digits = pre_tokenizers.Split(Regex(r"\p{N}"), "isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    return lambda text: list(tokenizer.encode(text).ids)
