"""Performs the steps of a scripted turn: says what it says and does what it does.

Most acts exist to be survived: by the agent process (a turn that ignores its
interruption), by the daemon (a process that ends itself) or by the machine (a
grandchild in a session of its own). None of them tidies up after itself.
"""

from __future__ import annotations

import asyncio
import builtins
import ctypes
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import assert_never

from genagent_backends.base import Turn
from genagent_backends.gates import pass_gate
from genagent_backends.scripts import (
    Checkpoint,
    Exit,
    Fail,
    Gate,
    Hang,
    Kill,
    Pause,
    Print,
    Raise,
    Repeat,
    SayPrompt,
    Spawn,
    Step,
    What,
)
from genagent_protocol.events import Event, event

#: "For ever" for acts that must name a time: longer than any test, shorter than a night.
LIFETIME_S = 3_600
#: After so many events in a row the event loop gets a moment, or nobody could interrupt.
BREATH = 64


async def perform(
    steps: Sequence[Step], prompt: str, turn: Turn, gate_dir: str | None
) -> AsyncIterator[Event]:
    """Yield what *steps* say, doing what they do in between.

    Raises:
        GateTimeout: a gate was not released in time.
        BaseException: whatever a step was told to raise.
    """
    for step in steps:
        match step:
            case Event():
                yield step
            case SayPrompt():
                yield event("text", {"text": prompt})
            case Repeat(count=count, event=repeated):
                for number in range(1, count + 1):
                    yield repeated
                    if number % BREATH == 0:
                        await asyncio.sleep(0)
            case Checkpoint(session_id=session_id):
                answer = await turn.checkpoint(session_id)
                yield event("checkpoint", {"accepted": answer is None, "answer": answer})
            case Spawn():
                yield await _spawn(step, turn)
            case Gate(tag=tag, timeout_ms=timeout_ms):
                await pass_gate(_directory(gate_dir), tag, timeout_ms)
            case Pause(pause_ms=pause_ms):
                await asyncio.sleep(pause_ms / 1000)
            case Hang():
                await _hang(step)
            case Raise(error=error, message=message):
                raise getattr(builtins, error)(message)
            case Print(text=text, to=to):
                os.write(1 if to == "stdout" else 2, text.encode())
            case Exit(status=status, hard=False):
                sys.exit(status)
            case Exit(status=status):
                os._exit(status)
            case Kill(signal=number):
                os.kill(os.getpid(), number)
            case Fail():
                raise AssertionError("a dispatch failure is not part of a stream")
            case _:
                assert_never(step)


def _directory(gate_dir: str | None) -> str:
    if gate_dir is None:
        raise ValueError("the script has a gate, but no option gate_dir was given")
    return gate_dir


async def _hang(step: Hang) -> None:
    seconds = LIFETIME_S if step.for_ms is None else step.for_ms / 1000
    until = time.monotonic() + seconds
    match step.how:
        case "idle":
            await asyncio.sleep(seconds)
        case "stubborn":
            while (left := until - time.monotonic()) > 0:
                with suppress(asyncio.CancelledError):
                    await asyncio.sleep(left)
        case "blocked":
            time.sleep(seconds)  # noqa: ASYNC251  # blocking the loop is the point
        case "busy":
            while time.monotonic() < until:
                pass
        case "held":
            # PyDLL calls C without letting go of the interpreter, as a bad extension does.
            ctypes.PyDLL(None).poll(None, 0, int(seconds * 1000))
        case _:
            assert_never(step.how)


_STAY = f"echo $$; exec sleep {LIFETIME_S} >/dev/null 2>&1"
#: Each process prints its own pid once it is what it will be; and how many lines that makes.
_SHELL: dict[What, tuple[str, int]] = {
    "child": (_STAY, 1),
    "grandchild": (f"echo $$; setsid /bin/sh -c '{_STAY}' & wait", 2),
    "orphan": (f"setsid /bin/sh -c '{_STAY}' &", 1),
}


async def _spawn(step: Spawn, turn: Turn) -> Event:
    deafness = "trap '' INT TERM; " if step.deaf else ""
    match step.what:
        case tuple() as argv:
            process = await turn.spawn(argv, for_session=step.for_session)
            return event("spawned", {"pids": [process.pid]})
        case "unmanaged":
            return event("spawned", {"pids": [_unmanaged(deafness)]})
        case what:
            body, lines = _SHELL[what]
            process = await turn.spawn(
                ["/bin/sh", "-c", deafness + body], for_session=step.for_session
            )
            said = b""
            while said.count(b"\n") < lines and (chunk := await process.read()):
                said += chunk
            return event("spawned", {"pids": [int(line) for line in said.split()]})


def _unmanaged(deafness: str) -> int:
    # Never waited for on purpose: whoever supervises the agent has to find and end it.
    child = subprocess.Popen(
        ["/bin/sh", "-c", f"{deafness}exec sleep {LIFETIME_S}"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    child.returncode = 0  # or its destructor would warn about a process nobody waited for
    return child.pid
