"""Turns: what they leave behind when they end, are stopped, or do not want to end."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genagent_backends.base import Failed as BackendFailed
from genagent_backends.base import Streaming, is_session
from genagent_protocol import envelopes, requests
from genagent_protocol.answers import AgentAnswer, InterruptAnswer, Ok, Refused
from genagent_protocol.bounds import Limits
from genagent_protocol.events import Completed, Event, Failed, event
from genagent_protocol.plain import FrozenDict
from genagent_protocol.reasons import (
    CONFLICTING_SESSION_ID,
    INTERRUPTED,
    TURN_STUCK,
    Reason,
    TaskCrashed,
)
from genagentd.agent.plain_agent import PlainAgent
from genagentd.agent.stream import BREATH, Work, perform
from genagentd.agent.turn import CheckpointCall, Turns
from genagentd.agent.turn_loop import TurnLoop
from support.agent_life import DEADLINE_S, Conversation, living, living_process
from support.recorders import Recorder, Trace

RESULT = {"kind": "result", "text": "done"}
TEXT = {"kind": "text", "text": "hi"}
RECORDER = "support.recorders:Recorder"


def script(*turns: object, **more: object) -> dict[str, object]:
    """Return the options of a scripted backend."""
    return {"script": list(turns), **more}


def recorder(*turns: object, **told: object) -> dict[str, object]:
    """Return the options of a recorder with these scripted turns."""
    return {"backend": script(*turns), **told}


async def interrupted(agent: Conversation, prompt: str = "stop me") -> str:
    """Begin a turn, interrupt it when it has begun, and return what became of it."""
    ref = agent.submit(prompt, stream=True)
    await agent.next(envelopes.EventMessage)
    number = agent.begin_call(requests.InterruptRequest(ref=ref))
    outcome = await agent.completion(ref)
    reply = await agent.next(envelopes.Reply, lambda said: said.call == number)
    assert reply.answer == InterruptAnswer("accepted")
    assert isinstance(outcome, Failed)
    return outcome.reason.code


@pytest.mark.parametrize(
    ("step", "error"),
    [
        ({"raise": "ValueError", "message": "no"}, TaskCrashed("ValueError", "no")),
        ({"exit": 3}, TaskCrashed("SystemExit", "3")),
        ({"raise": "KeyboardInterrupt"}, TaskCrashed("KeyboardInterrupt")),
        ({"raise": "GeneratorExit"}, TaskCrashed("GeneratorExit")),
    ],
)
async def test_whatever_a_turn_raises_ends_that_turn_alone(
    step: object, error: TaskCrashed
) -> None:
    """A crash is an outcome; the agent and its next turn know nothing of it."""
    async with living(options=script([step], [RESULT])) as agent:
        assert await agent.run("crash") == Failed(error)
        assert await agent.answered("go on") == "done"


async def test_an_interrupted_turn_is_over_when_that_is_acknowledged() -> None:
    """The completion precedes the acknowledgement, and the next turn begins after it."""
    async with living(options=script([TEXT, {"hang": "idle"}], [RESULT])) as agent:
        assert await interrupted(agent) == "interrupted"
        assert await agent.answered("go on") == "done"


async def test_a_turn_that_was_interrupted_before_it_began_is_reported_too() -> None:
    """A task that is cancelled before its first step never runs, and must not be waited for."""
    async with living(options=script([TEXT, {"hang": "idle"}])) as agent:
        ref = agent.submit("stop me")
        agent.say(envelopes.Interrupt(), sender="x/1")
        outcome = await agent.completion(ref)

        assert outcome == Failed(INTERRUPTED)


async def test_the_watchdog_stops_a_turn() -> None:
    """A turn that runs for too long fails, and the agent goes on."""
    options = script([TEXT, {"hang": "idle"}], [RESULT], watchdog_ms=30)
    async with living(options=options) as agent:
        assert await agent.failed("hang") == "timeout"
        assert await agent.answered("go on") == "done"


@pytest.mark.process
@pytest.mark.parametrize("how", ["stubborn", "blocked", "busy"])
async def test_a_turn_that_does_not_end_in_its_grace_takes_the_agent_with_it(how: str) -> None:
    """There are never two turns alive, so an abandoned one cannot run on behind the next."""
    turn = [TEXT, {"hang": how}]
    async with living_process(options=script(turn, interrupt_grace_ms=50)) as agent:
        ref = agent.submit("stop me", stream=True)
        await agent.next(envelopes.EventMessage)
        agent.begin_call(requests.InterruptRequest(ref=ref))
        last = await agent.ended()

        assert last == envelopes.Exiting(reason=TURN_STUCK, unresolved=(ref,))
        assert await agent.life == 70


async def test_a_crashed_turn_leaves_the_state_of_its_dispatch() -> None:
    """Whatever the stream callback changed, in place or by value, it changed a copy."""
    options = recorder([TEXT, {"raise": "ValueError"}])
    async with living(RECORDER, options=options) as agent:
        await agent.run("crash")
        shown = await agent.shown()

        assert shown["mutable"] == ()
        assert "stream text" not in shown["seen"]


async def test_an_interrupted_turn_leaves_the_state_of_its_dispatch() -> None:
    """The events were seen, and the state does not say so."""
    options = recorder([TEXT, {"hang": "idle"}])
    async with living(RECORDER, options=options) as agent:
        await interrupted(agent)
        shown = await agent.shown()

        assert shown["mutable"] == ()
        assert shown["seen"][-2:] == ("error interrupted", "post_turn interrupted")


@pytest.mark.parametrize(
    ("turn", "told"),
    [
        ([TEXT, RESULT], ("response done", "post_turn completed")),
        (
            [TEXT, {"kind": "error", "reason": "no"}],
            ("error backend_failed", "post_turn backend_failed"),
        ),
        ([TEXT], ("error no_terminal_event", "post_turn no_terminal_event")),
    ],
)
async def test_a_turn_that_ended_by_itself_keeps_its_stream_state(
    turn: list[dict[str, object]], told: tuple[str, ...]
) -> None:
    """The decision callback sees what the stream callback left."""
    async with living(RECORDER, options=recorder(turn)) as agent:
        await agent.run("go")
        shown = await agent.shown()

        streamed = [f"stream {said['kind']}" for said in turn]
        assert shown["seen"] == ("pre_run", "pre_turn go", *streamed, *told)


async def test_a_raising_stream_callback_fails_the_turn() -> None:
    """It is part of the turn, and its state is lost with it."""
    options = recorder([TEXT, RESULT], handle_stream_event="raise")
    async with living(RECORDER, options=options) as agent:
        assert await agent.run("go") == Failed(TaskCrashed("LookupError", "a secret"))
        assert (await agent.shown())["mutable"] == ()


async def test_a_state_that_can_no_longer_be_copied_fails_the_turn() -> None:
    """The turn never begins on a state it could spoil; the agent stays."""
    async with living("support.recorders:Spoiled", options=script([RESULT], [RESULT])) as agent:
        assert await agent.answered("one") == "done"
        assert await agent.failed("two") == "state_not_copyable"


@pytest.mark.parametrize("raises", [ValueError, SystemExit, KeyboardInterrupt])
async def test_a_copy_that_raises_fails_the_turn_and_is_logged_with_its_place(
    raises: type[BaseException],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Whatever it is, it is the same failure; and who wrote it wants to know where."""

    def copy_state(_self: Recorder, state: Trace) -> Trace:
        raise raises("a secret")

    async with living(RECORDER, options=recorder([RESULT])) as agent:
        monkeypatch.setattr(Recorder, "copy_state", copy_state)
        assert await agent.failed("go") == "state_not_copyable"

    said = capsys.readouterr().err
    assert f"callback=copy_state error={raises.__name__}\n" in said
    assert "test_turns.py:" in said
    assert "secret" not in said


async def test_a_prompt_the_backend_declines_fails_with_its_reason() -> None:
    """Nothing was streamed, so nothing of the turn is kept."""
    async with living(RECORDER, options=recorder({"error": "not today"})) as agent:
        assert await agent.failed("go") == "backend_failed"
        assert (await agent.shown())["seen"][1:] == (
            "pre_turn go",
            "error backend_failed",
            "post_turn backend_failed",
        )


async def test_an_acknowledged_checkpoint_outlives_an_interrupted_turn() -> None:
    """The provider's session was named, so the next turn can go on in it."""
    turns = ([{"checkpoint": "s-1"}, {"hang": "idle"}], [{"kind": "result"}])
    async with living(options=script(*turns)) as agent:
        ref = agent.submit("begin", stream=True)
        told = await agent.next(envelopes.EventMessage)
        agent.begin_call(requests.InterruptRequest(ref=ref))
        await agent.completion(ref)
        outcome = await agent.run("go on")

        assert told.event.data["accepted"] is True
        assert isinstance(outcome, Completed)
        assert outcome.response.session_id == "s-1"


async def test_a_refused_checkpoint_fails_the_turn_in_spite_of_its_result() -> None:
    """The backend is told which refusal it was."""
    turn = [{"checkpoint": "s-1"}, {"checkpoint": "s-2"}, RESULT]
    async with living(options=script(turn)) as agent:
        ref = agent.submit("begin", stream=True)
        answers = [(await agent.next(envelopes.EventMessage)).event.data["answer"] for _ in "12"]
        outcome = await agent.completion(ref)

        assert answers == [None, "conflicting_session_id"]
        assert outcome == Failed(CONFLICTING_SESSION_ID)


@pytest.mark.parametrize("how", ["Failed", "raise"])
async def test_what_is_no_session_is_not_kept_when_a_checkpoint_is_applied_again(
    how: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the turn and after it one rule says what a session is; the turn's own is kept as it is."""
    async with living(backend=f"{__name__}:Forgetful") as agent:
        assert await agent.answered(how) == "first"
        assert await agent.answered(how) == "turned"

    told = "ValueError" if how == "raise" else "invalid_return"
    assert f"callback=checkpoint_session error={told}" in capsys.readouterr().err


@pytest.mark.parametrize("said", ["Failed", "NoneType"])
async def test_what_is_no_session_is_not_kept_when_a_session_is_taught(said: str) -> None:
    """It is the turn's code that returned it, so its turn fails, and the session is as it was."""
    async with living(backend=f"{__name__}:Unteachable") as agent:
        for _ in "12":
            failed = Failed(
                TaskCrashed("TypeError", f"update_session returned {said}, not a session")
            )
            assert await agent.run(said) == failed


@pytest.mark.parametrize("said", ["Failed", "NoneType"])
async def test_a_prompt_that_streams_without_a_session_fails_its_turn(said: str) -> None:
    """It is told, its stream is closed, and the session is as it was before."""
    async with living(backend=f"{__name__}:Sessionless") as agent:
        for _ in "12":
            failed = Failed(
                TaskCrashed("TypeError", f"prompt returned Streaming with {said}, not a session")
            )
            assert await agent.run(said) == failed
            assert Odd.ended.pop() == "closed"


async def test_a_reset_that_returns_nothing_is_refused_and_the_session_stays(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Who had a session and returns None has forgotten it; the next turn could not go on."""
    async with living(backend=f"{__name__}:Unteachable") as agent:
        answer = await agent.call(requests.ResetSession())
        assert answer == Refused(Reason("invalid_reset_result"))
        assert await agent.run("NoneType") != Failed(TaskCrashed("AssertionError"))

    assert "Unteachable.reset_session returned NoneType, not a session or Failed" in (
        capsys.readouterr().err
    )


@given(
    before=st.sampled_from([None, "session", 0]),
    answer=st.sampled_from([None, "session", 0, "", False, BackendFailed("no")]),
)
def test_only_nothing_and_a_failure_can_be_no_session(before: Any, answer: Any) -> None:
    """What is a session does not depend on whether it is true."""
    forgotten = answer is None and before is not None
    assert is_session(answer, before) == (not forgotten and answer != BackendFailed("no"))


class _GivenUp(concurrent.futures.Future[AgentAnswer]):
    """An answer whose waiter gives up, in another thread, right before one of our steps."""

    def __init__(self, moment: int) -> None:
        super().__init__()
        self._steps_left = moment

    def _step(self) -> None:
        if self._steps_left == 0:
            self.cancel()
        self._steps_left -= 1

    def done(self) -> bool:
        self._step()
        return super().done()

    def set_running_or_notify_cancel(self) -> bool:
        self._step()
        return super().set_running_or_notify_cancel()

    def set_result(self, result: AgentAnswer) -> None:
        self._step()
        super().set_result(result)


@pytest.mark.parametrize("moment", range(4))
def test_the_answer_to_a_checkpoint_may_be_given_up_at_any_moment(moment: int) -> None:
    """The turn's thread asks nobody when it is interrupted; it gets the answer, or has gone."""
    call = CheckpointCall(1, _GivenUp(moment))

    Turns.answered(cast("Turns", None), call, Ok())

    assert call.answer.cancelled() or call.answer.result(0) == Ok()


# Backends of this file


class Odd:
    """A backend whose turns are odd in one way each; the prompt says which."""

    ended: list[str]
    #: Set by an eager stream when it has begun, and by a test when it may go on.
    begun: threading.Event
    may_go_on: threading.Event
    #: What a turn left to ring later.
    timers: list[asyncio.TimerHandle]
    #: A task that waits for what nobody else knows is lost without this.
    tasks: list[asyncio.Task[Any]]

    def __init__(self) -> None:
        Odd.ended, Odd.tasks = [], []
        Odd.begun, Odd.may_go_on = threading.Event(), threading.Event()

    def start_session(self, _options: FrozenDict) -> str:
        return "session"

    def terminate_session(self, _session: str) -> None:
        return None

    def prompt(self, session: str, prompt: str, _turn: object) -> Any:
        return getattr(self, prompt)(session)

    def foreign(self, session: str) -> Any:
        return Streaming(["not an event"], session)  # type: ignore[list-item]  # that is the point

    def nothing(self, _session: str) -> None:
        return None

    def exhausted(self, _session: str) -> Streaming:
        return next(iter(()))

    def plain(self, session: str) -> Streaming:
        def events() -> Iterator[Event]:
            try:
                while True:
                    yield event("text", text="on and on")
            finally:
                Odd.ended.append("plain")

        return Streaming(events(), session)

    def eager(self, session: str) -> Streaming:
        async def events() -> Any:
            try:
                yield event("text", text="one")
                Odd.begun.set()
                assert Odd.may_go_on.wait(DEADLINE_S)
                # From here on everything is at hand, and it waits for nothing.
                yield event("text", text="two")
                Odd.ended.append("pulled")
                yield event("result", text="done")
            finally:
                await asyncio.sleep(0)
                Odd.ended.append("eager")

        return Streaming(events(), session)

    def after(self, session: str) -> Streaming:
        def events() -> Iterator[Event]:
            yield event("result", text="done")
            Odd.ended.append("pulled")
            yield event("text", text="too late")

        return Streaming(events(), session)

    def stray(self, session: str) -> Streaming:
        async def linger() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0)
                Odd.ended.append("stray")

        async def events() -> Any:
            tasks = Odd.tasks = [asyncio.create_task(linger())]
            await asyncio.sleep(0)
            yield event("result", text=str(len(tasks)))

        return Streaming(events(), session)

    def outside(self, session: str) -> Streaming:
        gate = asyncio.Event()

        def block(loop: asyncio.AbstractEventLoop) -> None:
            loop.call_soon_threadsafe(gate.set)
            while asyncio.run_coroutine_threadsafe(_cancelling(), loop).result() == 0:
                pass
            Odd.ended.append("outside")

        async def events() -> Any:
            call = asyncio.create_task(
                asyncio.to_thread(block, asyncio.get_running_loop()), name="call"
            )
            await gate.wait()
            yield event("text", text="it runs")
            await call

        return Streaming(events(), session)

    def linked(self, session: str) -> Streaming:
        async def linger() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                for _ in range(20):
                    await asyncio.sleep(0)
                Odd.ended.append("linked")

        async def events() -> Any:
            turn = asyncio.current_task()
            assert turn is not None
            tasks = Odd.tasks = [
                asyncio.create_task(linger()),
                asyncio.create_task(asyncio.Event().wait()),
            ]
            tasks[1].add_done_callback(lambda _: turn.cancel())
            await asyncio.sleep(0)
            yield event("result", text="done")

        return Streaming(events(), session)

    def inner(self, session: str) -> Streaming:
        async def inner() -> AsyncIterator[Event]:
            try:
                yield event("text", text="one")
                yield event("result", text="done")
            finally:
                await asyncio.sleep(0)
                Odd.ended.append("inner")

        async def events() -> AsyncIterator[Event]:
            async for said in inner():
                yield said

        return Streaming(events(), session)

    def handing(self, session: str) -> Streaming:
        asked = threading.Event()

        async def linger() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                asked.set()

        async def late() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                Odd.ended.append("late")

        def outside(loop: asyncio.AbstractEventLoop) -> None:
            assert asked.wait(DEADLINE_S)
            for _ in range(10):
                # The loop has its turn: there is no task any more that could be waited for.
                had = threading.Event()
                loop.call_soon_threadsafe(had.set)
                assert had.wait(DEADLINE_S)
            asyncio.run_coroutine_threadsafe(late(), loop)

        async def events() -> Any:
            loop = asyncio.get_running_loop()
            tasks = Odd.tasks = [asyncio.create_task(linger()), asyncio.create_task(late())]
            loop.run_in_executor(None, outside, loop)
            await asyncio.sleep(0)
            yield event("result", text=str(len(tasks)))

        return Streaming(events(), session)

    def timed(self, session: str) -> Streaming:
        async def events() -> Any:
            loop = asyncio.get_running_loop()
            moment = loop.time() + 3_600
            # Two that are equal, one that is over, and one that rings as the turn ends.
            Odd.timers = [loop.call_at(moment, loop.stop) for _ in "12"]
            rung = asyncio.Event()
            loop.call_later(0, rung.set)
            await rung.wait()
            Odd.timers.append(loop.call_later(0, loop.stop))
            yield event("result", text="done")

        return Streaming(events(), session)

    def cleaning(self, session: str) -> Streaming:
        async def linger() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0.001)
                Odd.ended.append("cleaned")

        async def events() -> Any:
            tasks = Odd.tasks = [asyncio.create_task(linger())]
            await asyncio.sleep(0)
            yield event("result", text=str(len(tasks)))

        return Streaming(events(), session)

    def stopping(self, session: str) -> Streaming:
        async def events() -> Any:
            asyncio.get_running_loop().stop()
            await asyncio.sleep(0)
            yield event("result", text="done")

        return Streaming(events(), session)

    def leaving(self, session: str) -> Streaming:
        async def leave() -> None:
            raise SystemExit(3)

        async def events() -> Any:
            await asyncio.create_task(leave())
            yield event("result")

        return Streaming(events(), session)


class Unteachable(Odd):
    """Declines to be taught by a result."""

    def start_session(self, _options: FrozenDict) -> str:
        return "first"

    def prompt(self, session: str, prompt: str, _turn: object) -> Any:
        assert session == "first"
        self.answer = BackendFailed("not this one") if prompt == "Failed" else None
        return Streaming([event("result")], "turned")

    def update_session(self, _session: str, _data: FrozenDict) -> Any:
        return self.answer

    def reset_session(self, _session: str) -> None:
        """Do something, and forget to return it."""


class Sessionless(Odd):
    """Streams, and does not say what its session is from now on; the prompt says what it says."""

    def start_session(self, _options: FrozenDict) -> str:
        return "first"

    def prompt(self, session: str, prompt: str, _turn: object) -> Streaming:
        assert session == "first"
        return Streaming(Closes(), BackendFailed("none") if prompt == "Failed" else None)


class Closes:
    """A stream that says when it was closed."""

    def __iter__(self) -> Iterator[Event]:
        yield event("result")

    def close(self) -> None:
        Odd.ended.append("closed")


class Forgetful(Odd):
    """Takes each checkpoint once and not again; the prompt says how it declines."""

    def start_session(self, _options: FrozenDict) -> str:
        return "first"

    def prompt(self, session: str, prompt: str, turn: Any) -> Streaming:
        self.how = prompt

        async def events() -> Any:
            assert await turn.checkpoint("s-1") is None
            yield event("result", text=session)

        return Streaming(events(), "turned")

    def checkpoint_session(self, session: str, session_id: str) -> Any:
        fresh, self.applied = session_id != self.applied, session_id
        if fresh:
            return session
        self.applied = ""
        if self.how == "raise":
            raise ValueError
        return BackendFailed("not again")

    applied = ""


async def _cancelling() -> int:
    """Return how many tasks of this loop are being cancelled."""
    return sum(task.cancelling() for task in asyncio.all_tasks())


ODD = f"{__name__}:Odd"


@pytest.mark.parametrize("prompt", ["foreign", "nothing"])
async def test_what_a_backend_may_not_answer_is_a_crash_of_the_turn(prompt: str) -> None:
    """The contract is the backend's to keep, and the agent's to survive."""
    async with living(backend=ODD) as agent:
        outcome = await agent.run(prompt)

        assert isinstance(outcome, Failed)
        assert isinstance(outcome.reason, TaskCrashed)
        assert outcome.reason.error == "TypeError"


async def test_an_endless_plain_stream_can_be_interrupted_and_is_closed() -> None:
    """It is asked between its elements, for nothing else could stop it."""
    async with living(backend=ODD, options={"max_events_per_turn": 100_000}) as agent:
        assert await interrupted(agent, "plain") == "interrupted"
        assert Odd.ended == ["plain"]


async def test_an_eager_asynchronous_stream_can_be_interrupted_and_is_closed() -> None:
    """What has its events at hand never waits, so that a cancellation alone would not reach it."""
    async with living(backend=ODD) as agent:
        ref = agent.submit("eager")
        await asyncio.to_thread(Odd.begun.wait, DEADLINE_S)
        agent.begin_call(requests.InterruptRequest(ref=ref))
        await agent.shown()
        Odd.may_go_on.set()

        assert await agent.completion(ref) == Failed(INTERRUPTED)
        assert Odd.ended == ["eager"]


@dataclass
class Stopper:
    """A guide that tells its turn to stop after so many events, as a turn is told in an agent."""

    after: int
    stopped: bool = False
    heard: int = 0
    pulled: int = 0
    #: What the turn left undone when its stream was closed.
    closed: list[str] = field(default_factory=list)

    async def relay(self, _event: Event) -> None:
        self.heard += 1
        if self.heard == self.after:
            self.stopped = True
            task = asyncio.current_task()
            assert task is not None
            asyncio.get_running_loop().call_soon(task.cancel)


def _plainly(guide: Stopper) -> Iterator[Event]:
    while True:
        guide.pulled += 1
        yield event("text", text="on")


async def _at_hand(guide: Stopper) -> AsyncIterator[Event]:
    try:
        while True:
            guide.pulled += 1
            yield event("text", text="on")
    finally:
        await asyncio.sleep(0)
        guide.closed.append("in order")


def _work(guide: Stopper, stream: object) -> Work:
    class Telling(Odd):
        def prompt(self, session: str, _prompt: str, _turn: object) -> Any:
            return Streaming(cast(Any, stream), session)

    limits = Limits()
    agent, offer = PlainAgent(), cast(Any, None)
    return Work(
        agent=agent,
        backend=Telling(),
        limits=limits,
        prompt="go",
        state=None,
        session="session",
        offer=offer,
        guide=guide,
    )


@pytest.mark.parametrize("kind", [_plainly, _at_hand])
@given(after=st.integers(1, 200))
def test_no_stream_goes_on_when_its_turn_was_told_to_stop(
    kind: Callable[[Stopper], object], after: int
) -> None:
    """Whatever kind it is and wherever it stands, one element more is all that is asked of it."""
    guide = Stopper(after)

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(perform(_work(guide, kind(guide))))

    assert guide.heard == after
    assert guide.pulled <= after + 1
    assert kind is _plainly or guide.closed == ["in order"]


@pytest.mark.parametrize("kind", [_plainly, _at_hand])
def test_a_stream_lets_the_loop_of_its_turn_have_its_moments(
    kind: Callable[[Stopper], object],
) -> None:
    """A cancellation, and whatever else a turn began, must not wait for the end of a burst."""
    guide, turns = Stopper(after=10 * BREATH), 0

    async def tick() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def turn() -> None:
        ticking = asyncio.create_task(tick())
        try:
            await perform(_work(guide, kind(guide)))
        finally:
            ticking.cancel()

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(turn())

    assert turns >= 10


async def test_nothing_is_pulled_from_a_stream_after_its_terminal_event() -> None:
    """What would come later might cost money."""
    async with living(backend=ODD) as agent:
        assert await agent.answered("after") == "done"
        assert Odd.ended == []


async def test_a_turn_is_over_when_its_own_tasks_are() -> None:
    """They are cancelled at its end, and waited for."""
    async with living(backend=ODD) as agent:
        assert await agent.answered("stray") == "1"
        assert Odd.ended == ["stray"]


async def test_a_turn_is_over_when_its_tasks_are_whatever_one_of_them_cancels() -> None:
    """A task that cancels the turn's as it ends must not end the wait for the others."""
    async with living(backend=ODD) as agent:
        assert await agent.answered("linked") == "done"
        assert Odd.ended == ["linked"]


async def test_a_turn_is_over_when_the_clean_up_of_a_generator_inside_its_stream_is() -> None:
    """Nobody closes that generator but the loop, when it is let go of."""
    async with living(backend=ODD) as agent:
        assert await agent.answered("inner") == "done"
        assert Odd.ended == ["inner"]


async def test_a_turn_is_over_when_what_its_calls_handed_back_is() -> None:
    """A call in another thread may give the loop more to do as it ends."""
    async with living(backend=ODD) as agent:
        assert await agent.answered("handing") == "2"
        assert Odd.ended == ["late", "late"]


class Strays:
    """What a turn left behind, each doing something as it ends, and how many are not over."""

    def __init__(self, loop: TurnLoop) -> None:
        self.loop = loop
        self.waiting: asyncio.Task[None] | None = None
        self.running = 0
        #: A task that waits for what nobody else knows is lost without this.
        self.tasks: list[asyncio.Task[None] | None] = []
        self.timers: list[asyncio.TimerHandle] = []
        self.rung: set[int] = set()

    async def end(self, chains: list[list[str]]) -> None:
        """Begin them, wait as a turn does, and see that nothing is left."""
        self.waiting = asyncio.current_task()
        self.tasks = [self.loop.create_task(self.stray(chain)) for chain in chains]
        await asyncio.sleep(0)
        await self.loop.end_strays()
        assert asyncio.all_tasks() == {self.waiting}
        assert self.running == 0
        # What neither has rung nor is cancelled may still ring.
        assert all(timer.cancelled() for timer in self.timers if id(timer) not in self.rung)

    def set_timer(self, delay_s: float, chain: list[str]) -> None:
        place = len(self.timers)

        def ring() -> None:
            self.rung.add(id(self.timers[place]))
            self.tasks.append(self.loop.create_task(self.stray(chain)))

        self.timers.append(self.loop.call_later(delay_s, ring))

    async def stray(self, chain: list[str]) -> None:
        self.running += 1
        self.tasks.append(asyncio.current_task())
        try:
            await asyncio.Event().wait()
        finally:
            await self._last(chain)

    async def _generator(self, chain: list[str]) -> AsyncIterator[None]:
        self.running += 1
        try:
            yield
        finally:
            await self._last(chain)

    def _outside(self, chain: list[str]) -> None:
        asyncio.run_coroutine_threadsafe(self.stray(chain), self.loop)

    async def _last(self, chain: list[str]) -> None:
        for _ in range(3):
            await asyncio.sleep(0)
        for number, what in enumerate(chain, 1):
            match what:
                case "cancels":
                    assert self.waiting is not None
                    self.waiting.cancel()
                    continue
                case "begins":
                    self.tasks.append(self.loop.create_task(self.stray(chain[number:])))
                case "lets go":
                    await anext(self._generator(chain[number:]))
                case "rings":
                    self.set_timer(0, chain[number:])
                case "would ring":
                    self.set_timer(3_600, chain[number:])
                    continue
                case "sleeps":
                    await asyncio.sleep(0.0001)
                    continue
                case "calls":
                    self.loop.run_in_executor(None, self._outside, chain[number:])
            break
        self.running -= 1


@given(
    st.lists(
        st.lists(
            st.sampled_from(
                ["cancels", "begins", "lets go", "calls", "rings", "would ring", "sleeps"]
            ),
            max_size=4,
        ),
        max_size=4,
    )
)
def test_nothing_of_a_turn_is_left_whatever_its_strays_do_as_they_end(
    chains: list[list[str]],
) -> None:
    """A turn is over when tasks, calls, generators and timers are, in whatever order."""
    loop = TurnLoop()
    try:
        loop.run_until_complete(Strays(loop).end(chains))
    finally:
        loop.close()


async def test_a_turn_that_stops_its_loop_stops_nothing() -> None:
    """Only the end of the agent ends the thread of its turns."""
    async with living(backend=ODD) as agent:
        for _ in "12":
            assert await agent.answered("stopping") == "done"


async def test_an_interrupted_turn_is_over_when_its_calls_in_other_threads_are() -> None:
    """Cancelling the wait for a thread does not stop the thread."""
    async with living(backend=ODD) as agent:
        assert await interrupted(agent, "outside") == "interrupted"
        assert Odd.ended == ["outside"]


async def test_a_timer_that_a_turn_left_does_not_ring() -> None:
    """It would begin tasks and processes in an agent that has said that nothing runs."""
    async with living(backend=ODD) as agent:
        assert await agent.answered("timed") == "done"
        assert [timer.cancelled() for timer in Odd.timers] == [True, True, True]
        assert await agent.answered("after") == "done"


async def test_the_clean_up_of_a_turn_may_take_its_time() -> None:
    """What it sleeps on is a timer, too."""
    async with living(backend=ODD) as agent:
        assert await agent.answered("cleaning") == "1"
        assert Odd.ended == ["cleaned"]


async def test_a_turn_that_finds_nothing_more_is_told_as_what_it_raised() -> None:
    """Out of a coroutine comes something else, which says nothing of the code that is meant."""
    async with living(backend=ODD) as agent:
        assert await agent.run("exhausted") == Failed(TaskCrashed("StopIteration", ""))


async def test_the_exit_of_a_turns_own_task_ends_the_turn_alone() -> None:
    """asyncio lets SystemExit of any task through; the thread survives it."""
    async with living(backend=ODD) as agent:
        assert await agent.run("leaving") == Failed(TaskCrashed("SystemExit", "3"))
        assert await agent.answered("after") == "done"
