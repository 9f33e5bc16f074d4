"""The helper: a preloaded process with one thread, from which every agent is forked.

It imports what agents share, freezes its heap, and then does one thing: take an order
from the daemon, hand it to a newborn, and say how that went. The newborn was forked
ahead, with the order before, so that whoever starts an agent need not wait for that.
The helper knows no agent's name and no option, and it ends with the daemon.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import os
import signal
import socket
from typing import NamedTuple, NoReturn

from genagentd import kernel
from genagentd.daemon.birth import MAX_ORDER_BYTES, Descriptor, Waiting

#: What prepares all that agents share, by name: the daemon imports none of it.
PRELOAD = "genagentd.agent.preload"
#: The most an answer takes.
MAX_ANSWER_BYTES = 64


class Born(NamedTuple):
    """How an order went: whether the newborn was announced, and who waits for the next one."""

    announced: bool
    waiting: int | None


def tend(orders: Descriptor, directory: str) -> NoReturn:
    """Hand each order that arrives to a newborn, until the daemon is gone.

    Newborns are found in *directory*.
    """
    kernel.die_with_parent()
    kernel.be_called("genagent-helper")
    # Ctrl-C is for the daemon, which ends us when it has no more use for us.
    os.setsid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    importlib.import_module(PRELOAD).share()
    nursery = Nursery(directory)
    with socket.socket(fileno=orders.fd) as channel:
        while True:
            text, descriptors, _, _ = socket.recv_fds(channel, MAX_ORDER_BYTES, 2)
            if not text:
                os._exit(0)
            channel.send(nursery.bear(text, descriptors))


class Nursery:
    """Holds the newborn that waits, if there is one."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._waiting: Waiting | None = None

    def bear(self, order: bytes, descriptors: list[int]) -> bytes:
        """Carry *order* out, have another newborn wait, and return the answer.

        The descriptors are closed. This does not say that the newborn lives.
        """
        try:
            announced = self._hand_over(order, descriptors)
        except ConnectionError:
            announced = False  # Two in a row died before they heard anything.
        except OSError as error:
            return b"%d" % -(error.errno or errno.EIO)
        finally:
            for fd in descriptors:
                os.close(fd)
        # Without one, the next order has its newborn forked, or says why that cannot be.
        with contextlib.suppress(OSError):
            self._waiting = Waiting(self._directory)
        return b"%d %d" % (announced, 0 if self._waiting is None else self._waiting.pid)

    def _hand_over(self, order: bytes, descriptors: list[int]) -> bool:
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            # It may have been killed while it waited; that costs no start.
            with contextlib.suppress(ConnectionError):
                return waiting.become(order, descriptors)
        return Waiting(self._directory).become(order, descriptors)


def read_answer(answer: bytes) -> Born:
    """Return how an order went.

    Raises:
        OSError: the system did not allow the fork, and the number says why.
    """
    first, *rest = map(int, answer.split())
    if first < 0:
        raise OSError(-first, os.strerror(-first))
    return Born(first == 1, rest[0] or None)
