"""What is let in: prompts, notifications and messages, and the ways of saying no.

A prompt that meets an idle agent goes straight to its gate; no limit applies to it,
not even zero. Any other waits in the pending queue, if it fits. Whoever sent it
hears of the acceptance at once if it was queued, and after its gate otherwise; that
word and everything else about the request follows the same ref. A refused prompt
leaves no trace: no completion, no events, unknown to polls.

A ref is used once. A prompt under a ref that this agent still knows is refused, and
if it was a submission it gets no admission: the admission of that ref belongs to
the first one.

A notification that meets an idle agent, halted or not, is handled at once; in a
turn it is kept for its end, if it fits. The acknowledgement says that it was
handled or kept. A message that the agent is owed always fits: whoever asked for it
once would wait for ever, and there are no more of them than were asked for.
"""

from __future__ import annotations

from genagent_protocol.answers import Ok, Refused
from genagent_protocol.bounds import Bound, encoded_size
from genagent_protocol.reasons import (
    DRAINING,
    DUPLICATE_REF,
    HALTED,
    SHUTTING_DOWN,
    Failure,
    Overloaded,
    Reason,
)
from genagent_protocol.refs import RequestRef
from genagent_protocol.turns.effects import (
    Effect,
    Emit,
    HandleEvent,
    HandleInfo,
    Invoke,
    Reply,
    SendAdmission,
)
from genagent_protocol.turns.evolve import replace
from genagent_protocol.turns.inputs import (
    AskReceived,
    MessageReceived,
    NotificationReceived,
    PromptSubmitted,
    TellReceived,
)
from genagent_protocol.turns.requests import CallId, Request
from genagent_protocol.turns.rules_work import dispatch, enqueue, refused, rejected
from genagent_protocol.turns.state import Advance, Agent, Deferred, Noticing, Ready

# Prompts


def submitted(agent: Agent, given: PromptSubmitted) -> Advance:
    """A submission is admitted or refused by a message to its recipient."""
    request = Request(
        ref=given.ref,
        origin="tell",
        prompt=given.prompt,
        recipient=given.recipient,
        stream_to=given.stream_to,
        on_halt=given.on_halt,
    )
    if known(agent, given.ref):
        return Advance(agent, refused(request, DUPLICATE_REF))
    verdict = _receive(agent, request, SendAdmission(given.recipient, given.ref, Ok()))
    if isinstance(verdict, Advance):
        return verdict
    reason, notes = verdict
    return Advance(agent, (*notes, SendAdmission(given.recipient, given.ref, Refused(reason))))


def told(agent: Agent, given: TellReceived) -> Advance:
    """A tell is answered when it is accepted or refused, not when its turn is over."""
    request = Request(
        ref=given.ref,
        origin="tell",
        prompt=given.prompt,
        recipient=given.recipient,
        stream_to=given.stream_to,
        on_halt=given.on_halt,
    )
    return _called(agent, request, given.call, (Reply(given.call, Ok()),))


def asked(agent: Agent, given: AskReceived) -> Advance:
    """An ask is answered when it is refused, and otherwise only by its outcome."""
    request = Request(
        ref=given.ref, origin="ask", prompt=given.prompt, call=given.call, caller=given.caller
    )
    return _called(agent, request, given.call, ())


def _called(agent: Agent, request: Request, call: CallId, accepted: tuple[Effect, ...]) -> Advance:
    if known(agent, request.ref):
        return Advance(agent, (*refused(request, DUPLICATE_REF), _no(call, DUPLICATE_REF)))
    verdict = _receive(agent, request, *accepted)
    if isinstance(verdict, Advance):
        return verdict
    reason, notes = verdict
    return Advance(agent, (*notes, _no(call, reason)))


def _no(call: CallId, reason: Failure) -> Reply:
    return Reply(call, Refused(reason))


def _receive(
    agent: Agent, request: Request, *accepted: Effect
) -> Advance | tuple[Failure, tuple[Effect, ...]]:
    """Return the agent with *request* taken in and *accepted* said, or why it is refused."""
    refusal = closed(agent)
    if refusal is not None:
        return refusal, refused(request, refusal)
    if agent.halted and request.on_halt == "fail":
        return HALTED, (rejected(request, HALTED.code),)
    if at_leisure(agent):
        return dispatch(agent, request, accepted)
    queued = enqueue(agent, request)
    if isinstance(queued, Overloaded):
        return queued, refused(request, queued)
    agent, note = queued
    return Advance(agent, (*accepted, note))


def closed(agent: Agent) -> Reason | None:
    """Return why the agent admits nothing at all, or None if it does."""
    if agent.leaving is not None:
        return SHUTTING_DOWN
    return None if agent.draining is None else DRAINING


def at_leisure(agent: Agent) -> bool:
    """Return whether the agent would take a new prompt at once: idle, and nothing before it."""
    return isinstance(agent.step, Ready) and not agent.halted and agent.chain is None


def known(agent: Agent, ref: RequestRef) -> bool:
    """Return whether *ref* names work that this agent has, or an outcome it remembers."""
    return waiting(agent, ref) is not None or current(agent, ref) or _remembered(agent, ref)


def _remembered(agent: Agent, ref: RequestRef) -> bool:
    return agent.results.find(ref) is not None


def current(agent: Agent, ref: RequestRef) -> bool:
    """Return whether *ref* is the active turn's."""
    turn = agent.turn
    return turn is not None and turn.request.ref == ref


def waiting(agent: Agent, ref: RequestRef) -> Request | None:
    """Return the request of *ref* that waits in the slot or the queue, if there is one."""
    if agent.chain is not None and agent.chain.ref == ref:
        return agent.chain
    token = ref.token
    for request in agent.prompts.items:
        # Comparing the random part first keeps a scan of a long queue cheap.
        if request.ref.token == token and request.ref == ref:
            return request
    return None


# Notifications and messages


def notified(agent: Agent, given: NotificationReceived) -> Advance:
    """An event is handled now, kept for the end of the turn, or refused."""
    refusal = closed(agent)
    if refusal is not None:
        return _declined(agent, refusal, given.call)
    note = Emit(name="event.received", event=given.event)
    if isinstance(agent.step, Ready):
        return _handle(agent, Deferred(HandleEvent(given.event)), given.call).after(note)
    deferred = Deferred(HandleEvent(given.event), encoded_size(given.event))
    return _keep(agent, deferred, given.call).after(note)


def message_received(agent: Agent, given: MessageReceived) -> Advance:
    """A message is treated like an event, if the agent has a `handle_info` for it."""
    refusal = closed(agent)
    if refusal is not None:
        return _declined(agent, refusal, None)
    if not agent.offers.handle_info:
        return Advance(agent, (Emit(name="message.dropped"),))
    deferred = Deferred(HandleInfo(given.message), given.size_bytes, given.owed)
    if isinstance(agent.step, Ready):
        return _handle(agent, deferred, None)
    if given.owed:
        return Advance(replace(agent, notifications=agent.notifications.append(deferred)))
    return _keep(agent, deferred, None)


def _handle(agent: Agent, deferred: Deferred, call: CallId | None) -> Advance:
    step = Noticing(deferred, immediate=True, call=call)
    return Advance(replace(agent, step=step), (Invoke(deferred.callback),))


def _keep(agent: Agent, deferred: Deferred, call: CallId | None) -> Advance:
    limits = agent.limits
    bound = Bound(
        max_count=limits.max_pending_notifications,
        max_bytes=limits.max_pending_notification_bytes,
    )
    kept = agent.notifications.push(deferred, bound, "notifications")
    if isinstance(kept, Overloaded):
        return _declined(agent, kept, call)
    ack = () if call is None else (Reply(call, Ok()),)
    return Advance(replace(agent, notifications=kept), ack)


def _declined(agent: Agent, reason: Failure, call: CallId | None) -> Advance:
    note = Emit(name="input.rejected", reason=reason)
    return Advance(agent, (note,) if call is None else (note, _no(call, reason)))
