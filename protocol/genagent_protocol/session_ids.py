"""What may name a provider's session: text of 1 to 1,024 bytes without control characters."""

from __future__ import annotations

from typing import TypeGuard

MAX_SESSION_ID_BYTES = 1_024


def acceptable(session_id: object) -> TypeGuard[str]:
    """Return whether *session_id* may name a provider's session."""
    return (
        isinstance(session_id, str)
        and 1 <= len(session_id.encode("utf-8", "surrogatepass")) <= MAX_SESSION_ID_BYTES
        and not any(map(_unfit, session_id))
    )


def _unfit(character: str) -> bool:
    """Return whether no session id has *character*: a control character, or half of one."""
    return character < " " or "\x7f" <= character < "\xa0" or "\ud800" <= character <= "\udfff"
