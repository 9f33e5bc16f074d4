"""How a renderer finds the function an agent calls, or refuses: scenarios R037 to R055."""

from __future__ import annotations

from typing import Any

import pytest

from genagent_protocol.rpc import (
    BASIC_CATALOG_ID,
    DISPOSED,
    EXECUTION_ERROR,
    INVALID_FUNCTION_CALL,
    Function,
    Malformed,
    read_message,
)
from support.rpc_house import (
    BASIC,
    OPS_ID,
    catalog_of,
    code_of,
    constant,
    error_of,
    handler,
    recording,
    renderer_call,
    response_of,
    surface,
    value_of,
)


def test_r037_a_function_is_run_and_its_value_is_the_answer() -> None:
    """The id comes back, so that the agent knows which call this answers."""
    answer = handler().call_renderer_function(
        renderer_call("echoText", {"text": "hi"}, call_id="v1")
    )

    assert answer == {
        "version": "v1.0",
        "rendererFunctionResponse": {"functionCallId": "v1", "value": {"text": "hi"}},
    }


def test_r038_a_disposed_handler_answers_disposed() -> None:
    """The agent waits for an answer all the same."""
    rpc, _ = handler().dispose()

    answer = rpc.call_renderer_function(renderer_call("echoText", {"text": "hi"}, call_id="v1"))

    assert code_of(answer) == DISPOSED
    assert response_of(answer)["functionCallId"] == "v1"


@pytest.mark.parametrize("call_id", [" a b ", "Ärger-☂-😀", "", "unknown", "x" * 10_000], ids=ascii)
def test_r039_the_id_comes_back_verbatim(call_id: str) -> None:
    """Ids belong to whoever made them; nothing about them is ours to judge."""
    answer = handler().call_renderer_function(
        renderer_call("echoText", {"text": "hi"}, call_id=call_id)
    )

    assert response_of(answer)["functionCallId"] == call_id


def test_r040_an_unknown_catalog_is_named_in_the_refusal() -> None:
    """A catalog is never guessed."""
    answer = handler().call_renderer_function(renderer_call("f", catalog_id="urn:none"))

    assert error_of(answer) == (INVALID_FUNCTION_CALL, "Catalog not found: urn:none")


def test_r041_a_call_without_a_catalog_is_refused_even_on_a_surface_with_one() -> None:
    """The default of a surface is for what is bound inside of it, not for calls from outside."""
    message = renderer_call("echoText", {"text": "hi"}, catalog_id=None, surface_id="opsui")

    answer = handler().call_renderer_function(message, context=surface("opsui"))

    assert error_of(answer) == (
        INVALID_FUNCTION_CALL,
        "No catalog available for function resolution.",
    )


def test_r042_an_empty_catalog_id_names_a_catalog_that_does_not_exist() -> None:
    """Empty is not missing, and no catalog can have the empty id."""
    answer = handler().call_renderer_function(renderer_call("echoText", catalog_id=""))

    assert code_of(answer) == INVALID_FUNCTION_CALL
    with pytest.raises(ValueError, match="id"):
        catalog_of(catalog_id="")


def test_r043_a_catalog_of_another_protocol_version_is_not_seen() -> None:
    """A function of 0.9 may mean something else by the same name."""
    old = catalog_of(Function.made("f", constant(1), allowed_callers="agentOnly"), version="0.9")

    code, text = error_of(
        handler(old).call_renderer_function(renderer_call("f", catalog_id="urn:test"))
    )

    assert code == INVALID_FUNCTION_CALL
    assert "does not match message protocol version" in text


def test_r044_an_unknown_function_is_named_in_the_refusal() -> None:
    """An agent can correct a name it is told."""
    answer = handler().call_renderer_function(renderer_call("nope"))

    assert error_of(answer) == (INVALID_FUNCTION_CALL, "Function not found: nope")


def test_r045_a_function_of_another_catalog_is_not_found() -> None:
    """The catalog is part of the function's name."""
    answer = handler().call_renderer_function(renderer_call("formatString", {"value": "x"}))

    assert error_of(answer) == (INVALID_FUNCTION_CALL, "Function not found: formatString")


def test_r046_a_system_function_is_in_no_catalog() -> None:
    """`@index` means nothing outside of a list, and a call from outside is never inside one."""
    answer = handler().call_renderer_function(renderer_call("@index", {}))

    assert code_of(answer) == INVALID_FUNCTION_CALL


@pytest.mark.parametrize("name", ["localOnly", "defaultCallers"])
def test_r047_r048_a_function_that_only_the_renderer_may_call_is_refused(name: str) -> None:
    """Saying nothing of callers is saying: only the renderer."""
    answer = handler().call_renderer_function(renderer_call(name, {}))

    assert error_of(answer) == (
        INVALID_FUNCTION_CALL,
        f"Function '{name}' cannot be called by agent (allowedCallers is rendererOnly).",
    )


@pytest.mark.parametrize("gesture", [False, True], ids=["no gesture", "in a gesture"])
@pytest.mark.parametrize("name", [function.name for function in BASIC.functions])
def test_r049_no_basic_function_may_be_called_by_an_agent(name: str, gesture: bool) -> None:
    """The catalog that every renderer has gives an agent nothing to call."""
    message = renderer_call(name, {}, catalog_id=BASIC_CATALOG_ID)

    answer = handler().call_renderer_function(message, user_activated=gesture)

    assert error_of(answer) == (
        INVALID_FUNCTION_CALL,
        f"Function '{name}' cannot be called by agent (allowedCallers is rendererOnly).",
    )


def test_r050_an_agent_only_function_runs() -> None:
    """That is what the word allows."""
    assert value_of(handler().call_renderer_function(renderer_call("double", {"amount": 2}))) == 4


def test_r051_activation_is_needed_where_the_function_says_so() -> None:
    """The gesture is the renderer's to know; the message cannot claim it."""
    function, seen = recording("open", requires_user_activation=True)
    rpc = handler(catalog_of(function))
    message = renderer_call("open", {}, catalog_id="urn:test")

    code, text = error_of(rpc.call_renderer_function(message))

    assert code == INVALID_FUNCTION_CALL
    assert "requires user activation" in text
    assert seen == []
    assert value_of(rpc.call_renderer_function(message, user_activated=True)) == 1


def test_r052_the_caller_is_judged_before_the_gesture() -> None:
    """A gesture would not help, and saying so would mislead."""
    _, text = error_of(handler().call_renderer_function(renderer_call("gatedLocal", {})))

    assert "cannot be called by agent" in text


def test_r053_a_message_without_a_call_is_refused_by_the_parser_and_answered_by_the_handler() -> (
    None
):
    """At the edge such a message is dropped; a handler that got it all the same owes an answer."""
    message: dict[str, Any] = {
        "version": "v1.0",
        "callRendererFunction": {"functionCallId": "call-109"},
    }

    parsed = read_message(message, "agent")
    answer = handler().call_renderer_function(message)

    assert isinstance(parsed, Malformed)
    assert "callFunction" in parsed.problem
    assert code_of(answer) == INVALID_FUNCTION_CALL
    assert response_of(answer)["functionCallId"] == "call-109"


@pytest.mark.parametrize(
    "message",
    [
        None,
        7,
        "text",
        [],
        {},
        {"version": "v1.0"},
        {"version": "v1.0", "callRendererFunction": None},
        {"version": "v1.0", "callRendererFunction": []},
        {"version": "v1.0", "callRendererFunction": {}},
        {"version": "v1.0", "callRendererFunction": {"functionCallId": 7}},
        {"version": "v1.0", "callRendererFunction": {"functionCallId": "\ud800"}},
        {"version": "v1.0", "callAgentFunction": {"functionCallId": "a"}},
    ],
    ids=repr,
)
def test_r053_without_an_id_the_answer_goes_to_unknown(message: object) -> None:
    """There is always an answer, and always one that can be sent."""
    answer = handler().call_renderer_function(message)

    assert code_of(answer) == INVALID_FUNCTION_CALL
    assert response_of(answer)["functionCallId"] == "unknown"
    assert answer["version"] == "v1.0"


@pytest.mark.parametrize(
    "call",
    [
        None,
        [],
        "echoText",
        {},
        {"@call": ""},
        {"@call": 7, "catalogId": OPS_ID},
        {"call": "echoText", "catalogId": OPS_ID, "args": {"text": "hi"}},
        {"@call": "echoText", "catalogId": 7, "args": {"text": "hi"}},
        {"@call": "echoText", "catalogId": OPS_ID, "args": None},
        {"@call": "echoText", "catalogId": OPS_ID, "args": "text"},
    ],
    ids=repr,
)
def test_a_call_that_is_no_call_is_answered(call: object) -> None:
    """`call` for `@call` is taken from a host that calls an agent, never from the wire."""
    message = {
        "version": "v1.0",
        "callRendererFunction": {"functionCallId": "a", "callFunction": call},
    }

    answer = handler().call_renderer_function(message)

    assert code_of(answer) == INVALID_FUNCTION_CALL
    assert response_of(answer)["functionCallId"] == "a"


@pytest.mark.parametrize("version", ["v1.0", "1.0"])
def test_r054_the_answer_spells_the_version_as_the_request_did(version: str) -> None:
    """Both spellings are version 1.0, and a peer that knows one may not know the other."""
    answer = handler().call_renderer_function(
        renderer_call("echoText", {"text": "hi"}, version=version)
    )

    assert answer["version"] == version
    assert value_of(answer) == {"text": "hi"}


@pytest.mark.parametrize("version", ["v0.9", "2.0", "", "v1", "1.0-rc.1", "v1.1"])
def test_a_version_that_is_not_spoken_finds_no_catalog(version: str) -> None:
    """Only catalogs of the message's version count, and there are none of this one."""
    answer = handler().call_renderer_function(
        renderer_call("echoText", {"text": "hi"}, version=version)
    )

    assert code_of(answer) == INVALID_FUNCTION_CALL
    assert answer["version"] == version


@pytest.mark.parametrize(
    "message",
    [
        renderer_call("echoText", {"text": "hi"}),
        renderer_call("nope"),
        renderer_call("fail", {}),
        renderer_call("echoText", {"text": 1}),
        {},
    ],
    ids=["value", "unknown", "failure", "bad arguments", "malformed"],
)
def test_r055_answering_changes_nothing_in_the_handler(message: dict[str, Any]) -> None:
    """Only calls to the agent are remembered."""
    rpc = handler()

    answer = rpc.call_renderer_function(message)

    assert len(answer) == 2
    assert rpc == handler()


def test_a_refusal_does_not_repeat_a_name_without_end() -> None:
    """A name of a megabyte must not come back as an error text of a megabyte."""
    _, text = error_of(handler().call_renderer_function(renderer_call("x" * 1_000_000)))

    assert len(text) == 2_000


def test_a_function_without_a_body_cannot_be_run() -> None:
    """It may be prepared for a person to answer; asked to run it, the handler says no."""
    rpc = handler(catalog_of(Function.made("askApproval", allowed_callers="agentOnly")))

    answer = rpc.call_renderer_function(renderer_call("askApproval", catalog_id="urn:test"))

    code, text = error_of(answer)
    assert code == EXECUTION_ERROR
    assert "askApproval" in text
