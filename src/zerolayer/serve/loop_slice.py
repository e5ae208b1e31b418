"""A short time slice for the thread of the event loop, so that it need not wait for a step thread's long one.

Linux's scheduler (EEVDF) runs next whoever has the earliest deadline among those that are owed time, and a shorter
slice is an earlier deadline: a thread that wakes up briefly and often gets the core when it asks for it, and no more
of it in all. Nobody needs a privilege for that. Kernels before 6.12 take the number and ignore it; what is reported is
what the kernel says that it keeps.

Sources: sched_setattr(2), and the kernel's Documentation/scheduler/sched-eevdf.rst.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
from collections.abc import Callable
from typing import Final

SLICE_NS: Final = 100_000

_CALLS: Final = {"x86_64": (314, 315), "aarch64": (274, 275), "riscv64": (274, 275)}  # sched_setattr, sched_getattr
_ATTR: Final = struct.Struct("=IIQiIQQQ")  # size, policy, flags, nice, priority, runtime, deadline, period
_RUNTIME: Final = 5
_TIME_SHARED: Final = (0, 3)  # SCHED_OTHER, SCHED_BATCH: the policies that have slices
_NOT_INHERITED: Final = 1  # SCHED_FLAG_RESET_ON_FORK: threads that this one starts get the usual slice

Syscall = Callable[..., int]


def shorten_slice(slice_ns: int = SLICE_NS, machine: str = "", syscall: Syscall | None = None) -> str:
    """Ask for the calling thread, and say in words what was granted. ``machine`` and ``syscall`` are the system's."""
    calls = _CALLS.get(machine or platform.machine())
    wanted = f"{slice_ns / 1e6:g} ms"
    try:
        syscall = syscall or ctypes.CDLL(None, use_errno=True).syscall
        if calls is None:
            return f"the usual time slice: {wanted} cannot be asked for on this machine"
        set_attr, get_attr = calls
        values = _read(syscall, get_attr)
        if values[1] not in _TIME_SHARED:
            return "no time slice: the process runs under a real-time policy"
        values[0], values[2], values[_RUNTIME] = _ATTR.size, values[2] | _NOT_INHERITED, slice_ns
        _check(syscall(set_attr, 0, _ATTR.pack(*values), 0))
        granted = _read(syscall, get_attr)[_RUNTIME]
    except OSError as error:
        return f"the usual time slice: the system refused {wanted} ({os.strerror(error.errno or 0)})"
    if granted != slice_ns:
        return f"the usual time slice: this kernel does not keep {wanted} (Linux 6.12 does)"
    return f"a time slice of {wanted}"


def _read(syscall: Syscall, get_attr: int) -> list[int]:
    """The attributes of the calling thread. Raises ``OSError``."""
    buffer = ctypes.create_string_buffer(_ATTR.size)
    _check(syscall(get_attr, 0, buffer, _ATTR.size, 0))
    return list(_ATTR.unpack(buffer.raw))


def _check(result: int) -> None:
    if result < 0:
        raise OSError(ctypes.get_errno(), "")
