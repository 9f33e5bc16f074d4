"""A Ctrl-C between any two instructions: no lock stays held, and someone reads on."""

from __future__ import annotations

import itertools
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from random import Random
from types import FrameType
from typing import Any

import pytest

from genagent_protocol.answers import Listing
from genagent_protocol.envelopes import Admission
from genagent_protocol.errors import CallTimeout
from genagentd.client import blocking
from genagentd.client.client import Client
from support.background import in_background
from support.fake_daemon import FakeDaemon, fake_daemon
from support.peer import a_ref
from support.waiting import until

#: The code whose every instruction is tried: the shell, and Python's own locks.
FILES = {blocking.__file__, threading.__file__}


def listing(_request: Any) -> Listing:
    return Listing(rows=())


@contextmanager
def interrupted_at(place: int) -> Iterator[None]:
    """Raise a KeyboardInterrupt at the *place*-th chance that the interpreter has for it.

    It looks for signals at the start of a function and after a call has returned.
    """
    chances = itertools.count()

    def look(frame: FrameType, event: str, _argument: object) -> None:
        chance = event in ("call", "c_return") and frame.f_code.co_filename in FILES
        if chance and next(chances) == place:
            raise KeyboardInterrupt

    sys.setprofile(look)
    try:
        yield
    finally:
        sys.setprofile(None)


def interrupted(client: Client, place: int) -> bool:
    try:
        with interrupted_at(place):
            client.list(timeout_ms=10_000)
    except KeyboardInterrupt:
        return True
    return False


@pytest.mark.parametrize("follows", [False, True], ids=["as the reader", "as a follower"])
def test_a_call_may_be_interrupted_anywhere(fake: FakeDaemon, follows: bool) -> None:
    """The lock is free afterwards, and another thread can call and read."""
    fake.answer = listing
    with Client(fake.run) as client:
        if follows:
            receiver = in_background(lambda: client.receive(60_000))
            until(lambda: client.shell._reader is not None, "the other thread sleeps")
        for place in itertools.count():
            if not interrupted(client, place):
                break
            assert in_background(lambda: client.list(timeout_ms=10_000)).result(30) == ()
            assert client.shell._reader != threading.get_ident()
        assert place > 20
        if follows:
            fake.say(Admission(agent="a", ref=a_ref()))
            assert receiver.result(30) is not None


@contextmanager
def alarms() -> Iterator[None]:
    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGALRM, before)


def call_until_interrupted(client: Client, after_s: float) -> None:
    try:
        try:
            signal.setitimer(signal.ITIMER_REAL, after_s)
            # Bounded: ZeroMQ's binding swallows an interrupt that hits it in one bad place.
            for _ in range(100):
                client.list(timeout_ms=500)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except (KeyboardInterrupt, CallTimeout):
        pass  # An interrupt between the two frames of a message costs the next one its answer.


@pytest.mark.filterwarnings(
    # The interrupt may fall into a callback of a library, which can only drop it.
    "ignore:Exception ignored in:pytest.PytestUnraisableExceptionWarning"
)
@pytest.mark.parametrize("rounds", [2, pytest.param(100, marks=pytest.mark.slow)])
def test_many_interrupts_at_random_moments_leave_the_client_usable(rounds: int) -> None:
    """What no list of places foresees; each client hears fifty of them."""
    random = Random(1)
    with alarms(), fake_daemon(listing) as fake:
        for _ in range(rounds):
            with Client(fake.run) as client:
                for _ in range(50):
                    call_until_interrupted(client, random.uniform(0.0001, 0.004))
                with suppress(CallTimeout):
                    client.list(timeout_ms=500)
                assert in_background(lambda: client.list(timeout_ms=10_000)).result(30) == ()
