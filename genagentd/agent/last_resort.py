"""A timer in the kernel that ends this process when it can no longer end a turn itself.

A C call that holds the interpreter keeps every thread out, the one with the deadlines
too. The kernel needs none of them: the timer sends a signal that nothing handles, and
the daemon knows by its number that a turn was stuck. Each turn that has a deadline
arms it for well after that, and disarms it in time by being able to.
"""

from __future__ import annotations

import ctypes
import signal

from genagentd.agent import log

#: How long after its deadline a turn may go on that the agent has had no chance to end. A
#: callback that blocks the coordinator for so long at that very moment counts as one.
PATIENCE_MS = 30_000
#: The default action of a real-time signal is the end, and this one is nobody's.
SIGNAL = signal.SIGRTMAX
_CLOCK_MONOTONIC = 1


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
    """One timer of this process. A child that is forked does not have it."""

    def __init__(self) -> None:
        """Make it; where the system has no such timers, the log says so and nothing is armed."""
        self._timer = ctypes.c_void_p()
        self._libc = ctypes.CDLL(None, use_errno=True)
        event = _Event(signal=SIGNAL, notify=0)
        try:
            made = self._libc.timer_create(
                _CLOCK_MONOTONIC, ctypes.byref(event), ctypes.byref(self._timer)
            )
        except AttributeError:
            made = -1
        self._works = made == 0
        if not self._works:
            log.line("last_resort.missing")

    def arm(self, deadline_ms: int) -> None:
        """End this process `PATIENCE_MS` after *deadline_ms* from now, unless told otherwise."""
        self._set(deadline_ms + PATIENCE_MS)

    def disarm(self) -> None:
        """Let nothing happen."""
        self._set(0)

    def _set(self, after_ms: int) -> None:
        if self._works:
            times = _Times(value_s=after_ms // 1000, value_ns=after_ms % 1000 * 1_000_000)
            self._libc.timer_settime(self._timer, 0, ctypes.byref(times), None)
