"""What arrives: every envelope has one meaning, and only its rightful sender."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, get_args

import pytest

from genagent_protocol import codec, envelopes, requests, schema
from genagent_protocol.answers import Refused
from genagent_protocol.errors import RemoteWireError
from genagent_protocol.events import Failed, event
from genagent_protocol.header import DAEMON, Header
from genagent_protocol.reasons import INTERRUPTED, NORMAL, SHUTDOWN
from genagent_protocol.refs import AgentHandle, Incarnation, MonitorRef, RequestRef
from genagent_protocol.turns import inputs
from genagentd.agent import incoming
from genagentd.agent.incoming import (
    MALFORMED_REQUEST,
    UNKNOWN_REQUEST,
    Attaching,
    Caller,
    fact,
    opened,
)
from genagentd.agent.own_refs import OwnRefs
from support.agent_life import CLIENT, INCARNATION, mint

REF = mint()
CALL = Caller(CLIENT.text, 4)
COMPLETION = envelopes.Completion(agent="bob", ref=REF, outcome=Failed(INTERRUPTED))
HANDLE = AgentHandle("bob", INCARNATION, 1, 2, "here")
DOWN = envelopes.Down(monitor=MonitorRef(1), handle=HANDLE, reason=NORMAL)


def heard(envelope: object, sender: str = CLIENT.text, *, own: bool = False) -> Any:
    """Return what *envelope* means when *sender* says it about a request that is *own*, or not."""
    header = Header(schema.tag_of(type(envelope)), INCARNATION.text, sender)
    body = codec.encode(envelope)
    return fact(header, body, opened(header, body), lambda _ref: own)


CALLS: list[tuple[requests.AgentRequest, inputs.Input | Attaching]] = [
    (
        requests.Ask(ref=REF, prompt="p"),
        inputs.AskReceived(call=CALL, ref=REF, prompt="p", caller=CLIENT.text),
    ),
    (
        requests.Tell(ref=REF, prompt="p", recipient=CLIENT, on_halt="fail", stream_to=CLIENT),
        inputs.TellReceived(
            call=CALL,
            ref=REF,
            prompt="p",
            recipient=CLIENT.text,
            on_halt="fail",
            stream_to=CLIENT.text,
        ),
    ),
    (requests.Tell(ref=REF, prompt="p"), inputs.TellReceived(call=CALL, ref=REF, prompt="p")),
    (requests.Poll(ref=REF), inputs.PollRequested(CALL, REF)),
    (requests.NotifyAck(event="e"), inputs.NotificationReceived("e", CALL)),
    (requests.CancelRequest(ref=REF), inputs.CancelRequested(CALL, REF)),
    (requests.InterruptRequest(ref=REF), inputs.InterruptRequested(CALL, REF)),
    (requests.GetStatus(), inputs.StatusRequested(CALL)),
    (requests.GetSnapshot(), inputs.SnapshotRequested(CALL)),
    (requests.ResetSession(), inputs.ResetRequested(CALL)),
    (requests.Drain(), inputs.DrainRequested(CALL)),
    (requests.AttachUi(session=3), Attaching(CALL, requests.AttachUi(session=3))),
]


@pytest.mark.parametrize(("request_", "meaning"), CALLS)
def test_every_call_is_one_input_under_its_caller_and_number(
    request_: requests.AgentRequest, meaning: inputs.Input | Attaching
) -> None:
    """The reply address is the sender that the daemon stamped, and nothing in the body."""
    assert heard(envelopes.Call(call=4, request=request_)) == meaning


def test_there_is_a_test_for_every_call() -> None:
    """The cases above are all there are."""
    assert {type(request) for request, _ in CALLS} == set(get_args(requests.AgentRequest))


@pytest.mark.parametrize(
    ("envelope", "sender", "meaning"),
    [
        (envelopes.Notify(event="e"), CLIENT.text, inputs.NotificationReceived("e")),
        (envelopes.Interrupt(), CLIENT.text, inputs.InterruptReceived()),
        (envelopes.Halt(), CLIENT.text, inputs.HaltRequested()),
        (envelopes.Resume(), CLIENT.text, inputs.ResumeRequested()),
        (envelopes.RefuseTurns(), DAEMON, inputs.TurnsRefused()),
        (envelopes.CallerDown(caller=CLIENT), DAEMON, inputs.CallerDown(CLIENT.text)),
        (envelopes.StopAsked(reason=SHUTDOWN), DAEMON, inputs.StopRequested(SHUTDOWN)),
        (
            envelopes.StopAsked(reason=SHUTDOWN, drain=True),
            DAEMON,
            inputs.DrainRequested(reason=SHUTDOWN),
        ),
        (
            COMPLETION,
            INCARNATION.text,
            inputs.MessageReceived(COMPLETION, len(codec.encode(COMPLETION))),
        ),
        (DOWN, DAEMON, inputs.MessageReceived(DOWN, len(codec.encode(DOWN)), owed=True)),
        (envelopes.Ping(call=1), DAEMON, envelopes.Ping(call=1)),
        (envelopes.UiDetach(), CLIENT.text, envelopes.UiDetach()),
    ],
)
def test_every_word_is_one_input_or_the_shells_own_business(
    envelope: object, sender: str, meaning: object
) -> None:
    """Messages are kept whole for handle_info, with the size they came in."""
    assert heard(envelope, sender) == meaning


@pytest.mark.parametrize(
    "envelope",
    [
        envelopes.StopAsked(reason=SHUTDOWN),
        envelopes.RefuseTurns(),
        envelopes.CallerDown(caller=CLIENT),
        envelopes.TelemetryWanted(on=True),
        envelopes.Credit(messages=1, bytes=1),
        DOWN,
    ],
)
def test_nobody_else_speaks_for_the_daemon(envelope: object) -> None:
    """A body is not looked at on the way, so whoever opens it has to."""
    with pytest.raises(codec.UnknownMessage):
        heard(envelope, CLIENT.text)


@pytest.mark.parametrize("sender", [CLIENT.text, f"{INCARNATION.boot}-99"])
@pytest.mark.parametrize(
    "news",
    [
        envelopes.Admission(agent="bob", ref=REF),
        envelopes.EventMessage(agent="bob", ref=REF, event=event("text")),
        envelopes.Gap(ref=REF, first=1, last=2),
        COMPLETION,
    ],
    ids=lambda value: type(value).__name__,
)
def test_nobody_tells_news_of_a_request_but_who_handles_it(news: object, sender: str) -> None:
    """A forged completion would be taken for the answer."""
    with pytest.raises(RemoteWireError, match="speaks for another agent"):
        heard(news, sender)

    assert heard(news, REF.incarnation.text)


ASTRAY = RequestRef.mint(Incarnation(INCARNATION.boot, 99), bytes(16))


@pytest.mark.parametrize(
    ("envelope", "call"),
    [
        (envelopes.Submit(ref=ASTRAY, prompt="p", recipient=CLIENT), None),
        (envelopes.Call(call=4, request=requests.Ask(ref=ASTRAY, prompt="p")), 4),
        (envelopes.Call(call=4, request=requests.Tell(ref=ASTRAY, prompt="p")), 4),
    ],
)
def test_an_agent_takes_no_request_that_is_another_agents(envelope: Any, call: int | None) -> None:
    """Whoever hears of one believes only the agent that its ref names."""
    with pytest.raises(codec.MalformedMessage, match="the ref is of a request to") as malformed:
        heard(envelope)

    owed = incoming.owed_for_malformed(
        Header(schema.tag_of(type(envelope)), "", CLIENT.text), malformed.value
    )
    refused = envelopes.Reply(call=4, answer=Refused(MALFORMED_REQUEST))
    assert owed == (None if call is None else refused)


@pytest.mark.parametrize("asked", [requests.Poll, requests.CancelRequest])
def test_an_agent_is_asked_of_any_request(asked: Any) -> None:
    """It knows none but its own, and says so."""
    assert heard(envelopes.Call(call=4, request=asked(ref=ASTRAY)))


def test_a_message_for_an_agent_holds_one_envelope() -> None:
    """Work and answers are told apart by the header, so they must not be mixed."""
    body = codec.encode(envelopes.Halt()) * 2
    with pytest.raises(RemoteWireError):
        opened(Header("halt", INCARNATION.text, CLIENT.text), body)


@pytest.mark.parametrize(
    ("kind", "sender", "call", "owed"),
    [
        ("call", CLIENT.text, 3, envelopes.Reply(call=3, answer=Refused(UNKNOWN_REQUEST))),
        ("call", CLIENT.text, None, None),
        ("notify", CLIENT.text, 3, None),
        ("x", DAEMON, 3, envelopes.UnknownType(tag="x", call=3)),
    ],
)
def test_who_said_something_unknown_hears_of_it_if_it_waits(
    kind: str, sender: str, call: int | None, owed: object
) -> None:
    """A call is refused; a one-way word of a client is not answered."""
    unknown = codec.UnknownMessage("x", call)
    assert incoming.owed_for_unknown(Header(kind, "", sender), unknown) == owed


@pytest.mark.parametrize(
    ("kind", "tag", "call", "owed"),
    [
        ("call", "call", 3, envelopes.Reply(call=3, answer=Refused(MALFORMED_REQUEST))),
        ("call", "call", None, None),
        ("call", "reply", 3, None),
        ("reply", "reply", 3, None),
    ],
)
def test_who_called_for_something_that_cannot_be_read_hears_of_it(
    kind: str, tag: str, call: int | None, owed: object
) -> None:
    """A client of another make would wait for ever; who answers badly waits for nothing."""
    malformed = codec.MalformedMessage("broken", tag, call)
    assert incoming.owed_for_malformed(Header(kind, "", CLIENT.text), malformed) == owed


@pytest.mark.parametrize(
    ("envelope", "sender"),
    [
        (envelopes.Admission(agent="bob", ref=REF, refused=None), INCARNATION.text),
        (COMPLETION, INCARNATION.text),
        (envelopes.Undeliverable(agent="bob", ref=REF, reason=INTERRUPTED), DAEMON),
    ],
)
def test_what_answers_a_prompt_of_its_own_is_owed_to_an_agent(
    envelope: object, sender: str
) -> None:
    """Others may send their completions to it, too, as many as they like."""
    assert heard(envelope, sender, own=True).owed
    assert not heard(envelope, sender, own=False).owed


def test_an_event_of_a_prompt_of_its_own_is_not_owed() -> None:
    """There may be any number of them; they are best effort."""
    said = envelopes.EventMessage(agent="bob", ref=REF, event=event("text"))

    assert not heard(said, INCARNATION.text, own=True).owed


def test_an_agent_knows_its_own_refs_and_no_others() -> None:
    """A seal under another key is none, and nothing can be made of a ref by changing its target."""
    refs = OwnRefs()
    ours = refs.mint(INCARNATION)

    assert refs.made(ours)
    assert refs.mint(INCARNATION) != ours
    assert not OwnRefs().made(ours)
    assert not refs.made(REF)
    assert not refs.made(replace(ours, incarnation=Incarnation(INCARNATION.boot, 99)))
