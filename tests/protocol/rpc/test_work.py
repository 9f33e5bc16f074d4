"""Evaluating the arguments of one call takes a bounded amount of work, however it is divided."""

from __future__ import annotations

import functools
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from genagent_protocol.rpc import (
    BASIC_CATALOG_ID,
    EXECUTION_ERROR,
    DataContext,
    ExpressionFault,
    Function,
    Rpc,
    RpcLimits,
    Surface,
)
from genagent_protocol.rpc.allowance import Allowance
from genagent_protocol.rpc.resolution import Resolver
from support.rpc_house import BASIC, catalog_of, constant, error_of, nested, renderer_call

MAX_STEPS = 30_000
TAKER = catalog_of(Function.made("take", constant(1), allowed_callers="agentOnly"))


def basic(name: str, **args: object) -> dict[str, Any]:
    return nested(name, args, BASIC_CATALOG_ID)


#: Calls that cost most where the others cost least: steps, states, values, characters, calls.
CALLS = st.sampled_from(
    [
        basic("regex", value="a" * 300, pattern="(a?){9}$"),
        basic("regex", value="a", pattern="(a?){90}b"),
        basic("and", values=[True] * 40),
        basic("required", value={"a": [1, [2], {"b": 3}]}),
        basic("formatString", value="${/n}, " * 50),
        basic("formatString", value="${not(value: ${not(value: true)})}"),
        basic("not", value=basic("not", value=basic("regex", value="ab", pattern="b"))),
        "plain text",
    ]
)


def resolver(limits: RpcLimits) -> Resolver:
    surface = Surface(
        surface_id="s",
        catalogs=(BASIC,),
        data_model={"n": 2},
        default_catalog_id=BASIC_CATALOG_ID,
    )
    return Resolver(context=DataContext(surface=surface), allowance=Allowance(limits))


def cost(value: Any) -> int:
    """Return the steps that this takes by itself."""
    return _cost(json.dumps(value))


@functools.cache
def _cost(text: str) -> int:
    value = json.loads(text)
    allowed = RpcLimits().max_work_steps
    alone = resolver(RpcLimits())
    alone.resolve(value)
    return allowed - alone.allowance.steps_left


@settings(deadline=None)  # How long the work takes is the machine's affair.
@given(calls=st.lists(CALLS, max_size=20))
def test_what_is_evaluated_together_has_one_allowance(calls: list[Any]) -> None:
    """Dividing it into many calls gains nothing: all of it runs, or the sum was too much."""
    together = resolver(RpcLimits(max_work_steps=MAX_STEPS))
    fits = sum(map(cost, calls)) <= MAX_STEPS

    if fits:
        together.resolve(calls)
    else:
        with pytest.raises(ExpressionFault, match="takes too long"):
            together.resolve(calls)


@pytest.mark.parametrize(
    "calls",
    [
        [basic("regex", value="a" * 1_000, pattern="(a?){400}b$")] * 12,
        [basic("regex", value="a", pattern="a?" * 900)] * 500,
        [basic("not", value=False)] * 9_000,
        [basic("and", values=[True] * 100_000)],
        [basic("formatString", value="x" * 9_000)] * 110,
    ],
    ids=["matches", "patterns", "calls", "values", "templates"],
)
def test_a_call_that_would_take_seconds_is_an_execution_error(calls: list[Any]) -> None:
    """Nothing else is served by a client meanwhile."""
    answer = Rpc.new([BASIC, TAKER]).call_renderer_function(
        renderer_call("take", {"x": calls}, catalog_id=TAKER.catalog_id)
    )

    text = "To evaluate the arguments of the call takes too long."
    assert error_of(answer) == (EXECUTION_ERROR, text)
