"""What the helper answers: born, given up, or why the system did not allow it."""

from __future__ import annotations

import errno
import os

import pytest

from genagentd import kernel
from genagentd.daemon import nursery
from genagentd.daemon.birth import Descriptor, Newborn


def test_a_fork_that_the_system_refuses_is_answered_with_its_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refused() -> int:
        raise OSError(errno.EAGAIN, "no more processes")

    monkeypatch.setattr(kernel, "fork_beside", refused)
    pipe, log = os.pipe()
    newborn = Newborn(os.getpid(), "/s", "/", {}, Descriptor(pipe), Descriptor(log))
    order, descriptors = nursery.write_order(newborn)

    with pytest.raises(OSError, match=os.strerror(errno.EAGAIN)) as told:
        nursery.read_answer(nursery._bear(order, descriptors))

    assert told.value.errno == errno.EAGAIN


def test_the_other_answers_are_yes_and_no() -> None:
    assert nursery.read_answer(nursery.BORN)
    assert not nursery.read_answer(nursery.LOST)
