"""Our own vectors, case by case: R109 as far as the data is ours."""

from __future__ import annotations

from typing import Any

import pytest

from genagent_protocol.rpc import (
    BASIC_CATALOG_ID,
    DataContext,
    ExpressionFault,
    Rejected,
    Resolved,
    Rpc,
    RpcError,
    Settlement,
    Surface,
    basic_bodies,
    resolver_for,
)
from support.rpc_data import BASIC_CATALOG, own, published
from support.rpc_house import (
    BASIC,
    OPS,
    OPS_ID,
    WORLD,
    error_of,
    handler,
    loaded,
    surface,
    value_of,
)

AGENT_SCRIPTS = own("rpc_agent_calls.json")["scripts"]
FUNCTIONS = own("basic_functions_v1_0.json")


@pytest.mark.parametrize("case", WORLD["cases"], ids=lambda case: case["name"])
def test_a_renderer_call_is_answered_as_the_vector_says(case: dict[str, Any]) -> None:
    """The messages are handed to the handler as they are, three of them malformed."""
    surface_id = case["message"]["callRendererFunction"].get("surfaceId")
    context = surface(surface_id) if surface_id in WORLD["surfaces"] else None

    answer = handler().call_renderer_function(
        case["message"], context=context, user_activated=case["userActivated"]
    )

    expected = case["expect"]
    if "errorCode" in expected:
        code, text = error_of(answer)
        assert code == expected["errorCode"]
        assert [part for part in expected["messageContains"] if part not in text] == []
    else:
        assert value_of(answer) == expected["value"]


class Script:
    """One script of calls to an agent, being played."""

    def __init__(self, settings: dict[str, Any]) -> None:
        options = {"default_timeout_ms": settings.get("defaultTimeoutMs", 30_000)}
        self.rpc = Rpc.new([OPS], **options)

    def play(self, step: dict[str, Any]) -> None:
        """Play one step and compare what it expects."""
        match step["op"]:
            case "call" | "callWithNextGeneratedId":
                self._call(step)
            case "respond":
                self._settle(step, self.rpc.handle_agent_function_response(step["response"]))
            case "timeout":
                self._settle(step, self.rpc.timeout(step["functionCallId"]))
            case "cancel":
                self._settle(step, self.rpc.cancel(step["functionCallId"], step["reason"]))
            case "dispose":
                self._settle(step, self.rpc.dispose(step["reason"]))
            case "callRendererFunction":
                answer = self.rpc.call_renderer_function(step["message"])
                assert error_of(answer)[0] == step["expect"]["errorCode"]
            case "check":
                self._check(step)
            case unknown:
                pytest.fail(f"the script says {unknown}, which nobody plays")

    def _call(self, step: dict[str, Any]) -> None:
        call_id = step.get("functionCallId")
        if step["op"] == "callWithNextGeneratedId":
            call_id = f"call-{self.rpc.next_id}"
        outcome = self.rpc.call_agent_function(
            step["surfaceId"],
            step["call"],
            function_call_id=call_id,
            timeout_ms=step.get("timeoutMs"),
            version=step.get("version"),
        )
        expected = step["expect"]
        if isinstance(outcome, RpcError):
            assert not expected["ok"], outcome
            assert outcome.code == expected["code"]
            return
        assert expected["ok"]
        self.rpc, message = outcome
        assert expected.get("message", message) == message

    def _settle(self, step: dict[str, Any], outcome: tuple[Rpc, tuple[Settlement, ...]]) -> None:
        self.rpc, settlements = outcome
        expected = step["expect"]["settlements"]
        assert len(settlements) == len(expected)
        for settlement, wanted in zip(settlements, expected, strict=True):
            match settlement:
                case Resolved(call_id, value):
                    assert (call_id, value) == (wanted["resolved"], wanted["value"])
                case Rejected(call_id, error):
                    assert (call_id, error.code) == (wanted["rejected"], wanted["code"])
                    missing = [p for p in wanted["messageContains"] if p not in error.message]
                    assert missing == []

    def _check(self, step: dict[str, Any]) -> None:
        facts = {
            "pending": list(self.rpc.pending_ids()),
            "pendingCount": len(self.rpc.pending_ids()),
            "disposed": self.rpc.disposed,
            "pendingTimeout": {
                call_id: self.rpc.pending_timeout(call_id)
                for call_id in step.get("pendingTimeout", {})
            },
        }
        checked = step.keys() - {"op"}
        assert checked
        assert {key: facts[key] for key in checked} == {key: step[key] for key in checked}


@pytest.mark.parametrize("script", AGENT_SCRIPTS, ids=lambda script: script["name"])
def test_a_script_of_calls_to_an_agent_plays(script: dict[str, Any]) -> None:
    """The handler's life, told step by step."""
    played = Script(script["new"])

    for step in script["steps"]:
        played.play(step)


@pytest.mark.parametrize("case", FUNCTIONS["cases"], ids=lambda case: case["id"])
def test_a_basic_function_gives_what_every_engine_gives(case: dict[str, Any]) -> None:
    """The vectors hold what does not depend on the engine."""
    function = BASIC.function(case["function"])
    assert function is not None
    assert function.body is not None
    context = DataContext(
        surface=Surface(
            surface_id="s",
            catalogs=(BASIC,),
            data_model=FUNCTIONS["dataModel"],
            default_catalog_id=BASIC_CATALOG_ID,
        )
    )

    if case.get("error"):
        with pytest.raises(ExpressionFault):
            function.body(case["args"], resolver_for(context))
    else:
        assert function.body(case["args"], resolver_for(context)) == case["value"]


def test_the_vectors_hold_over_the_published_catalog_too() -> None:
    """Our own declarations and the published document are one catalog."""
    basic = loaded(published(BASIC_CATALOG), basic_bodies())
    rpc = Rpc.new([basic, OPS])
    context = DataContext(
        surface=Surface(
            surface_id="form",
            catalogs=(basic, OPS),
            data_model=WORLD["surfaces"]["form"]["dataModel"],
            default_catalog_id=BASIC_CATALOG_ID,
        )
    )
    on_form = [
        case
        for case in WORLD["cases"]
        if case["message"]["callRendererFunction"].get("surfaceId") == "form"
    ]

    for case in on_form:
        options = {"context": context, "user_activated": case["userActivated"]}
        assert rpc.call_renderer_function(
            case["message"], **options
        ) == handler().call_renderer_function(
            case["message"], context=surface("form"), user_activated=case["userActivated"]
        ), case["name"]


def test_the_vectors_call_what_the_ops_catalog_offers() -> None:
    """A vector that names nothing would pass as a refusal and prove nothing."""
    called = {
        case["message"]["callRendererFunction"]["callFunction"]["@call"]
        for case in WORLD["cases"]
        if "value" in case["expect"]
    }

    assert called <= {function.name for function in OPS.functions}
    assert OPS.catalog_id == OPS_ID
    assert len(called) > 5
