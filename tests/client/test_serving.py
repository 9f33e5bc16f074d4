"""A client's half of a session: whom it hears, what it answers, and how its calls end."""

from __future__ import annotations

import functools
import subprocess
import sys
from collections import ChainMap
from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import pytest

from genagent_protocol import codec, schema
from genagent_protocol.answers import Ok, Refused, UiAttached
from genagent_protocol.envelopes import (
    Call,
    Down,
    Request,
    UiDetach,
    UiMessage,
    UiUndeliverable,
)
from genagent_protocol.errors import FunctionFailed, RemoteWireError, UsageError
from genagent_protocol.errors import Refused as RefusedError
from genagent_protocol.header import Header, encode_header
from genagent_protocol.plain import FrozenDict, freeze
from genagent_protocol.reasons import NOCONNECTION, SHUTDOWN, Reason
from genagent_protocol.refs import MailboxAddress, MonitorRef
from genagent_protocol.requests import AttachUi, DemonitorAgent, WatchTelemetry
from genagent_protocol.rpc import Catalog, Function, Prepared, Surface, basic_catalog
from genagentd.client import conversation
from genagentd.client.boxes import Box, Holding
from genagentd.client.conversation import Conversation
from genagentd.client.serving import Serving, value_of
from genagentd.client.session import Opened, Session, attach
from support.peer import OWN, Peer, handle

AGENT = handle(1)
PERSON = Catalog(
    catalog_id="urn:test:person",
    functions=(
        Function.made("ask", allowed_callers="agentOnly"),
        Function.made("shout", lambda args, _: f"{args['x']}!", allowed_callers="agentOnly"),
        Function.made("secret"),
        Function.made("open", allowed_callers="agentOnly", requires_user_activation=True),
    ),
)
FORM = Surface(surface_id="form", catalogs=())
DOCUMENT = {
    "catalogId": "urn:test:document",
    "protocolVersion": "1.0",
    "functions": {
        "echo": {
            "type": "object",
            "returnType": "any",
            "allowedCallers": "agentOnly",
            "properties": {"@call": {"const": "echo"}},
            "required": ["@call"],
        }
    },
}


def ui(message: object) -> UiMessage:
    frozen = freeze(message)
    assert isinstance(frozen, FrozenDict)
    return UiMessage(message=frozen)


def named(catalog_id: Any) -> Catalog:
    return Catalog(catalog_id=catalog_id, functions=())


def calling(
    name: str = "ask", catalog: str = "urn:test:person", surface: str | None = None, **args: object
) -> UiMessage:
    call = {"@call": name, "catalogId": catalog, "args": args}
    body = {"functionCallId": "call-1", "callFunction": call}
    where = {} if surface is None else {"surfaceId": surface}
    return ui({"version": "v1.0", "callRendererFunction": {**body, **where}})


def serving(**functions: Any) -> Serving:
    return Serving(AGENT, [PERSON], functions)


def answered(mine: Serving, said: UiMessage) -> dict[str, Any]:
    """Let the agent say something, run what is ready, and return the body of the answer."""
    owed = mine.hear(said)
    if isinstance(owed, Prepared):
        owed = mine.finish(owed, mine.begin(owed))
    assert owed is not None
    body: Any = next(value for key, value in owed.message.items() if key != "version")
    return dict(body)


# --- the connection


AGREED = UiAttached(functions=("f",))


def opened(peer: Peer, answer: object = AGREED, **functions: Any) -> Opened:
    found: Opened = peer.play(attach(peer.talk, AGENT, [PERSON], functions, awaits=True), answer)
    return found


def says(peer: Peer, sender: str, box: int, message: UiMessage) -> None:
    """Let *sender* say something to that box of the client, as the daemon hands it on."""
    body = codec.encode(message)
    to = MailboxAddress(OWN.boot, OWN.client, box).text
    header = Header(schema.tag_of(UiMessage), to, sender, size=len(body))
    peer.talk.take(encode_header(header), body)


def test_attaching_watches_first_and_names_the_catalogs() -> None:
    """An end that comes between the two could otherwise be missed."""
    peer = Peer()
    session = opened(peer)

    kinds = [type(getattr(said, "request", said)).__name__ for _, said in peer.heard]
    assert kinds.index("MonitorAgent") < kinds.index("AttachUi")
    [call] = [said for _, said in peer.heard if isinstance(said, Call)]
    assert isinstance(call.request, AttachUi)
    assert call.request.session == session.box.number
    assert "urn:test:person" in call.request.catalog_ids
    assert session.serving.offered == ("f",)


@pytest.mark.parametrize(
    ("answer", "error"), [(Refused(Reason("busy")), RefusedError), (Ok(), RemoteWireError)]
)
def test_a_session_that_is_not_opened_is_left_at_once(answer: object, error: type) -> None:
    """The agent may have opened it all the same."""
    peer = Peer()

    with pytest.raises(error):
        opened(peer, answer)

    peer.listen()
    assert any(isinstance(said, UiDetach) for _, said in peer.heard)


def test_only_the_agent_of_a_session_speaks_in_it() -> None:
    """A question of another could pass for the agent's own."""
    peer = Peer()
    session = opened(peer)

    says(peer, handle(2).incarnation.text, session.box.number, calling())
    assert (len(session.box), peer.talk.bad_frames) == (0, 1)

    says(peer, AGENT.incarnation.text, session.box.number, calling())
    assert (len(session.box), peer.talk.bad_frames) == (1, 1)


def test_a_mailbox_that_is_no_session_hears_no_question() -> None:
    """Whoever reads it waits for news of requests."""
    peer = Peer()
    opened(peer)
    other = peer.talk.open_box()

    says(peer, AGENT.incarnation.text, 0, calling())
    says(peer, AGENT.incarnation.text, other.number, calling())

    assert (len(peer.talk.own), len(other), peer.talk.bad_frames) == (0, 0, 2)


def test_what_was_on_its_way_to_a_closed_session_is_no_fault() -> None:
    """The agent could not know."""
    peer = Peer()
    session = opened(peer)
    peer.talk.close_box(session.box)

    says(peer, AGENT.incarnation.text, session.box.number, calling())

    assert peer.talk.bad_frames == 0


def test_what_is_said_in_a_session_names_it_in_the_header() -> None:
    """The daemon opens no body."""
    peer = Peer()
    session = opened(peer)
    peer.talk.say(session.box, calling())
    peer.listen()

    header, _ = peer.heard[-1]
    assert (header.to, header.ref) == (AGENT.incarnation.text, str(session.box.number))


def test_an_undeliverable_message_reaches_its_session() -> None:
    """And no other box; of a session that is closed it means nothing."""
    peer = Peer()
    session = opened(peer)

    for number in (session.box.number, 999):
        peer.say(UiUndeliverable(session=number, reason=Reason("inbox_full")))

    assert (len(session.box), len(peer.talk.own)) == (1, 0)


class PeerShell:
    """What a session needs, over a daemon that is only a peer; nothing else arrives."""

    closed = False
    open_here = True

    def __init__(self, peer: Peer) -> None:
        self._talk = peer.talk

    def do(self, action: Callable[[Conversation], Any]) -> Any:
        return action(self._talk)

    def receive(self, box: Box, matching: Any, _timeout_ms: object) -> Any:
        waiting = box.expect(matching, "receive")
        return waiting.value() if waiting.done else None


def ends_told(peer: Peer) -> int:
    """Return how often the agent has been told that a session is over."""
    peer.listen()
    return sum(isinstance(said, UiDetach) for _, said in peer.heard)


def test_an_agent_hears_that_a_session_ended_whose_answer_found_no_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It would wait for that answer, and go on asking where nobody answers any more."""
    peer = Peer()
    long_answer = opened(peer, ask=lambda _arguments: "x" * 2_000)
    session = Session(PeerShell(peer), long_answer)  # type: ignore[arg-type]
    peer.listen()
    monkeypatch.setattr(conversation, "SEND_BOUND_BYTES", peer.talk._sent_bytes + 1_000)
    says(peer, AGENT.incarnation.text, session._box.number, calling("ask"))

    assert session.serve(timeout_ms=0) is False

    assert "bytes are on their way" in str(session.over)
    assert ends_told(peer) == 1
    assert session._box.closed
    session.close()
    assert ends_told(peer) == 1


@pytest.mark.parametrize(
    ("end", "told"),
    [
        (lambda box, _: UiUndeliverable(session=box, reason=Reason("inbox_full")), 1),
        (lambda _, monitor: Down(monitor=monitor, handle=AGENT, reason=SHUTDOWN), 0),
        (lambda _, monitor: Down(monitor=monitor, handle=AGENT, reason=NOCONNECTION), 0),
    ],
    ids=["undelivered", "down", "lost"],
)
def test_who_ends_a_session_tells_the_other_side(end: Any, told: int) -> None:
    """Unless there is nobody left to be told."""
    peer = Peer()
    found = opened(peer)
    session = Session(PeerShell(peer), found)  # type: ignore[arg-type]

    peer.say(end(found.box.number, found.monitor))

    assert session.serve(timeout_ms=0) is False
    assert ends_told(peer) == told


def test_what_takes_something_back_finds_room_however_much_is_on_its_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A bound on what is sent must not keep anybody from sending less."""
    peer = Peer()
    found = opened(peer)
    watching = peer.talk.open_box()
    peer.talk.watch_telemetry(watching)
    monkeypatch.setattr(conversation, "SEND_BOUND_BYTES", 0)

    Session(PeerShell(peer), found).close()  # type: ignore[arg-type]
    peer.talk.close_box(watching)

    assert ends_told(peer) == 1
    requests = [said.request for _, said in peer.heard if isinstance(said, Request)]
    assert requests[-2:] == [DemonitorAgent(monitor=found.monitor), WatchTelemetry(on=False)]


# --- what the agent calls


def test_a_call_is_answered_with_what_the_function_gives() -> None:
    """By a function of the client's own, or by the catalog's."""
    mine = serving(ask=lambda arguments: {"got": arguments})

    assert answered(mine, calling(x=1))["value"] == {"got": {"x": 1}}
    assert answered(mine, calling("shout", x="hey"))["value"] == "hey!"


def nested(name: str, catalog: str = "urn:test:person", **args: object) -> dict[str, object]:
    return {"@call": name, "catalogId": catalog, "args": args}


@pytest.mark.parametrize("surface", [None, "form"])
def test_what_is_served_is_found_inside_of_arguments(surface: str | None) -> None:
    """Also what only the renderer itself may call: it evaluates what an agent wrote."""
    mine = serving(ask=lambda got: got, secret=lambda got: f"of {got['who']}")
    mine.surfaces["form"] = Surface(surface_id="form", catalogs=(PERSON,))

    said = calling(surface=surface, x=nested("secret", who=nested("shout", x="me")))

    assert answered(mine, said)["value"] == {"x": "of me!"}


def test_what_is_served_replaces_the_code_that_a_catalog_brings_everywhere() -> None:
    """A call inside of arguments runs what a call from outside runs."""
    mine = serving(shout=lambda got: got["x"].upper(), ask=lambda got: got)

    assert answered(mine, calling("shout", x="a"))["value"] == "A"
    assert answered(mine, calling(x=nested("shout", x="a")))["value"] == {"x": "A"}


def test_what_is_served_is_for_the_catalog_that_has_no_code_for_it() -> None:
    """Else a client's own `required` would replace that of the basic catalog."""
    mine_id, basic_id = "urn:test:mine", basic_catalog().catalog_id
    own = Catalog(catalog_id=mine_id, functions=(Function.made("required"),))
    mine = Serving(AGENT, [PERSON, own], {"required": lambda _: "mine", "ask": lambda got: got})

    said = calling(x=nested("required", mine_id), y=nested("required", basic_id, value="a"))

    assert answered(mine, said)["value"] == {"x": "mine", "y": {"valid": True}}


def test_a_surface_has_catalogs_of_its_own_as_well() -> None:
    """What is served is served under the ids that were attached with."""
    other = Catalog(catalog_id="urn:test:other", functions=(Function.made("ask"),))
    mine = serving(ask=lambda got: got)
    mine.surfaces["form"] = Surface(surface_id="form", catalogs=(other,))

    error = answered(mine, calling(surface="form", x=nested("ask", "urn:test:other")))["error"]

    assert error["message"] == "Function 'ask' has no implementation here."


def test_an_async_def_inside_of_arguments_is_refused_and_never_begun() -> None:
    """Arguments are resolved at once; from outside its host awaits it."""
    mine = serving(secret=_waits, ask=lambda got: got)

    error = answered(mine, calling(x=nested("secret")))["error"]

    assert (error["code"], error["message"]) == (
        "EXECUTION_ERROR",
        "Function 'secret' has to be awaited by its host.",
    )


@pytest.mark.parametrize("outer", ["ask", "shout", "secret"])
@pytest.mark.parametrize("inner", ["ask", "shout", "secret"])
def test_whatever_is_served_gives_the_same_inside_and_outside(outer: str, inner: str) -> None:
    """As far as the agent may call it from outside."""
    codes = {name: lambda got, name=name: {name: got} for name in ("ask", "shout", "secret")}
    mine = serving(**codes)

    whole = answered(mine, calling(outer, x=nested(inner, x=1)))

    if outer == "secret":
        assert whole["error"]["code"] == "INVALID_FUNCTION_CALL"
    else:
        assert whole["value"] == {outer: {"x": {inner: {"x": 1}}}}


@pytest.mark.parametrize(
    ("said", "code"),
    [
        (calling("secret"), "INVALID_FUNCTION_CALL"),
        (calling("nothing"), "INVALID_FUNCTION_CALL"),
        (calling(catalog="urn:other"), "INVALID_FUNCTION_CALL"),
        (calling(surface="gone"), "INVALID_FUNCTION_CALL"),
        (calling("open"), "INVALID_FUNCTION_CALL"),
        (calling("ask"), "EXECUTION_ERROR"),
        (calling(x={"@if": 1}), "EXECUTION_ERROR"),
    ],
    ids=["not allowed", "unknown", "catalog", "surface", "gesture", "no body", "reserved key"],
)
def test_a_call_that_may_not_be_run_is_answered_with_its_code(said: UiMessage, code: str) -> None:
    """A catalog is a list of permissions, and refuses by default."""
    assert answered(serving(), said)["error"]["code"] == code


def test_the_gesture_is_the_clients_to_give() -> None:
    """It is not on the wire, so no agent can claim it."""
    mine = serving(open=lambda _: "opened")
    mine.user_activated = True

    assert answered(mine, calling("open"))["value"] == "opened"


def test_bindings_are_read_from_the_surface_that_the_client_holds() -> None:
    """The agent gets the value without a round of its own."""
    mine = serving(ask=lambda arguments: arguments)
    mine.surfaces["form"] = Surface(
        surface_id="form", catalogs=(PERSON,), data_model={"email": "a@b.c"}
    )

    said = calling(surface="form", email={"@path": "/email"})
    assert answered(mine, said)["value"] == {"email": "a@b.c"}


class NoShell:
    """What a session needs that says nothing."""

    closed = True
    open_here = False


def test_surfaces_that_are_assigned_are_those_that_are_read() -> None:
    """One mapping, whichever way it is filled; the caller's own is copied."""
    mine = serving(ask=lambda arguments: arguments)
    session = Session(NoShell(), Opened(mine, Box(1, Holding()), MonitorRef(1)))  # type: ignore[arg-type]
    form = Surface(surface_id="form", catalogs=(PERSON,), data_model={"email": "a@b.c"})
    said = calling(surface="form", email={"@path": "/email"})

    given = {"form": form}
    session.surfaces = given
    given.clear()
    assert answered(mine, said)["value"] == {"email": "a@b.c"}

    session.surfaces = {}
    assert answered(mine, said)["error"]["code"] == "INVALID_FUNCTION_CALL"
    session.surfaces["form"] = form
    assert answered(mine, said)["value"] == {"email": "a@b.c"}


@pytest.mark.parametrize("surfaces", [5, None, {"form": {"email": "a@b.c"}}, {"other": FORM}])
def test_what_is_no_surface_is_refused_where_it_is_put_in(surfaces: Any) -> None:
    """At the call of an agent it could only be a surface that is not found."""
    session = Session(NoShell(), Opened(serving(), Box(1, Holding()), MonitorRef(1)))  # type: ignore[arg-type]

    with pytest.raises(UsageError, match="surfaces: "):
        session.surfaces = surfaces
    assert dict(session.surfaces) == {}


def test_a_malformed_call_is_reported_and_nothing_is_run() -> None:
    """As an `error` message: it is a fault of the message, not of a function."""
    mine = serving(ask=lambda _: pytest.fail("it was run"))
    body = {"functionCallId": "call-7"}

    error = answered(mine, ui({"version": "v1.0", "callRendererFunction": body}))

    assert (error["functionCallId"], error["code"]) == ("call-7", "INVALID_FUNCTION_CALL")


BROKEN_AROUND: list[dict[str, Any]] = [
    {"version": "v2.0"},
    {"version": None},
    {"action": {}},
    {"callAgentFunction": {"functionCallId": "call-9"}},
    {"more": float("nan")},
    {"more": b"bytes"},
]


@pytest.mark.parametrize("around", BROKEN_AROUND, ids=repr)
def test_a_call_in_a_broken_message_is_reported_and_ends_no_other(around: dict[str, Any]) -> None:
    """Both sides count their calls alike: its id may be that of a call of this client."""
    mine = serving()
    mine.call("f", None, "main", 0)
    body = {"functionCallId": "call-1"}

    error = answered(mine, ui({"version": "v1.0", "callRendererFunction": body, **around}))

    assert (error["functionCallId"], error["code"]) == ("call-1", "INVALID_FUNCTION_CALL")
    assert mine.settlement("call-1") is None


@pytest.mark.parametrize(
    "message",
    [
        {},
        {"version": "v1.0", "callRendererFunction": {}},
        {"version": "v1.0", "agentFunctionResponse": {"functionCallId": "call-9"}},
        {"version": "v2.0", "agentFunctionResponse": {"functionCallId": "call-9"}},
        {"version": "v1.0", "callAgentFunction": {}},
        {"version": "v1.0", "createSurface": {}},
        {"version": "v1.0", "agentFunctionResponse": {"functionCallId": "call-9", "value": 1}},
    ],
)
def test_what_nobody_can_be_told_about_is_dropped_and_counted(message: object) -> None:
    """Nothing an agent says raises in its client."""
    mine = serving()

    assert mine.hear(ui(message)) is None
    assert mine.dropped == 1


# --- the client's own calls


def test_a_call_ends_with_the_answer_and_a_second_one_is_dropped() -> None:
    """Once, whatever comes."""
    mine = serving()
    call_id, message = mine.call("f", {"x": 1}, "main", None)
    assert message.message["callAgentFunction"]
    assert mine.settlement(call_id) is None

    answer = {"functionCallId": call_id, "value": None}
    for _ in range(2):
        mine.hear(ui({"version": "v1.0", "agentFunctionResponse": answer}))

    settlement = mine.settlement(call_id)
    assert settlement is not None
    assert value_of(settlement) is None
    assert mine.settlement(call_id) is None
    assert mine.dropped == 1


@pytest.mark.parametrize("mapping", [MappingProxyType({"x": 1}), ChainMap({"x": 1}), {"x": 1}])
def test_the_arguments_of_a_call_are_any_mapping(mapping: Any) -> None:
    """As it is said of them, and as an agent may give them."""
    _, message = serving().call("f", mapping, "main", None)

    body: Any = message.message["callAgentFunction"]
    assert body["callFunction"]["args"] == {"x": 1}


def failure(mine: Serving, call_id: str) -> FunctionFailed:
    settlement = mine.settlement(call_id)
    assert settlement is not None
    with pytest.raises(FunctionFailed) as failed:
        value_of(settlement)
    return failed.value


def test_an_answer_that_cannot_be_read_ends_its_call() -> None:
    """Waiting for the time limit would tell the caller less."""
    mine = serving()
    call_id, _ = mine.call("f", None, "main", 0)

    mine.hear(ui({"version": "v1.0", "agentFunctionResponse": {"functionCallId": call_id}}))

    assert failure(mine, call_id).code == "UNKNOWN_ERROR"


@pytest.mark.parametrize("around", BROKEN_AROUND, ids=repr)
def test_an_answer_in_a_broken_message_ends_its_call(around: dict[str, Any]) -> None:
    """Without a time limit its caller would wait for ever."""
    mine = serving()
    call_id, _ = mine.call("f", None, "main", 0)
    body = {"functionCallId": call_id, "value": 1}

    assert mine.hear(ui({"version": "v1.0", "agentFunctionResponse": body, **around})) is None

    assert failure(mine, call_id).code == "UNKNOWN_ERROR"


def test_what_answers_and_calls_in_one_message_does_both_badly() -> None:
    """Each side hears of its own call."""
    mine = serving()
    call_id, _ = mine.call("f", None, "main", 0)
    bodies = {"agentFunctionResponse": call_id, "callRendererFunction": "theirs"}
    said = {kind: {"functionCallId": named} for kind, named in bodies.items()}

    error = answered(mine, ui({"version": "v1.0", **said}))

    assert error["functionCallId"] == "theirs"
    assert failure(mine, call_id).code == "UNKNOWN_ERROR"


@pytest.mark.parametrize(
    "end",
    [
        Down(monitor=MonitorRef(1), handle=AGENT, reason=SHUTDOWN),
        UiUndeliverable(session=1, reason=Reason("inbox_full")),
    ],
    ids=["down", "undeliverable"],
)
def test_the_end_of_a_session_cancels_what_waits(end: Any) -> None:
    """And says why; later calls are refused."""
    mine = serving()
    call_id, _ = mine.call("f", None, "main", 0)

    mine.hear(end)

    assert failure(mine, call_id).code == "CANCELLED"
    assert str(end.reason) in str(mine.over)
    with pytest.raises(FunctionFailed) as refused:
        mine.call("f", None, "main", 0)
    assert refused.value.code == "DISPOSED"


@pytest.mark.parametrize("how", ["down", "told"])
def test_a_lost_connection_is_not_the_end_of_the_agent(how: str) -> None:
    """Whichever way it is noticed; what is known first stays."""
    mine = serving()
    call_id, _ = mine.call("f", None, "main", 0)

    if how == "down":
        mine.hear(Down(monitor=MonitorRef(1), handle=AGENT, reason=NOCONNECTION))
    else:
        mine.lost()
    mine.end("something else")

    assert mine.over == "the connection to the daemon is lost (noconnection)"
    assert mine.ended == NOCONNECTION
    assert failure(mine, call_id).code == "CANCELLED"


def test_a_call_times_out_or_is_given_up_once() -> None:
    """Neither leaves anything pending."""
    mine = serving()
    first, _ = mine.call("f", None, "main", 5)
    second, _ = mine.call("f", None, "main", None)

    mine.timed_out(first)
    mine.give_up(second)

    assert failure(mine, first).code == "TIMEOUT"
    assert mine.settlement(second) is None
    assert mine.rpc.pending_ids() == ()


# --- what a client attaches with


def test_a_catalog_may_be_its_document() -> None:
    """As it is published."""
    mine = Serving(AGENT, [DOCUMENT], {"echo": lambda _: "echoed"})

    assert answered(mine, calling("echo", "urn:test:document"))["value"] == "echoed"


@pytest.mark.parametrize(
    ("catalogs", "functions"),
    [
        ([{}], {}),
        ([{"catalogId": object()}], {}),
        ([7], {}),
        ([PERSON, PERSON], {}),
        ([PERSON], {"nobody_has_it": lambda _: None}),
    ],
)
def test_what_cannot_be_attached_with_is_said_before_anything_is_sent(
    catalogs: Any, functions: Any
) -> None:
    """A mistyped function would otherwise show only when the agent calls it."""
    with pytest.raises(UsageError):
        Serving(AGENT, catalogs, functions)


async def _waits(_arguments: object) -> None:
    """Stand for a function that has to be awaited."""


async def _waiting_body(_arguments: object, _scope: object) -> None:
    """The same, in a catalog."""


@pytest.mark.parametrize(
    ("functions", "made"),
    [({"ask": _waits}, "ask"), ({"ask": functools.partial(_waits)}, "ask"), ({}, "wait")],
    ids=["served", "partial", "in a catalog"],
)
def test_what_a_blocking_client_cannot_await_is_refused(functions: Any, made: str) -> None:
    """Before the agent is asked for a session, and not at its first call."""
    peer = Peer()
    waiting = Function.made("wait", _waiting_body if made == "wait" else None)
    catalogs = [PERSON, Catalog(catalog_id="urn:test:waiting", functions=(waiting,))]

    with pytest.raises(UsageError, match=f"{made}' is an async def"):
        next(attach(peer.talk, AGENT, catalogs, functions, awaits=False))

    peer.listen()
    assert not any(isinstance(said, Call) for _, said in peer.heard)


def test_a_function_that_ctrl_c_ended_is_answered() -> None:
    """The agent would wait until its timer, or for ever."""
    mine = serving()
    prepared = mine.hear(calling())
    assert isinstance(prepared, Prepared)

    message: Any = mine.interrupted(prepared).message
    assert message["rendererFunctionResponse"]["error"]["code"] == "CANCELLED"


def test_a_ctrl_c_inside_of_arguments_is_answered() -> None:
    """They are resolved while the message is read, and the agent waits all the same."""

    def interrupted(_given: object) -> None:
        raise KeyboardInterrupt

    peer = Peer()
    session = Session(PeerShell(peer), opened(peer, secret=interrupted))  # type: ignore[arg-type]
    says(peer, AGENT.incarnation.text, session._box.number, calling(x=nested("secret")))

    with pytest.raises(KeyboardInterrupt):
        session.serve(timeout_ms=0)

    peer.listen()
    said: list[Any] = [said.message for _, said in peer.heard if isinstance(said, UiMessage)]
    answer = said[0]["rendererFunctionResponse"]
    assert len(said) == 1
    assert (answer["functionCallId"], answer["error"]["code"]) == ("call-1", "CANCELLED")


def test_a_ctrl_c_while_an_answer_is_read_owes_nothing() -> None:
    """Only calls are answered."""
    assert serving().unheard(ui({"version": "v1.0", "agentFunctionResponse": {}})) is None


def test_a_box_of_a_session_counts_like_any_other() -> None:
    """An agent cannot fill a client's memory with questions."""
    peer = Peer()
    session = opened(peer)
    assert isinstance(session.box, Box)

    says(peer, AGENT.incarnation.text, session.box.number, calling())

    assert session.box._holding.messages == 1


def test_a_client_that_attaches_to_nobody_loads_nothing_that_reads_schemas() -> None:
    """Reading schemas takes a quarter of a second to load."""
    code = (
        "import sys; from genagentd import Client, AsyncClient, function, FunctionFailed\n"
        "heavy = ('jsonschema', 'referencing', 'genagent_protocol.rpc')\n"
        "print([name for name in sys.modules if name.startswith(heavy)])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd="/"
    )

    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("catalogs", "functions", "problem"),
    [
        (5, {}, "catalogs: a list of them is wanted, not int"),
        ({"catalogId": "c"}, {}, "catalogs: a list of them is wanted, not dict"),
        ([{"catalogId": b"c"}], {}, "catalogs: the document is not JSON"),
        (None, {}, "catalogs: a list of them is wanted, not NoneType"),
        (PERSON, {}, "catalogs: a list of them is wanted, not Catalog"),
        ([named(5)], {}, "catalogs: an id is text, not int"),
        ([named("x" * 70_000)], {}, "catalogs: 2 with ids of 70063 characters"),
        ([{"catalogId": "x" * 70_000}], {}, "catalogs: 2 with ids of 70063 characters"),
        ([named("\ud800")], {}, r"catalogs: the id '\\ud800' has a lone surrogate"),
        ([named(str(n)) for n in range(300)], {}, "catalogs: 301 with ids of"),
        ((), 5, "functions: a mapping from names is wanted, not int"),
        ((), {"confirm": 5}, "functions: 'confirm' is no name with a function"),
        ((), {5: print}, "functions: 5 is no name with a function"),
    ],
)
def test_what_is_no_catalog_or_function_is_named(
    catalogs: Any, functions: Any, problem: str
) -> None:
    """Before anybody is asked for a session."""
    with pytest.raises(UsageError, match=problem):
        Serving(handle(), catalogs, functions)
