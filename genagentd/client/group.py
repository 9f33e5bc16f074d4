"""Groups: agents whose life their starter owns, in both shells.

A group is open from entering to leaving it. Leaving refuses the turns of its agents
and stops them; the same happens when its owner's connection ends. It never comes
back with its agents.
"""

from __future__ import annotations

from types import TracebackType

from genagent_protocol.errors import StartFailed, UsageError
from genagent_protocol.reasons import ExitReason, StartError
from genagent_protocol.refs import AgentHandle
from genagentd import arguments
from genagentd.client import calls
from genagentd.client.blocking import BlockingShell
from genagentd.client.looped import LoopedShell
from genagentd.client.spec import AgentSpec, spec_of


class _Numbered:
    """A group's number, while it is open, and until its agents are gone."""

    _number: int | None = None
    #: What was its number, until it is known that none of its agents is left.
    _closing: int | None = None
    _left: bool = False

    @property
    def number(self) -> int:
        """The group's number on this connection.

        Raises:
            UsageError: it is not open.
        """
        if self._number is None:
            raise UsageError(self._not_open)
        return self._number

    def number_to_start_in(self) -> int:
        """Return the number, to start an agent in.

        Raises:
            StartFailed: `group_not_running`; nothing was started.
        """
        if self._number is None:
            error = StartError(kind="group_not_running", message=self._not_open)
            raise StartFailed(f"start_agent: {error}", error)
        return self._number

    @property
    def _not_open(self) -> str:
        if self._closing is not None:
            return "this group is not open any more: it is closing"
        if self._left:
            return "this group was closed: enter it again, which begins an empty one"
        return "this group is not open: enter it first"

    def _to_open(self) -> bool:
        """Whether it has to be opened.

        Raises:
            UsageError: a close of it is not over.
        """
        if self._closing is not None:
            raise UsageError("this group is closing: close it again, which waits for its end")
        return self._number is None

    def _to_close(self) -> int | None:
        """Let nobody start in it any more; return the number to close, if there is something to.

        It is the same one again until the end of the group was heard of: whoever ran
        out of time can wait for it once more.
        """
        if self._number is not None:
            self._closing, self._number, self._left = self._number, None, True
        return self._closing


def numbered(value: object) -> _Numbered:
    """Return *value*, a group.

    Raises:
        UsageError: it is something else.
    """
    if not isinstance(value, _Numbered):
        raise UsageError(
            f"group: a group is wanted, not {type(value).__name__}: client.group() returns one"
        )
    return value


class Group(_Numbered):
    """Agents that end when the group is left, or its owner is gone."""

    def __init__(self, shell: BlockingShell) -> None:
        self._shell = shell

    def open(self) -> Group:
        """Open the group, and return it.

        Raises:
            Refused: `shutting_down`.
        """
        if self._to_open():
            self._number = self._shell.run(calls.open_group(self._shell.talk), None)
        return self

    def close(self, timeout_ms: int | None = None) -> None:
        """Refuse the turns of its agents and stop them; returns when all are gone.

        In a process that was forked off the owner's this does nothing.

        Raises:
            CallTimeout: they are not; they go on stopping, and another close waits again.
        """
        limit = arguments.timeout(timeout_ms)
        number = self._to_close()
        if number is not None and self._shell.owned and not self._shell.talk.ended:
            self._shell.run(calls.close_group(self._shell.talk, number), limit)
        self._closing = None

    def start_agent(self, agent: AgentSpec | type | str | None, **terms: object) -> AgentHandle:
        """Start an agent in this group, as `Client.start_agent` does.

        Raises:
            StartFailed: as there, and `group_not_running`.
        """
        number = self.number_to_start_in()
        script = calls.start_agent(self._shell.talk, spec_of(agent, terms), number)
        return self._shell.run(script, None)

    def stop(self, name: object, timeout_ms: int | None = None) -> ExitReason:
        """Stop an agent of this group, as `Client.stop` does."""
        script = calls.stop(self._shell.talk, name, self.number)
        return self._shell.run(script, arguments.timeout(timeout_ms))

    def __enter__(self) -> Group:
        return self.open()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class AsyncGroup(_Numbered):
    """`Group` for asyncio: the same calls, awaited."""

    def __init__(self, shell: LoopedShell) -> None:
        self._shell = shell

    async def open(self) -> AsyncGroup:
        """As `Group.open`."""
        if self._to_open():
            self._number = await self._shell.run(calls.open_group(self._shell.talk), None)
        return self

    async def close(self, timeout_ms: int | None = None) -> None:
        """As `Group.close`."""
        limit = arguments.timeout(timeout_ms)
        number = self._to_close()
        if number is not None and self._shell.owned and not self._shell.talk.ended:
            await self._shell.run(calls.close_group(self._shell.talk, number), limit)
        self._closing = None

    async def start_agent(
        self, agent: AgentSpec | type | str | None, **terms: object
    ) -> AgentHandle:
        """As `Group.start_agent`."""
        number = self.number_to_start_in()
        script = calls.start_agent(self._shell.talk, spec_of(agent, terms), number)
        return await self._shell.run(script, None)

    async def stop(self, name: object, timeout_ms: int | None = None) -> ExitReason:
        """As `Group.stop`."""
        script = calls.stop(self._shell.talk, name, self.number)
        return await self._shell.run(script, arguments.timeout(timeout_ms))

    async def __aenter__(self) -> AsyncGroup:
        return await self.open()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()
