"""Sessions in the agent: whose they are, what passes a waiting callback, what bad input does."""

from __future__ import annotations

import asyncio
import json
import math
import subprocess
import sys
from typing import Any

import pytest

from genagent_protocol import envelopes
from genagent_protocol.answers import Refused, UiAttached
from genagent_protocol.envelopes import Call, CallerDown, Credit, Reply, UiDetach, UiMessage
from genagent_protocol.plain import FrozenDict, freeze
from genagent_protocol.refs import Incarnation, MailboxAddress
from genagent_protocol.requests import AttachUi
from genagentd.agent.functions import function
from genagentd.agent.session import MAX_RUNNING, Session
from genagentd.agent.sessions import MAX_SESSIONS
from genagentd.outbox import WINDOW_BYTES
from support.agent_life import BOOT, CLIENT, Conversation, living
from support.desk import CATALOG, Clerk

OTHER = MailboxAddress(BOOT, 4)
CLERK = "support.desk:Clerk"


async def attach(agent: Conversation, session: int = 3, who: MailboxAddress = CLIENT) -> Any:
    """Attach as a client and return the agent's answer."""
    number = 1000 + session
    wanted = AttachUi(session=session, catalog_ids=(CATALOG,))
    agent.say(Call(call=number, request=wanted), who.text, str(number))
    return (await agent.next(Reply, lambda said: said.call == number)).answer


def says(
    agent: Conversation, message: object, session: str | None = "3", who: str = CLIENT.text
) -> None:
    """Say something in a session."""
    frozen = freeze(message)
    assert isinstance(frozen, FrozenDict)
    agent.say(UiMessage(message=frozen), who, session)


async def heard(agent: Conversation) -> dict[str, Any]:
    """Return the next A2UI message that the agent says."""
    message: dict[str, Any] = (await agent.next(UiMessage)).message
    return message


async def asked(agent: Conversation) -> str:
    """Return the id of the call that the agent makes next."""
    call_id: str = (await heard(agent))["callRendererFunction"]["functionCallId"]
    return call_id


def begin(agent: Conversation, where: str, **more: object) -> None:
    """Have the agent call its client."""
    agent.submit(json.dumps({"call": "ask", "in": where, **more}))


def answer(call_id: str, **how: object) -> dict[str, object]:
    return {"version": "v1.0", "rendererFunctionResponse": {"functionCallId": call_id, **how}}


def called(name: str = "look_up_build", call_id: str = "c-1", **args: object) -> dict[str, Any]:
    call = {"@call": name, "args": args}
    body = {"surfaceId": "main", "functionCallId": call_id, "callFunction": call}
    return {"version": "v1.0", "callAgentFunction": body}


async def shown(agent: Conversation) -> tuple[list[Any], int]:
    """Return what became of the agent's calls, and how much it dropped."""
    state = await agent.shown()
    return list(state["settled"]), state["dropped"]


async def test_whoever_attaches_is_told_what_is_offered() -> None:
    """A client can show it without asking again."""
    async with living(CLERK, "echo") as agent:
        answer = await attach(agent)

        assert isinstance(answer, UiAttached)
        assert "look_up_build" in answer.functions
        assert list(answer.functions) == sorted(answer.functions)


@pytest.mark.parametrize("session", [0, -1, 10**9, 2**63])
async def test_a_session_is_a_box_that_its_connection_can_have(session: int) -> None:
    """Box 0 is the client's own mailbox, and larger numbers have no address."""
    async with living(CLERK, "echo") as agent:
        answer = await attach(agent, session)

        assert isinstance(answer, Refused)
        assert answer.reason.code == "not_allowed"


async def test_a_box_is_attached_once_and_an_agent_never() -> None:
    """Two sessions in one box could not be told apart; agents have their own ways."""
    async with living(CLERK, "echo") as agent:
        assert isinstance(await attach(agent), UiAttached)
        assert isinstance(await attach(agent), Refused)

        agent.say(Call(call=5, request=AttachUi(session=4)), Incarnation(BOOT, 9).text, "5")
        by_agent = await agent.next(Reply, lambda said: said.call == 5)
        assert isinstance(by_agent.answer, Refused)


async def test_an_agent_has_only_so_many_sessions() -> None:
    """What others can open has a bound."""
    async with living(CLERK, "echo") as agent:
        for session in range(1, MAX_SESSIONS + 1):
            assert isinstance(await attach(agent, session), UiAttached)

        refused = await attach(agent, MAX_SESSIONS + 1)
        assert isinstance(refused, Refused)
        assert refused.reason.code == "busy"

        agent.say(UiDetach(), CLIENT.text, "1")
        assert isinstance(await attach(agent, MAX_SESSIONS + 1), UiAttached)


@pytest.mark.parametrize(
    ("who", "session"),
    [(OTHER.text, "3"), (CLIENT.text, "4"), (CLIENT.text, None), (CLIENT.text, "x")],
)
async def test_nobody_answers_or_calls_in_the_session_of_another(
    who: str, session: str | None
) -> None:
    """The daemon stamps the connection; a guessed number alone is worth nothing."""
    async with living(CLERK, "echo") as agent:
        await attach(agent)
        begin(agent, "async")
        call_id = await asked(agent)

        says(agent, answer(call_id, value="forged"), session, who)
        says(agent, called(sha="9f"), session, who)
        agent.say(UiDetach(), who, session)
        says(agent, answer(call_id, value="mine"))

        await agent.next(envelopes.Completion)
        assert await shown(agent) == (["mine"], 2)


@pytest.mark.parametrize(
    "end",
    [(UiDetach(), CLIENT.text, "3"), (CallerDown(caller=CLIENT), "daemon", None)],
    ids=["detach", "gone"],
)
async def test_the_end_of_a_session_passes_a_waiting_callback(end: tuple[Any, str, Any]) -> None:
    """Otherwise the callback would wait for ever for whom it keeps out."""
    async with living(CLERK, "echo") as agent:
        await attach(agent)
        begin(agent, "async")
        await asked(agent)

        agent.say(*end)

        await agent.next(envelopes.Completion)
        [call], _ = await shown(agent)
        assert call["code"] == "CANCELLED"


async def test_a_client_calls_in_its_turn_and_answers_at_once() -> None:
    """Functions are user code and run like callbacks; answers are what one of them waits for."""
    async with living(CLERK, "echo") as agent:
        await attach(agent)
        begin(agent, "async")
        call_id = await asked(agent)

        says(agent, called(sha="9f"))
        says(agent, answer(call_id, value=1))

        assert (await heard(agent))["agentFunctionResponse"] == {
            "functionCallId": "c-1",
            "value": {"green": True, "sha": "9f"},
        }
        assert await shown(agent) == ([1], 0)


async def test_a_function_that_is_awaited_keeps_nobody_waiting() -> None:
    """One that never comes back would else take the agent with it: its status, and its end."""
    async with living(CLERK, "echo") as agent:
        await attach(agent)
        says(agent, called("hangs"))

        says(agent, called("look_up_build", "c-2", sha="9f"))

        assert (await heard(agent))["agentFunctionResponse"]["functionCallId"] == "c-2"
        assert await shown(agent) == ([], 0)
        assert (await agent.stop()).reason.text == "shutdown"


class _Unreadable(dict[str, Any]):
    def __init__(self, raises: type[BaseException]) -> None:
        super().__init__(a=1)
        self._raises = raises

    def items(self) -> Any:
        raise self._raises

    __iter__ = keys = items


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"x": {"const": b"x"}}},
        {"enum": [[b""]]},
        {"default": bytearray(b"x")},
        {"const": {1}},
        {"const": 2**64},
        {1: {}},
        [],
    ],
    ids=repr,
)
def test_the_schema_of_an_offered_function_is_json(schema: Any) -> None:
    """What it is not is said where it is written, and ends no agent."""
    with pytest.raises(TypeError, match="a schema of arguments is"):
        function(arguments=schema)


def _failing(how: str, raises: type[BaseException]) -> Any:
    def at_once(_self: object, _arguments: object, _state: object) -> object:
        raise raises

    async def later(_self: object, _arguments: object, _state: object) -> object:
        await asyncio.sleep(0)
        raise raises

    def in_its_value(_self: object, _arguments: object, _state: object) -> object:
        return _Unreadable(raises)

    return {"at once": at_once, "later": later, "in its value": in_its_value}[how]


@pytest.mark.parametrize("how", ["at once", "later", "in its value"])
@pytest.mark.parametrize("raises", [SystemExit, KeyboardInterrupt, GeneratorExit])
async def test_a_function_that_raises_no_exception_is_answered_too(
    monkeypatch: pytest.MonkeyPatch, how: str, raises: type[BaseException]
) -> None:
    """Nobody sits at an agent's keyboard; what its code raises is a failure of that code."""
    monkeypatch.setattr(Clerk, "breaks", function(_failing(how, raises)))
    async with living(CLERK, "echo") as agent:
        await attach(agent)
        says(agent, called("breaks"))

        answered = (await heard(agent))["agentFunctionResponse"]
        assert answered["error"]["code"] == "EXECUTION_ERROR"
        assert (await agent.stop()).reason.text == "shutdown"


@pytest.mark.parametrize(
    "end", [(UiDetach(), CLIENT.text, "3"), (CallerDown(caller=CLIENT), "daemon", None)]
)
async def test_a_function_that_is_awaited_ends_with_its_session(end: tuple[Any, str, Any]) -> None:
    """Nobody is left whom its answer could reach."""
    async with living(CLERK, "echo") as agent:
        await attach(agent)
        says(agent, called("hangs"))
        assert await shown(agent) == ([], 0)

        agent.say(*end)

        while not (settled := await shown(agent))[0]:
            await asyncio.sleep(0)  # It is cancelled in its own time.
        assert settled == (["let go"], 0)
        assert agent.told(UiMessage) == []


async def test_what_cannot_be_sent_leaves_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller of a function hears a code in the place of its answer, and an own call fails."""
    say = Session._send

    def too_large(session: Session, message: Any) -> str | None:
        answer = message.get("agentFunctionResponse", {})
        return say(session, message) if "error" in answer else "it is too large"

    monkeypatch.setattr(Session, "_send", too_large)
    async with living(CLERK, "echo") as agent:
        await attach(agent)
        says(agent, called(sha="9f"))

        error = (await heard(agent))["agentFunctionResponse"]["error"]
        assert error["code"] == "EXECUTION_ERROR"
        assert error["message"] == "The answer cannot be sent: it is too large"

        begin(agent, "async", timeout_ms=0)
        await agent.next(envelopes.Completion)
        [settled], _ = await shown(agent)
        assert settled["code"] == "INVALID_FUNCTION_CALL"


async def test_a_session_has_only_so_many_functions_running() -> None:
    """Calls that their client no longer waits for must not pile up without end."""
    async with living(CLERK, "echo") as agent:
        await attach(agent)
        for number in range(MAX_RUNNING):
            says(agent, called("hangs", f"c-{number}"))
        assert await shown(agent) == ([], 0)
        assert agent.told(UiMessage) == []

        says(agent, called("hangs", "one more"))

        answered = (await heard(agent))["agentFunctionResponse"]
        assert answered["functionCallId"] == "one more"
        assert answered["error"]["code"] == "EXECUTION_ERROR"


async def test_the_first_answer_wins() -> None:
    """A second one is dropped and counted."""
    async with living(CLERK, "echo") as agent:
        await attach(agent)
        begin(agent, "turn")
        call_id = await asked(agent)

        says(agent, answer(call_id, value=None))
        says(agent, answer(call_id, value="again"))

        await agent.next(envelopes.Completion)
        assert await shown(agent) == ([None], 1)


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        ({"error": {"code": "MINE", "message": "no"}}, "MINE"),
        ({"error": {"code": "MINE"}}, "UNKNOWN_ERROR"),
        ({"value": 1, "error": {"code": "MINE", "message": "no"}}, "UNKNOWN_ERROR"),
        ({}, "UNKNOWN_ERROR"),
        ({"value": b"bytes"}, "UNKNOWN_ERROR"),
        ({"value": math.nan}, "UNKNOWN_ERROR"),
        ({"value": 1, "more": 2}, "UNKNOWN_ERROR"),
    ],
)
async def test_an_answer_that_cannot_be_read_ends_its_call(reply: Any, code: str) -> None:
    """The caller hears a code."""
    async with living(CLERK, "echo") as agent:
        await attach(agent)
        begin(agent, "async", timeout_ms=0)
        call_id = await asked(agent)

        says(agent, answer(call_id, **reply))

        await agent.next(envelopes.Completion)
        [call], _ = await shown(agent)
        assert call["code"] == code


@pytest.mark.parametrize(
    "around",
    [
        {"version": "v7"},
        {"version": None},
        {"action": {}},
        {"error": None},
        {"callRendererFunction": {"functionCallId": "call-9"}},
        {"callAgentFunction": {"functionCallId": "c-9"}},
        {"callAgentFunction": {}},
        {"deep": json.loads("[" * 63 + "]" * 63)},
    ],
    ids=[
        *["another version", "no version", "an action", "an error", "not its own", "a call"],
        *["an empty call", "deep"],
    ],
)
async def test_an_answer_in_a_broken_message_ends_its_call(around: dict[str, Any]) -> None:
    """Nobody waits for a message that came; a call beside it is answered under its own id."""
    async with living(CLERK, "echo") as agent:
        await attach(agent)
        begin(agent, "async", timeout_ms=0)
        call_id = await asked(agent)

        says(agent, {**answer(call_id, value=1), **around})

        if "callAgentFunction" in around:
            response = (await heard(agent))["agentFunctionResponse"]
            named = around["callAgentFunction"].get("functionCallId", "unknown")
            assert response["functionCallId"] == named
            assert response["error"]["code"] == "INVALID_FUNCTION_CALL"
        else:
            await agent.next(envelopes.Completion)
        [call], _ = await shown(agent)
        assert call["code"] == "UNKNOWN_ERROR"


async def test_an_error_that_names_the_call_ends_it() -> None:
    """A renderer reports so what it could not read."""
    async with living(CLERK, "echo") as agent:
        await attach(agent)
        begin(agent, "async", timeout_ms=0)
        error = {"code": "ODD", "message": "?", "functionCallId": await asked(agent)}

        says(agent, {"version": "v1.0", "error": error})

        await agent.next(envelopes.Completion)
        assert (await shown(agent))[0] == [{"code": "ODD", "text": "?"}]


@pytest.mark.parametrize("code", [[], {}, None, 5], ids=repr)
async def test_an_error_whose_code_is_no_text_ends_the_call_it_names(code: Any) -> None:
    """Whoever waits without a limit would wait for ever."""
    async with living(CLERK, "echo") as agent:
        await attach(agent)
        begin(agent, "async", timeout_ms=0)
        error = {"code": code, "message": "?", "functionCallId": await asked(agent)}

        says(agent, {"version": "v1.0", "error": error})

        await agent.next(envelopes.Completion)
        [settled], _ = await shown(agent)
        assert settled["code"] == "UNKNOWN_ERROR"


@pytest.mark.parametrize("step", ["is_call", "settle"])
async def test_what_breaks_on_its_way_in_is_taken_in_all_the_same(
    monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """The daemon sends no more than was taken in: a frame that is never counted narrows that."""

    def breaks(*_of: object) -> bool:
        raise ZeroDivisionError("broken on purpose")

    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    async with living(CLERK, "echo") as agent:
        await attach(agent)
        with monkeypatch.context() as broken:
            broken.setattr(Session, step, breaks)
            says(agent, {"a": "x" * WINDOW_BYTES})
            credit = await agent.next(Credit)

        assert credit.bytes > WINDOW_BYTES
        assert len(reported) == 1
        says(agent, called(sha="9f"))
        assert (await heard(agent))["agentFunctionResponse"]["value"]["green"]


@pytest.mark.parametrize(
    ("message", "call_id"),
    [
        ({"version": "v1.0", "callAgentFunction": {}}, "unknown"),
        ({"version": "v1.0", "callAgentFunction": {"functionCallId": "c-9"}}, "c-9"),
        ({"version": "v1.0", "callAgentFunction": None}, "unknown"),
        ({"version": "v1.0", "callAgentFunction": {"functionCallId": 9}}, "unknown"),
        ({"version": "v1.0", "callAgentFunction": {"functionCallId": "x" * 70_000}}, "unknown"),
        ({**called(sha="9f"), "error": {}}, "c-1"),
        ({**called(sha="9f"), "version": "v7"}, "c-1"),
        ({"callAgentFunction": called()["callAgentFunction"]}, "c-1"),
        (called(sha=b"9f"), "c-1"),
        (called(sha=math.inf), "c-1"),
    ],
    ids=[
        *["empty", "no call", "null", "a number", "a long id", "two messages", "another version"],
        *["no version", "bytes", "infinity"],
    ],
)
async def test_a_malformed_call_is_answered_with_a_code(message: Any, call_id: str) -> None:
    """An agent has no other way to say that it could not read it."""
    async with living(CLERK, "echo") as agent:
        await attach(agent)
        says(agent, message)

        response = (await heard(agent))["agentFunctionResponse"]
        assert response["functionCallId"] == call_id
        assert response["error"]["code"] == "INVALID_FUNCTION_CALL"

        says(agent, called(sha="9f"))
        assert (await heard(agent))["agentFunctionResponse"]["value"]["green"]


@pytest.mark.parametrize(
    "message",
    [
        {},
        {"version": "v1.0"},
        {"version": "v1.0", "action": {}},
        {"version": "v1.0", "agentFunctionResponse": {"functionCallId": "call-1", "value": 1}},
        {"version": "v1.0", "rendererFunctionResponse": []},
        {"a": {"b": [None] * 100}},
    ],
)
async def test_what_is_no_message_of_a_session_is_dropped_and_counted(message: Any) -> None:
    """Nothing that a client sends ends the agent."""
    async with living(CLERK, "echo") as agent:
        await attach(agent)
        says(agent, message)

        assert await shown(agent) == ([], 1)


@pytest.mark.parametrize(
    ("call", "code"),
    [
        ({"call": "", "args": {}}, "INVALID_FUNCTION_CALL"),
        ({"call": "ask", "big": 1_100_000}, "INVALID_FUNCTION_CALL"),
        ({"call": "ask", "evil": "integer"}, "INVALID_FUNCTION_CALL"),
        ({"call": "ask", "evil": "object"}, "INVALID_FUNCTION_CALL"),
        ({"call": "ask", "evil": "key"}, "INVALID_FUNCTION_CALL"),
        ({"call": "ask", "evil": "no mapping"}, "INVALID_FUNCTION_CALL"),
        ({"call": "ask", "evil": "shared"}, "INVALID_FUNCTION_CALL"),
        ({"call": "ask", "evil": "wide"}, "INVALID_FUNCTION_CALL"),
        ({"call": "x" * 70_000}, "INVALID_FUNCTION_CALL"),
        (
            {"call": "ask", "args": {"deep": json.loads("[" * 55 + "]" * 55)}},
            "INVALID_FUNCTION_CALL",
        ),
    ],
    ids=[
        *["no name", "too large", "integer", "object", "key", "no mapping", "shared", "wide"],
        *["long name", "too deep"],
    ],
)
async def test_a_call_that_cannot_be_made_fails_in_the_agent(call: Any, code: str) -> None:
    """Size and nesting are capped where the call is made; nothing is sent."""
    async with living(CLERK, "echo") as agent:
        await attach(agent)
        begin(agent, "async", **call)

        await agent.next(envelopes.Completion)
        [settled], _ = await shown(agent)
        assert settled["code"] == code
        assert agent.told(UiMessage) == []


async def test_a_task_that_a_plain_callback_began_may_wait() -> None:
    """It is not the callback: nobody waits for it."""
    async with living(CLERK, "echo") as agent:
        await attach(agent)
        await agent.notified("task")

        says(agent, answer(await asked(agent), value="later"))

        while not (settled := await shown(agent))[0]:
            await asyncio.sleep(0)  # The task goes on in its own time.
        assert settled == (["later"], 0)


async def test_a_request_of_the_turn_is_settled_by_an_event_too() -> None:
    """It is made in another thread, and its settlement waits for the turn to end."""
    async with living(CLERK, "echo") as agent:
        await attach(agent)
        begin(agent, "turn_request")

        says(agent, answer(await asked(agent), value=7))
        await agent.next(envelopes.Completion)

        [event], _ = await shown(agent)
        assert event["value"] == 7


async def test_the_session_that_is_named_is_asked_whatever_it_serves() -> None:
    """Whoever asked for something is the one to be asked back."""
    async with living(CLERK, "echo") as agent:
        await attach(agent, 3)
        await attach(agent, 4, OTHER)
        begin(agent, "async", to=1)

        said = await agent.next_said(UiMessage)
        call_id = said.envelope.message["callRendererFunction"]["functionCallId"]
        says(agent, answer(call_id, value="other"), "4", OTHER.text)

        await agent.next(envelopes.Completion)
        assert said.header.to == f"{OTHER.text}.4"
        assert await shown(agent) == (["other"], 0)


@pytest.mark.parametrize("catalogs", [("c",) * 257, ("c" * 70_000,)])
async def test_a_client_names_only_so_many_catalogs(catalogs: tuple[str, ...]) -> None:
    """The agent keeps them as long as the session lives."""
    async with living(CLERK, "echo") as agent:
        wanted = AttachUi(session=3, catalog_ids=catalogs)
        agent.say(Call(call=5, request=wanted), CLIENT.text, "5")

        reply = await agent.next(Reply, lambda said: said.call == 5)
        assert isinstance(reply.answer, Refused)


async def test_a_session_has_only_so_many_calls_pending() -> None:
    """Another one is refused; those that wait go on waiting."""
    async with living(CLERK, "echo") as agent:
        await attach(agent)
        begin(agent, "request", count=1_001)
        await agent.next(envelopes.Completion)

        [refused], _ = await shown(agent)
        assert refused["error"]["code"] == "INVALID_FUNCTION_CALL"
        assert "1000 calls are pending" in refused["error"]["message"]
        assert len(agent.told(UiMessage)) == 1_000


async def test_a_timer_belongs_to_the_agent_and_its_call() -> None:
    """The daemon keeps no time for it."""
    async with living(CLERK, "echo") as agent:
        await attach(agent)
        begin(agent, "async", timeout_ms=20)
        call_id = await asked(agent)
        await agent.next(envelopes.Completion)

        says(agent, answer(call_id, value="late"))

        [settled], dropped = await shown(agent)
        assert settled["code"] == "TIMEOUT"
        assert dropped == 1


async def test_an_agent_that_stops_answers_no_call_twice() -> None:
    """What was said before it ended stands; its end settles the rest."""
    async with living(CLERK, "echo") as agent:
        await attach(agent)
        begin(agent, "request")
        await asked(agent)
        last = await agent.stop()

        assert last.reason.text == "shutdown"


def test_an_agent_that_calls_nothing_loads_nothing_that_reads_schemas() -> None:
    """The mark of a function is free; what stands behind it comes with the first session."""
    code = (
        "import sys, genagentd.agent.entry, support.desk\n"
        "heavy = ('jsonschema', 'referencing', 'genagent_protocol.rpc')\n"
        "print([name for name in sys.modules if name.startswith(heavy)])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd="/",
        env={"PYTHONPATH": ":".join(sys.path)},
    )

    assert done.stdout.strip() == "[]"
