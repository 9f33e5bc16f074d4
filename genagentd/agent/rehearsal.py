"""Lives that nobody hears, lived once in the helper for all agents that are forked from it.

What the first run of any code does (imports on demand, caches, the interpreter's own
specialising) would otherwise be done, and paid for in memory, in every agent anew.
No thread and no socket to anybody is left behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
from collections.abc import Iterator

from genagent_protocol import codec
from genagent_protocol.envelopes import AgentHello, Ping, StopAsked, ToDaemon
from genagent_protocol.header import DAEMON, Header, decode_header, encode_header
from genagent_protocol.reasons import NORMAL
from genagent_protocol.refs import BootId, Incarnation
from genagent_protocol.requests import StartAgent
from genagentd.agent import forked, incoming
from genagentd.agent.entry import Life
from genagentd.arrivals import Message
from genagentd.channels import Connection
from genagentd.socket_path import of_agent
from genagentd.sockets import end_context, hold_few

#: The interpreter specialises what ran eight times, and then what it meets.
LIVES = 12
#: After so many turns of the loop a life that hears nothing waits for something to hear.
BEGINNING = 8

_HELLO = AgentHello(
    incarnation=Incarnation(BootId("0" * 16), 1),
    place="",
    start=StartAgent(name="rehearsal", agent=None, backend="echo"),
)
_HEADER = encode_header(Header(kind="batch", to="", sender=DAEMON))


def rehearse(directory: str) -> None:
    """Live as a plain agent that is found in *directory*, from hello to end, a few times.

    Where nobody can be found, nothing is rehearsed: agents start a little later then.

    Raises:
        RuntimeError: such a life did not end well, which no agent's would then.
    """
    hold_few()
    try:
        for _ in range(LIVES):
            with _loop() as loop, contextlib.redirect_stderr(io.StringIO()):
                status = loop.run_until_complete(_one_life(of_agent(directory, os.getpid(), 0)))
            if status != 0:
                raise RuntimeError(f"a rehearsed life ended with status {status}")
    except OSError:
        return
    finally:
        # With its threads: whoever is forked from here has none of them.
        end_context()


async def _one_life(path: str) -> int:
    """Be an agent and its daemon, at both ends of one channel; return the exit status."""
    agent, opened = Life(path, os.getpid()), asyncio.Event()
    await agent.listen()
    try:
        daemon = Connection(path, _hear, opened.set, opened.set)
        try:
            await opened.wait()
            if not daemon.open:
                raise ConnectionResetError(f"nobody could be found at {path}")
            for said in (_HELLO, Ping(call=0), StopAsked(reason=NORMAL)):
                daemon.send(_HEADER, codec.encode(said))
            return await agent.live()
        finally:
            daemon.close()
    finally:
        agent.close()


def _hear(message: Message) -> None:
    decode_header(message.header)
    codec.decode(ToDaemon, message.body)


def begin_once() -> None:
    """Live until there is nothing to do, and give that life up.

    In the process of an agent that waits to be wanted: the memory that a beginning writes
    to is its own then, before anybody waits for it.
    """
    with _loop() as loop:
        loop.run_until_complete(_begun())


async def _begun() -> None:
    hello = incoming.opened(decode_header(_HEADER), codec.encode(_HELLO))
    assert isinstance(hello, AgentHello)
    life = asyncio.ensure_future(Life("", 0).begin(hello))
    for _ in range(BEGINNING):
        await asyncio.sleep(0)
    life.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await life


@contextlib.contextmanager
def _loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.SelectorEventLoop(forked.Selector())
    try:
        yield loop
    finally:
        loop.close()
