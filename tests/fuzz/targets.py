"""What the fuzzer calls: one function for each parser. Any exception is a find; so is a broken promise.

A target takes arbitrary bytes and must return. The same functions run over the kept seeds in ``make test``.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import cache, lru_cache
from pathlib import Path

from hpack import HPACKError
from hpack.huffman_table import decode_huffman as decode_by_hpack

from fuzz.body_targets import anthropic, openai, protobuf, responses
from fuzz.client_targets import replies
from fuzz.guard_targets import key, key_set, ledger
from fuzz.http2_targets import whole
from zerolayer.check.wire_dump import FORMS
from zerolayer.cluster.dns_message import Kind, MessageError, question, read_reply
from zerolayer.errors import HeadersTooLarge, InvalidRequest, StartupError, ZerolayerError
from zerolayer.model.gguf import GgufFile
from zerolayer.model.model_config import ModelConfig
from zerolayer.text import vocabulary_file
from zerolayer.text.decode import Decoder
from zerolayer.text.grammar import Grammars
from zerolayer.text.stop import StopMatcher
from zerolayer.text.template import ChatTemplate
from zerolayer.text.tool_calls import ToolCallParser
from zerolayer.text.tool_format import HERMES, LLAMA, MISTRAL, MISTRAL_NAMED
from zerolayer.text.vocabulary import BYTE_ALPHABET, TokenKind, Vocabulary
from zerolayer.wire.grpc import Deframer
from zerolayer.wire.http1 import Fault, Http1Protocol
from zerolayer.wire.http1_head import Head, parse_head
from zerolayer.wire.http1_template import Habits
from zerolayer.wire.http2 import Http2Limits, Http2Protocol
from zerolayer.wire.http2_events import Closed, Opened
from zerolayer.wire.http2_frames import PREFACE, ConnectionFault, settings
from zerolayer.wire.http2_head import HeadDecoder, MalformedHead
from zerolayer.wire.http2_huffman import BadHuffman, decode_huffman
from zerolayer.wire.schema import Message, OutputFormat, Request, Route

FORMS_OF_CALLS = (HERMES, LLAMA, MISTRAL, MISTRAL_NAMED)
_CHATML = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content | trim }}<|im_end|>\n{% endfor %}"
    "<|im_start|>assistant\n"
)
_HTTP2_LIMITS = Http2Limits(streams=8, head_bytes=2048, body_bytes=4096, held_bytes=1 << 17)
_POST = b"POST /x HTTP/1.1\r\nhost: a\r\nx-request-id: %b\r\ncontent-length: %b\r\n\r\n"
_LITERAL = b"\x00\x03x-a%b"  # a field whose value has its own length before it
_GET = b"\x82\x86\x84\x01\x09localhost"


def http1(data: bytes) -> None:
    """Any split gives the same kinds of events, and at most one fault, which is the last."""
    cut = data[0] % max(1, len(data)) if data else 0
    whole, split = Http1Protocol(1024, 4096), Http1Protocol(1024, 4096)
    events = whole.receive(data)
    halves = split.receive(data[:cut]) + split.receive(data[cut:])
    assert [type(event) for event in events] == [type(event) for event in halves]
    assert not any(isinstance(event, Fault) for event in events[:-1])


def heads(data: bytes) -> None:
    """Where a head is compared with earlier ones instead of parsed, it is what parsing makes of it."""
    value, _, length = data.partition(b"\n\n")
    for raw in (_POST % (value, length), data):
        head = _habits().head(raw)
        assert head is None or _told(head) == _told(parse_head(raw, 20))


@cache
def _habits() -> Habits:
    habits = Habits()
    for value, length in ((b"a", b"0"), (b"b", b"1")):
        raw = _POST % (value, length)
        habits.learn(raw, parse_head(raw, 20))
    return habits


def http2(data: bytes) -> None:
    """Any split gives the same bytes back; what is held has a bound; the last event closes or none does."""
    cut = data[0] % max(1, len(data)) if data else 0
    whole, split = _begun(), _begun()
    events = whole.receive(data)
    split.receive(data[:cut])
    split.receive(data[cut:])
    assert whole.take() == split.take()
    assert not any(isinstance(event, Closed) for event in events[:-1])
    for event in events:
        if isinstance(event, Opened):
            whole.open_reply(event.stream_id, 200, ())
            assert whole.send(event.stream_id, b"x" * 1000)
            whole.end(event.stream_id, b"", ((b"grpc-status", b"0"),))
    whole.take()
    assert whole.streams <= _HTTP2_LIMITS.streams


def hpack(data: bytes) -> None:
    """A block is a head, or one of three refusals; whatever is remembered, it is what it is to a new connection."""
    warm = _without_table()
    cut = data[0] % max(1, len(data)) if data else 0
    changing = [_GET + _LITERAL % value for value in (b"\x01a", b"\x02bc", data)]
    for block in (*changing, data[1:cut], data[cut:], changing[-1]):
        try:
            met = _met(warm, block)
        except ConnectionFault:
            return
        if not warm.stateless:
            return
        assert met == _met_anew(block)


def huffman(data: bytes) -> None:
    """Our coding is hpack's."""
    try:
        expected = bytes(decode_by_hpack(data))
    except HPACKError:
        expected = None
    try:
        decoded = decode_huffman(data)
    except BadHuffman:
        decoded = None
    assert decoded == expected


def _without_table() -> HeadDecoder:
    """Of a client that has announced to keep none."""
    decoder = HeadDecoder(2048, 20)
    decoder.request(b"\x20" + _GET)
    return decoder


@lru_cache(64)  # some blocks are the same in every input, and one comes twice
def _met_anew(block: bytes) -> object:
    return _met(_without_table(), block)


def _met(decoder: HeadDecoder, block: bytes) -> object:
    try:
        head = decoder.request(block)
    except (MalformedHead, HeadersTooLarge) as error:
        return type(error)
    return _told(head)


def _told(head: Head) -> object:
    return head.method, head.path, head.query, head.headers, head.expects_continue, head.content_length, head.values


def grpc(data: bytes) -> None:
    """Messages or one refusal; how the bytes are cut makes no difference."""
    outcomes = []
    for step in (max(1, len(data)), 3):
        deframer, messages = Deframer(256), []
        try:
            for at in range(0, len(data), step):
                messages += deframer.receive(data[at : at + step])
        except ZerolayerError as error:
            outcomes.append(type(error))
        else:
            outcomes.append((messages, deframer.partial))
    assert outcomes[0] == outcomes[1]


def gguf(data: bytes) -> None:
    """A file is read or refused; so are the model and the vocabulary that it describes."""
    path = _scratch()
    path.write_bytes(data)
    try:
        with GgufFile.open(path) as file:
            for name in file.tensors:
                file.data(name).release()
            Vocabulary.from_gguf(file.metadata)
            ModelConfig.from_gguf(file.metadata, file.tensors)
    except StartupError:
        pass


def vocabulary(data: bytes) -> None:
    """A file that is read packs to a file that is read alike."""
    try:
        read = vocabulary_file.unpack(data)
    except StartupError:
        return
    again = vocabulary_file.unpack(vocabulary_file.pack(read))
    assert (again.raw, list(again.kinds), again.eos_ids) == (read.raw, list(read.kinds), read.eos_ids)


def chat(data: bytes) -> None:
    """The template taken apart gives the ids of the template run; no text becomes a control token."""
    messages = [
        Message("assistant" if number % 2 else "user", part.decode("utf-8", "replace"))
        for number, part in enumerate(data.split(b"\x00")[:6])
    ]
    template = _template()
    ids = template.encode(messages)
    assert ids == template.encode_sandboxed(messages)
    assert sum(token_id >= 256 for token_id in ids) == 2 * len(messages) + 1


def stop(data: bytes) -> None:
    """Stop strings are found however the text is cut, and never shown."""
    parts = data.split(b"\x00")
    stops = [part.decode("utf-8", "replace") for part in parts[1:4] if part]
    whole, pieces = StopMatcher(stops), StopMatcher(stops)
    decoder = Decoder(_vocabulary())
    text = parts[0].decode("utf-8", "replace")
    expected, stopped = whole.push(text)
    expected += "" if stopped else whole.flush()
    got = "".join(pieces.push(piece)[0] for piece in [decoder.push(byte) for byte in parts[0]] + [decoder.flush()])
    got += pieces.flush()
    assert got == expected
    assert not any(stop in got for stop in stops)


def calls(data: bytes) -> None:
    """However an answer is cut, its calls and its text are the same; the first byte chooses form and cut."""
    long, chosen = divmod(data[0] if data else 0, len(FORMS_OF_CALLS))
    form, long = FORMS_OF_CALLS[chosen], 1 + long % 8
    text = data[1:].decode("utf-8", "replace")
    found = []
    for pieces in ([text], [text[at : at + long] for at in range(0, len(text), long)]):
        parser = ToolCallParser(form, ("f", "g"), lambda: "id")
        shown, heard = "", {}
        for piece in pieces:
            shown += parser.push(piece)
            for delta in parser.take():
                name, arguments = heard.get(delta.index, (delta.name, ""))
                heard[delta.index] = (name, arguments + delta.arguments)
        found.append((shown + parser.flush(), heard))
    assert found[0] == found[1]


def schema(data: bytes) -> None:
    """A schema is taken or refused; what is taken can begin."""
    try:
        found = _grammars().of(Request(Route.CHAT, "m", output=OutputFormat(data or b"{")))
    except InvalidRequest:
        return
    assert found is not None
    assert not found.start().is_error()


def dump(data: bytes) -> None:
    """``zerolayer wire`` explains whatever it is given; the first byte chooses as what."""
    ranges = list(FORMS.values())[data[0] % len(FORMS) if data else 0]
    data = data[1:]
    assert all(part.offset + part.size <= len(data) for part in ranges(data))


def dns(data: bytes) -> None:
    """A reply is read or refused, as it came and behind the head that makes it one."""
    asked = question(0x1234, "llm.prod.svc", Kind.A)
    head = asked[:2] + b"\x81\x80\0\1\0\x08\0\0\0\0"
    for reply in (data, head + asked[12:] + data):
        try:
            records = read_reply(reply, asked).records
        except MessageError:
            continue
        assert all(len(record.value) <= 254 and 0 <= record.port <= 65_535 for record in records)


TARGETS: dict[str, Callable[[bytes], None]] = {
    target.__name__: target
    for target in (
        http1,
        heads,
        http2,
        whole,
        hpack,
        huffman,
        grpc,
        openai,
        anthropic,
        responses,
        protobuf,
        gguf,
        vocabulary,
        chat,
        stop,
        calls,
        schema,
        dump,
        key,
        key_set,
        ledger,
        dns,
        replies,
    )
}


def seeds(target: str) -> Iterator[Path]:
    """The kept inputs of one target."""
    return (path for path in sorted((Path(__file__).parent / "corpus" / target).iterdir()))


def _begun() -> Http2Protocol:
    protocol = Http2Protocol(_HTTP2_LIMITS)
    protocol.receive(PREFACE + settings({}))
    return protocol


@cache
def _grammars() -> Grammars:
    words = _vocabulary()
    words.eos_ids = frozenset({words.special_ids["<|im_end|>"]})
    return Grammars(words, _Bytes(), HERMES, words.size)


class _Bytes:
    """One token a byte."""

    name = "bytes"

    def encode(self, text: str) -> list[int]:
        return list(text.encode("utf-8", "replace"))


@cache
def _vocabulary() -> Vocabulary:
    raw = [BYTE_ALPHABET[byte].encode() for byte in range(256)] + [b"<|im_start|>", b"<|im_end|>"]
    return Vocabulary("gpt2", "default", raw, [TokenKind.NORMAL] * 256 + [TokenKind.CONTROL] * 2)


@cache
def _template() -> ChatTemplate:
    moment = datetime(2026, 1, 2, tzinfo=UTC)
    template = ChatTemplate.compile(_CHATML, _vocabulary(), _Bytes(), now=lambda: moment)
    assert template.compiled, template.why
    return template


@cache
def _scratch() -> Path:
    memory = Path("/dev/shm")
    return Path(tempfile.mkdtemp(dir=memory if memory.is_dir() else None)) / "model.gguf"
