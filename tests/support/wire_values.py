"""Every message, request and answer of the wire, drawn by Hypothesis from its annotations."""

from __future__ import annotations

import dataclasses
import types
import typing
from functools import cache
from typing import Any, Literal, NewType

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from genagent_protocol import answers, envelopes, events, reasons, requests
from genagent_protocol.plain import MAX_INT, MIN_INT, FrozenDict
from genagent_protocol.refs import BootId, Incarnation, MailboxAddress, RequestRef
from support.plain_values import plain, texts

boots = st.integers(0, 2**64 - 1).map(lambda number: BootId(f"{number:016x}"))
numbers = st.integers(1, 10**19 - 1)
incarnations = st.builds(Incarnation, boots, numbers)
refs = st.builds(
    RequestRef, incarnations, st.integers(0, 2**128 - 1).map(lambda number: f"{number:032x}")
)
mailboxes = st.builds(MailboxAddress, boots, numbers, st.integers(0, 10**9 - 1))

_SCALARS: dict[Any, SearchStrategy[Any]] = {
    str: texts,
    int: st.integers(MIN_INT, MAX_INT),
    bool: st.booleans(),
    object: plain,
    FrozenDict: st.dictionaries(texts, plain, max_size=3).map(FrozenDict),
    type(None): st.none(),
    BootId: boots,
    RequestRef: refs,
    Incarnation: incarnations,
    MailboxAddress: mailboxes,
}


def hints_of(record: Any) -> dict[str, Any]:
    """Return the types of a record's fields; `Plain` is `object`."""
    hints = typing.get_type_hints(record, localns={"Plain": object})
    return {field.name: hints[field.name] for field in dataclasses.fields(record)}


@cache
def values_of(hint: Any) -> SearchStrategy[Any]:
    """Return values of the annotation *hint*."""
    if hint in _SCALARS:
        return _SCALARS[hint]
    if isinstance(hint, NewType):
        return values_of(hint.__supertype__)
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        return st.sampled_from(args)
    if origin is tuple:
        return st.lists(values_of(args[0]), max_size=3).map(tuple)
    if origin in (typing.Union, types.UnionType):
        return st.one_of(*map(values_of, args))
    assert isinstance(hint, type)
    return st.builds(hint, **{name: values_of(kind) for name, kind in hints_of(hint).items()})


def members(union: Any) -> tuple[type, ...]:
    """Return the records of a union, or the one record."""
    return typing.get_args(union) or (union,)


#: Every message, each once, in the order in which they are defined.
ENVELOPES: tuple[type, ...] = tuple(
    dict.fromkeys(
        members(envelopes.ToDaemon) + members(envelopes.ToAgent) + members(envelopes.ToClient)
    )
)
REQUESTS: tuple[type, ...] = members(requests.DaemonRequest) + members(requests.AgentRequest)
ANSWERS: tuple[type, ...] = members(answers.AgentAnswer) + members(envelopes.DaemonAnswer)
REASONS: tuple[type, ...] = members(reasons.Failure)
OUTCOMES: tuple[type, ...] = members(events.Outcome)

messages: SearchStrategy[Any] = st.one_of(*map(values_of, ENVELOPES))


def readers_of(envelope: type) -> list[Any]:
    """Return the unions that have *envelope*: who can hear it."""
    every = (envelopes.ToDaemon, envelopes.ToAgent, envelopes.ToClient)
    return [union for union in every if envelope in members(union)]
