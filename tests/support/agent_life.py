"""One life of an agent, and a daemon that is only a connection.

Inside the test's own loop everything but the process itself is real: the socket, the
frames, the turn's thread, the processes of a turn. What ends a process, or leaves a
thread stuck in it, gets a process of its own. The stand-in for the daemon stamps
senders as the daemon does.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from genagent_protocol import codec, envelopes, requests, schema
from genagent_protocol.events import Completed, Failed, Outcome
from genagent_protocol.header import DAEMON, Header, decode_header, encode_header
from genagent_protocol.plain import FrozenDict, freeze
from genagent_protocol.reasons import SHUTDOWN
from genagent_protocol.refs import BootId, Incarnation, MailboxAddress, RequestRef
from genagent_protocol.requests import AgentRequest
from genagentd.agent.entry import Life, _Coordinator
from genagentd.arrivals import Message
from genagentd.channels import Connection
from genagentd.outbox import MESSAGE_COST_BYTES, WINDOW_BYTES

T = TypeVar("T")

BOOT = BootId("0123456789abcdef")
INCARNATION = Incarnation(BOOT, 7)
CLIENT = MailboxAddress(BOOT, 3)
#: Generous, and only there so that a hang ends.
DEADLINE_S = 30.0


class Said(NamedTuple):
    """One envelope the agent said, with the header of its message."""

    header: Header
    envelope: Any


@dataclass
class Conversation:
    """The daemon's end of one life."""

    life: asyncio.Task[int]
    path: str = ""
    connection: Connection = field(init=False)
    #: Set when the agent's end of the connection is gone.
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    process: subprocess.Popen[bytes] | None = None
    #: Everything the agent has said so far, in order.
    said: list[Said] = field(default_factory=list)
    alarms: list[int] = field(default_factory=list)
    #: What was said to the agent so far, as windows count it.
    told_bytes: int = 0
    _unread: deque[Said] = field(default_factory=deque)
    _news: asyncio.Event = field(default_factory=asyncio.Event)
    _calls: int = 0

    def heard(self, message: Message) -> None:
        """Take one message of the agent in."""
        header = decode_header(message.header)
        union: Any = envelopes.ToDaemon if header.to == DAEMON else envelopes.ToClient
        if "/" not in header.to and header.to != DAEMON:
            union = envelopes.ToAgent
        for envelope in codec.decode(union, message.body):
            self.said.append(Said(header, envelope))
            self._unread.append(Said(header, envelope))
        self._news.set()

    def say(self, envelope: object, sender: str = DAEMON, ref: str | None = None) -> None:
        """Say *envelope* to the agent, as the daemon or in the name of *sender*."""
        body = codec.encode(envelope)
        kind = schema.tag_of(type(envelope))
        header = Header(kind, INCARNATION.text, sender, ref=ref, size=len(body))
        self.send(header, body)

    def send(self, header: Header, body: bytes) -> None:
        """Send one message to the agent, whatever it is."""
        assert self.connection.send(encode_header(header), body)
        self.told_bytes += len(body) + MESSAGE_COST_BYTES

    def told(self, kind: type[T]) -> list[T]:
        """Return everything of *kind* that the agent has said so far."""
        return [said.envelope for said in self.said if isinstance(said.envelope, kind)]

    async def next(self, kind: type[T], where: Callable[[T], bool] = lambda _: True) -> T:
        """Return the next envelope of *kind* that the agent says; what comes before it is past."""
        return (await self.next_said(kind, where)).envelope  # type: ignore[no-any-return]

    async def next_said(self, kind: type[T], where: Callable[[T], bool] = lambda _: True) -> Said:
        """Return the same, with its header."""
        async with asyncio.timeout(DEADLINE_S):
            while True:
                while self._unread:
                    said = self._unread.popleft()
                    if isinstance(said.envelope, kind) and where(said.envelope):
                        return said
                self._news.clear()
                await self._news.wait()

    def submit(self, prompt: str, *, stream: bool = False, **more: Any) -> RequestRef:
        """Submit *prompt* in the client's name and return its ref."""
        ref = mint()
        recipient = more.pop("recipient", CLIENT)
        envelope = envelopes.Submit(
            ref=ref,
            prompt=prompt,
            recipient=recipient,
            stream_to=recipient if stream else None,
            **more,
        )
        self.say(envelope, CLIENT.text, ref.text)
        return ref

    async def completion(self, ref: RequestRef) -> Outcome:
        """Return the outcome of *ref* when it is told."""
        found = await self.next(envelopes.Completion, lambda said: said.ref == ref)
        return found.outcome

    async def run(self, prompt: str) -> Outcome:
        """Submit *prompt* and return its outcome."""
        return await self.completion(self.submit(prompt))

    async def answered(self, prompt: str) -> str:
        """Submit *prompt* and return the text of its response."""
        outcome = await self.run(prompt)
        assert isinstance(outcome, Completed), outcome
        return outcome.response.text

    async def failed(self, prompt: str) -> str:
        """Submit *prompt* and return the code of its failure."""
        outcome = await self.run(prompt)
        assert isinstance(outcome, Failed), outcome
        return outcome.reason.code

    def begin_call(self, request: AgentRequest, sender: str = CLIENT.text) -> int:
        """Call the agent and return the call's number."""
        self._calls += 1
        self.say(envelopes.Call(call=self._calls, request=request), sender, str(self._calls))
        return self._calls

    async def call(self, request: AgentRequest) -> Any:
        """Call the agent and return its answer."""
        number = self.begin_call(request)
        return (await self.next(envelopes.Reply, lambda said: said.call == number)).answer

    async def notified(self, event: object) -> None:
        """Have *event* handled or retained."""
        await self.call(requests.NotifyAck(event=freeze(event)))

    async def owed_bytes(self) -> int:
        """Return what the agent has not accounted for once it has dealt with all it was told."""
        # More than a step of credit, so that it says how much it has taken in by then.
        self.say(envelopes.Notify(event="x" * (WINDOW_BYTES // 4)), CLIENT.text)
        told_bytes = self.told_bytes
        self.say(envelopes.Ping(call=0))
        await self.next(envelopes.Pong, lambda said: said.call == 0)
        return told_bytes - max(credit.bytes for credit in self.told(envelopes.Credit))

    async def shown(self) -> Any:
        """Return the state that the agent shows."""
        return (await self.call(requests.GetStatus())).agent_state

    async def stop(self) -> envelopes.Exiting:
        """Stop the agent, and return why it says that it exits."""
        self.say(envelopes.StopAsked(reason=SHUTDOWN))
        return await self.ended()

    async def ended(self) -> envelopes.Exiting:
        """Return why the agent says that it exits, when its life is over."""
        last = await self.next(envelopes.Exiting)
        await over(self.life)
        assert self.told(envelopes.Exiting) == [last]
        return last


async def over(life: asyncio.Task[int]) -> int:
    """Return what *life* comes to, and end it if it comes to nothing in time."""
    # It takes no cancellation, so a time limit would wait for it, and so would the test's loop.
    try:
        ended, _ = await asyncio.wait([life], timeout=DEADLINE_S)
    finally:
        asyncio.Task.cancel(life)
        await asyncio.wait([life])
    assert ended, "the life did not end"
    return life.result()


def mint() -> RequestRef:
    """Return a fresh ref for the agent."""
    return RequestRef.mint(INCARNATION, os.urandom(16))


def start(
    agent: str | None = None,
    backend: str = "scripted",
    options: Mapping[str, object] | None = None,
    **more: Any,
) -> requests.StartAgent:
    """Return what a life is started with."""
    frozen = freeze(options or {})
    assert isinstance(frozen, FrozenDict)
    return requests.StartAgent(name="anna", agent=agent, backend=backend, options=frozen, **more)


@asynccontextmanager
async def newborn(
    wanted: requests.StartAgent, *, watched: bool = False
) -> AsyncIterator[Conversation]:
    """Begin a life in this process and greet it; it is ended when the block is left.

    With *watched* its telemetry is wanted from the hello on.
    """
    with tempfile.TemporaryDirectory(prefix="ga") as directory:
        path = f"{directory}/s"
        alarms: list[int] = []
        life = Life(path, os.getpid(), alarms.append)
        await life.listen()
        # As a process does it: under its own task, a time limit would hold that does not there.
        task = _Coordinator(life.live(), loop=asyncio.get_running_loop())
        async with _greeted(path, task, wanted, watched=watched) as conversation:
            conversation.alarms = alarms
            yield conversation


_PROCESS = """
import os, sys
from genagentd import kernel
from genagentd.agent import entry
kernel.die_with_parent()
kernel.adopt_orphans()
beginning = entry.Beginning(sys.argv[1])
beginning.be_found()
os.write(int(sys.argv[2]), b"ready\\n")
os.close(int(sys.argv[2]))
os._exit(entry.main(beginning))
"""


@asynccontextmanager
async def newborn_process(
    wanted: requests.StartAgent, before: Callable[[str], Awaitable[object]] | None = None
) -> AsyncIterator[Conversation]:
    """Begin a life in a process of its own, a child of this one, and greet it.

    *before* gets the path at which it can be found, before it is greeted.
    """
    with tempfile.TemporaryDirectory(prefix="ga") as directory:
        path = f"{directory}/s"
        read_end, write_end = os.pipe()
        process = subprocess.Popen(
            [sys.executable, "-c", _PROCESS, path, str(write_end)],
            pass_fds=[write_end],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        os.close(write_end)
        task = asyncio.create_task(asyncio.to_thread(process.wait))
        assert await asyncio.to_thread(os.read, read_end, 16) == b"ready\n"
        os.close(read_end)
        try:
            if before is not None:
                await before(path)
            async with _greeted(path, task, wanted) as conversation:
                conversation.process = process
                yield conversation
        finally:
            process.kill()
            await task


@asynccontextmanager
async def _greeted(
    path: str, life: asyncio.Task[int], wanted: requests.StartAgent, *, watched: bool = False
) -> AsyncIterator[Conversation]:
    opened = asyncio.Event()
    conversation = Conversation(life, path)
    conversation.connection = connection = Connection(
        path, conversation.heard, opened.set, conversation.gone.set
    )
    await asyncio.wait_for(opened.wait(), DEADLINE_S)
    conversation.say(
        envelopes.AgentHello(incarnation=INCARNATION, place="here", start=wanted, telemetry=watched)
    )
    try:
        yield conversation
    finally:
        if not life.done() and connection.open:
            conversation.say(envelopes.StopAsked(reason=SHUTDOWN))
        try:
            await over(life)
        finally:
            connection.close()


@asynccontextmanager
async def living_process(
    agent: str | None = None,
    backend: str = "scripted",
    options: Mapping[str, object] | None = None,
    **more: Any,
) -> AsyncIterator[Conversation]:
    """Begin a life in a process of its own, that is ready."""
    async with newborn_process(start(agent, backend, options, **more)) as conversation:
        await _ready(conversation)
        yield conversation


async def _ready(conversation: Conversation) -> None:
    first = await conversation.next(envelopes.Ready | envelopes.StartRefused)  # type: ignore[arg-type]  # isinstance takes a union
    assert isinstance(first, envelopes.Ready), first


@asynccontextmanager
async def living(
    agent: str | None = None,
    backend: str = "scripted",
    options: Mapping[str, object] | None = None,
    **more: Any,
) -> AsyncIterator[Conversation]:
    """Begin a life that is ready."""
    async with newborn(start(agent, backend, options, **more)) as conversation:
        await _ready(conversation)
        yield conversation
