"""Making a handler and calling agent functions: scenarios R001 to R021."""

from __future__ import annotations

import inspect
import math
import sys
from typing import Any

import pytest

from genagent_protocol.rpc import (
    DISPOSED,
    DUPLICATE,
    INVALID_FUNCTION_CALL,
    Catalog,
    Rpc,
    RpcError,
    RpcLimits,
)
from support.rpc_house import OPS, answer, called, handler, pending_with, refusal

CALL = {"@call": "lookUp", "catalogId": "urn:store", "args": {"n": 1}}


def test_r001_a_new_handler_waits_thirty_seconds_and_holds_nothing() -> None:
    """The defaults are part of the promise; a host reads them to set its timers."""
    rpc = Rpc.new([OPS])

    assert rpc.default_timeout_ms == 30_000
    assert not rpc.disposed
    assert rpc.pending_ids() == ()
    assert rpc.catalogs == (OPS,)


def test_r002_a_handler_needs_a_catalog() -> None:
    """Without one no call could ever be looked up."""
    with pytest.raises(ValueError, match="catalog"):
        Rpc.new([])


@pytest.mark.parametrize("default", [0, -1, -0.5, math.inf], ids=str)
def test_r003_r004_a_default_of_zero_or_less_means_no_timeout(default: float) -> None:
    """A host that waits for people switches the timer off so; infinity says the same."""
    rpc = Rpc.new([OPS], default_timeout_ms=default)

    rpc, _ = called(rpc.call_agent_function("main", CALL, function_call_id="a"))

    assert rpc.pending_ids() == ("a",)
    assert rpc.pending_timeout("a") is None


def test_r005_the_old_handler_answers_as_before() -> None:
    """Every operation makes a new value; nobody who holds the old one is surprised."""
    before = pending_with(handler(), "a")

    after, _ = called(before.call_agent_function("main", CALL, function_call_id="b"))
    settled, _ = after.handle_agent_function_response(answer("a", value=1))
    disposed, _ = settled.dispose()

    assert before.pending_ids() == ("a",)
    assert after.pending_ids() == ("a", "b")
    assert settled.pending_ids() == ("b",)
    assert not settled.disposed
    assert disposed.disposed


def test_r006_the_message_says_what_was_called_and_the_call_is_pending() -> None:
    """The message is all that goes out, so it has to hold all of the call."""
    rpc, message = called(handler().call_agent_function("main", CALL, function_call_id="a"))

    assert message == {
        "version": "v1.0",
        "callAgentFunction": {
            "surfaceId": "main",
            "functionCallId": "a",
            "callFunction": CALL,
        },
    }
    assert rpc.pending_ids() == ("a",)
    assert rpc.pending["a"].surface_id == "main"
    assert rpc.pending["a"].call == CALL


def test_r007_two_calls_without_ids_get_different_ones() -> None:
    """Ids are all that correlates answers with calls."""
    rpc, first = called(handler().call_agent_function("main", CALL))
    rpc, second = called(rpc.call_agent_function("main", CALL))

    ids = [message["callAgentFunction"]["functionCallId"] for message in (first, second)]
    assert all(ids)
    assert len(set(ids)) == 2
    assert rpc.pending_ids() == tuple(sorted(ids))


def test_r008_a_generated_id_steps_over_ids_in_use() -> None:
    """A caller's own id may look like a counted one; both calls must stay apart."""
    rpc = handler()
    rpc, _ = called(rpc.call_agent_function("main", CALL, function_call_id=f"call-{rpc.next_id}"))
    rpc, message = called(rpc.call_agent_function("main", CALL))

    assert message["callAgentFunction"]["functionCallId"] == "call-2"
    assert rpc.pending_ids() == ("call-1", "call-2")


def test_only_a_generated_id_moves_the_counter() -> None:
    """The counter is part of the value; a caller's own ids leave it alone."""
    rpc = handler()
    named = pending_with(rpc, "mine")
    counted, _ = called(named.call_agent_function("main", CALL))

    assert named.next_id == rpc.next_id == 1
    assert counted.next_id == 2


def test_r009_call_instead_of_at_call_is_taken_and_sent_as_at_call() -> None:
    """Callers of older revisions write `call`; the wire has only one spelling."""
    _, message = called(handler().call_agent_function("main", {"call": "lookUp"}))

    assert message["callAgentFunction"]["callFunction"] == {"@call": "lookUp", "args": {}}


@pytest.mark.parametrize(
    "call",
    [
        {},
        {"@call": ""},
        {"call": ""},
        {"@call": None},
        {"@call": 7},
        {"@call": "", "call": "lookUp"},
        {"args": {}},
        "lookUp",
        None,
    ],
    ids=repr,
)
def test_r010_a_call_without_a_name_is_refused_and_changes_nothing(call: Any) -> None:
    """There is nothing to send; the refusal is a value the caller has to look at."""
    rpc = pending_with(handler(), "a")

    error = refusal(rpc.call_agent_function("main", call, function_call_id="b"))

    assert (error.code, error.kind, error.function_call_id) == (INVALID_FUNCTION_CALL, "rpc", "b")
    assert rpc == pending_with(handler(), "a")


def test_r011_a_pending_id_is_refused_and_the_first_call_stays() -> None:
    """Two calls under one id could not be told apart when the answer comes."""
    rpc = pending_with(handler(), "a")

    error = refusal(rpc.call_agent_function("main", CALL, function_call_id="a"))

    assert (error.code, error.function_call_id) == (DUPLICATE, "a")
    assert rpc.pending["a"].name == "lookUp"


def test_r012_a_settled_id_may_be_used_again() -> None:
    """Only pending calls are kept, so only they can be confused."""
    rpc = pending_with(handler(), "a")
    rpc, _ = rpc.handle_agent_function_response(answer("a", value=1))

    rpc, _ = called(rpc.call_agent_function("main", CALL, function_call_id="a"))

    assert rpc.pending_ids() == ("a",)


def test_r013_a_disposed_handler_calls_nobody() -> None:
    """Nobody is left who would hear the answer."""
    rpc, _ = handler().dispose()

    error = refusal(rpc.call_agent_function("main", CALL, function_call_id="a"))

    assert (error.code, error.function_call_id) == (DISPOSED, "a")


def test_r014_disposed_is_said_before_anything_else_is_judged() -> None:
    """The order of checks is fixed, so that one wrong thing gives one answer."""
    rpc, _ = handler().dispose()

    assert refusal(rpc.call_agent_function("main", {})).code == DISPOSED


def test_r015_a_timeout_of_its_own_wins_over_the_default() -> None:
    """An ask of a person and a look-up differ by hours."""
    rpc = Rpc.new([OPS], default_timeout_ms=1_000)

    rpc, _ = called(rpc.call_agent_function("main", CALL, function_call_id="a", timeout_ms=50))

    assert rpc.pending_timeout("a") == 50


@pytest.mark.parametrize("timeout_ms", [0, -5, math.inf, -math.inf], ids=str)
def test_r016_a_timeout_of_zero_or_less_is_none(timeout_ms: float) -> None:
    """The host starts no timer for such a call."""
    rpc, _ = called(
        handler().call_agent_function("main", CALL, function_call_id="a", timeout_ms=timeout_ms)
    )

    assert rpc.pending_timeout("a") is None


def test_r017_the_version_is_chosen_or_v1_0() -> None:
    """Peers spell the same version in two ways; the caller knows which one it talks to."""
    _, usual = called(handler().call_agent_function("main", CALL))
    _, chosen = called(handler().call_agent_function("main", CALL, version="1.0"))

    assert usual["version"] == "v1.0"
    assert chosen["version"] == "1.0"


@pytest.mark.parametrize("call", [{"@call": "f"}, {"@call": "f", "catalogId": None}], ids=repr)
def test_r018_a_call_that_names_no_catalog_sends_no_such_key(call: dict[str, Any]) -> None:
    """The published schema allows the key to be missing, not to be null."""
    _, message = called(handler().call_agent_function("main", call))

    assert "catalogId" not in message["callAgentFunction"]["callFunction"]


def test_r019_what_the_caller_changes_later_changes_neither_message_nor_handler() -> None:
    """A handler that shares a list with its caller is no value."""
    args: dict[str, Any] = {"list": [1], "object": {"k": 1}}
    rpc, message = called(
        handler().call_agent_function("main", {"@call": "f", "args": args}, function_call_id="a")
    )

    args["list"].append(2)
    args["object"]["k"] = 2
    message["callAgentFunction"]["callFunction"]["args"]["list"].append(3)

    assert rpc.pending["a"].call["args"] == {"list": (1,), "object": {"k": 1}}
    assert message["callAgentFunction"]["callFunction"]["args"]["object"] == {"k": 1}


def test_a_pending_call_cannot_be_changed_through_the_handler() -> None:
    """What the table says of a call is what was sent, for good."""
    rpc, _ = called(handler().call_agent_function("main", CALL, function_call_id="a"))

    with pytest.raises(TypeError, match="frozen"):
        rpc.pending["a"].call["@call"] = "other"


def test_r020_pending_ids_are_sorted_by_code_points() -> None:
    """The order is the same on every machine and in every locale."""
    assert pending_with(handler(), "b", "c", "a", "B").pending_ids() == ("B", "a", "b", "c")


def test_r021_an_unknown_or_settled_id_has_no_timeout() -> None:
    """A host that reads the timeout after the settlement must not start a timer."""
    rpc = pending_with(handler(), "a")
    settled, _ = rpc.cancel("a", "gone")

    assert rpc.pending_timeout("b") is None
    assert settled.pending_timeout("a") is None


@pytest.mark.parametrize("default", [math.nan, True, "30000", None], ids=repr)
def test_a_default_timeout_that_is_no_number_is_refused(default: Any) -> None:
    """A handler made with it would misbehave at the first call, far from the mistake."""
    with pytest.raises(ValueError, match="timeout"):
        Rpc.new([OPS], default_timeout_ms=default)


def test_two_catalogs_of_one_id_are_refused() -> None:
    """A call could not say which one it means, and a permission would depend on the order."""
    twin = Catalog(catalog_id=OPS.catalog_id, functions=())

    with pytest.raises(ValueError, match="one id"):
        Rpc.new([OPS, twin])


@pytest.mark.parametrize(
    "options",
    [
        {"timeout_ms": math.nan},
        {"timeout_ms": True},
        {"timeout_ms": "5"},
        {"timeout_ms": 10**400},
        {"version": "v2.0"},
        {"version": 1.0},
        {"version": ["v1.0"]},
        {"function_call_id": 7},
        {"function_call_id": "\ud800"},
        {"surface_id": None},
        {"surface_id": 7},
        {"surface_id": "\ud800"},
    ],
    ids=repr,
)
def test_options_that_cannot_be_sent_are_refused_with_a_code(options: dict[str, Any]) -> None:
    """A caller's mistake is answered like any other bad call, and registers nothing."""
    rpc = handler()
    surface_id = options.pop("surface_id", "main")

    error = refusal(rpc.call_agent_function(surface_id, CALL, **options))

    assert error.code == INVALID_FUNCTION_CALL
    assert rpc == handler()


def test_a_session_holds_only_so_many_pending_calls() -> None:
    """An agent that never answers must not make the other side grow without end."""
    rpc = Rpc.new([OPS], limits=RpcLimits(max_pending=2))
    full = pending_with(rpc, "a", "b")

    assert refusal(full.call_agent_function("main", CALL)).code == INVALID_FUNCTION_CALL
    room, _ = full.cancel("a", "gone")
    assert called(room.call_agent_function("main", CALL))[0].pending_ids() == ("b", "call-1")


def test_arguments_may_take_only_so_many_bytes_and_exactly_so_many() -> None:
    """The bound is the msgpack length of the arguments: one byte more is refused."""
    # {"t": <text of 100 bytes>}: one byte for the object, two for the key, two for the text's head.
    rpc = Rpc.new([OPS], limits=RpcLimits(max_argument_bytes=105))

    fits = rpc.call_agent_function("main", {"@call": "f", "args": {"t": "x" * 100}})
    too_large = rpc.call_agent_function("main", {"@call": "f", "args": {"t": "x" * 101}})

    assert not isinstance(fits, RpcError)
    assert refusal(too_large).code == INVALID_FUNCTION_CALL


def test_the_heads_of_long_lists_count_too() -> None:
    """The bound is what goes over the wire, not what the values alone would take."""
    call = {"@call": "f", "args": {"l": [0] * 16}}

    for max_bytes, fits in ((22, True), (21, False)):
        rpc = Rpc.new([OPS], limits=RpcLimits(max_argument_bytes=max_bytes))
        assert isinstance(rpc.call_agent_function("main", call), RpcError) != fits


@pytest.mark.parametrize("frames_left", range(20, 200, 20))
def test_a_host_that_is_deep_in_its_stack_gets_an_answer_too(frames_left: int) -> None:
    """Where the stack ends is nobody's fault, and still the call is made or refused."""
    args: Any = {"a": 1}
    for _ in range(30):
        args = {"a": args}
    rpc = handler()
    depth = len(inspect.stack())

    def deeper(levels: int) -> tuple[Rpc, Any] | RpcError:
        if levels:
            return deeper(levels - 1)
        return rpc.call_agent_function("main", {"@call": "f", "args": args})

    outcome = deeper(sys.getrecursionlimit() - depth - frames_left)

    assert isinstance(outcome, tuple) or outcome.code == INVALID_FUNCTION_CALL
