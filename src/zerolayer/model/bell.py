"""How the step thread wakes the event loop: an eventfd (eventfd(2)) that is rung when the interpreter is free.

Rung while the ringer still holds the interpreter, the loop wakes up to wait for it, has then had its share of the
core, and may not be given it back before the scheduler's next tick, milliseconds later. So an engine that ``rings``
does it inside its step, right after it let go; and until the bell is heard, that step gives way to the loop.
"""

from __future__ import annotations

import os


class Bell:
    """``fd`` is readable from a ring until ``heard``. The ringing is for any thread, all else for the loop."""

    def __init__(self) -> None:
        self.fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def ring(self) -> None:
        """Wake the loop now."""
        os.eventfd_write(self.fd, 1)

    def heard(self) -> None:
        """The loop has done what it was woken for; the next ring wakes it again."""
        try:
            os.eventfd_read(self.fd)
        except BlockingIOError:
            return  # it was heard already

    def close(self) -> None:
        """Nobody rings any more."""
        os.close(self.fd)
        self.fd = -1
