"""What "next" means: which work an idle agent takes, and how it takes it.

An agent that has become idle looks at these in order, and only at these:

1. It is draining: it exits.
2. It is halted: it takes nothing, however much waits.
3. The reserved slot is full: that prompt is next, before anything older. If the
   slot waits out a pause, nothing is taken at all; new prompts queue behind it.
4. The head of the pending queue.

Taking an entry gives back its room before its gate (`pre_turn`) runs, so that what
the callbacks of this very request produce can use it.
"""

from __future__ import annotations

from genagent_protocol.bounds import Bound, encoded_size
from genagent_protocol.reasons import ExitReason, Failure, Overloaded
from genagent_protocol.turns.decisions import Prompt
from genagent_protocol.turns.effects import Effect, Emit, Exit, Invoke, PreTurn, Terminate
from genagent_protocol.turns.evolve import replace
from genagent_protocol.turns.held import held
from genagent_protocol.turns.requests import Request
from genagent_protocol.turns.state import Advance, Agent, Exited, Gating, Ready


def next_work(agent: Agent) -> Advance:
    """Return the agent with its next work begun, or ready and waiting."""
    agent = replace(agent, step=Ready())
    if agent.draining is not None:
        return leave(agent, agent.draining)
    if agent.halted or agent.paced:
        return Advance(agent)
    if agent.chain is not None:
        return dispatch(replace(agent, chain=None), agent.chain)
    if agent.prompts.items:
        request, rest = agent.prompts.take()
        return dispatch(replace(agent, prompts=rest), request)
    return Advance(agent)


def dispatch(agent: Agent, request: Request, then: tuple[Effect, ...] = ()) -> Advance:
    """Return the agent with *request* before its gate; *then* is said when that came back."""
    gating = replace(agent, step=Gating(request, then))
    return Advance(gating, (Invoke(PreTurn(request.prompt)),))


def leave(agent: Agent, reason: ExitReason) -> Advance:
    """Return the agent exited: both termination callbacks, then the end.

    They have the window of a stop, also where nobody asked for one: whoever waits for the end
    of an agent would wait for ever for one that cannot let go of something.
    """
    farewell = (
        Terminate(reason, held(agent), agent.limits.shutdown_ms),
        Emit(name="terminated", reason=reason),
        Exit(reason),
    )
    return Advance(replace(agent, step=Exited(reason)), farewell)


def enqueue(agent: Agent, request: Request) -> tuple[Agent, Emit] | Overloaded:
    """Return the agent with *request* at the tail of its queue, or why it does not fit."""
    limits = agent.limits
    bound = Bound(max_count=limits.max_pending_prompts, max_bytes=limits.max_pending_prompt_bytes)
    weighed = replace(request, size_bytes=encoded_size(request.prompt))
    queue = agent.prompts.push(weighed, bound, "prompts")
    if isinstance(queue, Overloaded):
        return queue
    return replace(agent, prompts=queue), Emit(name="mailbox.queued", depth=queue.usage.count)


def reserve(agent: Agent, request: Request) -> Agent | Overloaded:
    """Return the agent with *request* in its slot, or why it does not fit.

    The slot is outside the count limit of the queue and is compared alone with
    its byte limit.
    """
    size_bytes = encoded_size(request.prompt)
    max_bytes = agent.limits.max_pending_prompt_bytes
    taken = agent.chain
    if taken is None and size_bytes <= max_bytes:
        return replace(agent, chain=replace(request, size_bytes=size_bytes))
    return Overloaded(
        queue="self_chain",
        limit="bytes" if taken is None else "count",
        pending_count=0 if taken is None else 1,
        pending_bytes=0 if taken is None else taken.size_bytes,
        incoming_bytes=size_bytes,
        max_count=1,
        max_bytes=max_bytes,
    )


def follow_up(prompt: Prompt) -> Request:
    """Return the request that a decision's prompt becomes when nobody outside owns it."""
    return Request(ref=prompt.ref, origin="self_chain", prompt=prompt.text)


def rejected(request: Request, reason_kind: str) -> Emit:
    """Return the note that a prompt was declined before it became a turn."""
    return Emit(
        name="turn.rejected",
        ref=request.ref,
        attempt=request.attempt,
        origin=request.origin,
        reason_kind=reason_kind,
    )


def refused(request: Request, reason: Failure) -> tuple[Effect, ...]:
    """Return the notes that a prompt was not admitted at all."""
    return (Emit(name="input.rejected", reason=reason), rejected(request, reason.code))
