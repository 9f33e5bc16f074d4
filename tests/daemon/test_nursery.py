"""What the helper answers: born, given up, or why the system did not allow it; and who waits."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genagentd import kernel
from genagentd.daemon import nursery
from genagentd.daemon.birth import (
    MAX_ORDER_BYTES,
    SOCKET_BYTES,
    BadOrder,
    Descriptor,
    Newborn,
    read_order,
    write_order,
)
from genagentd.sendable import MAX_ENVIRONMENT_BYTES

Order = tuple[bytes, list[int]]


class Newborns:
    """Stands for the forks: each becomes what it is told, or is dead by then."""

    def __init__(self) -> None:
        self.forked = 0
        self.became: list[int] = []
        self.dead: set[int] = set()
        self.refused: OSError | None = None

    def __call__(self, _directory: str) -> Newborns.One:
        if self.refused is not None:
            raise self.refused
        self.forked += 1
        return self.One(self, self.forked)

    class One:
        """One that waits."""

        def __init__(self, all_of_them: Newborns, pid: int) -> None:
            self.all, self.pid = all_of_them, pid

        def become(self, order: bytes, descriptors: list[int]) -> bool:
            """Become that, if it lives."""
            if self.pid in self.all.dead:
                raise ConnectionResetError
            self.all.became.append(self.pid)
            return True


@pytest.fixture
def newborns(monkeypatch: pytest.MonkeyPatch) -> Newborns:
    made = Newborns()
    monkeypatch.setattr(nursery, "Waiting", made)
    return made


@pytest.fixture
def order() -> Iterator[Order]:
    """One order; the helper closes the descriptors that came with it."""
    read, write = os.pipe()
    yield b"[]", [read, write]
    for fd in (read, write):
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.close(fd)


def again(order: Order) -> Order:
    """Return the same order, as it arrives once more."""
    return order[0], [os.dup(order[1][0])]


def test_the_first_order_finds_nobody_waiting_and_leaves_somebody(
    newborns: Newborns, order: Order
) -> None:
    born = nursery.read_answer(nursery.Nursery("/nowhere").bear(*order))

    assert born == (True, 2)
    assert newborns.became == [1]


def test_the_next_order_is_for_who_waits(newborns: Newborns, order: Order) -> None:
    helper, next_order = nursery.Nursery("/nowhere"), again(order)
    helper.bear(*order)

    assert nursery.read_answer(helper.bear(*next_order)) == (True, 3)
    assert newborns.became == [1, 2]


def test_one_that_died_waiting_costs_no_start(newborns: Newborns, order: Order) -> None:
    helper, next_order = nursery.Nursery("/nowhere"), again(order)
    helper.bear(*order)
    newborns.dead = {2}

    assert nursery.read_answer(helper.bear(*next_order)) == (True, 4)
    assert newborns.became == [1, 3]


def test_two_that_died_one_after_the_other_are_a_lost_launch(
    newborns: Newborns, order: Order
) -> None:
    newborns.dead = {1}

    assert nursery.read_answer(nursery.Nursery("/nowhere").bear(*order)) == (False, 2)


def test_who_cannot_be_forked_ahead_is_forked_when_wanted(newborns: Newborns, order: Order) -> None:
    helper, second, third = nursery.Nursery("/nowhere"), again(order), again(order)
    helper.bear(*order)
    newborns.refused = OSError(errno.EAGAIN, "no more processes")

    assert nursery.read_answer(helper.bear(*second)) == (True, None)
    newborns.refused = None
    assert nursery.read_answer(helper.bear(*third)) == (True, 4)


def test_a_fork_that_the_system_refuses_is_answered_with_its_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refused() -> int:
        raise OSError(errno.EAGAIN, "no more processes")

    monkeypatch.setattr(kernel, "fork_beside", refused)
    before = kernel.open_descriptors()
    pipe, log = os.pipe()
    newborn = Newborn(os.getpid(), "/", {}, Descriptor(pipe), Descriptor(log))

    with pytest.raises(OSError, match=os.strerror(errno.EAGAIN)) as told:
        nursery.read_answer(nursery.Nursery("/nowhere").bear(*write_order(newborn)))

    assert told.value.errno == errno.EAGAIN
    assert kernel.open_descriptors() == before


# --- orders

_TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)
_NAMES = _TEXT.filter(lambda name: name != "" and "=" not in name)


@given(environ=st.dictionaries(_NAMES, _TEXT), cwd=_TEXT)
def test_an_order_is_read_as_it_was_written(environ: dict[str, str], cwd: str) -> None:
    """Whatever a variable or a directory can hold, text that is none among it."""
    newborn = Newborn(7, cwd, {**environ, "RAW": "\udcff"}, Descriptor(3), Descriptor(4))

    assert read_order(*write_order(newborn)) == newborn


def _with(value: str) -> Newborn:
    return Newborn(7, "/", {"BIG": value}, Descriptor(3), Descriptor(4))


def test_the_largest_order_fits_the_socket_that_everybody_may_have() -> None:
    """Root may have larger ones; what is sent must not depend on who runs the daemon."""
    least, _ = write_order(_with(""))
    order, _ = write_order(_with("x" * (MAX_ORDER_BYTES - len(least))))
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        ours.setblocking(False)
        # net.core.wmem_max, unless it was changed.
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, min(SOCKET_BYTES, 212_992))
        socket.send_fds(ours, [order], [0, 0])
        text, descriptors, flags, _ = socket.recv_fds(theirs, MAX_ORDER_BYTES, 2)
    for fd in descriptors:
        os.close(fd)

    assert len(order) == MAX_ORDER_BYTES > MAX_ENVIRONMENT_BYTES
    assert text == order
    assert not flags & socket.MSG_TRUNC


@pytest.mark.parametrize(
    ("value", "why"),
    [("x" * MAX_ORDER_BYTES, f"the limit is {MAX_ORDER_BYTES}"), ("x\0B=1", "NUL")],
)
def test_an_order_that_nobody_could_be_handed_is_none(value: str, why: str) -> None:
    """Cut short, it would end the newborn, with a trace in its log and no word on why."""
    with pytest.raises(BadOrder, match=why):
        write_order(_with(value))
