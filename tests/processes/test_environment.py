"""What an agent was started with is its own: not in its variables, and not in `/proc` either."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from genagent_protocol.errors import Refused
from genagentd import Client, sendable
from genagentd.daemon.starter import StartMethod
from genagentd.sendable import MAX_ENVIRONMENT_BYTES
from support import fleet
from support.daemons import PrivateDaemon, waiting_in
from support.waiting import until

pytestmark = pytest.mark.process


@pytest.fixture(params=["forkserver", "spawn"])
def secretive(request: pytest.FixtureRequest, nothing_left: None) -> Iterator[PrivateDaemon]:
    """A daemon that holds a secret in a variable, by each way of starting agents."""
    method: StartMethod = request.param
    daemon = PrivateDaemon(
        environment={
            "SOME_PROVIDER_KEY": "canary-3f9d",
            "TZ": "EST5",
            "GENAGENT_START_METHOD": method,
        }
    )
    try:
        yield daemon.start()
    finally:
        daemon.stop()
        daemon.cleanup()


def test_what_proc_shows_of_an_agent_holds_nothing_of_the_daemons(secretive: PrivateDaemon) -> None:
    """A process that clears its variables still shows those of its exec to every ps."""
    with Client(secretive.run) as client:
        handle = client.start_agent(None, name="a", backend="echo", env={"ADDED": "shown"})
        shown = Path(f"/proc/{handle.pid}/environ").read_bytes()
        client.stop("a")

    assert b"canary-3f9d" not in shown
    assert b"GENAGENT_" not in shown
    assert b"PATH=" in shown


_LOCALES = {
    "ascii": {"LC_ALL": "C", "PYTHONUTF8": "0"},
    "utf-8": {"LC_ALL": "C.UTF-8"},
}
_SHOWS = """
import os
from genagentd import Agent, Started

class Shows(Agent):
    def init_agent(self, options):
        there = os.environb["GRÜSSE".encode()], os.environb[b"NAME"], os.getcwdb()
        return Started(options, there)

    def handle_response(self, ref, response, state):
        raise NotImplementedError

    def show_state(self, state):
        return state
"""


@pytest.mark.parametrize("method", ["forkserver", "spawn"])
@pytest.mark.parametrize("locale", _LOCALES)
def test_what_a_locale_has_no_letters_for_reaches_the_agent_as_it_is(
    nothing_left: None, tmp_path: Path, locale: str, method: str
) -> None:
    """A daemon that a service manager starts has often no locale at all; its clients have one."""
    there = tmp_path / "häuser"
    there.mkdir()
    (there / "shows_what_it_got.py").write_text(_SHOWS, encoding="utf-8")
    environment = {
        **_LOCALES[locale],
        "GENAGENT_START_METHOD": method,
        "GENAGENT_PASS_ENV": "NAME",
        "NAME": "Zoë",
    }
    daemon = PrivateDaemon(environment=environment)
    try:
        with Client(daemon.start().run) as client:
            client.start_agent(
                "shows_what_it_got:Shows",
                name="größe",
                backend="echo",
                cwd=there,
                env={"GRÜSSE": "日本"},
            )
            shown = client.status("größe").agent_state
            with pytest.raises(Refused, match=r"bad_directory.*nirgends-ü does not exist"):
                client.start_agent(None, name="b", backend="echo", cwd=tmp_path / "nirgends-ü")
            client.stop("größe")
        assert "internal.error" not in daemon.log
    finally:
        daemon.stop()
        daemon.cleanup()

    assert shown == tuple(os.fsencode(text) for text in ("日本", "Zoë", str(there)))


def test_what_is_passed_no_more_is_in_no_later_process(
    secretive: PrivateDaemon, tmp_path: Path
) -> None:
    """A reload takes it back; the helper, and who waits in it, were started with it."""
    config = tmp_path / "config.toml"
    secretive.stop()
    secretive.environment = {**secretive.environment, "GENAGENT_CONFIG": str(config)}
    shown = []
    config.write_text('pass_env = ["SOME_PROVIDER_KEY"]')
    secretive.start()
    with Client(secretive.run) as client:
        for turn, passed in enumerate(('["SOME_PROVIDER_KEY"]', "[]", '["SOME_PROVIDER_KEY"]')):
            if turn:
                config.write_text(f"pass_env = {passed}")
                secretive.signal(signal.SIGHUP)
                until(lambda: secretive.log.count("config.reloaded") == turn, "it was read")  # noqa: B023  # at once
            for number in range(2):
                handle = client.start_agent(None, name=f"a{turn}{number}", backend="echo")
                shown.append(b"canary-3f9d" in Path(f"/proc/{handle.pid}/environ").read_bytes())
        fleet.stop_all(client)
        places = secretive.places.agents
        until(lambda: len(list(places.iterdir())) == len(waiting_in(secretive)), "no file is left")

    assert shown == [True, True, False, False, True, True]


def test_what_python_takes_from_the_environment_is_the_agents_own(
    secretive: PrivateDaemon, tmp_path: Path
) -> None:
    """Its process is forked from one that has looked already, in another environment."""
    env = {"TZ": "JST-9", "TMPDIR": str(tmp_path)}
    with Client(secretive.run) as client:
        fleet.start(client, "told", agent="ShowsSurroundings", env=env)
        fleet.start(client, "untold", agent="ShowsSurroundings")
        told, untold = (client.status(name).agent_state for name in ("told", "untold"))
        fleet.stop_all(client)

    assert told == {"midnight": "09:00 JST", "temporary": str(tmp_path)}
    assert isinstance(untold, Mapping)
    assert untold["midnight"] == "19:00 EST"


def test_an_environment_that_no_agent_can_be_handed_is_refused(secretive: PrivateDaemon) -> None:
    """A program of another version may check less than ours; the largest one is handed over."""
    most = MAX_ENVIRONMENT_BYTES - len("BIG=\0")
    with Client(secretive.run) as client, pytest.MonkeyPatch.context() as patch:
        client.start_agent(None, name="a", backend="echo", env={"BIG": "x" * most})
        client.stop("a")
        patch.setattr(sendable, "MAX_ENVIRONMENT_BYTES", 2**30)
        with pytest.raises(Refused, match=r"env: .* bytes, the limit is"):
            client.start_agent(None, name="a", backend="echo", env={"BIG": "x" * 1_000_000})

        assert client.list() == ()


_READS = """
import os
found, get = set(), os._Environ.__getitem__
def noted(self, name):
    found.add(name)
    return get(self, name)
os._Environ.__getitem__ = noted
from genagentd.agent import preload, rehearsal
preload.share()
rehearsal.begin_once()
print(*sorted(found))
"""


def test_what_agents_share_has_looked_at_no_variable_that_may_be_theirs() -> None:
    """What is read before an agent has its own is the daemon's, and would be kept."""
    found = subprocess.run(
        [sys.executable, "-c", _READS], capture_output=True, text=True, check=True
    ).stdout.split()

    assert set(found) <= {"MSGPACK_PUREPYTHON", "PYZMQ_BACKEND", "PYTHONASYNCIODEBUG"}
