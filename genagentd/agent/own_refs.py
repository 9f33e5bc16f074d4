"""The refs that this agent minted, told from all others without a table of them.

Half of a ref's token is random, the other half a seal of it under a key that only
this life of the agent has. So what answers a prompt of its own is recognised however
long that takes, and a prompt that is never answered leaves nothing behind.
"""

from __future__ import annotations

import hashlib
import os

from genagent_protocol.refs import Incarnation, RequestRef

#: Half of the 16 bytes of a token.
_HALF = 8


class OwnRefs:
    """Mints refs, and knows them again."""

    def __init__(self) -> None:
        self._key = os.urandom(hashlib.blake2s.MAX_KEY_SIZE)

    def mint(self, incarnation: Incarnation) -> RequestRef:
        """Return a new ref of a request to that process."""
        random = os.urandom(_HALF)
        return RequestRef.mint(incarnation, random + self._seal(incarnation, random))

    def made(self, ref: RequestRef) -> bool:
        """Return whether *ref* is from here."""
        token = bytes.fromhex(ref.token)
        return token[_HALF:] == self._seal(ref.incarnation, token[:_HALF])

    def _seal(self, incarnation: Incarnation, random: bytes) -> bytes:
        sealed = random + incarnation.text.encode()
        return hashlib.blake2s(sealed, digest_size=_HALF, key=self._key).digest()
