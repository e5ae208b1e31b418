"""A capture of packets gives the latencies of a service that nobody may touch."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerolayer.check.capture import read_capture
from zerolayer.check.errors import InputFileError
from zerolayer.check.findings import Kind
from zerolayer.check.html_report import html
from zerolayer.check.report import analyse
from zerolayer.check.text_report import text

SYN, ACK, PUSH = 2, 16, 24
Step = tuple[float, int, bool, int, int]  # ms, client port, from the client, flags, payload bytes


def segment(port: int, from_client: bool, flags: int, payload: int, version: int = 4) -> bytes:
    ports = (port, 8000) if from_client else (8000, port)
    tcp = struct.pack("!HHIIBBHHH", *ports, 0, 0, 5 << 4, flags, 1000, 0, 0) + b"x" * payload
    ends = [b"\x0a\x00\x00\x01", b"\x0a\x00\x00\x02"]
    source, target = ends if from_client else ends[::-1]
    if version == 6:
        return struct.pack("!IHBB", 6 << 28, len(tcp), 6, 64) + source * 4 + target * 4 + tcp
    return struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(tcp), 0, 0, 64, 6, 0) + source + target + tcp


def pcap(steps: list[Step], version: int = 4) -> bytes:
    data = struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 65535, 1)
    for ms, port, from_client, flags, payload in sorted(steps):
        frame = b"\0" * 12 + (b"\x08\x00" if version == 4 else b"\x86\xdd")
        frame += segment(port, from_client, flags, payload, version)
        data += struct.pack("<IIII", int(ms // 1000), int(ms % 1000 * 1e6), len(frame), len(frame)) + frame
    return data


def pcapng(steps: list[Step]) -> bytes:
    def block(kind: int, body: bytes) -> bytes:
        body += b"\0" * (-len(body) % 4)
        size = struct.pack("<I", len(body) + 12)
        return struct.pack("<I", kind) + size + body + size

    data = block(0x0A0D0D0A, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1)) + block(1, struct.pack("<HHI", 101, 0, 0))
    for ms, port, from_client, flags, payload in sorted(steps):
        packet, micro = segment(port, from_client, flags, payload), int(ms * 1000)
        header = struct.pack("<IIIII", 0, micro >> 32, micro & 0xFFFFFFFF, len(packet), len(packet))
        data += block(6, header + packet)
    return data


def exchange(at: float, port: int, wait: float) -> list[Step]:
    return [
        (at - 1, port, True, SYN, 0),
        (at, port, True, PUSH, 300),
        (at + 0.1, port, False, ACK, 0),
        (at + wait, port, False, PUSH, 40),
        (at + wait + 5, port, False, PUSH, 900),
    ]


def saved(tmp_path: Path, data: bytes) -> Path:
    path = tmp_path / "capture"
    path.write_bytes(data)
    return path


LONE = [step for i in range(30) for step in exchange(100.0 + i * 200, 40_000 + i, 50.0 + i % 3)]


@pytest.mark.parametrize("data", [pcap(LONE), pcap(LONE, version=6), pcapng(LONE)], ids=["pcap", "ipv6", "pcapng"])
def test_the_wait_runs_from_the_request_to_the_first_byte_of_the_reply(tmp_path: Path, data: bytes) -> None:
    report = analyse(read_capture(saved(tmp_path, data), None))
    assert report.s0.n == 30
    assert report.s0.value == pytest.approx(51.0, abs=0.01)
    assert report.findings == []


def test_a_report_of_a_capture_tells_the_waits_and_no_lateness_of_a_client(tmp_path: Path) -> None:
    run = read_capture(saved(tmp_path, pcap(LONE)), None)
    printed = text(run, analyse(run))
    assert "request to reply P50 51 ms [" in printed
    assert "client lag" not in printed + html(run, analyse(run))


def test_a_connection_carries_several_exchanges(tmp_path: Path) -> None:
    steps = [step for i in range(4) for step in exchange(100.0 + i * 200, 40_000, 50.0)[1:]]
    run = read_capture(saved(tmp_path, pcap(steps)), 8000)
    assert np.allclose(run.latency_ms, 50.0)


def test_a_queue_shows_in_the_bursts_of_others(tmp_path: Path) -> None:
    bursts = [
        step
        for burst in range(12)
        for i in range(16)
        for step in exchange(9000.0 + burst * 3000 + i * 0.2, 50_000 + burst * 16 + i, 50.0 + 50 * (i // 4))
    ]
    report = analyse(read_capture(saved(tmp_path, pcap(LONE + bursts)), None))
    assert [finding.kind for finding in report.findings] == [Kind.QUEUE]
    assert report.exit_code == 10
    assert [level.size for level in report.captured] == [1, 2, 4, 8]


def test_small_bursts_and_a_steady_load_do_not_hide_the_queue_of_large_ones(tmp_path: Path) -> None:
    """As a capture of one of our own measurements has them: pulses of 4, pulses of 16, and steps."""
    port, steps, at = iter(range(40_000, 60_000)), list(LONE), 9_000.0
    for _ in range(8):
        for size in (4, 16):
            steps += [part for i in range(size) for part in exchange(at + i * 0.2, next(port), 50.0 + 50 * (i // 4))]
            at += 3_000.0
    for i in range(400):
        steps += exchange(at + i * 12.0 + i % 5, next(port), 50.0 + i % 7)
    steps.sort(key=lambda step: step[0])
    report = analyse(read_capture(saved(tmp_path, pcap(steps)), None))
    assert [finding.kind for finding in report.findings] == [Kind.QUEUE]


def test_a_capture_cut_in_a_frame_is_read_up_to_there(tmp_path: Path) -> None:
    assert len(read_capture(saved(tmp_path, pcap(LONE)[:-30]), 8000).phase) == 30


@pytest.mark.parametrize("data", [b"", b"text", pcap([])])
def test_what_is_no_capture_is_a_typed_error(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(InputFileError):
        read_capture(saved(tmp_path, data), None)


@given(st.binary(max_size=300), st.integers(0, 200))
def test_damage_is_never_a_crash(tmp_path_factory: pytest.TempPathFactory, noise: bytes, at: int) -> None:
    for data in (pcap(LONE[:10]), pcapng(LONE[:10])):
        path = tmp_path_factory.getbasetemp() / "noise"
        path.write_bytes(data[:at] + noise + data[at + len(noise) :])
        try:
            assert len(read_capture(path, 8000).phase) > 0
        except InputFileError as error:
            assert "noise" in error.message
