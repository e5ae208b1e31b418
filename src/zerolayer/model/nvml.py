"""What NVIDIA's management library says of one GPU: clock, temperature, and why it runs more slowly, if it does.

Called through ``ctypes``, so that nothing needs to be installed; absent where the driver is. Source: NVML API
reference, device queries (https://docs.nvidia.com/deploy/nvml-api/).
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any, Final, Self

_LIBRARY: Final = "libnvidia-ml.so.1"
_OK: Final = 0
_SM_CLOCK: Final = 1
_GPU_SENSOR: Final = 0
_SLOWDOWN: Final = 0x8 | 0x20 | 0x40 | 0x80
"""Reasons that are the machine's trouble: hardware slowdown, software and hardware thermal, power brake. A power cap
or an idle clock is how the device is meant to run."""


@dataclass(frozen=True)
class Reading:
    """Clocks in MHz, temperature in degrees Celsius; ``reasons`` is NVML's bit mask."""

    clock: int
    most: int
    temperature: int
    reasons: int

    @property
    def share(self) -> float:
        """Of full speed, over 0 and at most 1. A GPU that idles, or that its owner limits, runs at its full speed."""
        if not self.reasons & _SLOWDOWN or not 0 < self.clock < self.most:
            return 1.0
        return self.clock / self.most


class Nvml:
    """One GPU, by its index or its UUID (``GPU-...``). ``library`` is the loaded one; a test has its own."""

    def __init__(self, library: Any, device: str) -> None:
        self._library = library
        self._handle = ctypes.c_void_p()
        if device.isdigit():
            got = library.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(int(device)), ctypes.byref(self._handle))
        else:
            got = library.nvmlDeviceGetHandleByUUID(device.encode("ascii"), ctypes.byref(self._handle))
        self.found = got == _OK

    @classmethod
    def open(cls, device: str) -> Self | None:
        """None where there is no such GPU, or no driver."""
        try:
            library = ctypes.CDLL(_LIBRARY)
        except OSError:
            return None
        if library.nvmlInit_v2() != _OK:
            return None
        opened = cls(library, device)
        return opened if opened.found else None

    def read(self) -> Reading | None:
        """None when the GPU does not say: it is lost, or has no such sensor."""
        library, handle = self._library, self._handle
        clock, most, heat = ctypes.c_uint(), ctypes.c_uint(), ctypes.c_uint()
        reasons = ctypes.c_ulonglong()
        codes = (
            library.nvmlDeviceGetClockInfo(handle, _SM_CLOCK, ctypes.byref(clock)),
            library.nvmlDeviceGetMaxClockInfo(handle, _SM_CLOCK, ctypes.byref(most)),
            library.nvmlDeviceGetTemperature(handle, _GPU_SENSOR, ctypes.byref(heat)),
            library.nvmlDeviceGetCurrentClocksThrottleReasons(handle, ctypes.byref(reasons)),
        )
        if any(code != _OK for code in codes):
            return None
        return Reading(clock.value, most.value, heat.value, reasons.value)
