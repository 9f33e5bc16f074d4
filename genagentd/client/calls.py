"""Each call of the API as a script: what is checked, sent and waited for, and the answer.

A script runs the same under either shell. It sends nothing before its arguments are
checked, and it yields only what it waits for; a time limit or the end of the
connection is raised into it by the shell.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Literal, NoReturn, TypeAlias, TypeVar

from genagent_protocol import answers, envelopes, requests
from genagent_protocol.answers import AgentRow
from genagent_protocol.errors import (
    ProcessDown,
    Refused,
    RemoteWireError,
    StartFailed,
    TurnFailed,
)
from genagent_protocol.events import Completed, Failed, Response
from genagent_protocol.plain import printable
from genagent_protocol.reasons import NORMAL, NOT_FOUND, ExitReason, Failure, StartError
from genagent_protocol.refs import AgentHandle, Incarnation, RequestRef
from genagent_protocol.requests import AgentRequest, DaemonRequest
from genagent_protocol.supervision import effects
from genagentd import arguments, sendable
from genagentd.client.conversation import Answer, Conversation
from genagentd.client.spec import AgentSpec, start_request
from genagentd.client.waiting import Script, settled

CancelResult: TypeAlias = Literal["cancelled", "current", "already_finished", "not_found"]
InterruptResult: TypeAlias = Literal["accepted", "not_current", "idle"]
NotifyResult: TypeAlias = Literal["ok", "not_alive"]

T = TypeVar("T")

#: How long a call by handle waits, unless told otherwise. Calls by name have no limit.
CALL_TIMEOUT_MS = 5_000


@dataclass(frozen=True, slots=True)
class Submitted:
    """The prompt was sent under `ref`. Not: accepted, queued or started."""

    ref: RequestRef


@dataclass(frozen=True, slots=True)
class Lost:
    """The life of the agent that `ref` was minted for is over, and its results with it."""

    ref: RequestRef


#: What an agent knows of a request.
Known: TypeAlias = (
    answers.PollPending | answers.PollCompleted | answers.PollFailed | answers.NotFound
)
PollResult: TypeAlias = Known | Lost


# --- by name: the name is looked up first, and what was found is called --------------------


def whereis(talk: Conversation, name: object, what: str = "whereis") -> Script[AgentHandle | None]:
    """Return the living agent of that name, or None."""
    request = requests.Whereis(name=sendable.agent_name(name))
    found = yield from _request(talk, what, request, answers.Found)
    return found.handle


def located(talk: Conversation, name: object, what: str) -> Script[AgentHandle]:
    """Return the living agent of that name.

    Raises:
        Refused: `not_found`.
    """
    handle = yield from whereis(talk, name, what)
    if handle is None:
        raise sendable.nobody(what, name)
    return handle


def start_agent(talk: Conversation, spec: AgentSpec, group: int | None) -> Script[AgentHandle]:
    """Start an agent; it is ready when this returns."""
    request = start_request(spec, group)
    answer = yield from settled(talk.request("start_agent", request))
    match answer:
        case effects.Started(handle):
            return handle
        case effects.NotStarted(error):
            raise StartFailed(f"start_agent {printable(request.name)}: {error}", error)
        case answers.Refused(reason):
            raise _refusal("start_agent", reason)
        case _:
            _unexpected("start_agent", answer)


def ask(talk: Conversation, name: object, prompt: str) -> Script[Response]:
    """Run the prompt and return the response."""
    text = sendable.prompt(prompt)
    handle = yield from located(talk, name, "ask")
    ref = _mint(handle)
    request = requests.Ask(ref=ref, prompt=text)
    answer = yield from _call(talk, f"ask {_named(handle)}", handle.incarnation, request)
    match answer:
        case Completed(response):
            return response
        case Failed(reason):
            raise TurnFailed(f"ask {_named(handle)}: the turn failed: {reason}", reason)
        case _:
            _unexpected("ask", answer)


def tell(talk: Conversation, name: object, prompt: str) -> Script[RequestRef]:
    """Have the prompt accepted and return its ref, to be polled."""
    text = sendable.prompt(prompt)
    handle = yield from located(talk, name, "tell")
    ref = _mint(handle)
    yield from _done(
        talk, f"tell {_named(handle)}", handle.incarnation, requests.Tell(ref=ref, prompt=text)
    )
    return ref


def tell_with_completion(
    talk: Conversation,
    name: object,
    prompt: str,
    *,
    recipient: object,
    on_halt: object,
    stream_to: object,
) -> Script[RequestRef]:
    """Have the prompt accepted, its completion going to *recipient*, and return its ref."""
    what = "tell_with_completion"
    text = sendable.prompt(prompt)
    target = arguments.recipient(recipient, "recipient", talk.place)
    stream = arguments.stream_target(stream_to, talk.place)
    halting = arguments.on_halt(on_halt)
    handle = yield from located(talk, name, what)
    ref = _mint(handle)
    request = requests.Tell(
        ref=ref, prompt=text, recipient=target, on_halt=halting, stream_to=stream
    )
    yield from _done(talk, f"{what} {_named(handle)}", handle.incarnation, request)
    return ref


def poll(talk: Conversation, name: object, ref: object) -> Script[PollResult]:
    """Return what the agent of that name knows of *ref*."""
    wanted = arguments.request_ref(ref)
    handle = yield from whereis(talk, name, "poll")
    if handle is not None and handle.incarnation == wanted.incarnation:
        return (yield from poll_at(talk, handle, wanted))
    rows = yield from list_agents(talk, "poll")
    alive = any(row.handle and row.handle.incarnation == wanted.incarnation for row in rows)
    return answers.NotFound() if alive else Lost(wanted)


def notify_ack(talk: Conversation, name: object, event: object) -> Script[None]:
    """Have the event handled or retained."""
    request = requests.NotifyAck(event=sendable.payload(event, "event"))
    handle = yield from located(talk, name, "notify_ack")
    yield from _done(talk, f"notify_ack {_named(handle)}", handle.incarnation, request)


def cast(
    talk: Conversation,
    what: str,
    name: object,
    envelope: envelopes.Notify | envelopes.Interrupt | envelopes.Resume | envelopes.Halt,
) -> Script[None]:
    """Send once to the agent of that name, if there is one; nothing is answered."""
    handle = yield from whereis(talk, name, what)
    if handle is not None:
        talk.cast(handle.incarnation, envelope)


def cancel_request(talk: Conversation, name: object, ref: object) -> Script[CancelResult]:
    """Remove the queued request."""
    wanted = arguments.request_ref(ref)
    handle = yield from located(talk, name, "cancel_request")
    return (yield from cancel_at(talk, handle, wanted))


def interrupt_request(talk: Conversation, name: object, ref: object) -> Script[InterruptResult]:
    """Stop the active turn if it is that request's."""
    wanted = arguments.request_ref(ref)
    handle = yield from located(talk, name, "interrupt_request")
    return (yield from interrupt_at(talk, handle, wanted))


def status(talk: Conversation, name: object) -> Script[answers.Status]:
    """Return the agent's short description."""
    handle = yield from located(talk, name, "status")
    request = requests.GetStatus()
    return (yield from _read(talk, f"status {_named(handle)}", handle, request, answers.Status))


def snapshot(talk: Conversation, name: object) -> Script[answers.Snapshot]:
    """Return what the agent's coordinator is doing."""
    handle = yield from located(talk, name, "runtime_snapshot")
    request = requests.GetSnapshot()
    return (
        yield from _read(
            talk, f"runtime_snapshot {_named(handle)}", handle, request, answers.Snapshot
        )
    )


def reset_session(talk: Conversation, name: object) -> Script[None]:
    """Start the backend's conversation anew."""
    handle = yield from located(talk, name, "reset_session")
    yield from _done(
        talk, f"reset_session {_named(handle)}", handle.incarnation, requests.ResetSession()
    )


#: What is known of a drain that was accepted.
STILL_DRAINING = "it is not gone yet; it goes on draining"


def drain(talk: Conversation, name: object) -> Script[None]:
    """Let the agent finish its turn and exit; returns when it is gone."""
    handle = yield from located(talk, name, "drain")
    end = talk.end_of(f"drain {_named(handle)}", handle.incarnation)
    try:
        yield from _done(talk, f"drain {_named(handle)}", handle.incarnation, requests.Drain())
    except ProcessDown as down:
        _ended_well(handle, down.reason)
        return
    end.fate = STILL_DRAINING
    _ended_well(handle, (yield from settled(end)))


def _ended_well(handle: AgentHandle, reason: ExitReason) -> None:
    if reason != NORMAL:
        raise ProcessDown(f"drain {_named(handle)}", reason)


def stop(talk: Conversation, name: object, group: int | None) -> Script[ExitReason]:
    """Stop the agent; it is gone and its name free when this returns."""
    request = requests.StopAgent(name=sendable.agent_name(name), group=group)
    shown = printable(request.name)
    try:
        stopped = yield from _request(talk, f"stop {shown}", request, effects.Stopped)
    except Refused as refused:
        if refused.reason != NOT_FOUND:
            raise
        raise sendable.nobody("stop", name) from None
    return stopped.reason


def list_agents(talk: Conversation, what: str = "list") -> Script[tuple[AgentRow, ...]]:
    """Return what the daemon knows of each agent."""
    listing = yield from _request(talk, what, requests.ListAgents(), answers.Listing)
    return listing.rows


# --- by handle: exactly the captured process, and no other -----------------------------------


def submit(
    talk: Conversation,
    handle: AgentHandle,
    prompt: str,
    recipient: object,
    on_halt: object,
    stream_to: object,
) -> Submitted:
    """Send one prompt and return its ref at once."""
    text = sendable.prompt(prompt)
    target = arguments.recipient(recipient, "recipient", talk.place)
    halting = arguments.on_halt(on_halt)
    stream = arguments.stream_target(stream_to, talk.place)
    ref = _mint(handle)
    envelope = envelopes.Submit(
        ref=ref, prompt=text, recipient=target, on_halt=halting, stream_to=stream
    )
    talk.cast(handle.incarnation, envelope, ref)
    return Submitted(ref)


def poll_at(talk: Conversation, handle: AgentHandle, ref: object) -> Script[Known]:
    """Return what that process knows of *ref*."""
    request = requests.Poll(ref=arguments.request_ref(ref))
    answer = yield from _call(talk, "poll", handle.incarnation, request)
    match answer:
        case answers.PollPending() | answers.PollCompleted() | answers.PollFailed():
            return answer
        case answers.NotFound():
            return answer
        case _:
            _unexpected("poll", answer)


def cancel_at(talk: Conversation, handle: AgentHandle, ref: object) -> Script[CancelResult]:
    """Remove the queued request from that process."""
    request = requests.CancelRequest(ref=arguments.request_ref(ref))
    answer = yield from _read(
        talk, f"cancel_request {_named(handle)}", handle, request, answers.CancelAnswer
    )
    return answer.result


def interrupt_at(talk: Conversation, handle: AgentHandle, ref: object) -> Script[InterruptResult]:
    """Stop the active turn of that process if it is that request's."""
    request = requests.InterruptRequest(ref=arguments.request_ref(ref))
    answer = yield from _read(
        talk, f"interrupt_request {_named(handle)}", handle, request, answers.InterruptAnswer
    )
    return answer.result


def attach_at(
    talk: Conversation, handle: AgentHandle, session: int, catalog_ids: tuple[str, ...]
) -> Script[tuple[str, ...]]:
    """Have that process open the session; return the names of the functions it offers."""
    request = requests.AttachUi(session=session, catalog_ids=catalog_ids)
    answer = yield from _read(talk, "attach", handle, request, answers.UiAttached)
    return answer.functions


# --- groups and telemetry ---------------------------------------------------------------------


def open_group(talk: Conversation) -> Script[int]:
    """Open a group of this connection and return its number."""
    running = yield from _request(talk, "group", requests.OpenGroup(), effects.GroupRunning)
    return running.group


def close_group(talk: Conversation, group: int) -> Script[None]:
    """End the group; all its agents are gone when this returns, now or since an earlier close."""
    try:
        yield from _request(talk, "group", requests.CloseGroup(group=group), answers.Ok)
    except Refused as refused:
        if refused.reason != NOT_FOUND:
            raise


def watch_telemetry(talk: Conversation, *, on: bool) -> Script[None]:
    """Have telemetry records sent from now on, or no more."""
    yield from _request(talk, "telemetry", requests.WatchTelemetry(on=on), answers.Ok)


# --- the frozen core ----------------------------------------------------------------------------


def ping(talk: Conversation) -> Script[envelopes.Pong]:
    """Have the daemon answer without doing any work."""
    pong: envelopes.Pong = yield from settled(talk.core("ping", envelopes.Ping))
    return pong


def core_status(talk: Conversation) -> Script[envelopes.CoreState]:
    """Ask the daemon who it is."""
    state: envelopes.CoreState = yield from settled(talk.core("status", envelopes.CoreStatus))
    return state


def core_stop(talk: Conversation, *, force: bool) -> Script[None]:
    """Ask the daemon to end."""
    yield from settled(talk.stop_daemon("stop", force=force))


# --- reading answers ----------------------------------------------------------------------------


def _mint(handle: AgentHandle) -> RequestRef:
    return RequestRef.mint(handle.incarnation, os.urandom(16))


def _named(handle: AgentHandle) -> str:
    return printable(handle.name)


def _call(
    talk: Conversation, what: str, incarnation: Incarnation, request: AgentRequest
) -> Script[Answer]:
    answer = yield from settled(talk.call(what, incarnation, request))
    if isinstance(answer, answers.Refused):
        raise _refusal(what, answer.reason)
    return answer


def _read(
    talk: Conversation, what: str, handle: AgentHandle, request: AgentRequest, kind: type[T]
) -> Script[T]:
    answer = yield from _call(talk, what, handle.incarnation, request)
    if not isinstance(answer, kind):
        _unexpected(what, answer)
    return answer


def _done(
    talk: Conversation, what: str, incarnation: Incarnation, request: AgentRequest
) -> Script[None]:
    answer = yield from _call(talk, what, incarnation, request)
    if not isinstance(answer, answers.Ok):
        _unexpected(what, answer)


def _request(talk: Conversation, what: str, request: DaemonRequest, kind: type[T]) -> Script[T]:
    answer = yield from settled(talk.request(what, request))
    if isinstance(answer, answers.Refused):
        raise _refusal(what, answer.reason)
    if not isinstance(answer, kind):
        _unexpected(what, answer)
    return answer


def _refusal(what: str, reason: Failure | StartError) -> Refused:
    return Refused(f"{what} was refused: {reason}", reason)


def _unexpected(what: str, answer: object) -> NoReturn:
    raise RemoteWireError(f"{what} was answered with {type(answer).__name__}, which is no answer")
