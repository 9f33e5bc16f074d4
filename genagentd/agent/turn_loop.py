"""The turn's thread: one event loop of its own, in which at most one turn runs at a time.

Whatever a turn raises, SystemExit included, ends that turn and not the thread, and
neither does a turn that stops the loop. A turn has ended when its code has: its tasks,
cancelled at its end, the calls it made in other threads with `asyncio.to_thread` or
`run_in_executor`, and the clean-up of asynchronous generators that nobody holds any more.
Timers that it left are cancelled.

This does not wait for threads that a turn started by other means, nor close a generator,
a connection or a server that somebody still holds: it may be the session's.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import threading
import weakref
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextvars import Context
from typing import Any, TypeVar

from genagentd.agent import forked, log

T = TypeVar("T")


async def _generator() -> AsyncGenerator[None, None]:
    yield


_closing = _generator().aclose()
#: What the task of a generator's clean-up runs.
_Closing: type[object] = type(_closing)
_closing.close()
del _closing


class TurnLoop(asyncio.SelectorEventLoop):
    """An event loop that knows its timers, and which calls in other threads are under way."""

    def __init__(self) -> None:
        super().__init__(forked.Selector())
        self._pool: concurrent.futures.ThreadPoolExecutor | None = None
        self._outside: set[concurrent.futures.Future[Any]] = set()
        #: By their identity: timers for the same moment are equal, and each is one.
        self._timers: weakref.WeakValueDictionary[int, asyncio.TimerHandle] = (
            weakref.WeakValueDictionary()
        )
        #: Whether it was stopped by us; whoever else stops it only interrupts it.
        self.over = False

    def run_in_executor(  # type: ignore[override]  # typeshed spells it with variadic generics
        self, executor: concurrent.futures.Executor | None, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        """Run *func* in another thread and remember it until it is done."""
        if executor is None:
            executor = self._default_pool()
        call = executor.submit(func, *args)
        self._outside.add(call)
        call.add_done_callback(self._outside.discard)
        return asyncio.wrap_future(call, loop=self)

    def call_at(  # type: ignore[override]  # typeshed spells it with variadic generics
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Call *callback* at that moment, and remember it until then; `call_later` does so, too."""
        timer = super().call_at(when, callback, *args, context=context)
        self._timers[id(timer)] = timer
        return timer

    def _cancel_timers(self) -> None:
        for timer in list(self._timers.values()):
            timer.cancel()
        self._timers.clear()

    def _default_pool(self) -> concurrent.futures.ThreadPoolExecutor:
        if self._pool is None:
            self._pool = concurrent.futures.ThreadPoolExecutor(thread_name_prefix="turn")
        return self._pool

    def end(self) -> None:
        """Stop, for good."""
        self.over = True
        self.stop()

    def close(self) -> None:
        """Close the loop and let its threads end."""
        if self._pool is not None:
            self._pool.shutdown(wait=False)
        super().close()

    async def end_strays(self) -> None:
        """Cancel every other task and return when all of them, and all calls outside, are over.

        Timers are cancelled when nothing is left that could wait for one.

        Each is told once, and the closing of a generator is not, so that no clean-up is cut
        off. Whoever cancels the task that waits here (a task may do so as it ends) changes
        nothing about that.
        """
        told: set[asyncio.Task[Any]] = set()
        while True:
            with contextlib.suppress(asyncio.CancelledError):
                if not self._left():
                    self._cancel_timers()
                    # What was handed to the loop just now, by a thread that ended or for a
                    # generator that was let go of, is a task only after the loop's next turn.
                    await asyncio.sleep(0)
                    if not self._left():
                        self._cancel_timers()
                        return
                if others := self._others():
                    for task in others - told:
                        if not isinstance(task.get_coro(), _Closing):
                            task.cancel()
                    told |= others
                    await asyncio.wait(others)
                elif calls := tuple(self._outside):
                    await asyncio.wait([asyncio.wrap_future(call, loop=self) for call in calls])

    def _left(self) -> bool:
        return bool(self._others() or self._outside)

    def _others(self) -> set[asyncio.Task[Any]]:
        me = asyncio.current_task(self)
        return {task for task in asyncio.all_tasks(self) if task is not me}


class TurnThread:
    """The thread and its loop; started when the first turn is."""

    def __init__(self) -> None:
        self._loop: TurnLoop | None = None
        self._thread: threading.Thread | None = None

    @property
    def ident(self) -> int:
        """The thread's identity, once it was started."""
        assert self._thread is not None
        assert self._thread.ident is not None
        return self._thread.ident

    @property
    def loop(self) -> TurnLoop:
        """The loop, once the thread was started."""
        assert self._loop is not None
        return self._loop

    def ensure_running(self) -> None:
        """Start the thread if it does not run yet.

        Raises:
            RuntimeError: the system gives us no thread.
            OSError: nor the descriptors of a loop.
        """
        if self._loop is not None:
            return
        loop = TurnLoop()
        thread = threading.Thread(target=_run, args=(loop,), name="turn", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            loop.close()
            raise
        self._loop, self._thread = loop, thread

    def call(self, work: Callable[..., object], *arguments: object) -> None:
        """Do *work* in the thread, soon."""
        self.loop.call_soon_threadsafe(work, *arguments)

    def close(self) -> None:
        """Let the thread end when it comes to it; no turn is begun any more."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._loop.end)

    def begin(self, turn: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Begin *turn*; from inside the thread."""
        return self.loop.create_task(turn)


def _run(loop: TurnLoop) -> None:
    asyncio.set_event_loop(loop)
    while not loop.over:
        try:
            loop.run_forever()
        except BaseException as error:  # noqa: BLE001  # a task that nobody awaits raised it
            # asyncio lets SystemExit of any task through; whoever awaits the task hears of it too.
            log.line("turn.stray_exit", error=log.class_of(error))
    loop.close()
