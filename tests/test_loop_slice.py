"""The loop's time slice: what is asked for, and what is said when the system does not grant it."""

from __future__ import annotations

import ctypes
import errno
import struct

from zerolayer.serve.loop_slice import shorten_slice

ATTR = struct.Struct("=IIQiIQQQ")
SET, GET = 314, 315
REAL_TIME = 1  # SCHED_FIFO


class Kernel:
    """Keeps a thread's attributes as ``sched_setattr`` is told them, or does as it is told here."""

    def __init__(self, *, policy: int = 0, nice: int = 0, keeps: bool = True, error: int = 0) -> None:
        self.attributes = [ATTR.size, policy, 0, nice, 0, 0, 0, 0]
        self.keeps = keeps
        self.error = error
        self.asked: list[tuple[int, ...]] = []

    def __call__(self, call: int, thread: int, buffer, *rest: int) -> int:
        if self.error:
            ctypes.set_errno(self.error)
            return -1
        if call == GET:
            buffer.raw = ATTR.pack(*self.attributes)
        else:
            self.asked.append(ATTR.unpack(buffer))
            self.attributes = list(self.asked[-1]) if self.keeps else self.attributes
        return 0


def test_a_granted_slice_is_told():
    assert shorten_slice(100_000, "x86_64", Kernel()) == "a time slice of 0.1 ms"


def test_nothing_else_about_the_thread_changes():
    kernel = Kernel(nice=19)
    shorten_slice(100_000, "x86_64", kernel)
    _, policy, _, nice, *_ = kernel.asked[0]
    assert (policy, nice) == (0, 19)


def test_threads_that_the_loop_starts_do_not_inherit_it():
    kernel = Kernel()
    shorten_slice(100_000, "x86_64", kernel)
    assert kernel.asked[0][2] == 1  # SCHED_FLAG_RESET_ON_FORK


def test_a_kernel_that_ignores_it_is_told():
    assert "does not keep 0.1 ms" in shorten_slice(100_000, "x86_64", Kernel(keeps=False))


def test_a_refusal_is_told_with_its_reason():
    note = shorten_slice(100_000, "x86_64", Kernel(error=errno.EPERM))
    assert note == "the usual time slice: the system refused 0.1 ms (Operation not permitted)"


def test_a_real_time_policy_is_left_alone():
    kernel = Kernel(policy=REAL_TIME)
    note = shorten_slice(100_000, "x86_64", kernel)
    assert (kernel.asked, note) == ([], "no time slice: the process runs under a real-time policy")


def test_a_machine_whose_calls_are_not_known_is_told():
    assert "cannot be asked for" in shorten_slice(100_000, "s390x", Kernel())


def test_this_system_says_something():
    assert "time slice" in shorten_slice()
