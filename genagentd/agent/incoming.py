"""What an agent hears, as facts for its machine: one envelope, one input.

Who may say what is settled by the sender that the daemon stamped on the header: its
own words are the daemon's alone, everything else may come from any client or agent.
Nothing here acts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias, assert_never

from genagent_protocol import codec, envelopes, requests
from genagent_protocol.answers import Refused
from genagent_protocol.errors import RemoteWireError
from genagent_protocol.header import DAEMON, Header
from genagent_protocol.reasons import Reason
from genagent_protocol.refs import RequestRef
from genagent_protocol.turns import inputs
from genagent_protocol.turns.requests import AddressText

FromDaemon: TypeAlias = (
    envelopes.AgentHello
    | envelopes.StopAsked
    | envelopes.RefuseTurns
    | envelopes.CallerDown
    | envelopes.TelemetryWanted
    | envelopes.Ping
    | envelopes.Credit
    | envelopes.Reply
    | envelopes.Down
    | envelopes.Undeliverable
    | envelopes.UnknownType
)
FromOthers: TypeAlias = (
    envelopes.Submit
    | envelopes.Notify
    | envelopes.Interrupt
    | envelopes.Resume
    | envelopes.Halt
    | envelopes.Call
    | envelopes.UiMessage
    | envelopes.UiDetach
    | envelopes.Reply
    | envelopes.Admission
    | envelopes.EventMessage
    | envelopes.Completion
    | envelopes.Gap
)


@dataclass(frozen=True, slots=True)
class Caller:
    """Who waits for the answer to one call, and under which number."""

    address: AddressText
    call: int


@dataclass(frozen=True, slots=True)
class Attaching:
    """A client that wants a session; the turns do not hear of it."""

    caller: Caller
    wanted: requests.AttachUi = field(repr=False)


#: What the shell answers itself, because it concerns the channel and not the turns.
Outside: TypeAlias = (
    envelopes.AgentHello
    | envelopes.TelemetryWanted
    | envelopes.Ping
    | envelopes.Credit
    | envelopes.Reply
    | envelopes.UnknownType
    | envelopes.UiMessage
    | envelopes.UiDetach
    | Attaching
)
Message: TypeAlias = (
    envelopes.Admission
    | envelopes.EventMessage
    | envelopes.Completion
    | envelopes.Down
    | envelopes.Gap
    | envelopes.Undeliverable
)

#: Opened at once even while a callback runs: the callback may be waiting for it, or for
#: a client that will not answer any more.
PASSING = frozenset(
    {"reply", "credit", "down", "unknown_type", "ui_message", "ui_detach", "caller_down"}
    | {"telemetry_wanted"}
)

UNKNOWN_REQUEST = Reason("unknown_request")
MALFORMED_REQUEST = Reason("malformed_request")


def opened(header: Header, body: bytes) -> FromDaemon | FromOthers:
    """Return the one envelope that *body* carries.

    Raises:
        UnknownMessage: it is of a type that its sender does not say to agents.
        MalformedMessage: it is not what its type says, or it would have this agent run a
            request that is another's.
        RemoteWireError: it is no envelope, or more than one, or it is news of a
            request that its sender did not handle.
    """
    union = FromDaemon if header.sender == DAEMON else FromOthers
    found: list[FromDaemon | FromOthers] = codec.decode(union, body)
    if len(found) != 1:
        raise RemoteWireError(f"a message for an agent holds one envelope, not {len(found)}")
    if header.sender != DAEMON and not _may_say(header.sender, found[0]):
        raise RemoteWireError(f"{header.sender} speaks for another agent")
    _refuse_astray(header, found[0])
    return found[0]


def _refuse_astray(header: Header, said: FromDaemon | FromOthers) -> None:
    # Nobody would believe what this agent says of such a request, its admission included.
    match said:
        case envelopes.Submit(ref=ref):
            tag, call = "submit", None
        case envelopes.Call(call=call, request=requests.Ask(ref=ref) | requests.Tell(ref=ref)):
            tag = "call"
        case _:
            return
    if ref.incarnation.text != header.to:
        raise codec.MalformedMessage(f"the ref is of a request to {ref.incarnation}", tag, call)


def _may_say(sender: str, said: FromDaemon | FromOthers) -> bool:
    match said:
        case (
            envelopes.Admission(ref=ref)
            | envelopes.EventMessage(ref=ref)
            | envelopes.Completion(ref=ref)
            | envelopes.Gap(ref=RequestRef() as ref)
        ):
            return ref.incarnation.text == sender
        case _:
            return True


def owed_for_unknown(
    header: Header, unknown: codec.UnknownMessage
) -> envelopes.Reply | envelopes.UnknownType | None:
    """Return what the sender of a well-formed but unknown envelope is owed.

    A call is refused, the daemon is told, and anything else is met with silence.
    """
    if header.sender == DAEMON:
        return envelopes.UnknownType(tag=unknown.tag, call=unknown.call)
    if header.kind != "call" or unknown.call is None:
        return None
    return envelopes.Reply(call=unknown.call, answer=Refused(UNKNOWN_REQUEST))


def owed_for_malformed(header: Header, malformed: codec.MalformedMessage) -> envelopes.Reply | None:
    """Return what the sender of an envelope that is not what its type says is owed.

    A call is refused, and anything else is met with silence.
    """
    if not header.kind == malformed.tag == "call" or malformed.call is None:
        return None
    return envelopes.Reply(call=malformed.call, answer=Refused(MALFORMED_REQUEST))


def fact(
    header: Header, body: bytes, said: FromDaemon | FromOthers, own: Callable[[RequestRef], bool]
) -> inputs.Input | Outside:
    """Return what *said*, the opened *body*, means to the machine, or itself if nothing.

    *own* says whether a request is this agent's own.
    """
    match said:
        case envelopes.Submit():
            return inputs.PromptSubmitted(
                ref=said.ref,
                prompt=said.prompt,
                recipient=said.recipient.text,
                stream_to=None if said.stream_to is None else said.stream_to.text,
                on_halt=said.on_halt,
            )
        case envelopes.Notify():
            return inputs.NotificationReceived(said.event)
        case envelopes.Call():
            return _called(Caller(header.sender, said.call), said.request)
        case envelopes.Interrupt():
            return inputs.InterruptReceived()
        case envelopes.Resume():
            return inputs.ResumeRequested()
        case envelopes.Halt():
            return inputs.HaltRequested()
        case envelopes.StopAsked(drain=True):
            return inputs.DrainRequested(reason=said.reason)
        case envelopes.StopAsked():
            return inputs.StopRequested(said.reason)
        case envelopes.RefuseTurns():
            return inputs.TurnsRefused()
        case envelopes.CallerDown():
            return inputs.CallerDown(said.caller.text)
        case (
            envelopes.Admission()
            | envelopes.EventMessage()
            | envelopes.Completion()
            | envelopes.Down()
            | envelopes.Gap()
            | envelopes.Undeliverable()
        ):
            return inputs.MessageReceived(said, len(body), owed=_owed(said, own))
        case _:
            return said


def _owed(said: Message, own: Callable[[RequestRef], bool]) -> bool:
    """Return whether the agent itself asked for what *said* tells, exactly once."""
    match said:
        case envelopes.Down():
            return True
        case envelopes.Admission() | envelopes.Completion() | envelopes.Undeliverable():
            # Others may have their completions sent here, too; those are not asked for.
            return own(said.ref)
        case _:
            return False


def _called(call: Caller, request: requests.AgentRequest) -> inputs.Input | Attaching:
    match request:
        case requests.Ask():
            return inputs.AskReceived(
                call=call, ref=request.ref, prompt=request.prompt, caller=call.address
            )
        case requests.Tell():
            return inputs.TellReceived(
                call=call,
                ref=request.ref,
                prompt=request.prompt,
                recipient=None if request.recipient is None else request.recipient.text,
                stream_to=None if request.stream_to is None else request.stream_to.text,
                on_halt=request.on_halt,
            )
        case requests.Poll():
            return inputs.PollRequested(call, request.ref)
        case requests.NotifyAck():
            return inputs.NotificationReceived(request.event, call)
        case requests.CancelRequest():
            return inputs.CancelRequested(call, request.ref)
        case requests.InterruptRequest():
            return inputs.InterruptRequested(call, request.ref)
        case requests.GetStatus():
            return inputs.StatusRequested(call)
        case requests.GetSnapshot():
            return inputs.SnapshotRequested(call)
        case requests.ResetSession():
            return inputs.ResetRequested(call)
        case requests.Drain():
            return inputs.DrainRequested(call)
        case requests.AttachUi():
            return Attaching(call, request)
        case _:
            assert_never(request)
