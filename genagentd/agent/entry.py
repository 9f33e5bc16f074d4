"""The agent process from its first line of ours to its exit code.

It can be found before it is anybody, and becomes somebody only with the daemon's
hello. It says `Ready` or why it cannot start, and before its end why it exits; what
it said has two seconds to leave before the process ends. If what drives it ends in
any other way, the process ends too, with a status and a line: it is never deaf.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from genagent_protocol.envelopes import (
    AgentHello,
    Ready,
    StartRefused,
)
from genagent_protocol.errors import RemoteWireError
from genagent_protocol.header import DAEMON, Header
from genagent_protocol.plain import printable
from genagent_protocol.reasons import ORDERLY, ExitReason, StartError
from genagent_protocol.refs import AgentHandle
from genagent_protocol.turns.inputs import StopRequested
from genagentd import kernel
from genagentd.agent import forked, incoming, log, reserve
from genagentd.agent.behaviour import AnyAgent
from genagentd.agent.calls import Calls
from genagentd.agent.channel import Channel
from genagentd.agent.context import Context
from genagentd.agent.inbox import Frame, Inbox, Item
from genagentd.agent.mail import Mail
from genagentd.agent.opening import open_agent
from genagentd.agent.outgoing import Outgoing
from genagentd.agent.own_refs import OwnRefs
from genagentd.agent.peers import Peers
from genagentd.agent.processes import Processes
from genagentd.agent.sessions import Sessions
from genagentd.agent.shell import Shell
from genagentd.agent.sweep import hear_of_ends
from genagentd.sockets import end_context, hold_few

#: How long what was said last has to leave.
LINGER_MS = 2_000
#: How long notifications by name may still wait for the answer where their target is.
LAST_NOTIFICATIONS_MS = 1_000
#: How long an orderly end may take when the daemon is gone.
ORPHANED_S = 5
#: How long letting go may take once something of ours broke.
LAST_STEPS_S = 5
#: The status that says: the reason is in the last message.
REASON_TOLD = 70
#: The status that says: see the log.
BROKEN = 1
REGISTRY_LOST = ExitReason("registry_lost")


class Beginning:
    """What any agent has and needs to know nothing for: a loop, and a life that can be found."""

    def __init__(self, socket_path: str) -> None:
        """Make this process one that becomes an agent; nobody finds it yet."""
        hold_few()
        forked.begin()
        reserve.hold()
        self.loop = asyncio.SelectorEventLoop(forked.Selector())
        self.loop.set_exception_handler(_complain)
        # Whoever ends below us may be one that we adopted; the agent's own are its own business.
        hear_of_ends(self.loop)
        self.life = Life(socket_path, os.getppid())

    def be_found(self) -> None:
        """Be there for the daemon; again, if somebody removed the file.

        Raises:
            OSError: the directory, or what this process may open, does not allow it.
        """
        if not self.life.is_there():
            self.loop.run_until_complete(self.life.listen())

    def give_up(self) -> None:
        """Be there no longer; this process does not become an agent."""
        self.life.close()


def main(beginning: Beginning) -> int:
    """Live one life and return its exit status; the caller ends the process with it."""
    log.hold()
    loop, life = beginning.loop, beginning.life
    asyncio.set_event_loop(loop)
    try:
        status = _driven(loop, life.live())
        end_context()
    except BaseException as error:  # noqa: BLE001  # a bug of ours, whatever it is that came through
        forked.leave(error)
        _give_up(life, error)
        return BROKEN
    return status


def _give_up(life: Life, error: BaseException) -> None:
    """Say what broke and let go of everything, as far as that goes and not for long."""
    # Whatever broke us may break this as well, and no wait of ours may outlast it.
    with contextlib.suppress(BaseException):
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(LAST_STEPS_S)
        log.broke(error)
    with contextlib.suppress(BaseException):
        life.close()
        end_context()


class _Coordinator(asyncio.Task[int]):
    """The task of a life, which cannot be cancelled: nobody of ours does so.

    The code of the agent could reach it from a plain callback, or among all tasks there
    are. So what is under a time limit has to be awaited in a task of its own.
    """

    def cancel(self, msg: Any = None) -> bool:  # noqa: ARG002  # it is asyncio's
        """Do nothing, as if it were over."""
        return False


def _driven(loop: asyncio.AbstractEventLoop, life: Coroutine[Any, Any, int]) -> int:
    task = _Coordinator(life, loop=loop)
    while True:
        try:
            return loop.run_until_complete(task)
        except (SystemExit, KeyboardInterrupt, RuntimeError) as stray:
            # asyncio lets the first two through from any task, also from one that nobody awaits;
            # the last is how it says that somebody stopped the loop.
            if task.done() or loop.is_closed():
                raise
            log.line("task.stray_exit", error=log.class_of(stray))


def _complain(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Have asyncio say what it has to say; where it cannot be said, it is lost."""
    # It goes to the user's standard error, which may be closed; asyncio would raise from here.
    with contextlib.suppress(BaseException):
        loop.default_exception_handler(context)


class Life:
    """The life of one agent process."""

    def __init__(
        self,
        socket_path: str,
        daemon_pid: int,
        alarm: Callable[[int], object] = signal.alarm,
    ) -> None:
        """Nothing happens yet. *alarm* ends the process after so many seconds."""
        self._path = socket_path
        self._daemon_pid = daemon_pid
        self._alarm = alarm
        self._refs = OwnRefs()
        self._inbox: Inbox
        self._channel: Channel | None = None
        #: Frames that came before there was a mailroom to account for them.
        self._taken: list[Frame] = []

    def is_there(self) -> bool:
        """Whether the daemon finds it."""
        return self._channel is not None and self._channel.is_there()

    async def listen(self) -> None:
        """Be there for the daemon, whose first word is awaited from now on.

        Raises:
            OSError: the directory, or what this process may open, does not allow it.
        """
        self.close()
        self._inbox = Inbox()
        self._channel = Channel(self._path, self._keep, self._orphaned, self._daemon_pid)

    async def live(self) -> int:
        """Return the exit status, when everything is over and said; it listens already."""
        assert self._channel is not None
        hello = await self._hello()
        kernel.be_called(f"ga:{printable(hello.start.name)}")
        status = await self._be_somebody(hello, self._channel.send)
        self.close()
        return status

    async def rehearse(self, hello: AgentHello, heard: Iterable[Item]) -> int:
        """Live as *hello* says, without a channel, and hear that; return the exit status."""
        self._inbox = Inbox()
        for item in heard:
            self._inbox.put(item)
        return await self._be_somebody(hello, lambda _header, _body: True)

    async def _be_somebody(self, hello: AgentHello, send: Callable[[bytes, bytes], bool]) -> int:
        outgoing = Outgoing(hello.start.name, send, asyncio.get_running_loop().call_soon)
        calls = Calls(outgoing.say)
        sessions = Sessions(outgoing.say, self._inbox.put)
        mail = Mail(self._inbox, outgoing, calls, sessions, watched=hello.telemetry)
        while self._taken:
            # The daemon counts them: a hello of 4 MiB would keep its window closed for good.
            mail.took(self._taken.pop())
        self._inbox.sort(mail.arrived)
        if self._channel is not None:
            self._channel.on_frame = mail.arrived
        context = _context(hello, outgoing, calls, sessions, self._refs)
        status = await self._born(hello, outgoing, mail, context)
        outgoing.flush()
        return status

    def _keep(self, header: Header, body: bytes) -> None:
        self._inbox.put(Frame(header, body))

    async def _hello(self) -> AgentHello:
        """Return the daemon's first word."""
        while True:
            await self._inbox.filled()
            frame = self._inbox.take()
            try:
                if isinstance(frame, Frame):
                    self._taken.append(frame)
                    said = incoming.opened(frame.header, frame.body)
                    if isinstance(said, AgentHello):
                        return said
            except RemoteWireError as error:
                log.line("message.malformed", error=log.class_of(error))

    async def _born(
        self, hello: AgentHello, outgoing: Outgoing, mail: Mail, context: Context
    ) -> int:
        def introduce(agent: AnyAgent) -> None:
            context.sessions.agent = agent
            # Not by assignment: an agent may be a frozen dataclass.
            object.__setattr__(agent, "context", context)

        # Before any code of the agent's runs: what that starts is its own.
        processes = Processes()
        opened = await open_agent(hello.start, introduce)
        if isinstance(opened, StartError):
            outgoing.say(DAEMON, StartRefused(error=opened))
            outgoing.flush()
            # The start has failed when we are gone, and by then nothing of it is left.
            await processes.end_for_good(hello.start.name)
            return 1
        outgoing.say(DAEMON, Ready())
        shell = Shell(
            context,
            opened,
            self._inbox,
            outgoing,
            mail,
            processes,
            self._refs,
        )
        reason = await shell.run()
        if self._channel is not None and not self._channel.lost:
            # In a task of its own, which its time limit cancels, or somebody else; ours cannot be.
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.create_task(context.peers.all_sent(LAST_NOTIFICATIONS_MS))
        return 0 if reason.text in ORDERLY else REASON_TOLD

    def _orphaned(self) -> None:
        """The daemon is gone: end in order, and not later than that."""
        self._alarm(ORPHANED_S)
        self._inbox.put(StopRequested(REGISTRY_LOST))

    def close(self) -> None:
        """Close the channel; what was said has its time to leave."""
        if self._channel is not None:
            self._channel.close(LINGER_MS)


def _context(
    hello: AgentHello, outgoing: Outgoing, calls: Calls, sessions: Sessions, refs: OwnRefs
) -> Context:
    pid = os.getpid()
    handle = AgentHandle(
        name=hello.start.name,
        incarnation=hello.incarnation,
        pid=pid,
        started_ticks=kernel.started_ticks(pid),
        place=hello.place,
    )
    peers = Peers(handle, outgoing.say, calls, refs)
    return Context(handle, peers, sessions)
