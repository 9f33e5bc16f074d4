"""Which accepted requests an agent holds without an outcome: what would end with it.

An ask whose turn is cut is among them, although its caller may have been told by then
that the agent ends: that says nothing of what the turn came to. What nobody outside
asked for (a generated prompt) is not: nobody was promised an outcome.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from genagent_protocol.refs import RequestRef
from genagent_protocol.turns.requests import Request
from genagent_protocol.turns.state import (
    Agent,
    Checkpointing,
    Deciding,
    Gating,
    Reporting,
    Running,
    Starting,
    Stopping,
    Wrapping,
)

#: What is told of them has to fit into a message.
MAX_TOLD = 10_000


def under_way(agent: Agent) -> Request | None:
    """Return the request that *agent* is busy with, from its gate to its `post_turn`.

    Also one that became no turn, while `handle_error` is told of it.
    """
    match agent.step:
        case Gating(request=request) | Reporting(request=request):
            return request
        case Starting(turn) | Running(turn) | Stopping(turn=turn):
            return turn.request
        case Checkpointing(back=back):
            return back.turn.request
        case Deciding(ending) | Wrapping(ending=ending):
            return ending.turn.request
        case _:
            return None


def held(agent: Agent) -> tuple[RequestRef, ...]:
    """Return what *agent* was asked or told to do, has accepted, and has given no outcome yet."""
    said = {result.ref for result in agent.results.items}
    found = (request.ref for request in _accepted(agent) if request.ref not in said)
    return tuple(islice(found, MAX_TOLD))


def _accepted(agent: Agent) -> Iterator[Request]:
    for request in (under_way(agent), agent.chain, *agent.prompts.items):
        if request is not None and request.owned:
            yield request
