"""What the guard does for every request, compiled; implemented in src/zerolayer/native/guard_module.cpp."""

from mmap import mmap

class Account:
    """The integers of ``budget.account.Account``. 64 bits each: what goes beyond raises ``TypeError``."""

    at_us: int
    day: int
    requests_debt: int
    tokens_debt: int
    used_us: int
    held_requests: int
    held_tokens: int
    held_us: int
    running: int
    lent_requests: int
    lent_tokens: int
    lent_us: int
    def __init__(
        self,
        id: bytes,
        requests_per_minute: int,
        tokens_per_minute: int,
        concurrent: int,
        compute_us_per_day: int,
        now_us: int,
        /,
    ) -> None: ...
    def advance(self, now_us: int, /) -> None:
        """Drain the buckets up to now, and begin a new day when there is one."""

    def claim(self, tokens: int, compute_us: int, now_us: int, /) -> bool:
        """``advance``, and ``hold`` one request of this size if all of it is there. False, and nothing held, if not."""

    def hold(self, tokens: int, compute_us: int, /) -> None:
        """Hold one request of this size, whether it is there or not."""

    def resize(self, tokens: int, compute_us: int, /) -> None:
        """Change what is held by these differences."""

    def begin(self) -> bool:
        """A held request has started: it counts from here on, whatever becomes of it. Whether that must be kept."""

    def finish(self, held_tokens: int, held_us: int, tokens: int, compute_us: int, now_us: int, /) -> bool:
        """A started request has ended: what it held is given back, what it used poured in. Whether it must be kept."""

    def forget(self, held_tokens: int, held_us: int, /) -> None:
        """A request that never started has gone."""

class StateLog:
    """Records of ``budget.journal`` in mapped memory, from byte ``at`` on."""

    def __init__(self, memory: mmap, at: int, /) -> None: ...
    @property
    def at(self) -> int: ...
    def append(self, account: Account, /) -> bool:
        """Where the account stands. False when there is no more room."""

    def release(self) -> None:
        """Give the memory back. There is no room from here on."""

class Sheet:
    """A segment of the ledger in mapped memory."""

    def __init__(self, memory: mmap, /) -> None: ...
    def request(
        self,
        at: int,
        sequence: int,
        ended_us: int,
        outcome: int,
        status: int,
        flags: int,
        key_id: bytes,
        tenant: bytes,
        model: bytes,
        request_id: str,
        route: bytes,
        code: str,
        prompt_tokens: int,
        cached_tokens: int,
        completion_tokens: int,
        max_tokens: int,
        core_ns: int,
        first_token_us: int,
        deadline_ms: int,
        stages_ns: tuple[int, ...],
        /,
    ) -> bytes:
        """Write a request's record at byte ``at``, behind the hash that stands there, and return its own hash."""

    def release(self) -> None:
        """Give the memory back."""

def sha256(data: bytes, /) -> bytes: ...
def sha256_portable(data: bytes, /) -> bytes:
    """As ``sha256``, without the processor's instructions for it."""
