"""A model file becomes an engine and the words around it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from itertools import takewhile
from pathlib import Path

import msgspec

from zerolayer.contract import Contract, model_path
from zerolayer.errors import StartupError
from zerolayer.model import _native, warm_start
from zerolayer.model.engine import Engine
from zerolayer.model.engine_options import EngineOptions
from zerolayer.model.hub import snapshot
from zerolayer.model.machine import Machine
from zerolayer.model.mock_engine import MockEngine
from zerolayer.model.model_config import ModelConfig
from zerolayer.model.native_engine import EXACT, ONE_MATRIX, NativeEngine, needed_bytes
from zerolayer.model.placement import choose_cores
from zerolayer.model.prefix_cache import BLOCK
from zerolayer.model.shared_cores import ALONE, SharedCores
from zerolayer.model.source import ModelSource, open_source
from zerolayer.model.weights import Weights
from zerolayer.text.encode import Encoder
from zerolayer.text.grammar import Grammars
from zerolayer.text.no_template import NoChatTemplate
from zerolayer.text.template import ChatTemplate
from zerolayer.text.tool_format import ToolFormat, format_of
from zerolayer.text.vocabulary import Vocabulary
from zerolayer.wire.schema import Message

_SILENT_S = 1.0  # a start this short needs no progress bar
_EVERY_S = 0.1
_BAR = 30
_AHEAD_BYTES = 1 << 20
_AROUND_BYTES, _WORD_BYTES = 40 << 20, 512  # besides an engine: the server, its tables and accounts; each word

Show = Callable[[str, int, int], None]  # (what, done, of)


class Beside(msgspec.Struct, frozen=True):
    """Another model is served meanwhile, by the same cores.

    ``begin`` is called before the first turn, with the bytes of memory that the turns will take and the most weights
    of one; it returns when they may be taken.
    """

    cores: SharedCores
    begin: Callable[[int, int], None]


def _nothing() -> None:
    pass


class LoadedModel(msgspec.Struct, frozen=True):
    """Everything that a server needs of a model."""

    engine: Engine
    vocabulary: Vocabulary
    encoder: Encoder
    template: ChatTemplate | NoChatTemplate
    tool_format: ToolFormat
    grammars: Grammars
    name: str
    config: ModelConfig
    remember: Callable[[], None] = _nothing  # called when the last step has run
    files: str = ""  # what tells its files from those of other models, and from other versions of them; "": nothing


def load_model(
    contract: Contract, progress: Callable[[str], None], *, show: Show | None = None, beside: Beside | None = None
) -> LoadedModel:
    """Open, check and pack the contract's model; ``progress`` gets the lines of a bar after the first second.

    ``show`` gets numbers instead. Raises ``StartupError`` (missing file, memory, kernels) and ``ModelFileError``
    (damaged or unsupported file).
    """
    try:
        return _load(contract, progress, show or _ProgressBar(progress).show, beside)
    except MemoryError:
        raise StartupError(
            "There is no memory for the model's words and tables. Give the process more (ulimit -v, the control "
            "group's limit), or use a smaller model."
        ) from None


def _load(contract: Contract, progress: Callable[[str], None], show: Show, beside: Beside | None) -> LoadedModel:
    cores = None if beside is None else beside.cores
    hub_name = contract.model.hub_name
    path = model_path(contract) if hub_name is None else snapshot(hub_name, progress)
    source = open_source(path)
    with closing(source.weights):
        take_engine = _engine(contract, source, show, beside)
        if beside is not None:
            _read_ahead(path, show)  # a turn must not wait for a disk
        with ThreadPoolExecutor(1) as aside:
            # Memory and packing leave the GIL to the text, if they begin before it has the GIL, which it keeps.
            reading = aside.submit(_text, source)
            engine = take_engine()
            encoder, template, tool_format, grammars = reading.result()
        remember = _nothing
        if isinstance(engine, NativeEngine):
            remember = _keep(contract, engine, template, source.vocabulary, show, cores)
        return LoadedModel(
            engine,
            source.vocabulary,
            encoder,
            template,
            tool_format,
            grammars,
            contract.model.name,
            source.config,
            remember,
            _files(path) if isinstance(engine, NativeEngine) else "",
        )


def _keep(
    contract: Contract,
    engine: NativeEngine,
    template: ChatTemplate | NoChatTemplate,
    vocabulary: Vocabulary,
    show: Show,
    cores: SharedCores | None,
) -> Callable[[], None]:
    """Compute what many prompts begin with; returns what is to be called when the last step has run."""
    turn = cores or ALONE
    for token_ids in _constants(contract, template):
        engine.keep_constant(token_ids, turn)
    if not contract.context.warm_start:
        return _nothing
    place = warm_start.place(os.environ, contract.model.name, vocabulary.pieces)
    prefixes = warm_start.read(place, vocabulary.size)
    for done, prefix in enumerate(prefixes):
        show("kept prompts", done, len(prefixes))
        engine.keep_prefix(prefix, turn)
    return partial(_remember, engine, place)


def _read_ahead(path: Path, show: Show) -> None:
    """Bring a file, or a folder's files, into the system's cache."""
    files = [path] if path.is_file() else sorted(path.glob("*.safetensors"))
    done, of = 0, sum(file.stat().st_size for file in files)
    buffer = bytearray(_AHEAD_BYTES)
    for file in files:
        with file.open("rb", buffering=0) as opened:
            while got := opened.readinto(buffer):
                done += got
                show("file", done, of)


def _files(path: Path) -> str:
    """Path, size and time of each file of the model at ``path``; what is not there or no file was not read."""
    files = sorted(file for file in path.iterdir() if file.is_file()) if path.is_dir() else [path]
    stats = [(file, file.stat()) for file in files]
    return "\n".join(f"{file.resolve()} {stat.st_size} {stat.st_mtime_ns}" for file, stat in stats)


def _remember(engine: NativeEngine, place: Path) -> None:
    warm_start.write(place, engine.kept_prefixes())


def _constants(contract: Contract, template: ChatTemplate | NoChatTemplate) -> list[list[int]]:
    """The token ids that every conversation begins with: without a system message, and with each constant text."""
    if isinstance(template, NoChatTemplate):
        return []
    beginnings = [_beginning(template, ())]
    for system in contract.system:
        token_ids = _beginning(template, (Message("system", system.text),))
        for limit in ("system_tokens", "slot_tokens"):
            most = getattr(contract.context, limit)
            if len(token_ids) > most:
                raise StartupError(
                    f"The constant system text {system.name!r} has {len(token_ids)} tokens with its template; "
                    f"context.{limit} is {most}. Raise it, or shorten the text."
                )
        beginnings.append(token_ids)
    return beginnings


def _beginning(template: ChatTemplate, messages: tuple[Message, ...]) -> list[int]:
    """What conversations that begin with ``messages`` have in common, whatever the user says."""
    one, other = (template.encode((*messages, Message("user", text))) for text in ("a", "1"))
    return [left for left, _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))]


def _text(source: ModelSource) -> tuple[Encoder, ChatTemplate | NoChatTemplate, ToolFormat, Grammars]:
    """What reads and writes the model's words."""
    encoder = source.build_encoder()
    template = _template(source, encoder)
    tool_format = format_of(source.config.chat_template)
    return encoder, template, tool_format, Grammars(source.vocabulary, encoder, tool_format, source.config.vocabulary)


def _template(source: ModelSource, encoder: Encoder) -> ChatTemplate | NoChatTemplate:
    if source.config.chat_template is None:
        return NoChatTemplate()
    inner = source.inner_encoder(encoder)
    template = ChatTemplate.compile(source.config.chat_template, source.vocabulary, inner)
    first = template.encode((Message("user", "x"),))[0]
    if inner is not encoder and first not in source.vocabulary.special_ids.values():
        raise StartupError(
            "The model's chat template begins with text, and its tokeniser treats the first text of a sequence apart, "
            "which this build does not run. Use a GGUF file of the model."
        )
    return template


def _engine(contract: Contract, source: ModelSource, show: Show, beside: Beside | None) -> Callable[[], Engine]:
    """Check what the contract asks for; the engine's memory is taken when the result is called."""
    context, weights, config, vocabulary = contract.context, source.weights, source.config, source.vocabulary
    step_us = contract.engine.mock_step_us
    if step_us is not None:
        return partial(
            mock_engine,
            vocabulary,
            slots=context.slots,
            slot_tokens=context.slot_tokens,
            chunk_tokens=context.chunk_tokens,
            step_us=step_us,
        )
    if context.slot_tokens > config.context:
        raise StartupError(
            f"context.slot_tokens is {context.slot_tokens}, and the model was trained for {config.context}. "
            f"Use --slot-tokens {config.context} or less."
        )
    machine = Machine.read()
    threads, why = machine.threads(contract.engine.threads)
    cores, where = choose_cores(threads, sorted(os.sched_getaffinity(0)), pin=contract.engine.pin)
    options = EngineOptions(
        slots=context.slots,
        slot_tokens=context.slot_tokens,
        chunk_tokens=context.chunk_tokens,
        threads=threads,
        prefixes=context.prefixes,
        prefix_tokens=min(context.system_tokens, context.slot_tokens) // BLOCK * BLOCK,
        salt_share=contract.cache.tenant_share,
        exact=_exact(contract.engine.weights, weights),
        bloom=contract.engine.penalty == "bloom",
        cores=cores,
        stop_ids=sorted(vocabulary.eos_ids),
        notes=(why, where),
    )
    needed = needed_bytes(config, weights.tensors["token_embd.weight"].n_bytes, options)
    around = _AROUND_BYTES + _WORD_BYTES * config.vocabulary
    _check_memory(needed + around, machine.memory, contract, beside)
    telling = show if beside is None else partial(_passing, show, beside.cores)
    take = partial(NativeEngine.load, weights, config, options, telling)
    return take if beside is None else partial(_begun, beside, needed, config.vocabulary * config.hidden, take)


def _check_memory(needed: int, left: int, contract: Contract, beside: Beside | None) -> None:
    """Refuse what ``left`` bytes do not hold."""
    if needed <= left:
        return
    context = contract.context
    if beside is not None:
        raise StartupError(
            f"The memory does not hold both models: the new one and its {context.slots} slots of {context.slot_tokens} "
            f"tokens need {needed >> 20} MB beside the one that is served, and this process can take {left >> 20} MB "
            "more. Nothing was loaded. Deploy a smaller model, or serve with fewer or shorter slots."
        )
    raise StartupError(
        f"The model and {context.slots} slots of {context.slot_tokens} tokens need {needed >> 20} MB; this process "
        f"can take {left >> 20} MB. Use fewer (--slots) or shorter (--slot-tokens) slots, or a smaller model."
    )


def _begun(beside: Beside, needed: int, largest: int, take: Callable[[], Engine]) -> Engine:
    beside.begin(needed, largest)
    with beside.cores:
        return take()


def _passing(show: Show, cores: SharedCores, what: str, done: int, of: int) -> None:
    """Between two parts of the work whoever waits goes first."""
    cores.pass_on()
    show(what, done, of)


def mock_engine(vocabulary: Vocabulary, *, slots: int, slot_tokens: int, chunk_tokens: int, step_us: int) -> MockEngine:
    """A mock engine that speaks ``vocabulary``."""
    ids = {piece: token_id for token_id, piece in enumerate(vocabulary.pieces)}
    return MockEngine(
        slots=slots,
        slot_tokens=slot_tokens,
        chunk_tokens=chunk_tokens,
        step_us=step_us,
        vocabulary=vocabulary.size,
        reserved_ids=vocabulary.special_ids.values(),
        stop_ids=vocabulary.eos_ids,
        # The end of the answer, of texts, of objects, of lists, and of the first half of an address.
        endings=[*sorted(vocabulary.eos_ids), *(ids[piece] for piece in (b'"', b"}", b"]", b"@") if piece in ids)],
    )


def _exact(wanted: str, weights: Weights) -> bool:
    """Whether weights stay in the file's groups: more accurate and fewer bytes; AMX prefills faster with int8."""
    why_not = _why_not_exact(weights)
    if wanted == "exact" and why_not:
        raise StartupError(f"--weights exact cannot keep this file's weights: {why_not}. Use --weights int8.")
    return wanted == "exact" or (wanted == "auto" and not why_not and _native.kernel_sets()[0] != "amx")


def _why_not_exact(weights: Weights) -> str:
    types = {name: info.type for name, info in weights.tensors.items() if len(info.shape) == 2}
    other = {kind for kind in types.values() if kind not in EXACT}
    if other:
        return f"{', '.join(sorted(EXACT))} are kept as they are, and it has {', '.join(sorted(other))} too"
    for name, kind in types.items():
        for first, joined in ONE_MATRIX.items():
            if name.endswith(first) and any(types[name.replace(first, part)] != kind for part in joined):
                return f"{name} and the tensors that are computed with it differ in type"
    return ""


class _ProgressBar:
    """Lines of a bar, none in the first second."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self._next = time.monotonic() + _SILENT_S
        self._shown = False

    def show(self, what: str, done: int, of: int) -> None:
        now = time.monotonic()
        if now < self._next and not (self._shown and done == of):
            return
        self._shown = True
        self._next = now + _EVERY_S
        filled = _BAR * done // of
        self._write(f"{what} [{'#' * filled}{'.' * (_BAR - filled)}] {100 * done // of:3d} %")
