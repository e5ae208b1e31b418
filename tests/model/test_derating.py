"""How much of its full speed a device has: files of the kernel and NVIDIA's library, in place of the true ones."""

from __future__ import annotations

import ctypes
import logging
from pathlib import Path

import pytest

from zerolayer.model.derating import Derating, gpu_of
from zerolayer.model.nvml import Nvml, Reading

IDLE, POWER_CAP, HEAT = 0x1, 0x4, 0x40


def allow(root: Path, **clocks: int) -> None:
    for core, clock in clocks.items():
        file = root / core / "cpufreq" / "scaling_max_freq"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{clock}\n")


def test_cores_whose_clock_the_kernel_lowers_are_derated_by_the_slowest(tmp_path: Path) -> None:
    allow(tmp_path, cpu0=4_000_000, cpu1=4_000_000)
    derating = Derating([0, 1], None, tmp_path)
    assert derating.look() == 1.0
    allow(tmp_path, cpu1=3_000_000)
    assert derating.look() == 0.75


def test_only_the_cores_of_the_process_count(tmp_path: Path) -> None:
    allow(tmp_path, cpu0=4_000_000, cpu1=4_000_000)
    derating = Derating([0], None, tmp_path)
    allow(tmp_path, cpu1=1_000_000)
    assert derating.look() == 1.0


def test_a_machine_that_was_limited_from_the_start_runs_at_its_full_speed(tmp_path: Path) -> None:
    allow(tmp_path, cpu0=2_000_000)
    derating = Derating([0], None, tmp_path)
    allow(tmp_path, cpu0=4_000_000)
    assert derating.look() == 1.0


def test_where_the_system_does_not_tell_nothing_is_derated(tmp_path: Path) -> None:
    derating = Derating([0, 1], None, tmp_path)
    assert not derating.watches
    assert derating.look() == 1.0


def test_a_gpu_that_slows_down_for_heat_is_derated_by_its_clock(tmp_path: Path) -> None:
    derating = Derating([], lambda: Reading(990, 1980, 92, HEAT), tmp_path)
    assert derating.look() == 0.5


@pytest.mark.parametrize("reasons", [0, IDLE, POWER_CAP])
def test_a_gpu_that_idles_or_keeps_to_its_power_cap_is_not(reasons) -> None:
    assert Reading(345, 1980, 40, reasons).share == 1.0


def test_a_gpu_that_does_not_answer_says_nothing(tmp_path: Path) -> None:
    assert Derating([], lambda: None, tmp_path).look() == 1.0


def test_a_change_is_told_once(tmp_path: Path, caplog) -> None:
    derating = Derating([], lambda: Reading(1485, 1980, 92, HEAT), tmp_path)
    with caplog.at_level(logging.WARNING):
        derating.look()
        derating.look()
    assert [record.getMessage() for record in caplog.records] == [
        "the device runs at 75 % of its full speed, was 100 %; its GPU has 92 degrees"
    ]


@pytest.mark.parametrize(
    ("environ", "gpu"),
    [
        ({}, ""),
        ({"CUDA_VISIBLE_DEVICES": "3"}, "3"),
        ({"CUDA_VISIBLE_DEVICES": "0,1"}, ""),
        ({"NVIDIA_VISIBLE_DEVICES": "all"}, ""),
        ({"NVIDIA_VISIBLE_DEVICES": "GPU-8932f937"}, "GPU-8932f937"),
        ({"CUDA_VISIBLE_DEVICES": "", "NVIDIA_VISIBLE_DEVICES": "2"}, "2"),
    ],
)
def test_a_process_has_a_gpu_where_it_was_given_one(environ, gpu) -> None:
    assert gpu_of(environ) == gpu


class Library:
    """The functions of NVML that are called, with what they write."""

    def __init__(self) -> None:
        self.code = 0
        self.asked: object = None
        self.nvmlDeviceGetHandleByIndex_v2 = lambda index, handle: self._ask(index.value)
        self.nvmlDeviceGetHandleByUUID = lambda uuid, handle: self._ask(uuid)
        self.nvmlDeviceGetClockInfo = lambda handle, kind, out: self._write(out, ctypes.c_uint, 1200)
        self.nvmlDeviceGetMaxClockInfo = lambda handle, kind, out: self._write(out, ctypes.c_uint, 1980)
        self.nvmlDeviceGetTemperature = lambda handle, sensor, out: self._write(out, ctypes.c_uint, 88)
        self.nvmlDeviceGetCurrentClocksThrottleReasons = lambda handle, out: self._write(out, ctypes.c_ulonglong, HEAT)

    def _ask(self, device: object) -> int:
        self.asked = device
        return self.code

    def _write(self, pointer, kind, value: int) -> int:
        ctypes.cast(pointer, ctypes.POINTER(kind)).contents.value = value
        return self.code


@pytest.mark.parametrize(("device", "asked"), [("2", 2), ("GPU-8932f937", b"GPU-8932f937")])
def test_a_gpu_is_found_by_its_index_or_its_uuid_and_read(device, asked) -> None:
    library = Library()
    gpu = Nvml(library, device)
    assert (gpu.found, library.asked) == (True, asked)
    assert gpu.read() == Reading(1200, 1980, 88, HEAT)


def test_a_gpu_that_is_lost_gives_no_reading() -> None:
    library = Library()
    gpu = Nvml(library, "0")
    library.code = 15  # NVML_ERROR_GPU_IS_LOST
    assert gpu.read() is None


def test_without_a_driver_there_is_no_gpu() -> None:
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        assert Nvml.open("0") is None
    else:
        pytest.skip("this machine has NVIDIA's driver")
