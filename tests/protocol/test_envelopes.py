"""Messages are frozen values, each in the unions of those who may hear it."""

from __future__ import annotations

import dataclasses
import typing
from typing import Any

import pytest

from genagent_protocol import codec, envelopes, reasons, requests, schema
from genagent_protocol.answers import Refused
from genagent_protocol.envelopes import (
    Admission,
    CoreState,
    CoreStatus,
    CoreStop,
    FromAgent,
    Hello,
    Ping,
    Pong,
    Stopping,
    ToAgent,
    ToClient,
    VersionRefused,
)
from genagent_protocol.plain import FrozenDict
from genagent_protocol.reasons import DRAINING, Reason
from genagent_protocol.refs import BootId, Incarnation, RequestRef
from support.wire_spec import records
from support.wire_values import ENVELOPES, hints_of, members

BOOT = BootId("0123456789abcdef")
REF = RequestRef(Incarnation(BOOT, 1), "0" * 32)


@pytest.mark.parametrize("record", records())
def test_everything_that_travels_is_a_frozen_slotted_value(record: type) -> None:
    """What was sent, stored or compared never changes afterwards, and cannot grow a field."""
    assert "__setattr__" in vars(record)
    assert all("__dict__" not in vars(base) for base in record.__mro__)


@pytest.mark.parametrize("record", records())
def test_everything_that_travels_says_what_it_is(record: type) -> None:
    """A message is read in the code before it is looked up in the document."""
    assert record.__doc__
    assert not record.__doc__.startswith(f"{record.__name__}(")


@pytest.mark.parametrize("envelope", ENVELOPES)
def test_a_message_is_built_by_names(envelope: type) -> None:
    """Two numbers beside each other would be mixed up sooner or later."""
    fields = dataclasses.fields(envelope)

    assert all(field.kw_only for field in fields)


@pytest.mark.parametrize("record", records())
def test_no_default_is_made_anew_each_time(record: Any) -> None:
    """A default is part of the wire: one value, the same for ever."""
    assert all(field.default_factory is dataclasses.MISSING for field in dataclasses.fields(record))


def test_what_an_agent_says_to_others_can_be_heard_by_both_kinds_of_them() -> None:
    """A recipient is a client or another agent, and neither gets less."""
    said = set(members(FromAgent))

    assert said <= set(members(ToClient))
    assert said <= set(members(ToAgent))


def test_an_admission_is_an_acceptance_or_says_why_not() -> None:
    """There is no third kind."""
    assert Admission(agent="a", ref=REF).accepted
    assert not Admission(agent="a", ref=REF, refused=DRAINING).accepted


def test_a_pong_says_which_versions_this_side_speaks() -> None:
    """So that a peer can tell an old side from a silent one."""
    pong = Pong.to(Ping(call=3))

    assert pong == Pong(
        call=3, min_version=envelopes.MIN_VERSION, max_version=envelopes.MAX_VERSION
    )
    assert 1 <= envelopes.MIN_VERSION <= envelopes.MAX_VERSION


@pytest.mark.parametrize(
    ("message", "bytes_"),
    [
        (Ping(call=1), "82a174a470696e67a463616c6c01"),
        (
            Pong(call=1, min_version=1, max_version=1),
            "84a174a4706f6e67a463616c6c01ab6d696e5f76657273696f6e01ab6d61785f76657273696f6e01",
        ),
        (CoreStatus(call=1), "82a174ab636f72655f737461747573a463616c6c01"),
        (
            CoreState(
                call=1,
                pid=2,
                boot=BOOT,
                software="s",
                ready=True,
                draining=False,
                agents=3,
                clients=4,
                uptime_ms=5,
                bad_frames=6,
            ),
            "8ba174aa636f72655f7374617465a463616c6c01a370696402a4626f6f74b0303132333435363738396162636465"
            "66a8736f667477617265a173a57265616479c3a8647261696e696e67c2a66167656e747303a7636c69656e747304"
            "a9757074696d655f6d7305aa6261645f6672616d657306",
        ),
        (CoreStop(call=1), "82a174a9636f72655f73746f70a463616c6c01"),
        (
            CoreStop(call=1, force=True),
            "83a174a9636f72655f73746f70a463616c6c01a5666f726365c3",
        ),
        (Stopping(call=1), "82a174a873746f7070696e67a463616c6c01"),
        (
            Hello(min_version=1, max_version=2, software="s"),
            "84a174a568656c6c6fab6d696e5f76657273696f6e01ab6d61785f76657273696f6e02a8736f667477617265"
            "a173",
        ),
        (
            VersionRefused(min_version=1, max_version=2, software="s"),
            "84a174af76657273696f6e5f72656675736564ab6d696e5f76657273696f6e01ab6d61785f76657273696f6e"
            "02a8736f667477617265a173",
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_the_core_is_the_same_for_ever(message: object, bytes_: str) -> None:
    """Any client of any version can ask any daemon what it is, and stop it.

    Do not change these bytes: there is a daemon out there that speaks them.
    """
    assert codec.encode(message).hex() == bytes_


def test_no_two_things_in_one_place_have_one_name() -> None:
    """A union tells its members apart by nothing else."""
    unions = [
        *(envelopes.ToDaemon, envelopes.ToAgent, envelopes.ToClient, envelopes.FromAgent),
        *(requests.DaemonRequest, requests.AgentRequest, reasons.Failure),
        hints_of(envelopes.Reply)["answer"],
    ]

    for union in unions:
        tags = [schema.tag_of(member) for member in members(union)]
        assert len(tags) == len(set(tags))


@pytest.mark.parametrize("code", typing.get_args(reasons.Code))
def test_every_code_can_be_sent_as_a_refusal(code: reasons.Code) -> None:
    """The vocabulary of the code is the vocabulary of the wire."""
    message = envelopes.Reply(call=1, answer=Refused(Reason(code)))

    assert codec.decode(ToClient, codec.encode(message)) == [message]


@pytest.mark.parametrize(
    ("event", "count", "records"),
    [
        ("telemetry.lost", 7, 7),
        ("turn.start", 7, 1),
        ("telemetry.lost", 0, 1),
        ("telemetry.lost", True, 1),
        ("telemetry.lost", "7", 1),
        ("telemetry.lost", 2**63, 1),
    ],
)
def test_a_record_stands_for_what_it_counts(event: str, count: Any, records: int) -> None:
    """And not for what no agent can have lost: its word goes into others' numbers."""
    said = envelopes.Telemetry(event=event, agent="a", measurements=FrozenDict(count=count))

    assert said.records == records
