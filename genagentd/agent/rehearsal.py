"""Lives that nobody hears, lived once in the helper for all agents that are forked from it.

What the first run of any code does (imports on demand, caches, the interpreter's own
specialising) would otherwise be done, and paid for in memory, in every agent anew.
There is no socket and no thread: the end of a ZeroMQ context can hang, and whoever is
forked from here would have none of its threads.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
from collections.abc import Coroutine, Iterable, Iterator
from typing import Any

from genagent_protocol import codec
from genagent_protocol.envelopes import AgentHello, Ping, Ready, ToDaemon
from genagent_protocol.header import DAEMON, Header, decode_header, encode_header
from genagent_protocol.reasons import NORMAL
from genagent_protocol.refs import BootId, Incarnation
from genagent_protocol.requests import StartAgent
from genagent_protocol.turns.inputs import StopRequested
from genagentd.agent import forked, incoming
from genagentd.agent.entry import Life
from genagentd.agent.inbox import Frame, Item

#: The interpreter specialises what ran eight times, and then what it meets.
LIVES = 12
#: After so many turns of the loop a life that hears nothing waits for something to hear.
BEGINNING = 8

_HELLO = AgentHello(
    incarnation=Incarnation(BootId("0" * 16), 1),
    place="",
    start=StartAgent(name="rehearsal", agent=None, backend="echo"),
)
_HEADER = encode_header(Header(kind="ping", to="", sender=DAEMON))
_PING = codec.encode(Ping(call=0))


def rehearse() -> None:
    """Live as a plain agent from hello to end, a few times.

    Raises:
        RuntimeError: such a life did not end well, which no agent's would then.
    """
    for _ in range(LIVES):
        heard: list[Item] = [Frame(decode_header(_HEADER), _PING), StopRequested(NORMAL)]
        with _loop() as loop, contextlib.redirect_stderr(io.StringIO()):
            status = loop.run_until_complete(_life(heard))
        if status != 0:
            raise RuntimeError(f"a rehearsed life ended with status {status}")
        codec.decode(ToDaemon, codec.encode(Ready()))


def begin_once() -> None:
    """Live until there is nothing to do, and give that life up.

    In the process of an agent that waits to be wanted: the memory that a beginning writes
    to is its own then, before anybody waits for it.
    """
    with _loop() as loop:
        loop.run_until_complete(_begun())


async def _begun() -> None:
    life = asyncio.ensure_future(_life([]))
    for _ in range(BEGINNING):
        await asyncio.sleep(0)
    life.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await life


def _life(heard: Iterable[Item]) -> Coroutine[Any, Any, int]:
    hello = incoming.opened(decode_header(_HEADER), codec.encode(_HELLO))
    assert isinstance(hello, AgentHello)
    return Life("", 0).rehearse(hello, heard)


@contextlib.contextmanager
def _loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.SelectorEventLoop(forked.Selector())
    try:
        yield loop
    finally:
        loop.close()
