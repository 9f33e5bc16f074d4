"""What an agent's own code may know and reach: `self.context` in every callback."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from typing import Any

from genagent_protocol.plain import Plain
from genagent_protocol.refs import AgentHandle, Incarnation, MailboxAddress, RequestRef
from genagentd.agent.peers import Peers
from genagentd.agent.sessions import Attached, Sessions


@dataclass(slots=True)
class Context:
    """The agent as its own code sees it; the framework makes it and keeps it up to date.

    `handle` is this life of the agent, to be handed to others. `current_ref` is the
    request whose gate, turn or decision is under way, in callbacks and in the
    turn's thread alike, or that `handle_error` is told of; None otherwise. `peers`
    are the other agents; `call` and `request` reach the functions of attached clients.
    """

    handle: AgentHandle
    peers: Peers
    sessions: Sessions
    current_ref: RequestRef | None = None

    @property
    def name(self) -> Plain:
        """The agent's name."""
        return self.handle.name

    @property
    def incarnation(self) -> Incarnation:
        """This life of the agent; a restarted one is another."""
        return self.handle.incarnation

    @property
    def attached(self) -> tuple[Attached, ...]:
        """The clients that are attached now, in the order of their coming."""
        return self.sessions.attached

    def call(
        self,
        function: str,
        arguments: Mapping[str, object] | None = None,
        *,
        catalog: str,
        surface: str | None = None,
        session: MailboxAddress | None = None,
        timeout_ms: float | None = None,
    ) -> Coroutine[Any, Any, Any]:
        """Call a function of an attached client; await it for the value.

        It goes to *session* (an `address` of `attached`), or else to the first client
        that serves the *catalog*, and to one only. The arguments may hold bindings
        into the data of the *surface*. Without *timeout_ms* the limit is 30 s; zero
        means none, which is what waiting for a person wants. Whoever stops waiting
        (an interrupted turn, say) gives the call up; the client is not told.

        Raises:
            FunctionFailed: there is no value, and `code` says why: `NO_CLIENT` (none
                serves the catalog), `TIMEOUT`, `CANCELLED` (the client left), a code of
                the protocol, or one of the function's own.
            UsageError: this is a `def` callback, which cannot wait, or *session* is none.
        """
        return self.sessions.call(
            function=function,
            arguments=arguments,
            catalog=catalog,
            surface=surface,
            session=session,
            timeout_ms=timeout_ms,
        )

    def request(
        self,
        function: str,
        arguments: Mapping[str, object] | None = None,
        *,
        catalog: str,
        surface: str | None = None,
        session: MailboxAddress | None = None,
        timeout_ms: float | None = None,
    ) -> str:
        """Call a function of an attached client without waiting; return the id of the call.

        How it ended comes to `handle_event`: a mapping with `function_call_id`,
        `function`, and either `value` or `error` (`code` and `message`). Everything
        else is as in `call`; there, what is raised as `FunctionFailed` is the `error` here.

        This does not promise that the event fits: like any notification it may be
        refused when the agent's bounds for those are full.

        Raises:
            UsageError: *session* is none.
        """
        return self.sessions.request(
            function=function,
            arguments=arguments,
            catalog=catalog,
            surface=surface,
            session=session,
            timeout_ms=timeout_ms,
        )
