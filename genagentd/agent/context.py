"""What an agent's own code may know and reach: `self.context` in every callback."""

from __future__ import annotations

from dataclasses import dataclass

from genagent_protocol.plain import Plain
from genagent_protocol.refs import AgentHandle, Incarnation, RequestRef
from genagentd.agent.peers import Peers


@dataclass(slots=True)
class Context:
    """The agent as its own code sees it; the framework makes it and keeps it up to date.

    `handle` is this life of the agent, to be handed to others. `current_ref` is the
    request whose gate, turn or decision is under way, in callbacks and in the
    turn's thread alike; None otherwise. `peers` are the other agents.
    """

    handle: AgentHandle
    peers: Peers
    current_ref: RequestRef | None = None

    @property
    def name(self) -> Plain:
        """The agent's name."""
        return self.handle.name

    @property
    def incarnation(self) -> Incarnation:
        """This life of the agent; a restarted one is another."""
        return self.handle.incarnation
