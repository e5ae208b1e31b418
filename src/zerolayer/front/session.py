"""The name of the conversation that a request belongs to: for whoever reads its trace or its line of the access log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from zerolayer.errors import InvalidRequest
from zerolayer.wire.schema import Request

SESSION_HEADER: Final = b"x-zl-session"
LONGEST: Final = 128


def session_of(request: Request, headers: Mapping[bytes, bytes]) -> str:
    """The schema's field, else the header of any dialect; "" where neither is given. Raises ``InvalidRequest``."""
    told = headers.get(SESSION_HEADER)
    if told is None:
        return request.session
    if not 0 < len(told) <= LONGEST or not all(0x21 <= byte <= 0x7E for byte in told):
        raise InvalidRequest(
            f"the header x-zl-session must be 1 to {LONGEST} visible ASCII characters", param="x-zl-session"
        )
    return request.session or told.decode("ascii")
