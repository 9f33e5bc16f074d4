"""Lives that nobody hears, lived once in the helper for all agents that are forked from it.

What the first run of any code does (imports on demand, caches, the interpreter's own
specialising) would otherwise be done, and paid for in memory, in every agent anew.
No thread and no socket to anybody is left behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import io

from genagent_protocol import codec
from genagent_protocol.envelopes import AgentHello, Ping, Ready, ToDaemon
from genagent_protocol.header import DAEMON, Header, decode_header, encode_header
from genagent_protocol.refs import BootId, Incarnation
from genagent_protocol.requests import StartAgent
from genagentd.agent import incoming
from genagentd.agent.entry import Life
from genagentd.agent.inbox import Frame

#: The interpreter specialises what ran eight times, and then what it meets.
LIVES = 12

_HELLO = AgentHello(
    incarnation=Incarnation(BootId("0" * 16), 1),
    place="",
    start=StartAgent(name="rehearsal", agent=None, backend="echo"),
)


def rehearse() -> None:
    """Live as a plain agent from hello to end, a few times.

    Raises:
        RuntimeError: such a life did not end well, which no agent's would then.
    """
    frame = encode_header(Header(kind="ping", to="", sender=DAEMON)), codec.encode(Ping(call=0))
    for _ in range(LIVES):
        loop = asyncio.new_event_loop()
        try:
            hello = incoming.opened(Header("", "", DAEMON), codec.encode(_HELLO))
            assert isinstance(hello, AgentHello)
            header = decode_header(frame[0])
            life = Life("", 0).rehearse(hello, [Frame(header, frame[1])])
            with contextlib.redirect_stderr(io.StringIO()):
                status = loop.run_until_complete(life)
        finally:
            loop.close()
        if status != 0:
            raise RuntimeError(f"a rehearsed life ended with status {status}")
        codec.decode(ToDaemon, codec.encode(Ready()))
