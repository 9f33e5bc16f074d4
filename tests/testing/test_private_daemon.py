"""A private daemon begins, ends, dies and comes back, and leaves nothing."""

from __future__ import annotations

import pytest

from genagentd import Client, DaemonLost, kernel
from genagentd.testing import Heard, PrivateDaemon, until

pytestmark = pytest.mark.process


def test_it_ends_with_its_block(nothing_left: None) -> None:
    """Directory and processes; two of them do not meet."""
    with PrivateDaemon() as one, PrivateDaemon() as other:
        with Client(one.run_dir) as client, Client(other.run_dir) as stranger:
            client.start_agent(None, name="a", backend="echo")
            assert client.ask("a", "x").text == "x"
            assert stranger.list() == ()
        pids = (one.pid, other.pid)

    assert not one.run_dir.exists()
    assert not any(kernel.stat(pid) for pid in pids)


def test_a_killed_one_is_lost_and_can_be_started_again(nothing_left: None) -> None:
    """For tests of what a program makes of it; nothing of the old one comes back."""
    with PrivateDaemon() as daemon:
        with Client(daemon.run_dir) as client:
            handle = client.start_agent(None, name="a", backend="echo")
            client.at(handle).monitor()
            before = daemon.pid
            daemon.kill()
            assert Heard(client).down(handle).reason.text == "noconnection"
            with pytest.raises(DaemonLost):
                client.list()
        until(lambda: daemon.ended, "its guardian has cleaned up")

        daemon.start()

        assert daemon.pid != before
        with Client(daemon.run_dir) as client:
            assert client.list() == ()


def test_one_that_cannot_start_says_why(nothing_left: None) -> None:
    """Its log is in the error, and nothing waits for the whole deadline."""
    daemon = PrivateDaemon({"GENAGENT_GRACE_MS": "soon"})

    with pytest.raises(AssertionError, match="GENAGENT_GRACE_MS"):
        daemon.start()

    daemon.close()
    assert not daemon.run_dir.exists()


def test_stopping_twice_is_fine(nothing_left: None) -> None:
    """A fixture and a test may both do it."""
    daemon = PrivateDaemon()
    daemon.stop()
    daemon.start()
    daemon.stop()
    daemon.stop()
    daemon.close()
