"""The helper: a preloaded process with one thread, from which every agent is forked.

It imports what agents share, freezes its heap, and then does one thing: take an order
from the daemon, fork, and say how that went. It knows no agent's name and no option,
and it ends with the daemon.
"""

from __future__ import annotations

import errno
import importlib
import json
import os
import signal
import socket
from typing import NoReturn

from genagentd import kernel
from genagentd.daemon.birth import ENTRY, Descriptor, Newborn, be_born

#: What agents share. The last one freezes the heap.
PRELOADED = (ENTRY, "genagentd.agent.preload")
#: The most one order may take; the rest of a newborn's surroundings are descriptors.
MAX_ORDER_BYTES = 1024 * 1024
BORN, LOST = b"1", b"0"


def tend(orders: Descriptor) -> NoReturn:
    """Fork a newborn for each order that arrives, until the daemon is gone."""
    kernel.die_with_parent()
    # Ctrl-C is for the daemon, which ends us when it has no more use for us.
    os.setsid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for module in PRELOADED:
        importlib.import_module(module)
    with socket.socket(fileno=orders.fd) as channel:
        while True:
            text, descriptors, _, _ = socket.recv_fds(channel, MAX_ORDER_BYTES, 2)
            if not text:
                os._exit(0)
            channel.send(_bear(text, descriptors))


def _bear(order: bytes, descriptors: list[int]) -> bytes:
    try:
        return BORN if be_born(read_order(order, descriptors)) else LOST
    except OSError as error:
        return b"%d" % -(error.errno or errno.EIO)
    finally:
        for fd in descriptors:
            os.close(fd)


def write_order(newborn: Newborn) -> tuple[bytes, list[int]]:
    """Return what goes to the helper for *newborn*: text, and descriptors beside it."""
    fields = [newborn.daemon, newborn.socket, newborn.cwd, newborn.environ]
    return json.dumps(fields).encode(), [newborn.pipe.fd, newborn.log.fd]


def read_order(order: bytes, descriptors: list[int]) -> Newborn:
    """Return the newborn that an order describes, with the descriptors as they arrived."""
    daemon, path, cwd, environ = json.loads(order)
    pipe, log = map(Descriptor, descriptors)
    return Newborn(daemon, path, cwd, environ, pipe, log)


def read_answer(answer: bytes) -> bool:
    """Return whether the newborn was announced.

    Raises:
        OSError: the system did not allow the fork, and the number says why.
    """
    number = int(answer)
    if number < 0:
        raise OSError(-number, os.strerror(-number))
    return answer == BORN
