"""What one connection has outstanding: frames to send, calls without an answer, and watches.

These only say what is; a conversation decides what becomes of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from genagent_protocol.envelopes import CoreStatus, Ping
from genagent_protocol.errors import UNKNOWN_FATE
from genagent_protocol.reasons import ExitReason
from genagent_protocol.refs import AgentHandle, Incarnation, MonitorRef
from genagent_protocol.requests import GetSnapshot, GetStatus, ListAgents, Poll, Whereis
from genagentd.client.boxes import Box
from genagentd.client.waiting import Waiting


class Frames(NamedTuple):
    """One message ready to leave."""

    header: bytes
    body: bytes


class Open(NamedTuple):
    """One call without an answer: who waits, who was asked, and behind what it was sent."""

    waiting: Waiting[Any]
    to: str
    watch: Watch | None
    position: int


@dataclass(slots=True)
class Watch:
    """The one monitor kept for calls to one incarnation, and who depends on its `Down`."""

    monitor: MonitorRef
    calls: set[int] = field(default_factory=set)
    ends: list[Waiting[ExitReason]] = field(default_factory=list)


class Watched(NamedTuple):
    """One monitor of the user: what it watches, and where its `Down` goes."""

    handle: AgentHandle
    box: Box


def bare_handle(incarnation: Incarnation, place: str) -> AgentHandle:
    """Return a handle that says no more than which incarnation is meant."""
    return AgentHandle(name=None, incarnation=incarnation, pid=0, started_ticks=0, place=place)


#: What is asked to see something, and has no effect.
_LOOKS = (Ping, CoreStatus, Whereis, ListAgents, Poll, GetStatus, GetSnapshot)


def fate_of(asked: type) -> str:
    """Return what is known of the effect of asking for that, as long as no answer came."""
    return "nothing was changed" if asked in _LOOKS else UNKNOWN_FATE
