"""One message as it arrived, with the kernel's word on who sent it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias


class Peer(NamedTuple):
    """Who sent a frame, by the kernel's word."""

    uid: int
    gid: int
    pid: int


class Message(NamedTuple):
    """One message as it arrived. `route` and `fd` name the connection it came by."""

    route: bytes
    fd: int
    peer: Peer
    header: bytes
    body: bytes


OnMessage: TypeAlias = Callable[[Message], None]
