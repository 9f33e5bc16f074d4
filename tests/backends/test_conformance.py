"""The suite for backends finds the faults that would fail an agent's turns, and no others."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import threading
import unittest
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest

from genagent_backends import conformance
from genagent_backends.base import Backend, Failed, Streaming, Turn
from genagent_backends.conformance import BackendConformance
from genagent_backends.options import read_options
from genagent_backends.rehearsal import rehearse
from genagent_protocol.events import Event, event
from genagent_protocol.plain import FrozenDict

FOLDS = "test_folding_a_result_twice_gives_the_same_session"
APPLIES = "test_an_acknowledged_checkpoint_may_be_applied_twice"
RESUMES = "test_a_resumed_session_answers_under_the_id_it_was_asked_for"
INTERRUPTS = "test_an_interrupted_turn_ends_and_leaves_no_process"
GOES_ON = "test_a_turn_begins_after_an_interrupted_one"
RESETS = "test_a_reset_session_answers"
ANSWERS = "test_a_turn_ends_in_one_result_and_says_nothing_after_it"
CONTINUES = "test_the_second_turn_continues_the_session_of_the_first"


class Plainest:
    """A backend with nothing wrong in it, to be spoilt."""

    def start_session(self, options: FrozenDict) -> Any:
        chosen = read_options([], options)
        return chosen if isinstance(chosen, Failed) else self.new()

    def new(self) -> Any:
        return "s"

    def terminate_session(self, _session: Any) -> None: ...

    def prompt(self, session: Any, _prompt: str, turn: Turn) -> Streaming:
        return Streaming(self.says(session, turn), session)

    async def says(self, _session: Any, _turn: Turn) -> AsyncIterator[Event]:
        yield event("text", text="x")
        yield event("result", session_id="1")


class Unsupported(Plainest):
    """It names its session in the middle of a turn, and cannot apply the name."""

    ids: tuple[str, ...] = ("1",)

    async def says(self, _session: Any, turn: Turn) -> AsyncIterator[Event]:
        for session_id in self.ids:
            await turn.checkpoint(session_id)
        yield event("text", text="x")
        yield event("result", session_id="1")


class Checkpointing(Unsupported):
    def checkpoint_session(self, session: Any, _session_id: str) -> Any:
        return session


class TwoIds(Checkpointing):
    ids = ("1", "2")


class LongId(Checkpointing):
    ids = ("x\n" * 3_000,)


class HalfACharacter(Checkpointing):
    ids = ("\ud800",)


class Inapplicable(Checkpointing):
    def checkpoint_session(self, _session: Any, _session_id: str) -> Any:
        raise ValueError("no")


class Declining(Checkpointing):
    def checkpoint_session(self, _session: Any, _session_id: str) -> Any:
        return Failed("no")


class Box:
    """A session without equality, whose print shows nothing."""

    def __init__(self, *held: object) -> None:
        self.held = list(held)

    def __repr__(self) -> str:
        return "Box()"


class Opaque(Plainest):
    def new(self) -> Box:
        return Box()

    def update_session(self, _session: Box, data: FrozenDict) -> Box:
        return Box(data["session_id"])

    def checkpoint_session(self, _session: Box, session_id: str) -> Box:
        return Box(session_id)


class Appends(Opaque):
    def update_session(self, session: Box, data: FrozenDict) -> Box:
        session.held.append(data)
        return session


class Counts(Opaque):
    def update_session(self, session: Box, _data: FrozenDict) -> Box:
        return Box(len(session.held), *session.held)


class AppliesTwice(Opaque):
    def checkpoint_session(self, session: Box, session_id: str) -> Box:
        return Box(*session.held, session_id)


class ToldInTheTurn(Plainest):
    """Its id comes by `checkpoint` alone."""

    def new(self) -> Any:
        return None

    def resume_session(self, session_id: str, _options: FrozenDict) -> Any:
        return session_id

    def checkpoint_session(self, _session: Any, session_id: str) -> Any:
        return session_id

    async def says(self, session: Any, turn: Turn) -> AsyncIterator[Event]:
        await turn.checkpoint(session or "native-1")
        yield event("text", text="x")
        yield event("result")


class Stubborn(Plainest):
    """With the session "slow" it ignores that it is interrupted."""

    def start_session(self, options: FrozenDict) -> Any:
        return "slow" if options.get("slow") else super().start_session(options)

    async def says(self, session: Any, turn: Turn) -> AsyncIterator[Event]:
        if session != "slow":
            async for said in super().says(session, turn):
                yield said
            return
        yield event("text", text="x")
        stopped = asyncio.get_running_loop().create_future()
        while not stopped.done():
            with suppress(asyncio.CancelledError):
                await asyncio.shield(stopped)


class Nameless(Plainest):
    """It can go on with a conversation, and names none."""

    def resume_session(self, session_id: str, _options: FrozenDict) -> Any:
        return session_id

    async def says(self, _session: Any, _turn: Turn) -> AsyncIterator[Event]:
        yield event("text", text="x")
        yield event("result")


class Forgetful(Opaque):
    """Its callbacks change the session in its place, and forget to return it."""

    def update_session(self, session: Box, data: FrozenDict) -> Any:
        session.held = [data["session_id"]]

    def checkpoint_session(self, session: Box, session_id: str) -> Any:
        session.held = [session_id]

    def reset_session(self, session: Box) -> Any:
        session.held = []


class ForgetfulOfCheckpoints(Forgetful):
    def checkpoint_session(self, session: Box, session_id: str) -> Any: ...

    def update_session(self, session: Box, data: FrozenDict) -> Box:
        return session

    def reset_session(self, session: Box) -> Box:
        return session


class ForgetfulOfResets(ForgetfulOfCheckpoints):
    def checkpoint_session(self, session: Box, session_id: str) -> Box:
        return session

    def reset_session(self, session: Box) -> Any: ...


class Sessionless(Plainest):
    """It streams, and forgets to say what its session is from now on."""

    def prompt(self, session: Any, _prompt: str, turn: Turn) -> Streaming:
        return Streaming(self.says(session, turn), None)


class Handmade(Plainest):
    """Its events are not made by `event()`."""

    async def says(self, _session: Any, _turn: Turn) -> AsyncIterator[Event]:
        data: Any = {"session_id": "1", "text": "x"}
        yield Event("result", data)


class OfOneLoop(Plainest):
    """Its session belongs to the event loop in which it was started."""

    async def start_session(self, options: FrozenDict) -> Any:
        chosen = read_options([], options)
        return chosen if isinstance(chosen, Failed) else asyncio.get_running_loop().create_future()

    async def says(self, session: Any, turn: Turn) -> AsyncIterator[Event]:
        if not session.done():
            asyncio.get_running_loop().call_soon(session.set_result, None)
        await session
        async for said in super().says(session, turn):
            yield said


class Busy(Plainest):
    """It is busy for ever once a turn of it was interrupted."""

    busy = False

    def start_session(self, options: FrozenDict) -> Any:
        return "slow" if options.get("slow") else super().start_session(options)

    async def says(self, session: Any, turn: Turn) -> AsyncIterator[Event]:
        self.busy = True
        yield event("text", text="x")
        if session == "slow":
            await asyncio.get_running_loop().create_future()
        self.busy = False
        yield event("result", session_id="1")

    def prompt(self, session: Any, prompt: str, turn: Turn) -> Any:
        return Failed("busy") if self.busy else super().prompt(session, prompt, turn)


class Endless(Stubborn):
    def new(self) -> Any:
        return "slow"


class Blocks(Plainest):
    """Its stream says something and then keeps the thread of the turn to itself."""

    freed = threading.Event()

    def says(self, _session: Any, _turn: Turn) -> Any:
        yield event("text", text="x")
        self.freed.wait()


class Ticks(Plainest):
    """Its stream never pauses and never ends."""

    def says(self, _session: Any, _turn: Turn) -> Any:
        return itertools.repeat(event("text", text="x"))


class TicksInItsLoop(Plainest):
    """So does this one, which is asynchronous, and waits for nothing."""

    async def says(self, _session: Any, _turn: Turn) -> AsyncIterator[Event]:
        while True:
            yield event("text", text="x")


class Exits(Stubborn):
    """It ends whoever lets it."""

    def prompt(self, _session: Any, _prompt: str, _turn: Turn) -> Any:
        raise SystemExit("enough")


class ExitsInItsStream(Stubborn):
    async def says(self, _session: Any, _turn: Turn) -> AsyncIterator[Event]:
        yield event("text", text="x")
        raise SystemExit("enough")


class Deaf(Endless):
    """It began a program that no signal but one ends, and does not let itself be cancelled."""

    program = "trap '' INT TERM; echo ready; read nothing; exec sleep 100"

    def __init__(self) -> None:
        self.pids: list[int] = []
        self.begun = threading.Event()

    async def says(self, session: Any, turn: Turn) -> AsyncIterator[Event]:
        process = await turn.spawn(["/bin/sh", "-c", self.program])
        self.pids.append(process.pid)
        await process.read()
        async for said in super().says(session, turn):
            yield said
            self.begun.set()
            self.go_on()

    def go_on(self) -> None: ...


class DeafAndBlocks(Deaf):
    def go_on(self) -> None:
        Blocks.freed.wait()


@dataclass
class Verdict:
    """What became of each test of the suite."""

    failed: dict[str, str]
    skipped: set[str]


def suite_on(make: Callable[[], Any], *, only: str = "test_", patience: float = 60.0) -> Verdict:
    class Suite(BackendConformance):
        names_sessions = make is not Nameless
        patience_s = patience

        def backend(self) -> Backend:
            made: Backend = make()
            return made

        def slow_options(self) -> Mapping[str, object] | None:
            return {"slow": True} if make in (Stubborn, Busy, Exits, ExitsInItsStream) else None

    verdict = Verdict({}, set())
    for name in (name for name in dir(Suite) if name.startswith(only)):
        try:
            getattr(Suite(), name)()
        except unittest.SkipTest:
            verdict.skipped.add(name)
        except Exception as error:  # a backend may raise whatever it likes
            verdict.failed[name] = str(error)
    return verdict


@pytest.mark.parametrize("backend", [Plainest, Checkpointing, Opaque, ToldInTheTurn, Nameless])
def test_a_backend_that_is_right_passes(backend: type[Plainest]) -> None:
    """Whatever its session is, and wherever it tells its id."""
    assert suite_on(backend).failed == {}


def test_an_id_that_is_told_in_the_turn_alone_is_looked_at() -> None:
    """No test of it is left out."""
    assert not suite_on(ToldInTheTurn).skipped & {CONTINUES, RESUMES, APPLIES}


@pytest.mark.parametrize(
    ("backend", "code"),
    [
        (Unsupported, "unsupported_checkpoint"),
        (TwoIds, "conflicting_session_id"),
        (LongId, "invalid_session_id"),
        (HalfACharacter, "invalid_session_id"),
        (Inapplicable, "checkpoint_failed"),
        (Declining, "checkpoint_failed"),
    ],
)
async def test_a_turn_that_would_fail_in_an_agent_fails_the_suite(
    backend: type[Plainest], code: str
) -> None:
    """An agent refuses what is told, and fails the turn with that, whatever its result."""
    done = await rehearse(backend(), "s", "hi")
    verdict = await asyncio.to_thread(suite_on, backend)

    assert done.checkpoint_refused == code
    assert done.session == "s"
    assert CONTINUES in verdict.failed
    assert any(code in why for why in verdict.failed.values())


@pytest.mark.parametrize(
    ("backend", "test"), [(Appends, FOLDS), (Counts, FOLDS), (AppliesTwice, APPLIES)]
)
def test_what_prints_alike_need_not_be_the_same(backend: type[Opaque], test: str) -> None:
    """A session says little of itself when it is printed, and may be changed in its place."""
    assert list(suite_on(backend).failed) == [test]


@pytest.mark.parametrize(
    ("backend", "test", "why"),
    [
        (Forgetful, FOLDS, "update_session returned NoneType, not a session"),
        (ForgetfulOfCheckpoints, APPLIES, "None"),
        (ForgetfulOfResets, RESETS, "None"),
        (Sessionless, CONTINUES, "prompt returned Streaming with NoneType, not a session"),
        (Handmade, ANSWERS, "event() makes events"),
        (Handmade, CONTINUES, "the stream yielded what `event()` did not make"),
        (OfOneLoop, ANSWERS, "attached to a different loop"),
        (Busy, GOES_ON, "Failed(reason='busy')"),
    ],
)
def test_what_fails_an_agents_later_turns_fails_the_suite(
    backend: type[Plainest], test: str, why: str
) -> None:
    """An agent wants a session back and events as `event()` makes them, and has two loops."""
    assert why in suite_on(backend, only=test).failed[test]


async def test_a_checkpoint_that_returns_no_session_is_refused() -> None:
    """So an agent does it, and fails the turn."""

    class Telling(ForgetfulOfCheckpoints):
        async def says(self, session: Any, turn: Turn) -> AsyncIterator[Event]:
            await turn.checkpoint("1")
            async for said in super().says(session, turn):
                yield said

    done = await rehearse(Telling(), Box(), "hi")

    assert done.checkpoint_refused == "checkpoint_failed"
    assert done.session is not None


def test_a_backend_that_ignores_its_interruption_fails_and_holds_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What ends no more is left behind with its loop."""
    monkeypatch.setattr(conformance, "INTERRUPT_GRACE_S", 0.05)
    monkeypatch.setattr(conformance, "CLOSING_S", 0.05)

    failed = suite_on(Stubborn).failed

    assert set(failed) == {INTERRUPTS, GOES_ON}
    assert failed[INTERRUPTS].startswith("the turn outlived the grace")


def test_a_turn_that_never_ends_fails_and_holds_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """The suite says so, and goes on."""
    monkeypatch.setattr(conformance, "CLOSING_S", 0.05)

    verdict = suite_on(Endless, only=FOLDS, patience=0.2)

    assert verdict.failed == {FOLDS: "this was not over after 0.2 s"}


def threads_left() -> list[threading.Thread]:
    threads = [left for left in conformance.LEFT_BEHIND if isinstance(left, threading.Thread)]
    return [thread for thread in threads if thread.is_alive()]


@pytest.fixture
def freed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let the turns that block go on when the test is over."""
    monkeypatch.setattr(conformance, "CLOSING_S", 0.05)
    monkeypatch.setattr(Blocks, "freed", threading.Event())
    yield
    Blocks.freed.set()
    for thread in threads_left():
        thread.join(30)
    assert not threads_left()


@pytest.mark.usefixtures("freed")
@pytest.mark.parametrize("test", [ANSWERS, CONTINUES])
@pytest.mark.parametrize("backend", [Blocks, Ticks, TicksInItsLoop])
def test_a_turn_that_pauses_nowhere_fails_and_holds_nobody(
    backend: type[Plainest], test: str
) -> None:
    """Cancelled it is where it can be; else its thread is left behind."""
    verdict = suite_on(backend, only=test, patience=0.2)

    assert verdict.failed == {test: "this was not over after 0.2 s"}
    if backend is Blocks:
        assert threads_left()
    else:
        for thread in threads_left():
            thread.join(30)
        assert not threads_left()


@pytest.mark.parametrize("backend", [Ticks, TicksInItsLoop])
async def test_a_rehearsal_can_be_cancelled_after_every_event(backend: type[Plainest]) -> None:
    """As an agent can be interrupted there; to a backend it is the same."""
    heard = 0

    def hear(_event: Event) -> None:
        nonlocal heard
        heard += 1
        assert heard <= 3, "it went on"
        if heard == 3:
            rehearsing.cancel()

    rehearsing = asyncio.create_task(rehearse(backend(), "s", "hi", on_event=hear))
    await asyncio.wait({rehearsing})

    assert rehearsing.cancelled()


@pytest.mark.parametrize("backend", [Exits, ExitsInItsStream])
@pytest.mark.parametrize("test", [ANSWERS, CONTINUES, INTERRUPTS])
def test_an_exit_in_a_turn_fails_the_test_and_ends_nothing_else(
    backend: type[Plainest], test: str
) -> None:
    """In an agent it ends the turn alone."""
    verdict = suite_on(backend, only=test)

    assert verdict.failed == {test: "a turn raised SystemExit"}


@pytest.mark.usefixtures("freed")
@pytest.mark.parametrize("backend", [Deaf, DeafAndBlocks])
def test_a_suite_that_fails_leaves_no_process(
    backend: type[Deaf], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither of a turn that does not end nor of one whose thread runs no more."""
    made = backend()

    async def lose_patience(_patience_s: float, _running: asyncio.Task[None]) -> None:
        assert await asyncio.to_thread(made.begun.wait, 30)
        raise AssertionError("enough")

    monkeypatch.setattr(conformance, "_within", lose_patience)
    try:
        verdict = suite_on(lambda: made, only=FOLDS)

        assert verdict.failed == {FOLDS: "enough"}
        assert made.pids
        for pid in made.pids:
            with pytest.raises(ProcessLookupError):
                os.kill(pid, 0)
    finally:
        for pid in made.pids:
            with suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)


def test_an_asynchronous_generator_that_does_not_close_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Python would close it in the middle of another test."""
    monkeypatch.setattr(conformance, "CLOSING_S", 0.01)
    before = len(conformance.LEFT_BEHIND)
    opened: list[AsyncIterator[None]] = []

    async def stays() -> AsyncIterator[None]:
        try:
            yield
        finally:
            await asyncio.get_running_loop().create_future()

    async def main() -> None:
        opened.append(stays())
        await anext(opened[0])

    conformance._run_within(60.0, main())

    assert len(conformance.LEFT_BEHIND) == before + 1
