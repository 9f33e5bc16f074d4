"""Telemetry and the log: who hears what, and what nobody hears."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genagent_protocol import codec, envelopes, requests
from genagent_protocol.envelopes import RECORDS_LOST, Telemetry
from genagent_protocol.errors import CallTimeout, Refused, StartFailed
from genagent_protocol.events import Failed
from genagent_protocol.failed import Failed as Declined
from genagent_protocol.plain import MAX_DEPTH, FrozenDict, Plain, encoded_size
from genagent_protocol.reasons import (
    AgentTerminated,
    BackendError,
    BackendFailed,
    ExitReason,
    Failure,
    Reason,
    StartError,
)
from genagent_protocol.refs import AgentHandle
from genagent_protocol.turns.effects import Emit, EmitName
from genagentd import telemetry
from genagentd.agent import log
from genagentd.agent.behaviour import Ok, Started
from genagentd.agent.observing import MAX_FIELD_BYTES, Observer
from support.agent_life import CLIENT, INCARNATION, Conversation, living, newborn, start
from support.recorders import Recorder, Trace

RECORDER = "support.recorders:Recorder"
SECRET = "a-secret-prompt"
RESULT = {"kind": "result", "text": "a-secret-answer"}


@pytest.fixture
def records() -> Iterator[list[Telemetry]]:
    """Everything that is published in this process."""
    found: list[Telemetry] = []
    telemetry.attach(found.append)
    yield found
    telemetry.detach(found.append)


def names(records: list[Telemetry]) -> list[str]:
    """Return what happened."""
    return [record.event for record in records]


async def wanting(agent: Conversation) -> None:
    """Have the daemon want records."""
    agent.say(envelopes.TelemetryWanted(on=True))


async def test_a_turn_is_told_by_its_records_in_order(records: list[Telemetry]) -> None:
    """The names are the documented ones."""
    async with living(options={"script": [[RESULT]]}) as agent:
        await agent.run("go")
        await agent.shown()

        assert names(records) == [
            "state.changed",
            "prompt.start",
            "turn.start",
            "state.changed",
            "prompt.stop",
            "turn.stop",
            "state.changed",
        ]
        changes = [r.metadata for r in records if r.event == "state.changed"]
        assert changes == [
            {"from": None, "to": "idle"},
            {"from": "idle", "to": "processing"},
            {"from": "processing", "to": "idle"},
        ]
        told = {(record.agent, record.incarnation) for record in records}
        assert told == {("anna", INCARNATION)}


async def test_large_content_is_left_out_of_records_and_measured(
    records: list[Telemetry],
) -> None:
    """A record is for watching; a few large ones would crowd all others out."""
    async with living(options={"script": [[RESULT]], "repeat": True}) as agent:
        await agent.run("x" * MAX_FIELD_BYTES)
        await agent.notified({"text": "y" * MAX_FIELD_BYTES})
        await agent.run("small")

    starts = [record for record in records if record.event == "prompt.start"]
    assert "prompt" not in starts[0].metadata
    assert starts[0].measurements["prompt_bytes"] == MAX_FIELD_BYTES + 3
    assert starts[0].metadata["agent_state"] == ()
    assert starts[1].metadata["prompt"] == "small"
    assert "agent_state" not in starts[1].metadata
    assert int(str(starts[1].measurements["agent_state_bytes"])) > MAX_FIELD_BYTES
    (notified,) = [record for record in records if record.event == "event.received"]
    assert notified.metadata == {}
    assert int(str(notified.measurements["event_bytes"])) > MAX_FIELD_BYTES


def nested(levels: int) -> Plain:
    """Return a value of so many levels."""
    value: Plain = "core"
    for _ in range(levels):
        value = (value,)
    return value


class Deep:
    """A backend that fails every turn with the deepest reason there can be."""

    def start_session(self, _options: FrozenDict) -> str:
        return "session"

    def terminate_session(self, _session: str) -> None:
        return None

    def prompt(self, _session: str, _prompt: str, _turn: object) -> Any:
        return Declined(nested(MAX_DEPTH))


class DeepAgent(Recorder):
    """Shows the deepest state there can be, and refuses with such a reason if it is told to."""

    def init_agent(self, options: FrozenDict) -> Any:
        return Started({}, Trace(options))

    def show_state(self, _state: Trace) -> Plain:
        return nested(MAX_DEPTH)

    def pre_run(self, state: Trace) -> Any:
        return Declined(nested(MAX_DEPTH)) if "refuse" in state.told else Ok(state)


@pytest.mark.parametrize("attached", [False, True])
async def test_whatever_is_nested_as_deep_as_it_may_be_costs_a_watched_agent_nothing(
    attached: bool,
) -> None:
    """A record is a level more around what is in it; what is too deep is left out and measured."""
    heard: list[Telemetry] = []
    async with living(f"{__name__}:DeepAgent", backend=f"{__name__}:Deep") as agent:
        if attached:
            telemetry.attach(heard.append)
        else:
            await wanting(agent)
        try:
            await agent.notified(nested(MAX_DEPTH))
            outcome = await agent.run("go")
            shown = await agent.shown()
        finally:
            telemetry.detach(heard.append)
        records = heard if attached else agent.told(Telemetry)

    assert outcome == Failed(BackendFailed(nested(MAX_DEPTH)))
    assert shown == nested(MAX_DEPTH)
    (failed,) = [record for record in records if record.event == "prompt.error"]
    assert set(failed.metadata) == {"ref", "attempt", "origin"}
    assert {"reason_bytes", "agent_state_bytes"} <= set(failed.measurements)
    (received,) = [record for record in records if record.event == "event.received"]
    assert received.measurements["event_bytes"] == encoded_size(nested(MAX_DEPTH))


async def test_the_end_of_a_watched_agent_has_its_reason_however_deep_it_is(
    records: list[Telemetry],
) -> None:
    """The reason is told to whom it concerns, and of its record it is left out."""
    options = {"refuse": True}
    async with living(f"{__name__}:DeepAgent", f"{__name__}:Deep", options) as agent:
        last = await agent.ended()

    assert last.reason == ExitReason("pre_run_failed", nested(MAX_DEPTH))
    (ended,) = [record for record in records if record.event == "terminated"]
    assert ended.metadata == {}
    assert "reason_bytes" in ended.measurements


_DEPTHS = st.integers(MAX_DEPTH - 8, MAX_DEPTH).map(nested)
_REASONS = st.one_of(
    _DEPTHS.map(BackendFailed),
    _DEPTHS.map(lambda raw: BackendError(provider="p", kind="k", retryable=False, raw=raw)),
    _DEPTHS.map(lambda detail: ExitReason("callback_failed", detail)),
    _DEPTHS.map(lambda detail: AgentTerminated(ExitReason("callback_failed", detail))),
)


@given(reason=_REASONS, event=_DEPTHS, state=_DEPTHS, name=_DEPTHS)
def test_every_note_becomes_a_record_that_can_be_sent(
    reason: Failure | ExitReason, event: Plain, state: Plain, name: Plain
) -> None:
    """Around what is accepted there is always room, or it is left out and measured."""
    sent: list[bytes] = []
    handle = AgentHandle(name, INCARNATION, 1, 1, "here")
    observer = Observer(
        handle, lambda: state, lambda record: sent.append(codec.encode(record)), lambda: True
    )

    observer.note(Emit("prompt.error", reason=reason))
    observer.note(Emit("halted", reason=reason, event=event))

    told = [codec.decode(Telemetry, body)[0] for body in sent]
    for record in told:
        for field in ("reason", "agent_state"):
            assert (field in record.metadata) != (f"{field}_bytes" in record.measurements)


async def test_records_of_turns_are_free_of_content(records: list[Telemetry]) -> None:
    """Metrics can be collected without collecting conversations."""
    script = [[RESULT], [{"kind": "error", "reason": SECRET}], [{"raise": "OSError"}]]
    async with living(options={"script": script}) as agent:
        for _ in script:
            await agent.run(SECRET)

        turns = [record for record in records if record.event.startswith("turn.")]
        assert len(turns) == 6
        assert "secret" not in repr(turns)
        for record in turns:
            assert {"ref", "attempt", "origin"} <= set(record.metadata)
        errors = [r.metadata["reason_kind"] for r in turns if r.event == "turn.error"]
        assert errors == ["backend_or_callback_error", "task_crashed"]


async def test_a_record_says_when_or_how_long(records: list[Telemetry]) -> None:
    """Durations are measured where a turn ran, moments everywhere else."""
    async with living(options={"script": [[{"pause_ms": 5}, RESULT]]}) as agent:
        await agent.run("go")

        measured = {record.event: record.measurements for record in records}
        assert set(measured["turn.stop"]) == {"duration_ms"}
        duration = measured["turn.stop"]["duration_ms"]
        assert isinstance(duration, int)
        assert duration >= 5
        assert set(measured["turn.start"]) == {"system_time_ms"}


async def test_a_prompts_record_has_both_prompts_and_the_shown_state(
    records: list[Telemetry],
) -> None:
    """State leaves only as show_state shows it."""
    options = {"backend": {"script": [[RESULT]]}}
    async with living(RECORDER, options=options) as agent:
        await agent.run("go")

        (begun,) = [record for record in records if record.event == "prompt.start"]
        assert begun.metadata["prompt"] == "go"
        assert begun.metadata["original_prompt"] == "go"
        assert begun.metadata["rewritten"] is False
        assert begun.metadata["agent_state"] == {"seen": ("pre_run", "pre_turn go"), "mutable": ()}


async def test_the_daemon_gets_records_from_when_to_when_it_wants_them() -> None:
    """Nobody pays for what nobody reads."""
    async with living(options={"script": [[RESULT]], "repeat": True}) as agent:
        await agent.run("unheard")
        await wanting(agent)
        await agent.run("heard")
        agent.say(envelopes.TelemetryWanted(on=False))
        await agent.run("unheard")
        await agent.shown()

        said = agent.told(Telemetry)
        assert names(said).count("turn.stop") == 1
        assert all(s.header.to == "daemon" for s in agent.said if isinstance(s.envelope, Telemetry))


@pytest.mark.parametrize("refuses", [False, True])
async def test_who_watched_before_the_start_hears_of_everything_from_the_start(
    refuses: bool, records: list[Telemetry]
) -> None:
    """The hello says so: there may be much to tell, the end included, before it hears more."""
    options = {"backend": {"script": []}, **({"pre_run": "fail"} if refuses else {})}
    async with newborn(start(RECORDER, options=options), watched=True) as agent:
        await (agent.ended() if refuses else agent.stop())

    told = agent.told(Telemetry)
    assert told == records
    assert (told[0].event, told[-1].event) == ("state.changed", "terminated")


async def test_who_begins_to_watch_while_it_starts_hears_of_everything_from_then_on() -> None:
    """What the daemon says before the agent is ready is not left until something was told."""
    async with newborn(start(RECORDER, options={"backend": {"script": []}})) as agent:
        await wanting(agent)
        await agent.stop()

    told = agent.told(Telemetry)
    assert (told[0].event, told[-1].event) == ("state.changed", "terminated")


async def test_a_notification_is_recorded_on_arrival(records: list[Telemetry]) -> None:
    """With the raw event, because that is what its record is for."""
    async with living(options={"script": []}) as agent:
        await agent.notified({"ci": "failed"})

        (received,) = [record for record in records if record.event == "event.received"]
        assert received.metadata == FrozenDict(event=FrozenDict(ci="failed"))


async def test_a_message_without_a_handler_is_recorded_and_logged(
    records: list[Telemetry], capsys: pytest.CaptureFixture[str]
) -> None:
    """An agent without handle_info was perhaps not meant to get one."""
    async with living(options={"script": []}) as agent:
        agent.say(envelopes.Gap(ref=None, first=1, last=2), CLIENT.text)
        await agent.shown()

        assert "message.dropped" in names(records)
        assert "message.dropped agent=anna\n" in capsys.readouterr().err


async def test_a_failing_callback_is_logged_with_its_place_and_without_its_words(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Agent, module, callback, class and frames are what a developer needs."""
    options = {"backend": {"script": []}, "handle_event": "raise"}
    async with living(RECORDER, options=options) as agent:
        await agent.notified(SECRET)
        await agent.shown()

    said = capsys.readouterr().err
    assert (
        "callback.failed agent=anna module=support.recorders callback=handle_event "
        "error=LookupError\n" in said
    )
    assert "recorders.py:" in said
    assert "secret" not in said
    assert said.count("callback.failed") == 1


async def test_a_malformed_answer_is_logged_too(capsys: pytest.CaptureFixture[str]) -> None:
    """It raised nothing, so there is no place to name: what it returned, and what it may."""
    options = {"backend": {"script": []}, "handle_event": "garbage"}
    async with living(RECORDER, options=options) as agent:
        await agent.notified(SECRET)
        await agent.shown()

    said = capsys.readouterr().err
    why = "support.recorders.Recorder.handle_event returned str, not NoReply, Prompt or Halt"
    assert f"callback=handle_event error=invalid_return why={why!r}\n" in said
    assert said.count("callback.failed") == 1
    assert "garbage" not in said


async def test_what_fails_is_logged_without_content(capsys: pytest.CaptureFixture[str]) -> None:
    """One line, with the ref to ask about."""
    script = [[{"kind": "error", "reason": SECRET}], [{"raise": "OSError", "message": SECRET}]]
    async with living(options={"script": script}) as agent:
        failed = agent.submit(SECRET)
        await agent.completion(failed)
        await agent.run(SECRET)

    said = capsys.readouterr().err
    assert f"turn.error agent=anna ref={failed.text} attempt=1 origin=tell reason_kind=" in said
    assert "turn.crashed agent=anna" in said
    assert "error=OSError\n" in said
    assert "secret" not in said


PAGE = Path(__file__).parents[2] / "docs" / "reference" / "telemetry.md"


def documented() -> dict[str, tuple[set[str], set[str]]]:
    """Return what the page says each record measures and tells."""
    rows = [line.split("|")[1:-1] for line in PAGE.read_text("utf-8").splitlines()]
    return {
        name: (set(re.findall(r"`(\w+)`", measured)), set(re.findall(r"`(\w+)`", told)))
        for cell, _when, measured, told in (row for row in rows if len(row) == 4)
        for name in re.findall(r"`([\w.]+)`", cell)
    }


def test_the_page_names_every_record_there_is() -> None:
    """And none that there is not."""
    assert set(documented()) == {*get_args(EmitName), RECORDS_LOST}


async def test_a_record_carries_what_the_page_says(records: list[Telemetry]) -> None:
    """No more and no less, of every record that an agent tells in a life full of events."""
    script = [[RESULT], [{"kind": "error", "reason": "no"}], [{"hang": "idle"}]]
    async with living(options={"script": script, "max_pending_prompts": 1}) as agent:
        await agent.run("well")
        await agent.run("badly")
        current = agent.submit("for long")
        queued = agent.submit("waits")
        agent.submit("does not fit")
        await agent.call(requests.CancelRequest(ref=queued))
        await agent.call(requests.InterruptRequest(ref=current))
        agent.say(envelopes.Gap(ref=None, first=1, last=2), CLIENT.text)
        agent.say(envelopes.Halt(), CLIENT.text)
        agent.submit("refused", on_halt="fail")
        await agent.shown()
        await agent.stop()
    async with living(RECORDER, options={"backend": {}, "handle_event": "raise"}) as agent:
        await agent.notified("tick")

    seen: dict[str, tuple[set[str], set[str]]] = {}
    for record in records:
        measured, told = seen.setdefault(record.event, (set(), set()))
        measured |= set(record.measurements)
        told |= set(record.metadata)
    rows = documented()
    assert set(rows) - set(seen) == {RECORDS_LOST}
    assert seen == {name: rows[name] for name in seen}


# Handlers


def unexpected(handler: str, error: BaseException) -> None:
    raise AssertionError(handler) from error


def test_handlers_are_called_in_their_order_and_once(records: list[Telemetry]) -> None:
    """Attaching twice changes nothing."""
    also: list[Telemetry] = []
    telemetry.attach(also.append)
    telemetry.attach(also.append)
    record = Telemetry(event="turn.start", agent="anna")
    telemetry.publish(record, unexpected)
    telemetry.detach(also.append)
    telemetry.detach(also.append)
    telemetry.publish(record, unexpected)

    assert also == [record]
    assert records == [record, record]


@pytest.mark.parametrize(
    "raised", [ValueError, SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError]
)
async def test_a_handler_that_raises_is_detached_and_logged_once(
    raised: type[BaseException], records: list[Telemetry], capsys: pytest.CaptureFixture[str]
) -> None:
    """It harms neither what it watches nor the other watchers, whatever it raises."""

    def broken(_record: Telemetry) -> None:
        raise raised("a secret")

    telemetry.attach(broken)
    async with living(options={"script": [[RESULT]]}) as agent:
        assert await agent.answered("go")

    said = capsys.readouterr().err
    assert said.count("telemetry.handler_detached") == 1
    assert f"broken error={raised.__name__}" in said
    assert "secret" not in said
    assert "turn.stop" in names(records)


class _Incomparable:
    """A handler that cannot even be compared."""

    def __call__(self, record: Telemetry) -> None:
        raise ValueError

    def __eq__(self, other: object) -> bool:
        raise SystemExit

    __hash__ = object.__hash__


def test_a_handler_is_detached_without_a_word_of_its_own() -> None:
    """How it compares and what it is called is its own code as well."""
    detached: list[str] = []
    telemetry.attach(_Incomparable())

    for _ in "12":
        record = Telemetry(event="turn.start", agent="anna")
        telemetry.publish(record, lambda handler, _error: detached.append(handler))

    assert detached == ["_Incomparable"]


def test_a_log_line_is_one_line_whatever_is_in_it(capsys: pytest.CaptureFixture[str]) -> None:
    """A name may hold anything, and a log is read line by line."""
    log.line("x", a=1, b=None, name="two words", evil="a\nb\x1b", empty="")

    moment, _, said = capsys.readouterr().err.partition(" ")
    assert said == "x a=1 name='two words' evil='a\\nb\\x1b' empty=''\n"
    # In the form of the daemon's log, so that the two can be laid side by side.
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", moment)


def test_what_python_raises_in_place_of_another_exception_is_told_as_that() -> None:
    """And nothing else is: not what is only called alike, nor what others put around it."""

    async def exhausted() -> None:
        next(iter(()))

    with pytest.raises(RuntimeError) as raised:
        asyncio.run(exhausted())
    own = RuntimeError("no more")
    own.__cause__ = StopIteration()

    assert log.class_of(raised.value) == "StopIteration"
    assert log.class_of(own) == "RuntimeError"
    assert log.class_of(RuntimeError("coroutine raised StopIteration")) == "RuntimeError"


def test_an_error_of_ours_is_logged_with_the_code_of_its_reason(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """`StartFailed` alone says nothing of why; what an error says in words stays out."""
    log.raised("x", StartFailed("a secret", StartError(kind="not_allowed", message="a secret")))
    log.raised("x", Refused("a secret", Reason(cast("Any", "A secret"))))
    log.raised("x", CallTimeout("a_secret", 5))

    said = [line.partition(" ")[2] for line in capsys.readouterr().err.splitlines()]
    assert said == [
        "x error=StartFailed code=not_allowed",
        "x error=Refused",
        "x error=CallTimeout",
    ]
