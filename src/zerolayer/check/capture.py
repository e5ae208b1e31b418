"""Latencies out of a packet capture, for a service that one cannot touch: how long from request to first reply byte.

Reads classic pcap and pcapng (draft-ietf-opsawg-pcapng) with Ethernet, Linux cooked, loopback or raw IP frames. Only
TCP headers and payload lengths are looked at, so TLS is no obstacle: in a connection, payload towards the service
followed by payload from it is one exchange (pipelining apart).
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from zerolayer.check.errors import InputFileError
from zerolayer.check.files import read_bytes
from zerolayer.check.run_file import BASELINE, CAPTURE, PHASES, Ints, Run, Settings, TargetInfo

Endpoint = tuple[bytes, int]
_MAGIC = {
    b"\xd4\xc3\xb2\xa1": ("<", 1000),
    b"\xa1\xb2\xc3\xd4": (">", 1000),
    b"\x4d\x3c\xb2\xa1": ("<", 1),
    b"\xa1\xb2\x3c\x4d": (">", 1),
}
_PCAPNG = b"\x0a\x0d\x0d\x0a"
MAX_BYTES = 1 << 30
SYN, FIN, RST, ACK = 2, 1, 4, 16


@dataclass(frozen=True)
class Packet:
    """A TCP segment: time in ns, both ends, flags, payload bytes."""

    time_ns: int
    source: Endpoint
    target: Endpoint
    flags: int
    payload: int


@dataclass(frozen=True)
class Exchange:
    """One request and reply: when the request was complete, when the reply began and when it ended."""

    asked_ns: int
    first_ns: int
    end_ns: int


def read_capture(path: Path, port: int | None) -> Run:
    """A run whose requests are the exchanges of a capture; their ``size`` is how many others ran, as a power of two.

    Without a port, the service is where most connections were opened to. Requests that were alone are its
    lone probes. Raises ``InputFileError``.
    """
    data = read_bytes(path, most=MAX_BYTES, remedy="Cut it, with editcap for example.")
    try:
        packets = list(_packets(data))
    except (struct.error, IndexError, ValueError):
        raise InputFileError(f"{path.name} is no capture in pcap or pcapng format, or is damaged.") from None
    service = port if port is not None else _service_port(packets)
    exchanges = sorted(_exchanges(packets, service), key=lambda each: each.asked_ns)
    if not exchanges:
        raise InputFileError(f"{path.name} holds no exchange with port {service}. Name the service's port with --port.")
    return _run(exchanges, f"port {service} in {path.name}")


def _packets(data: bytes) -> Iterator[Packet]:
    frames = _pcapng(data) if data[:4] == _PCAPNG else _pcap(data)
    for time_ns, link, frame in frames:
        packet = _segment(time_ns, link, frame)
        if packet is not None:
            yield packet


def _pcap(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    if data[:4] not in _MAGIC:
        raise ValueError
    order, unit_ns = _MAGIC[data[:4]]
    link = struct.unpack_from(order + "I", data, 20)[0] & 0xFFFF
    at = 24
    while at + 16 <= len(data):
        seconds, fraction, length, _ = struct.unpack_from(order + "IIII", data, at)
        frame = data[at + 16 : at + 16 + length]
        if len(frame) < length:
            return  # the capture was cut in the midst of a frame
        yield seconds * 10**9 + fraction * unit_ns, link, frame
        at += 16 + length


def _pcapng(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    at, order = 0, "<"
    interfaces: list[tuple[int, float]] = []
    while at + 12 <= len(data):
        if data[at : at + 4] == _PCAPNG:
            order = "<" if data[at + 8 : at + 12] == b"\x4d\x3c\x2b\x1a" else ">"
            interfaces = []
        kind, length = struct.unpack_from(order + "II", data, at)
        if length < 12:
            raise ValueError
        body = data[at + 8 : at + length - 4]
        if kind == 1:
            link = struct.unpack_from(order + "H", body)[0]
            interfaces.append((link, _resolution_ns(body[8:], order)))
        elif kind == 6:
            number, high, low, captured, _ = struct.unpack_from(order + "IIIII", body)
            link, unit_ns = interfaces[number]
            yield int(((high << 32) | low) * unit_ns), link, body[20 : 20 + captured]
        at += length


def _resolution_ns(options: bytes, order: str) -> float:
    """Option 9, if_tsresol: a power of ten, or of two when its high bit is set; microseconds without it."""
    at = 0
    while at + 4 <= len(options):
        code, length = struct.unpack_from(order + "HH", options, at)
        if code == 9 and length:
            value = options[at + 4]
            return 1e9 * 2.0 ** -(value & 0x7F) if value & 0x80 else 1e9 * 10.0**-value
        if code == 0:
            break
        at += 4 + (length + 3) // 4 * 4
    return 1000.0


# Bytes before the IP header, by link type (https://www.tcpdump.org/linktypes.html).
_LINK_BYTES = {0: 4, 1: 14, 12: 0, 101: 0, 113: 16, 228: 0, 229: 0, 276: 20}


def _segment(time_ns: int, link: int, frame: bytes) -> Packet | None:
    if link not in _LINK_BYTES:
        raise ValueError
    at = _LINK_BYTES[link]
    if link == 1:
        while frame[at - 2 : at] in (b"\x81\x00", b"\x88\xa8"):  # VLAN tags
            at += 4
    ip = frame[at:]
    if len(ip) < 20:
        return None
    if ip[0] >> 4 == 4:
        start, end, protocol = (ip[0] & 15) * 4, int.from_bytes(ip[2:4], "big"), ip[9]
        source, target = ip[12:16], ip[16:20]
    elif ip[0] >> 4 == 6 and len(ip) >= 40:
        start, end, protocol = 40, 40 + int.from_bytes(ip[4:6], "big"), ip[6]
        source, target = ip[8:24], ip[24:40]
    else:
        return None
    tcp = ip[start:]
    if protocol != 6 or len(tcp) < 20:
        return None
    # Length by the IP header, because captures cut frames; 0 with segmentation offload means "as captured".
    payload = (end or len(ip)) - start - (tcp[12] >> 4) * 4
    ports = int.from_bytes(tcp[0:2], "big"), int.from_bytes(tcp[2:4], "big")
    return Packet(time_ns, (source, ports[0]), (target, ports[1]), tcp[13], max(0, payload))


def _service_port(packets: list[Packet]) -> int:
    opened = Counter(packet.target[1] for packet in packets if packet.flags & (SYN | ACK) == SYN)
    if not opened:
        opened = Counter(min(packet.source[1], packet.target[1]) for packet in packets)
    return opened.most_common(1)[0][0] if opened else 0


def _exchanges(packets: list[Packet], port: int) -> Iterator[Exchange]:
    asked: dict[tuple[Endpoint, Endpoint], int] = {}
    replies: dict[tuple[Endpoint, Endpoint], list[int]] = {}
    for packet in sorted(packets, key=lambda each: each.time_ns):
        if packet.payload == 0:
            continue
        if packet.target[1] == port:
            key = (packet.source, packet.target)
            if key in replies:
                first, end = replies.pop(key)
                yield Exchange(asked.pop(key), first, end)
            asked[key] = packet.time_ns
        elif packet.source[1] == port and (key := (packet.target, packet.source)) in asked:
            replies.setdefault(key, [packet.time_ns, packet.time_ns])[1] = packet.time_ns
    for key, (first, end) in replies.items():
        yield Exchange(asked[key], first, end)


def _run(exchanges: list[Exchange], address: str) -> Run:
    start = exchanges[0].asked_ns
    asked, first, end = (
        np.array([(value - start) // 1000 for value in column], dtype=np.int64)
        for column in zip(*((each.asked_ns, each.first_ns, each.end_ns) for each in exchanges), strict=True)
    )
    count = len(exchanges)
    running = in_flight(asked, end)
    zero, none = np.zeros(count, dtype=np.int64), np.full(count, -1, dtype=np.int64)
    empty = np.zeros(0, dtype=np.int64)
    return Run(
        started="",
        target=TargetInfo(address, "capture"),
        settings=Settings(),
        timer_lag=empty,
        phase=np.where(running == 0, PHASES.index(BASELINE), PHASES.index(CAPTURE)).astype(np.int64),
        group=zero,
        size=np.where(running > 0, 2 ** np.floor(np.log2(np.maximum(running, 1))), 0).astype(np.int64),
        position=np.arange(count),
        intended=asked,
        sent=asked,
        first=first,
        end=first,  # what is judged is the wait for the first byte written
        status=np.full(count, 200, dtype=np.int64),
        promised_ms=none,
        events=zero,
        prompt_tokens=none,
        lag=zero,
        read_request=empty,
        read_time=empty,
        read_events=empty,
    )


def in_flight(asked: Ints, end: Ints) -> Ints:
    """For each request, in order of asking: how many others were running when it came."""
    ended = np.searchsorted(np.sort(end), asked, side="right")
    return np.arange(len(asked), dtype=np.int64) - ended
