"""Callbacks: what raising, leaving or answering nonsense costs, and who waits meanwhile."""

from __future__ import annotations

import asyncio
import enum
from pathlib import Path

import pytest

from genagent_backends.gates import Gates
from genagent_protocol import codec, envelopes, requests
from genagent_protocol.answers import Ok, Refused
from genagent_protocol.events import Completed, Failed
from genagent_protocol.header import Header, encode_header
from genagent_protocol.plain import FrozenDict
from genagent_protocol.reasons import SHUTDOWN, ExitReason, Reason, TaskCrashed
from genagentd.agent.behaviour import NoReply, Prompt
from genagentd.agent.callbacks import plain, text_of
from support.agent_life import CLIENT, INCARNATION, living, living_process, mint, newborn, start
from support.recorders import ENDED, Recorder, Slow

RECORDER = "support.recorders:Recorder"
RESULT = {"kind": "result", "text": "done"}


def recorder(**told: object) -> dict[str, object]:
    """Return the options of a recorder whose every turn succeeds."""
    return {"backend": {"script": [[RESULT]], "repeat": True}, **told}


@pytest.mark.parametrize("how", ["raise", "stop", "exit", "garbage"])
async def test_a_failing_decision_on_a_response_ends_the_agent_before_anything_is_told(
    how: str,
) -> None:
    """This callback has no guard: its caller must not hear of a success nobody decided on."""
    error = {
        "raise": "LookupError",
        "stop": "StopIteration",
        "exit": "SystemExit",
        "garbage": "invalid_return",
    }[how]
    async with living(RECORDER, options=recorder(handle_response=how)) as agent:
        ref = agent.submit("go")
        last = await agent.ended()

        detail = FrozenDict(callback="handle_response", error=error)
        assert last.reason == ExitReason("callback_failed", detail)
        assert last.unresolved == (ref,)
        assert agent.told(envelopes.Completion) == []
        assert await agent.life == 70
        assert ENDED[-1] == "callback_failed: pre_run pre_turn go stream result"


@pytest.mark.parametrize("how", ["raise", "exit", "garbage"])
@pytest.mark.parametrize("callback", ["handle_event", "post_turn", "post_run"])
async def test_other_callbacks_may_fail_and_the_agent_goes_on(callback: str, how: str) -> None:
    """They are guarded: the state stays as it was, and what was decided stands."""
    async with living(RECORDER, options=recorder(**{callback: how})) as agent:
        await agent.notified("tick")
        agent.say(envelopes.Halt(), CLIENT.text)
        agent.say(envelopes.Resume(), CLIENT.text)
        assert await agent.answered("go") == "done"


@pytest.mark.parametrize("how", ["raise", "exit", "garbage"])
async def test_a_failing_error_callback_leaves_its_caller_the_original_reason(how: str) -> None:
    """Otherwise a bug in the recovery would hide what was to be recovered from."""
    options = {"backend": {"script": [[{"raise": "OSError"}]]}, "handle_error": how}
    async with living(RECORDER, options=options) as agent:
        assert await agent.run("go") == Failed(TaskCrashed("OSError"))
        assert (await agent.shown())["seen"] == ("pre_run", "pre_turn go", "post_turn task_crashed")


@pytest.mark.parametrize(
    ("how", "code"),
    [
        ("raise", "pre_turn_skipped"),
        ("exit", "pre_turn_skipped"),
        ("garbage", "pre_turn_invalid"),
        ("skip", "pre_turn_skipped"),
        ("halt", "pre_turn_halted"),
    ],
)
async def test_a_gate_that_does_not_let_a_prompt_run_fails_it(how: str, code: str) -> None:
    """The prompt was accepted all the same."""
    async with living(RECORDER, options=recorder(pre_turn=how)) as agent:
        assert await agent.failed("go") == code


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("raise", ExitReason("pre_run_crashed", "LookupError")),
        ("stop", ExitReason("pre_run_crashed", "StopIteration")),
        ("exit", ExitReason("pre_run_crashed", "SystemExit")),
        ("garbage", ExitReason("pre_run_invalid")),
        ("fail", ExitReason("pre_run_failed", "told to")),
    ],
)
async def test_an_agent_that_cannot_prepare_itself_ends_and_cleans_up(
    how: str, reason: ExitReason
) -> None:
    """It was ready, so its end is a DOWN and no start error."""
    async with newborn(start(RECORDER, options=recorder(pre_run=how))) as agent:
        await agent.next(envelopes.Ready)
        last = await agent.ended()

        assert last.reason == reason
        assert await agent.life == 70
        assert ENDED[-1].startswith(reason.text)


async def test_a_prompt_from_an_event_becomes_a_turn() -> None:
    """And the next one does not, because this recorder prompts once."""
    async with living(RECORDER, options=recorder(handle_event="from the event")) as agent:
        await agent.notified("tick")
        await agent.call(requests.GetSnapshot())
        assert await agent.answered("go") == "done"

        seen = (await agent.shown())["seen"]
        assert seen[:3] == ("pre_run", "handle_event", "pre_turn from the event")


async def test_a_retry_is_one_request_with_one_completion() -> None:
    """The caller waits for the last attempt."""
    script = [[{"raise": "OSError"}], [RESULT]]
    options = {"backend": {"script": script}, "handle_error": "again"}
    async with living(RECORDER, options=options) as agent:
        ref = agent.submit("go")
        outcome = await agent.completion(ref)

        assert isinstance(outcome, Completed)
        assert outcome.response.prompt == "again"
        assert len(agent.told(envelopes.Admission)) == 1


async def test_a_cancellation_reaches_the_callback_that_it_was_meant_for() -> None:
    """Not the next one, and not the agent, if it comes when that callback is back."""
    async with living("support.recorders:Linked", options={"script": [[RESULT]]}) as agent:
        await agent.notified("tick")
        assert await agent.answered("go") == "done"
        assert await agent.shown() == 1
        assert (await agent.stop()).reason == SHUTDOWN


async def test_while_an_async_callback_waits_calls_are_kept_in_their_order() -> None:
    """The callback blocks the agent, whichever way it is written."""
    Slow.go = asyncio.Event()
    async with living("support.recorders:Slow", options={"script": [[RESULT]]}) as agent:
        agent.say(envelopes.Notify(event="wait"), CLIENT.text)
        number = agent.begin_call(requests.GetStatus())
        ref = agent.submit("go")
        agent.say(envelopes.Ping(call=5))
        # A loop turn of the agent is long over when the same loop has had many.
        for _ in range(200):
            await asyncio.sleep(0)
        kept = [type(said.envelope) for said in agent.said]
        Slow.go.set()
        await agent.completion(ref)

        assert kept == [envelopes.Ready]
        told = [said.envelope for said in agent.said[1:]]
        assert [type(envelope).__name__ for envelope in told[:3]] == ["Reply", "Admission", "Pong"]
        assert told[0].call == number
        assert told[0].answer.agent_state == 10


@pytest.mark.process
async def test_what_was_said_leaves_before_a_blocking_callback_begins(tmp_path: Path) -> None:
    """A completion must not wait for the event that was deferred behind it."""
    turn = [{"kind": "text", "text": "x"}, {"gate": "turn", "events": [RESULT]}]
    options = {"backend": {"script": [turn], "gate_dir": str(tmp_path)}, "fifo": str(tmp_path)}
    async with living_process("support.recorders:Blocking", options=options) as agent:
        ref = agent.submit("go", stream=True)
        await agent.next(envelopes.EventMessage)
        agent.say(envelopes.Notify(event="block"), CLIENT.text)
        with Gates(str(tmp_path)) as gates:
            gates.release("turn")
            # The callback blocks until this test, which has the completion by then, lets it go.
            await agent.completion(ref)
            await asyncio.to_thread((tmp_path / "go").write_text, "on")


@pytest.mark.process
async def test_an_admission_leaves_before_the_turn_begins() -> None:
    """A turn may keep the interpreter at once, and then nothing that still waited would leave."""
    turn = [{"kind": "text", "text": "x"}]
    keeps = "support.faulty_agents:KeepsTheInterpreter"
    async with living_process(keeps, options={"script": [turn]}) as agent:
        agent.submit("go")

        await agent.next(envelopes.Admission)

        assert agent.process is not None
        agent.process.kill()


async def test_an_unknown_call_is_refused_and_an_unknown_word_ignored() -> None:
    """A newer client learns that it cannot have that, and nothing breaks."""
    async with living(options={"script": []}) as agent:
        for kind, fields in (
            ("call", {"t": "call", "call": 9, "request": {"t": "levitate"}}),
            ("call", {"t": "call", "call": 10, "request": {"t": "poll", "ref": 5}}),
            ("notify", {"t": "levitate"}),
            ("notify", {"no": "tag"}),
        ):
            body = codec.pack(fields)
            header = Header(kind, INCARNATION.text, CLIENT.text, size=len(body))
            agent.connection.send(encode_header(header), body)
        reply = await agent.next(envelopes.Reply)

        malformed = await agent.next(envelopes.Reply)

        assert reply == envelopes.Reply(call=9, answer=Refused(Reason("unknown_request")))
        assert malformed == envelopes.Reply(call=10, answer=Refused(Reason("malformed_request")))
        assert await agent.call(requests.NotifyAck(event=None)) == Ok()


async def test_only_the_daemon_gives_the_daemons_orders() -> None:
    """The body of a client's message could hold anything; the stamped sender decides."""
    async with living(options={"script": [[RESULT]]}) as agent:
        agent.say(envelopes.StopAsked(reason=ExitReason("shutdown")), CLIENT.text)
        agent.say(envelopes.RefuseTurns(), CLIENT.text)
        assert await agent.answered("go") == "done"


async def test_a_drained_agent_finishes_its_turn_and_exits_normal() -> None:
    """What waits is refused, what runs is completed."""
    async with living(options={"script": [[{"pause_ms": 20}, RESULT]]}) as agent:
        running, waiting = agent.submit("go"), agent.submit("wait")
        await agent.next(envelopes.Admission, lambda said: said.ref == waiting)
        number = agent.begin_call(requests.Drain())
        last = await agent.ended()

        told = {completion.ref: completion for completion in agent.told(envelopes.Completion)}
        assert told[waiting].outcome == Failed(Reason("draining"))
        assert isinstance(told[running].outcome, Completed)
        assert [reply.answer for reply in agent.told(envelopes.Reply)] == [Ok()]
        assert number == 1
        assert last.reason == ExitReason("normal")
        assert await agent.life == 0


async def test_the_requests_that_end_with_their_agent_are_accounted_for() -> None:
    """No completion is invented; the daemon's log names them."""
    async with living(options={"script": [[{"hang": "idle"}]]}) as agent:
        running, waiting = agent.submit("go"), agent.submit("wait")
        agent.begin_call(requests.Ask(ref=mint(), prompt="and ask"))
        await agent.next(envelopes.Admission, lambda said: said.ref == waiting)
        last = await agent.stop()

        assert last.unresolved == (running, waiting)
        assert agent.told(envelopes.Completion) == []


async def test_state_that_cannot_be_shown_is_shown_by_its_type(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Status must be answered whatever show_state does; the log says what is wrong with it."""
    async with living("support.recorders:Secretive", options={"script": []}) as agent:
        assert await agent.shown() == "int"

    said = capsys.readouterr().err
    assert "why='support.recorders.Secretive.show_state returned dict, in which something" in said


def test_text_that_cannot_leave_the_process_is_no_prompt() -> None:
    """A lone surrogate could be queued and never be sent."""
    assert text_of("plain") == "plain"
    assert text_of("\ud800") is None
    assert text_of(b"bytes") is None


def test_the_text_of_an_enum_is_a_prompt_and_its_name_is_not() -> None:
    """A backend may write the prompt into a line of its own."""

    class Order(str, enum.Enum):  # noqa: UP042  # it prints its name, and that is the point
        REVIEW = "Review the code"

    assert f"{text_of(Order.REVIEW)}" == "Review the code"


def test_a_reason_that_cannot_be_sent_is_told_by_its_code_or_type() -> None:
    """User code may give any object as its reason."""
    assert plain({"why": ["a", 1]}) == FrozenDict(why=("a", 1))
    assert plain(Reason("busy")) == "busy"
    assert plain({1, 2}) == "set"


class _Trap:
    """A reason whose every word is a trap."""

    def __init__(self, raises: type[BaseException]) -> None:
        self._raises = raises

    @property
    def code(self) -> str:
        raise self._raises


@pytest.mark.parametrize("raises", [ValueError, SystemExit, KeyboardInterrupt])
def test_a_reason_that_raises_when_it_is_read_is_called_by_its_class(
    raises: type[BaseException],
) -> None:
    """What user code gives is user code."""
    assert plain(_Trap(raises)) == "_Trap"


class _TrappedText(str):
    def encode(self, *_how: object) -> bytes:
        raise SystemExit


async def test_an_answer_that_raises_when_it_is_read_is_a_failed_callback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Reading what a callback returned is a part of calling it."""
    monkeypatch.setattr(
        Recorder, "handle_event", lambda _self, _event, state: Prompt(_TrappedText("x"), state)
    )
    async with living(RECORDER, options=recorder()) as agent:
        await agent.notified("tick")

        assert await agent.answered("go") == "done"


@pytest.mark.parametrize(
    ("callback", "answer", "said"),
    [
        ("handle_response", None, "NoneType, not NoReply, Prompt or Halt"),
        ("handle_event", Prompt(3, None), "Prompt of int, not NoReply"),  # type: ignore[arg-type]  # that is the fault
        ("handle_event", Prompt("\ud800", None), "Prompt of text that cannot be sent, not"),
        ("pre_turn", NoReply(None), "NoReply, not Run, Skip or Halt"),
        ("pre_run", None, "NoneType, not Ok or Failed"),
        ("post_turn", NoReply(None), "NoReply, not Ok"),
    ],
)
async def test_a_callback_that_returns_what_it_may_not_is_told_what_it_may(
    callback: str,
    answer: object,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """To forget to return is the commonest mistake there is; types are named, values never."""
    monkeypatch.setattr(Recorder, callback, lambda *_: answer)
    async with newborn(start(RECORDER, options=recorder())) as agent:
        await agent.next(envelopes.Ready)
        if callback == "handle_event":
            await agent.notified("tick")
        elif callback != "pre_run":
            agent.submit("go")
        if callback in ("pre_run", "handle_response"):
            await agent.ended()
        elif callback != "handle_event":
            await agent.next(envelopes.Completion)
            await agent.call(requests.GetSnapshot())

    wanted = f"why='support.recorders.Recorder.{callback} returned {said}"
    assert wanted in capsys.readouterr().err


async def test_a_prompt_that_became_no_turn_is_current_while_its_error_is_handled() -> None:
    """The recorder compares `current_ref` with what it is told of, and would raise."""
    options = recorder(handle_event="go", pre_turn="skip")
    async with living(RECORDER, options=options) as agent:
        await agent.notified("tick")

        assert "error pre_turn_skipped" in (await agent.shown())["seen"]
