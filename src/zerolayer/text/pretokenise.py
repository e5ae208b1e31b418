"""How a byte-level vocabulary cuts text before byte-pair encoding, by the name in ``tokenizer.ggml.pre``.

A pattern says which stretches of text are encoded on their own. The patterns are those that the models were trained
with: GPT-2 (https://github.com/openai/gpt-2, ``encoder.py``), Llama 3 and Qwen2 (their ``tokenizer.json``), SmolLM2
(every digit alone, then GPT-2's pattern on what lies between).
"""

from __future__ import annotations

import msgspec

from zerolayer.errors import StartupError


class PreTokeniser(msgspec.Struct, frozen=True):
    """``pattern``: the stretches. ``nfc``: text is first brought to Unicode normal form C."""

    pattern: str
    nfc: bool = False


_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
# Digits are cut out first, so a digit ends a run of white space like the end of the text does.
_SMOLLM = r"\p{N}|'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?[^\s\p{L}\p{N}]+|\s+(?![^\s\p{N}])|\s+"
_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
_QWEN2 = _LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")

PRE_TOKENISERS: dict[str, PreTokeniser] = {
    "default": PreTokeniser(_GPT2),
    "gpt-2": PreTokeniser(_GPT2),
    "llama-bpe": PreTokeniser(_LLAMA3),
    "llama3": PreTokeniser(_LLAMA3),
    "qwen2": PreTokeniser(_QWEN2, nfc=True),
    "smollm": PreTokeniser(_SMOLLM),
}


def pre_tokeniser(name: str) -> PreTokeniser:
    """The pre-tokeniser of that name; ``StartupError`` if it is unknown, since guessing gives wrong token ids."""
    found = PRE_TOKENISERS.get(name)
    if found is None:
        raise StartupError(
            f"The model's pre-tokeniser (tokenizer.ggml.pre) is not supported; this build knows "
            f"{', '.join(sorted(PRE_TOKENISERS))}. Use a model with one of these."
        )
    return found
