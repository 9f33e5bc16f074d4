"""The agent's end, and calls that are prepared now and finished later."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from genagent_protocol.rpc import (
    BASIC_CATALOG_ID,
    CANCELLED,
    DISPOSED,
    EXECUTION_ERROR,
    INVALID_FUNCTION_CALL,
    TIMEOUT,
    UNKNOWN_ERROR,
    UNKNOWN_FUNCTION,
    AgentRpc,
    Function,
    Prepared,
    Rejected,
    Resolved,
    RpcError,
)
from support.rpc_house import (
    called,
    catalog_of,
    code_of,
    constant,
    echo,
    error_of,
    form,
    handler,
    nested,
    path,
    raising,
    recording,
    renderer_call,
    response_of,
    value_of,
)

ASK = {"@call": "askApproval", "catalogId": "urn:desk", "args": {"title": "Ship it?"}}
TEXT_ARGUMENT: dict[str, Any] = {
    "type": "object",
    "properties": {"sha": {"$ref": "common_types.json#/$defs/DynamicString"}},
    "required": ["sha"],
    "unevaluatedProperties": False,
}


def asked(rpc: AgentRpc | None = None, **options: Any) -> tuple[AgentRpc, Any]:
    """Return an agent's handler that has asked, and the message."""
    outcome = (rpc or AgentRpc.new()).call_renderer_function(ASK, **options)
    assert not isinstance(outcome, RpcError), outcome
    return outcome


def desk(body: Any = None) -> Function:
    """Return the function that a person answers."""
    return Function.made("askApproval", body, allowed_callers="agentOnly")


def agent_call(name: str, args: object = None, **call: Any) -> dict[str, Any]:
    """Return a renderer's message that calls an agent function."""
    function = {"@call": name, **call} | ({} if args is None else {"args": args})
    return {
        "version": "v1.0",
        "callAgentFunction": {
            "surfaceId": "s",
            "functionCallId": "r-1",
            "callFunction": function,
        },
    }


def test_an_agent_calls_a_renderer_function_and_waits() -> None:
    """The mirror of the renderer's call: the same table, the other message."""
    rpc, message = asked(surface_id="deploy-7", function_call_id="c-41")

    assert message == {
        "version": "v1.0",
        "callRendererFunction": {
            "surfaceId": "deploy-7",
            "functionCallId": "c-41",
            "callFunction": ASK,
        },
    }
    assert rpc.pending_ids() == ("c-41",)
    assert rpc.pending_timeout("c-41") == 30_000


def test_a_call_without_a_surface_says_none() -> None:
    """The published schema allows the key to be missing, not to be null."""
    _, message = asked()

    assert message["callRendererFunction"].keys() == {"functionCallId", "callFunction"}


def test_waiting_for_a_person_has_no_timeout_if_the_agent_says_so() -> None:
    """Approval takes minutes, or a night."""
    rpc, _ = asked(function_call_id="a", timeout_ms=0)

    assert rpc.pending_timeout("a") is None


@pytest.mark.parametrize(
    "call",
    [
        {"@call": "f"},
        {"@call": "f", "catalogId": None},
        {"call": "f", "catalogId": "urn:x"},
        {"catalogId": "urn:x"},
        {"@call": "", "catalogId": "urn:x"},
        {"@call": "f", "catalogId": 7},
        {"@call": "\ud800", "catalogId": "urn:x"},
        {"@call": "f", "catalogId": "urn:x", "args": ["a"]},
        {"@call": "f", "catalogId": "urn:x", "args": {"a": float("nan")}},
        {"@call": "f", "catalogId": "urn:x", "args": {f"a{n}": 1 for n in range(1_001)}},
        "f",
    ],
    ids=lambda call: repr(call)[:60],
)
def test_a_call_that_no_renderer_could_take_is_refused(call: Any) -> None:
    """A renderer has no default catalog for calls, and knows only one spelling."""
    rpc = AgentRpc.new()

    refused = rpc.call_renderer_function(call)

    assert isinstance(refused, RpcError)
    assert refused.code == INVALID_FUNCTION_CALL
    assert rpc == AgentRpc.new()


def test_the_renderers_answer_settles_the_call() -> None:
    """Both ways an answer can be."""
    rpc, _ = asked(function_call_id="a")

    def told(**outcome: Any) -> dict[str, Any]:
        return {"rendererFunctionResponse": {"functionCallId": "a", **outcome}}

    approved = told(value={"approved": True})
    failed = told(error={"code": "E", "message": "m"})

    assert rpc.handle_renderer_function_response(approved)[1] == (
        Resolved("a", {"approved": True}),
    )
    assert rpc.handle_renderer_function_response(failed)[1] == (
        Rejected("a", RpcError("E", "m", "a")),
    )


def test_a_reported_error_ends_the_call_it_names() -> None:
    """A renderer that cannot read the message says so with `error`, and never answers."""
    rpc, _ = asked(function_call_id="a")
    error = {"code": "INVALID_FUNCTION_CALL", "message": "unreadable", "functionCallId": "a"}

    after, settlements = rpc.handle_error({"version": "v1.0", "error": error})

    assert settlements == (Rejected("a", RpcError(INVALID_FUNCTION_CALL, "unreadable", "a")),)
    assert after.pending_ids() == ()


@pytest.mark.parametrize(
    "error",
    [
        {"code": "E", "message": "m", "surfaceId": "s"},
        {"code": "E", "message": "m", "functionCallId": "other"},
        {},
        None,
        "a",
    ],
    ids=repr,
)
def test_a_reported_error_about_something_else_ends_nothing(error: object) -> None:
    """Faults of surfaces are told the same way."""
    rpc, _ = asked(function_call_id="a")

    assert rpc.handle_error({"version": "v1.0", "error": error}) == (rpc, ())


def test_a_reported_error_without_a_code_is_unknown_error() -> None:
    """As with answers: that it failed is known, if not why."""
    rpc, _ = asked(function_call_id="a")

    _, (settlement,) = rpc.handle_error({"error": {"functionCallId": "a"}})

    assert isinstance(settlement, Rejected)
    assert settlement.error.code == UNKNOWN_ERROR


def test_the_agents_timers_cancels_and_disposal_are_the_renderers() -> None:
    """One table, so one behaviour; `test_handler_laws` runs both ends side by side."""
    rpc, _ = asked(function_call_id="a")
    rpc, _ = asked(rpc, function_call_id="b")
    rpc, _ = asked(rpc, function_call_id="c")

    rpc, timed_out = rpc.timeout("a")
    rpc, cancelled = rpc.cancel("b", "agent stopped")
    rpc, disposed = rpc.dispose()

    codes = [
        settlement.error.code
        for settlement in (*timed_out, *cancelled, *disposed)
        if isinstance(settlement, Rejected)
    ]
    assert codes == [TIMEOUT, CANCELLED, CANCELLED]
    refused = rpc.call_renderer_function(ASK)
    assert isinstance(refused, RpcError)
    assert refused.code == DISPOSED


def test_pending_calls_are_data() -> None:
    """They can be copied to another process, which is what a restart needs to know of."""
    rpc, _ = asked(function_call_id="a")

    assert pickle.loads(pickle.dumps(rpc)) == rpc


def test_an_agent_answers_what_it_offers() -> None:
    """A renderer's button may ask an agent without a turn of conversation."""
    offered = catalog_of(Function.made("lookUp", echo, allowed_callers="rendererOrAgent"))

    answer = AgentRpc.new().answer_agent_function(agent_call("lookUp", {"sha": "9f2c"}), offered)

    assert answer == {
        "version": "v1.0",
        "agentFunctionResponse": {"functionCallId": "r-1", "value": {"sha": "9f2c"}},
    }


def test_an_agent_evaluates_nothing() -> None:
    """It has no data model; what the renderer sent is data, even if it looks like an order."""
    function, seen = recording("lookUp", allowed_callers="rendererOnly")
    offered = catalog_of(function)
    args = {"a": nested("lookUp", {}), "b": path("/x"), "c": {"@@x": 1}}

    AgentRpc.new().answer_agent_function(agent_call("lookUp", args), offered)

    assert seen == [args]


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (agent_call("nope"), UNKNOWN_FUNCTION),
        (agent_call("lookUp", {}), INVALID_FUNCTION_CALL),
        (agent_call("lookUp", {"sha": path("/x")}), INVALID_FUNCTION_CALL),
        (agent_call("lookUp", {"sha": 7}), INVALID_FUNCTION_CALL),
        (agent_call("lookUp", {"sha": "x", "zz": 1}), INVALID_FUNCTION_CALL),
        (agent_call("lookUp", ["x"]), INVALID_FUNCTION_CALL),
        (agent_call("lookUp", {"sha": "x"}, catalogId="urn:other"), INVALID_FUNCTION_CALL),
        (agent_call("lookUp", {"sha": float("nan")}), INVALID_FUNCTION_CALL),
        (agent_call("own", {}), INVALID_FUNCTION_CALL),
        (agent_call("gated", {}), INVALID_FUNCTION_CALL),
        (agent_call("fail", {}), EXECUTION_ERROR),
        (agent_call("deny", {}), "BUILD_UNKNOWN"),
        ({**agent_call("lookUp", {"sha": "x"}), "version": "v0.9"}, INVALID_FUNCTION_CALL),
        (
            {"version": "v1.0", "callAgentFunction": {"functionCallId": "r-1"}},
            INVALID_FUNCTION_CALL,
        ),
    ],
    ids=lambda value: repr(value)[:90],
)
def test_what_an_agent_cannot_do_is_an_answer_with_a_code(
    message: dict[str, Any], code: str
) -> None:
    """The renderer waits, and a person in front of it."""
    offered = catalog_of(
        Function.made("lookUp", echo, arguments=TEXT_ARGUMENT, allowed_callers="rendererOnly"),
        Function.made("own", echo, allowed_callers="agentOnly"),
        Function.made("gated", echo, requires_user_activation=True),
        Function.made("fail", raising(SystemExit(2))),
        Function.made("deny", constant(RpcError("BUILD_UNKNOWN", "no build of 9f2c"))),
    )
    rpc = AgentRpc.new()

    answer = rpc.answer_agent_function(message, offered)

    assert code_of(answer) == code
    assert response_of(answer)["functionCallId"] == "r-1"
    assert rpc == AgentRpc.new()


@pytest.mark.parametrize("message", [None, [], {}, "x", {"callAgentFunction": 7}], ids=repr)
def test_an_agent_handed_no_call_answers_to_unknown(message: object) -> None:
    """There is always an answer that can be sent."""
    answer = AgentRpc.new().answer_agent_function(message, catalog_of())

    assert code_of(answer) == INVALID_FUNCTION_CALL
    assert response_of(answer)["functionCallId"] == "unknown"


def test_a_disposed_agent_answers_disposed() -> None:
    """Also for a call that was prepared before."""
    offered = catalog_of(Function.made("lookUp", echo))
    rpc = AgentRpc.new()
    prepared = rpc.prepare_agent_function(agent_call("lookUp"), offered)
    assert isinstance(prepared, Prepared)
    disposed, _ = rpc.dispose()

    assert code_of(disposed.answer_agent_function(agent_call("lookUp"), offered)) == DISPOSED
    assert code_of(disposed.finish_agent_function(prepared, 1)) == DISPOSED
    assert value_of(rpc.finish_agent_function(prepared, 1)) == 1


async def test_an_agent_function_that_is_awaited_is_prepared_and_finished() -> None:
    """The value cannot wait, so its host does, between the two halves."""

    async def look_up(args: dict[str, Any]) -> dict[str, Any]:
        return {"green": args["sha"] == "9f2c"}

    offered = catalog_of(Function.made("lookUp", arguments=TEXT_ARGUMENT))
    rpc = AgentRpc.new()
    prepared = rpc.prepare_agent_function(agent_call("lookUp", {"sha": "9f2c"}), offered)
    assert isinstance(prepared, Prepared)

    answer = rpc.finish_agent_function(prepared, await look_up(dict(prepared.args)))

    assert value_of(answer) == {"green": True}


def test_a_person_answers_minutes_later() -> None:
    """The arguments are resolved when the call arrives, and the answer comes when it comes."""
    rpc = handler(catalog_of(desk()))
    message = renderer_call(
        "askApproval",
        {"who": path("/user/name")},
        catalog_id="urn:test",
        surface_id="form",
        call_id="c-41",
        version="1.0",
    )

    prepared = rpc.prepare_renderer_function(message, context=form())

    assert isinstance(prepared, Prepared)
    assert (prepared.function.name, prepared.args) == ("askApproval", {"who": "Ada"})
    assert rpc.finish_renderer_function(prepared, {"approved": True}) == {
        "version": "1.0",
        "rendererFunctionResponse": {"functionCallId": "c-41", "value": {"approved": True}},
    }


def test_a_call_that_may_not_run_is_not_prepared() -> None:
    """Nobody is asked about what is not allowed."""
    refused = handler().prepare_renderer_function(renderer_call("localOnly", {}))

    assert not isinstance(refused, Prepared)
    assert code_of(refused) == INVALID_FUNCTION_CALL


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        (RpcError(CANCELLED, "the window was closed"), (CANCELLED, "the window was closed")),
        (RuntimeError("disk on fire"), (EXECUTION_ERROR, "disk on fire")),
        (
            RuntimeError(),
            (EXECUTION_ERROR, "An error occurred during function execution."),
        ),
        (SystemExit("out"), (EXECUTION_ERROR, "out")),
    ],
    ids=repr,
)
def test_a_prepared_call_may_end_in_an_error(outcome: object, expected: tuple[str, str]) -> None:
    """A person may decline, and a program may fail."""
    rpc = handler(catalog_of(desk()))
    prepared = rpc.prepare_renderer_function(renderer_call("askApproval", catalog_id="urn:test"))
    assert isinstance(prepared, Prepared)

    assert error_of(rpc.finish_renderer_function(prepared, outcome)) == expected


@pytest.mark.parametrize(
    "outcome", [object(), float("nan"), {1: 2}], ids=["object", "nan", "number as key"]
)
def test_an_outcome_that_json_cannot_hold_is_an_execution_error(outcome: object) -> None:
    """It came from a host's own code, and still nothing malformed is sent."""
    rpc = handler(catalog_of(desk()))
    prepared = rpc.prepare_renderer_function(renderer_call("askApproval", catalog_id="urn:test"))
    assert isinstance(prepared, Prepared)

    assert code_of(rpc.finish_renderer_function(prepared, outcome)) == EXECUTION_ERROR


def test_a_call_prepared_before_the_handler_was_disposed_is_answered_disposed() -> None:
    """The person has spoken, but for nobody; the agent hears why."""
    rpc = handler(catalog_of(desk()))
    prepared = rpc.prepare_renderer_function(renderer_call("askApproval", catalog_id="urn:test"))
    assert isinstance(prepared, Prepared)
    disposed, _ = rpc.dispose()

    assert code_of(disposed.finish_renderer_function(prepared, {"approved": True})) == DISPOSED


def test_an_error_reads_as_one_line() -> None:
    """For a log, or a person."""
    assert str(RpcError(TIMEOUT, "too late")) == "TIMEOUT: too late"


def test_preparing_and_running_is_calling() -> None:
    """The one operation is the two in one."""
    rpc = handler()
    message = renderer_call("echoAny", {"value": 1})
    prepared = rpc.prepare_renderer_function(message)
    assert isinstance(prepared, Prepared)

    assert prepared.run(rpc.limits) == rpc.call_renderer_function(message)


def test_a_prepared_call_cannot_be_changed() -> None:
    """What was checked is what will be run."""
    prepared = handler().prepare_renderer_function(renderer_call("echoAny", {"value": [1]}))
    assert isinstance(prepared, Prepared)

    with pytest.raises(TypeError, match="frozen"):
        prepared.args["value"] = 2


def test_both_ends_understand_each_other() -> None:
    """A call of either end, carried to the other and back, settles with what was answered."""
    desk_catalog = catalog_of(desk(constant({"approved": True})))
    offered = catalog_of(Function.made("lookUp", echo))
    agent, renderer = AgentRpc.new(), handler(desk_catalog)

    outcome = agent.call_renderer_function({"@call": "askApproval", "catalogId": "urn:test"})
    assert not isinstance(outcome, RpcError)
    agent, message = outcome
    agent, approved = agent.handle_renderer_function_response(
        renderer.call_renderer_function(message)
    )
    renderer, question = called(
        renderer.call_agent_function("s", {"@call": "lookUp", "args": {"n": 1}})
    )
    renderer, looked_up = renderer.handle_agent_function_response(
        agent.answer_agent_function(question, offered)
    )

    assert approved == (Resolved("call-1", {"approved": True}),)
    assert looked_up == (Resolved("call-1", {"n": 1}),)
    assert agent.pending_ids() == renderer.pending_ids() == ()


def test_a_renderer_that_knows_no_such_function_rejects_the_agents_call() -> None:
    """The refusal travels back as any other answer."""
    outcome = AgentRpc.new().call_renderer_function(
        {"@call": "openUrl", "catalogId": BASIC_CATALOG_ID, "args": {"url": "https://x.org"}}
    )
    assert not isinstance(outcome, RpcError)
    agent, message = outcome

    _, (settlement,) = agent.handle_renderer_function_response(
        handler().call_renderer_function(message, user_activated=True)
    )

    assert isinstance(settlement, Rejected)
    assert settlement.error.code == INVALID_FUNCTION_CALL
