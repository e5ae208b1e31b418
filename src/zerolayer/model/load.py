"""A model file becomes an engine and the words around it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import takewhile

import msgspec

from zerolayer.contract import Contract, model_path
from zerolayer.errors import StartupError
from zerolayer.model import _native
from zerolayer.model.engine import Engine
from zerolayer.model.gguf import GgufFile
from zerolayer.model.machine import Machine
from zerolayer.model.mock_engine import MockEngine
from zerolayer.model.model_config import ModelConfig
from zerolayer.model.native_engine import EXACT, NativeEngine, needed_bytes
from zerolayer.model.placement import choose_cores
from zerolayer.model.prefix_cache import BLOCK
from zerolayer.text.encode import Encoder, build_encoder
from zerolayer.text.no_template import NoChatTemplate
from zerolayer.text.template import ChatTemplate
from zerolayer.text.vocabulary import Vocabulary
from zerolayer.wire.schema import Message

_SILENT_S = 1.0  # a start this short needs no progress bar
_EVERY_S = 0.1
_BAR = 30


class LoadedModel(msgspec.Struct, frozen=True):
    """Everything that a server needs of a model."""

    engine: Engine
    vocabulary: Vocabulary
    encoder: Encoder
    template: ChatTemplate | NoChatTemplate
    name: str
    config: ModelConfig


def load_model(contract: Contract, progress: Callable[[str], None]) -> LoadedModel:
    """Open, check and pack the contract's model; ``progress`` gets the lines of a bar after the first second.

    Raises ``StartupError`` (missing file, memory, kernels) and ``ModelFileError`` (damaged or unsupported file).
    """
    bar = _ProgressBar(progress)
    with GgufFile.open(model_path(contract)) as gguf:
        config = ModelConfig.from_gguf(gguf.metadata, gguf.tensors)
        vocabulary = Vocabulary.from_gguf(gguf.metadata)
        with ThreadPoolExecutor(1) as aside:  # packing leaves the GIL to the text, which takes a third of the start
            loading = aside.submit(_engine, contract, gguf, config, vocabulary, bar)
            encoder = build_encoder(vocabulary)
            template = _template(config, vocabulary, encoder)
            engine = loading.result()
        if isinstance(engine, NativeEngine):
            for token_ids in _constants(contract, template):
                engine.keep_constant(token_ids)
        return LoadedModel(engine, vocabulary, encoder, template, contract.model.name, config)


def _constants(contract: Contract, template: ChatTemplate | NoChatTemplate) -> list[list[int]]:
    """The token ids that every conversation begins with: without a system message, and with each constant text."""
    if isinstance(template, NoChatTemplate):
        return []
    beginnings = [_beginning(template, ())]
    for system in contract.system:
        token_ids = _beginning(template, (Message("system", system.text),))
        if len(token_ids) > contract.context.system_tokens:
            raise StartupError(
                f"The constant system text {system.name!r} has {len(token_ids)} tokens with its template; "
                f"context.system_tokens is {contract.context.system_tokens}. Raise it, or shorten the text."
            )
        beginnings.append(token_ids)
    return beginnings


def _beginning(template: ChatTemplate, messages: tuple[Message, ...]) -> list[int]:
    """What conversations that begin with ``messages`` have in common, whatever the user says."""
    one, other = (template.encode((*messages, Message("user", text))) for text in ("a", "1"))
    return [left for left, _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))]


def _template(config: ModelConfig, vocabulary: Vocabulary, encoder: Encoder) -> ChatTemplate | NoChatTemplate:
    if config.chat_template is None:
        return NoChatTemplate()
    return ChatTemplate.compile(config.chat_template, vocabulary, encoder)


def _engine(
    contract: Contract, gguf: GgufFile, config: ModelConfig, vocabulary: Vocabulary, bar: _ProgressBar
) -> Engine:
    context = contract.context
    step_us = contract.engine.mock_step_us
    if step_us is not None:
        return MockEngine(
            slots=context.slots,
            slot_tokens=context.slot_tokens,
            chunk_tokens=context.chunk_tokens,
            step_us=step_us,
            vocabulary=vocabulary.size,
            reserved_ids=vocabulary.special_ids.values(),
        )
    if context.slot_tokens > config.context:
        raise StartupError(
            f"context.slot_tokens is {context.slot_tokens}, and the model was trained for {config.context}. "
            f"Use --slot-tokens {config.context} or less."
        )
    machine = Machine.read()
    prefix_tokens = min(context.system_tokens, context.slot_tokens) // BLOCK * BLOCK
    needed = needed_bytes(
        config, context.slots, context.slot_tokens, context.chunk_tokens, context.prefixes * prefix_tokens
    )
    if needed > machine.memory:
        raise StartupError(
            f"The model and {context.slots} slots of {context.slot_tokens} tokens need {needed >> 20} MB; this process "
            f"can take {machine.memory >> 20} MB. Use fewer (--slots) or shorter (--slot-tokens) slots, "
            "or a smaller model."
        )
    threads, why = machine.threads(contract.engine.threads)
    cores, where = choose_cores(threads, sorted(os.sched_getaffinity(0)), pin=contract.engine.pin)
    return NativeEngine.load(
        gguf,
        config,
        slots=context.slots,
        slot_tokens=context.slot_tokens,
        chunk_tokens=context.chunk_tokens,
        threads=threads,
        prefixes=context.prefixes,
        prefix_tokens=prefix_tokens,
        exact=_exact(contract.engine.weights, gguf),
        stop_ids=sorted(vocabulary.eos_ids),
        notes=(why, where),
        cores=cores,
        progress=bar.show,
    )


def _exact(weights: str, gguf: GgufFile) -> bool:
    """Whether weights stay in the file's groups: more accurate and fewer bytes; AMX prefills faster with int8."""
    other = {info.type for name, info in gguf.tensors.items() if len(info.shape) == 2 and info.type not in EXACT}
    if weights == "exact" and other:
        raise StartupError(
            f"--weights exact keeps {', '.join(sorted(EXACT))} as they are; this file has "
            f"{', '.join(sorted(other))} too. Use --weights int8."
        )
    return weights == "exact" or (weights == "auto" and not other and _native.kernel_sets()[0] != "amx")


class _ProgressBar:
    """Lines of a bar, none in the first second."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self._next = time.monotonic() + _SILENT_S

    def show(self, what: str, done: int, of: int) -> None:
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + _EVERY_S
        filled = _BAR * done // of
        self._write(f"{what} [{'#' * filled}{'.' * (_BAR - filled)}] {100 * done // of:3d} %")
