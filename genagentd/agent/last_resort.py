"""Timers in the kernel that end this process when it can no longer do so itself.

A C call that holds the interpreter keeps every thread out, the one with the deadlines
too, and a callback that waits for a lock keeps that one. The kernel needs none of them:
a timer sends a signal that nothing handles, and the daemon knows by its number what the
agent said last of its end, or that a turn was stuck. Each is armed for well after the
deadline that it stands in for, and disarmed in time by whoever is able to.

An agent's code may have blocked that signal, or ignore it, as programs do with all signals at
once: each arming takes that back. Blocked again in the middle of an end, it is followed by
one that nobody can block, and only then does the kernel alone say how the process ended.

The one of turns runs on the processor time of the turn's thread: a process that was
stopped, or not given a processor, has not had its time, and a callback that takes long is
no turn. The one of the end runs on the clock, as a stop by the daemon does.
"""

from __future__ import annotations

import ctypes
import signal
import threading
import time

from genagent_protocol.supervision.verdicts import SIGNAL_OF_LAST_RESORT
from genagentd.agent import log

#: How long after its deadline a turn may compute that the agent has had no chance to end.
PATIENCE_MS = 30_000
#: How long after its own deadline an end may be held up by a callback that blocks.
BLOCKED_MS = 1_000
#: How long the rest of an end may take; ending its processes takes a third of that at most.
REST_MS = 30_000
#: The default action of a real-time signal is the end, and this one is nobody's.
SIGNAL = signal.Signals(SIGNAL_OF_LAST_RESORT)


class _Event(ctypes.Structure):
    """`struct sigevent`; its first fields say: send this signal."""

    _fields_ = (
        ("value", ctypes.c_void_p),
        ("signal", ctypes.c_int),
        ("notify", ctypes.c_int),
        ("rest", ctypes.c_char * 48),
    )


class _Times(ctypes.Structure):
    """`struct itimerspec`; without an interval it fires once, and zero is never."""

    _fields_ = (
        ("interval_s", ctypes.c_long),
        ("interval_ns", ctypes.c_long),
        ("value_s", ctypes.c_long),
        ("value_ns", ctypes.c_long),
    )


class _Timer:
    """One timer of this process, made when it is first set. A forked child has none."""

    def __init__(self, number: int = SIGNAL) -> None:
        self._number = number
        self._libc: ctypes.CDLL | None = None
        self._timer: ctypes.c_void_p | None = None
        self._missing = False

    def make(self, clock: int) -> None:
        """Make it, if that was not tried yet; where the system has none, the log says so."""
        if self._timer is not None or self._missing:
            return
        libc = ctypes.CDLL(None, use_errno=True)
        timer = ctypes.c_void_p()
        event = _Event(signal=self._number, notify=0)
        try:
            made = libc.timer_create(clock, ctypes.byref(event), ctypes.byref(timer))
        except AttributeError:
            made = -1
        if made == 0:
            self._libc, self._timer = libc, timer
        else:
            self._missing = True
            log.line("last_resort.missing")

    def set(self, after_ms: int) -> None:
        """End this process after so long; zero is never."""
        if self._libc is not None:
            times = _Times(value_s=after_ms // 1000, value_ns=after_ms % 1000 * 1_000_000)
            self._libc.timer_settime(self._timer, 0, ctypes.byref(times), None)


def _let_it_end_us() -> None:
    """Have the signal end this process, whatever somebody made of it."""
    # Only the main thread may say what a signal does; coordinators run there.
    if threading.current_thread() is threading.main_thread():
        signal.signal(SIGNAL, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {SIGNAL})


class LastResort:
    """What ends this process if a turn computes on."""

    def __init__(self) -> None:
        self._timer = _Timer()
        #: The deadline that it is armed for.
        self._armed: str | None = None

    def arm(self, deadline: str, after_ms: int, thread: int) -> None:
        """End this process if *thread* computes on for `PATIENCE_MS` after that deadline."""
        self._timer.make(time.pthread_getcpuclockid(thread))
        self._armed = deadline
        _let_it_end_us()
        self._timer.set(after_ms + PATIENCE_MS)

    def disarm(self, deadline: str) -> None:
        """Let nothing happen, if *deadline* is the one it was armed for last."""
        if deadline == self._armed:
            self._armed = None
            self._timer.set(0)


class LastMoment:
    """What ends this process if its own end does not come to one."""

    def __init__(self) -> None:
        self._timer = _Timer()
        self._behind_it = _Timer(signal.SIGKILL)

    def arm(self, after_ms: int) -> None:
        """End this process after so long, whatever it does."""
        _let_it_end_us()
        for timer, wait_ms in ((self._timer, after_ms), (self._behind_it, after_ms + BLOCKED_MS)):
            timer.make(time.CLOCK_MONOTONIC)
            timer.set(wait_ms)

    def disarm(self) -> None:
        """Let nothing happen."""
        self._timer.set(0)
        self._behind_it.set(0)
