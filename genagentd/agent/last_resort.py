"""A timer in the kernel that ends this process when it can no longer end a turn itself.

A C call that holds the interpreter keeps every thread out, the one with the deadlines
too. The kernel needs none of them: the timer sends a signal that nothing handles, and
the daemon knows by its number that a turn was stuck. Each turn that has a deadline
arms it for well after that, and disarms it in time by being able to.

It runs on the processor time of the turn's thread: a process that was stopped, or not
given a processor, has not had its time, and a callback that takes long is no turn.
"""

from __future__ import annotations

import ctypes
import signal
import time

from genagent_protocol.supervision.verdicts import SIGNAL_OF_A_STUCK_TURN
from genagentd.agent import log

#: How long after its deadline a turn may compute that the agent has had no chance to end.
PATIENCE_MS = 30_000
#: The default action of a real-time signal is the end, and this one is nobody's.
SIGNAL = signal.Signals(SIGNAL_OF_A_STUCK_TURN)


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


class LastResort:
    """One timer of this process, made when it is first armed. A forked child has none."""

    def __init__(self) -> None:
        self._libc: ctypes.CDLL | None = None
        self._timer: ctypes.c_void_p | None = None
        self._missing = False
        #: The deadline that it is armed for.
        self._armed: str | None = None

    def arm(self, deadline: str, after_ms: int, thread: int) -> None:
        """End this process if *thread* computes on for `PATIENCE_MS` after that deadline."""
        if self._timer is None and not self._missing:
            self._make(time.pthread_getcpuclockid(thread))
        self._armed = deadline
        self._set(after_ms + PATIENCE_MS)

    def disarm(self, deadline: str) -> None:
        """Let nothing happen, if *deadline* is the one it was armed for last."""
        if deadline == self._armed:
            self._armed = None
            self._set(0)

    def _make(self, clock: int) -> None:
        """Make it; where the system has no such timers, the log says so and nothing is armed."""
        libc = ctypes.CDLL(None, use_errno=True)
        timer = ctypes.c_void_p()
        event = _Event(signal=SIGNAL, notify=0)
        try:
            made = libc.timer_create(clock, ctypes.byref(event), ctypes.byref(timer))
        except AttributeError:
            made = -1
        if made == 0:
            self._libc, self._timer = libc, timer
        else:
            self._missing = True
            log.line("last_resort.missing")

    def _set(self, after_ms: int) -> None:
        if self._libc is not None:
            times = _Times(value_s=after_ms // 1000, value_ns=after_ms % 1000 * 1_000_000)
            self._libc.timer_settime(self._timer, 0, ctypes.byref(times), None)
