"""What every backend owes, as tests to inherit: one class, one subclass per backend.

    class TestMine(BackendConformance):
        def backend(self) -> Backend:
            return MyBackend()

pytest collects the subclass; nothing else is needed, no plugin either. Override
`options` to make it work, `around` if a server must run meanwhile, and the two
other hooks to have failures and interruptions tried as well.
"""

from __future__ import annotations

import asyncio
import threading
import unittest
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import TypeVar

from genagent_backends.base import (
    Backend,
    Checkpoints,
    Failed,
    ResetsSession,
    ResumesSession,
    Session,
    Streaming,
    UpdatesSession,
    is_session,
)
from genagent_backends.inside import inside
from genagent_backends.rehearsal import RehearsalTurn, Rehearsed, events_of, rehearse, settled
from genagent_protocol.events import Event, well_made
from genagent_protocol.plain import FrozenDict, freeze

#: How long an interrupted turn may take to end; the agent's own grace is as long.
INTERRUPT_GRACE_S = 5.0
#: How long a turn that is to be interrupted may take to say something.
FIRST_EVENT_S = 30.0
#: How long what is left of a test may take to end, before it is left behind.
CLOSING_S = 1.0
#: How often that passes before the loop of a turn has nothing more to let go.
CLOSINGS = 3
#: What never ended. It is kept, since Python closes what is not, in the middle of another test.
LEFT_BEHIND: list[asyncio.Task[object] | threading.Thread | RehearsalTurn] = []

T = TypeVar("T")


@asynccontextmanager
async def _nothing() -> AsyncIterator[None]:
    yield


class BackendConformance:
    """The tests. Override the hooks; an inherited test needs no change.

    As in an agent, a turn has an event loop of its own: `prompt`, the stream and
    `update_session` run there, in another thread, and all else where `around` is.
    """

    #: The prompt of every turn. It must not show in the printed session.
    prompt = "conformance-ping"
    #: Whether the backend names its conversation; turn this off for one that has no past.
    names_sessions = True
    #: Whether an unknown option refuses the start, as every backend of ours does.
    strict_options = True
    #: How long a test may take, with all its turns, before it counts as one that never ends.
    patience_s = 120.0

    def backend(self) -> Backend:
        """Return a new backend."""
        raise NotImplementedError

    def options(self) -> Mapping[str, object]:
        """Return options under which every turn succeeds."""
        return {}

    def failing_options(self) -> Mapping[str, object] | None:
        """Return options under which the first turn fails by an `error` event, or None."""
        return None

    def slow_options(self) -> Mapping[str, object] | None:
        """Return options under which every turn says something and then no more, or None."""
        return None

    def around(self) -> AbstractAsyncContextManager[object]:
        """Return what must be entered before `options` are asked for: a server, a directory."""
        return _nothing()

    # -- the tests ------------------------------------------------------------------------

    def test_a_turn_ends_in_one_result_and_says_nothing_after_it(self) -> None:
        """Whoever reads the stream must know for sure when the turn is over."""

        async def check() -> None:
            backend, session = await self._started(self.options())
            turn = self._new_turn()

            async def spoken() -> tuple[Session, list[Event]]:
                turn.begin(backend, session)
                answer: Streaming | Failed = await settled(
                    backend.prompt(session, self.prompt, turn)
                )
                assert isinstance(answer, Streaming), answer
                return answer.session, [event async for event in events_of(answer)]

            last, events = await self._thread.run(spoken())
            await settled(backend.terminate_session(last))

            assert turn.refusal is None, turn.refusal
            assert all(well_made(event) for event in events), "event() makes events"
            assert [event.kind for event in events if event.terminal] == ["result"], events
            assert events[-1].kind == "result"
            assert Rehearsed(session, events).text

        self._run(check)

    def test_events_are_values_that_can_cross_a_process_border(self) -> None:
        """An event that cannot be sent would cost the turn, long after it was said."""

        async def check(_backend: Backend, done: Rehearsed) -> None:
            for event in done.events:
                assert freeze(event.data) == event.data

        self._after_a_turn(check)

    def test_the_second_turn_continues_the_session_of_the_first(self) -> None:
        """The session is threaded; a backend that forgets it would answer out of context."""

        async def check(backend: Backend, first: Rehearsed) -> None:
            second = await self._turn(backend, first.session)
            assert second.terminal is not None
            assert second.terminal.kind == "result", second.terminal
            ids = [first.session_id, second.session_id]
            assert not self.names_sessions or (ids[0] and ids[0] == ids[1]), ids

        self._after_a_turn(check)

    def test_folding_a_result_twice_gives_the_same_session(self) -> None:
        """`update_session` may run again after a crash, so it must not count or append."""

        async def check(backend: Backend, done: Rehearsed) -> None:
            if not isinstance(backend, UpdatesSession):
                raise unittest.SkipTest("this backend has no update_session")
            assert done.terminal is not None
            data = done.terminal.data

            async def fold(session: Session) -> Session:
                assert isinstance(backend, UpdatesSession)
                return await settled(backend.update_session(session, data))

            once = await self._thread.run(fold(done.session))
            assert is_session(once, done.session), once
            held = inside(once)
            assert inside(await self._thread.run(fold(once))) == held, once

        self._after_a_turn(check)

    def test_the_printed_session_does_not_show_the_conversation(self) -> None:
        """Sessions end up in error messages and logs."""

        async def check(_backend: Backend, done: Rehearsed) -> None:
            assert self.prompt not in repr(done.session)

        self._after_a_turn(check)

    def test_a_session_may_be_terminated_twice(self) -> None:
        """A stop may race with an end; the second one must not hurt."""

        async def check(backend: Backend, done: Rehearsed) -> None:
            await settled(backend.terminate_session(done.session))

        self._after_a_turn(check)

    def test_an_unknown_option_refuses_the_start(self) -> None:
        """A typing error in a safety switch must not be silently ignored."""
        if not self.strict_options:
            raise unittest.SkipTest("this backend takes any option")

        async def check() -> None:
            options = FrozenDict({"no_such_option": 1})
            answer = await settled(self.backend().start_session(options))
            assert isinstance(answer, Failed), answer
            assert isinstance(answer.reason, FrozenDict)
            assert answer.reason["code"] == "unknown_option"
            assert answer.reason["option"] == "no_such_option"

        self._run(check)

    def test_a_failed_turn_ends_in_one_error_with_a_reason(self) -> None:
        """A failure is an event, not an exception, and says why."""

        async def check() -> None:
            options = self._or_skip(self.failing_options(), "failing_options")
            backend, session = await self._started(options)
            done = await self._turn(backend, session)
            await settled(backend.terminate_session(done.session))

            assert done.terminal is not None
            assert done.terminal.kind == "error", done.terminal
            assert done.terminal.data.get("reason") is not None

        self._run(check)

    def test_an_interrupted_turn_ends_and_leaves_no_process(self) -> None:
        """The next prompt waits for this one to be really over."""

        async def check() -> None:
            options = self._or_skip(self.slow_options(), "slow_options")
            backend, session = await self._started(options)
            session = await self._thread.run(self._interrupted(backend, session))
            await settled(backend.terminate_session(session))

        self._run(check)

    def test_a_turn_begins_after_an_interrupted_one(self) -> None:
        """What an interrupted turn has begun must not stand in the way of every later one."""

        async def check() -> None:
            options = self._or_skip(self.slow_options(), "slow_options")
            backend, session = await self._started(options)
            for _ in range(2):
                session = await self._thread.run(self._interrupted(backend, session))
            await settled(backend.terminate_session(session))

        self._run(check)

    def test_a_resumed_session_answers_under_the_id_it_was_asked_for(self) -> None:
        """Only so can a restarted agent go on where the old one was."""

        async def check(backend: Backend, done: Rehearsed) -> None:
            if not isinstance(backend, ResumesSession):
                raise unittest.SkipTest("this backend cannot resume")
            wanted = done.session_id or "conformance-session"
            fresh = self.backend()
            assert isinstance(fresh, ResumesSession)
            options = freeze(self.options())
            assert isinstance(options, FrozenDict)
            session = await settled(fresh.resume_session(wanted, options))
            assert not isinstance(session, Failed), session
            again = await self._turn(fresh, session)
            assert not self.names_sessions or again.session_id == wanted, again.session_id
            await settled(fresh.terminate_session(again.session))

        self._after_a_turn(check)

    def test_an_acknowledged_checkpoint_may_be_applied_twice(self) -> None:
        """It is applied to whatever session the turn returns, which may have it already."""

        async def check(backend: Backend, done: Rehearsed) -> None:
            if not isinstance(backend, Checkpoints):
                raise unittest.SkipTest("this backend has no checkpoints")
            session_id = done.session_id or "conformance-session"
            once = await settled(backend.checkpoint_session(done.session, session_id))
            assert is_session(once, done.session), once
            held = inside(once)
            assert inside(await settled(backend.checkpoint_session(once, session_id))) == held, once

        self._after_a_turn(check)

    def test_a_reset_session_answers(self) -> None:
        """A reset loses the past, never the agent."""

        async def check(backend: Backend, done: Rehearsed) -> None:
            if not isinstance(backend, ResetsSession):
                raise unittest.SkipTest("this backend cannot reset")
            session = await settled(backend.reset_session(done.session))
            assert is_session(session, done.session), session
            again = await self._turn(backend, session)
            assert again.terminal is not None
            assert again.terminal.kind == "result", again.terminal
            await settled(backend.terminate_session(again.session))

        self._after_a_turn(check)

    # -- how they run ---------------------------------------------------------------------

    def _run(self, check: Callable[[], Awaitable[None]]) -> None:
        async def surrounded() -> None:
            async with self.around():
                try:
                    await check()
                finally:
                    for turn in self._turns:
                        await self._thread.run(turn.end_session())

        self._turns: list[RehearsalTurn] = []
        self._thread = _TurnThread()
        try:
            _run_within(self.patience_s, surrounded())
        finally:
            self._thread.close()
            LEFT_BEHIND.extend(turn for turn in self._turns if turn.kill())

    def _after_a_turn(self, check: Callable[[Backend, Rehearsed], Awaitable[None]]) -> None:
        async def run() -> None:
            backend, session = await self._started(self.options())
            turn = self._new_turn()
            done = await self._thread.run(rehearse(backend, session, self.prompt, turn))
            assert done.terminal is not None, done
            assert done.terminal.kind == "result", done.terminal
            assert done.checkpoint_refused is None, done.checkpoint_refused
            try:
                await check(backend, done)
            finally:
                await settled(backend.terminate_session(done.session))

        self._run(run)

    def _new_turn(self) -> RehearsalTurn:
        self._turns.append(RehearsalTurn(number=len(self._turns) + 1))
        return self._turns[-1]

    async def _started(self, options: Mapping[str, object]) -> tuple[Backend, Session]:
        backend, frozen = self.backend(), freeze(options)
        assert isinstance(frozen, FrozenDict)
        session = await settled(backend.start_session(frozen))
        assert not isinstance(session, Failed), session
        return backend, session

    async def _turn(self, backend: Backend, session: Session) -> Rehearsed:
        turn = self._new_turn()
        done = await self._thread.run(rehearse(backend, session, self.prompt, turn))
        assert done.refused is None, done.refused
        assert done.checkpoint_refused is None, done.checkpoint_refused
        return done

    async def _interrupted(self, backend: Backend, session: Session) -> Session:
        """Interrupt a turn once it has said something, and return the session after it."""
        turn = self._new_turn()
        events: list[Event] = []
        said = asyncio.Event()

        def hear(event: Event) -> None:
            events.append(event)
            said.set()

        running = asyncio.create_task(rehearse(backend, session, self.prompt, turn, on_event=hear))
        running.add_done_callback(lambda _running: said.set())
        with suppress(TimeoutError):
            await asyncio.wait_for(said.wait(), FIRST_EVENT_S)
        assert said.is_set(), f"the turn said nothing within {FIRST_EVENT_S} s"
        # Past the pause after each event: what is interrupted is the backend, where it waits.
        for _ in range(2):
            await asyncio.sleep(0)
        assert not running.done(), f"the turn ended too early: {running.result()}"
        assert not events[0].terminal, events
        running.cancel()
        _, late = await asyncio.wait({running}, timeout=INTERRUPT_GRACE_S)

        assert not late, "the turn outlived the grace of its interruption"
        assert running.cancelled()
        assert all(process.returncode is not None for process in turn.processes)
        return turn.session

    def _or_skip(self, options: Mapping[str, object] | None, hook: str) -> Mapping[str, object]:
        if options is None:
            raise unittest.SkipTest(f"the hook {hook} gives no options")
        return options


class _TurnThread:
    """A thread with an event loop, as an agent has one for its turns."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._closed = False
        self._thread = threading.Thread(target=self._serve, name="turn", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while not self._closed:
            # asyncio lets these of any task through; whoever awaits the task hears of it too.
            with suppress(SystemExit, KeyboardInterrupt):
                self._loop.run_forever()
        self._loop.close()

    async def run(self, work: Coroutine[object, object, T]) -> T:
        """Return what *work* returns there; cancelling this cancels it."""
        try:
            return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))
        except SystemExit as error:
            # It ends a turn; here it would end the loop of the test, or all tests.
            raise AssertionError("a turn raised SystemExit") from error

    def close(self) -> None:
        """Leave behind what does not end: a task, or the thread if a turn keeps it to itself."""
        asyncio.run_coroutine_threadsafe(self._end(), self._loop)
        self._thread.join(CLOSINGS * CLOSING_S)
        if self._thread.is_alive():
            LEFT_BEHIND.append(self._thread)

    async def _end(self) -> None:
        await _let_go()
        self._closed = True
        self._loop.stop()


def _run_within(patience_s: float, main: Coroutine[object, object, None]) -> None:
    """Run *main* and leave behind what does not end; `asyncio.run` would wait for that for ever."""
    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(_within(patience_s, loop.create_task(main)))
    finally:
        loop.run_until_complete(_let_go())
        loop.close()


async def _within(patience_s: float, running: asyncio.Task[None]) -> None:
    await asyncio.wait({running}, timeout=patience_s)
    assert running.done(), f"this was not over after {patience_s} s"
    running.result()


async def _let_go() -> None:
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    late = (await asyncio.wait(left, timeout=CLOSING_S))[1] if left else set()
    if not late:
        closing = asyncio.create_task(asyncio.get_running_loop().shutdown_asyncgens())
        late = (await asyncio.wait({closing}, timeout=CLOSING_S))[1]
    LEFT_BEHIND.extend(late)
