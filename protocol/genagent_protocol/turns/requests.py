"""One accepted prompt, from its admission to its outcome, and who hears about it.

A request keeps its ref, origin and listeners through every attempt; only the
prompt text, its size and the attempt number change when it is retried. Calls and
addresses are opaque here: they are kept and given back, never looked at.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from genagent_protocol.answers import Origin
from genagent_protocol.refs import RequestRef

#: Names one call that waits for an answer; made by the shell, which alone reads it.
CallId: TypeAlias = Hashable
#: Where a message goes: the text of a mailbox or an agent.
AddressText: TypeAlias = str
#: What a request wants if it meets a halted agent: wait for resume, or fail.
OnHalt: TypeAlias = Literal["queue", "fail"]

OWNED_ORIGINS = frozenset({"ask", "tell"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A prompt that was accepted. `size_bytes` is what it counts while it waits.

    An ask has a `call` that is answered at the end and the `caller` that waits for
    it; a tell may have a `recipient` for its completion; a generated prompt
    (origin `event` or `self_chain`) has neither.
    """

    ref: RequestRef
    origin: Origin
    prompt: str
    attempt: int = 1
    size_bytes: int = 0
    call: CallId | None = None
    caller: AddressText | None = None
    recipient: AddressText | None = None
    stream_to: AddressText | None = None
    on_halt: OnHalt = "queue"

    @property
    def owned(self) -> bool:
        """Whether a caller outside holds the ref and is owed the outcome."""
        return self.origin in OWNED_ORIGINS
