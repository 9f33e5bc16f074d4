"""E094, F039: where a secret may be seen, and everywhere else, where it may not.

Canaries stand for a key, for what an option says, and for a prompt. While turns run and
after they have failed, nothing of them is in a command line, a log, a list, a snapshot or
a record for metrics; a key is not in an event, a failure or a status either. Documented: a plain
agent's status shows its transcript, `prompt.*` records carry what was said, and whoever
sent a prompt gets what the provider said about it.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from genagent_protocol.envelopes import Telemetry
from genagent_protocol.errors import StartFailed
from genagentd.client.client import Client
from genagentd.client.mailbox import Mailbox
from support.backend_cli import Step, StubCli
from support.daemons import PrivateDaemon, living_below
from support.fake_provider import Answer, Says, Sends, first_half, refuses
from support.provider_thread import loopback
from support.provider_turns import agents_end, first_event, heard, start, submit, turn

pytestmark = pytest.mark.process

KEY = "canary-key-5f0c2b"
OPTION = "canary-option-77ad91"
PROMPT = "canary-prompt-c3e18d"
DEBUG = {"PYTHONASYNCIODEBUG": "1", "PYTHONDEVMODE": "1"}
HTTP = {"anthropic": "/messages", "openai": "/responses", "chat": "/chat/completions"}


@pytest.fixture(scope="module")
def house() -> Iterator[PrivateDaemon]:
    """A daemon that was itself started with a key, and that says all it can say."""
    environment = {"OPENAI_API_KEY": KEY, **DEBUG}
    private = PrivateDaemon(environment=environment).start()
    try:
        yield private
    finally:
        private.stop()
        private.cleanup()


@dataclass(slots=True)
class Looked:
    """Everything that somebody who may not know them could see."""

    house: PrivateDaemon
    client: Client
    telemetry: Mailbox
    seen: dict[str, str] = field(default_factory=dict)

    def around(self) -> None:
        """Look at what can only be seen now."""
        assert self.house.guardian is not None
        for pid in living_below(self.house.guardian.pid):
            self.seen[f"argv of {pid}"] = _read(Path(f"/proc/{pid}/cmdline"))
        self.seen["list"] = repr(self.client.list())
        self.seen["snapshot"] = repr(self.client.runtime_snapshot("a"))
        self.seen["core"] = repr(self.client.daemon_status())

    def _genagent(self, *arguments: str) -> str:
        done = subprocess.run(
            [Path(sys.executable).with_name("genagent"), *arguments],
            env=self.house.environ,
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout + done.stderr

    def back(self) -> None:
        """Look at what was written down, and what commands make of it."""
        for command in ("list", "snapshot a", "logs a"):
            self.seen[command] = self._genagent(*command.split())
        for path in self.house.run.rglob("*"):
            if path.is_file():
                self.seen[str(path)] = _read(path)
        said = 0
        while (record := self.telemetry.receive(200)) is not None:
            assert isinstance(record, Telemetry)
            said += 1
            # These carry what was said, for whoever asked to see that.
            if not record.event.startswith("prompt."):
                self.seen[f"record {said}"] = repr(record)
        assert said

    def hits(self, *canaries: str) -> list[str]:
        """Return where one of *canaries* was seen."""
        assert len(self.seen) > 10
        return [where for where, what in self.seen.items() if any(c in what for c in canaries)]


def _read(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8", "replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""


@pytest.fixture
def looked(house: PrivateDaemon) -> Iterator[Looked]:
    with Client(house.run) as client, agents_end(client, house), client.telemetry() as telemetry:
        yield Looked(house, client, telemetry)


@pytest.mark.parametrize("backend", ["claude", "codex"])
def test_E094_F039_a_program_gets_its_secrets_and_nobody_else_sees_them(
    looked: Looked, tmp_path: Path, backend: str
) -> None:
    """In the environment of the agent, of an option and of a file; also when it shouts them."""
    stub, secret = StubCli(tmp_path), tmp_path / "secret"
    secret.write_text(f"{KEY}\n")
    lines: dict[str, Step] = {
        "claude": {"line": {"type": "system", "subtype": "init", "session_id": "s-1"}},
        "codex": {"line": {"type": "item.started", "item": {"type": "web_search", "id": "i"}}},
    }
    stub.plays(
        [{"read_stdin": True}, {"helpers": 1}, lines[backend], {"silence": True}],
        [{"read_stdin": True}, {"complain": f"bad key {KEY} for {PROMPT}"}, {"exit": 1}],
    )
    options: dict[str, Any] = {
        "binary": stub.path,
        "env": {**stub.env, "IN_AN_OPTION": OPTION},
        "env_files": {"IN_A_FILE": str(secret)},
    }
    client = looked.client
    handle = start(client, backend, options, env={"OF_THE_AGENT": KEY, **DEBUG})

    ref = submit(client, handle, PROMPT)
    first_event(client, ref, "session" if backend == "claude" else "tool_use")
    looked.around()
    client.interrupt("a")
    interrupted = heard(client, ref)
    failed = turn(client, handle, PROMPT)
    client_saw = client.status("a")
    looked.around()
    looked.back()

    assert interrupted.reason.code == "interrupted"
    assert failed.failure.message.startswith("bad key (a key) for")
    assert KEY not in repr(failed.messages) + repr(client_saw)
    first = stub.runs[0]
    assert first.stdin == PROMPT
    assert {"IN_AN_OPTION", "IN_A_FILE", "OF_THE_AGENT"} <= set(first.env)
    assert "OPENAI_API_KEY" not in first.env
    assert looked.hits(KEY, OPTION, PROMPT) == []
    assert KEY not in repr(interrupted.messages)


@pytest.mark.parametrize("backend", list(HTTP))
@pytest.mark.parametrize("source", ["api_key_env", "api_key_file"])
def test_E094_F039_a_provider_gets_the_key_and_nobody_else_sees_it(
    looked: Looked, tmp_path: Path, backend: str, source: str
) -> None:
    """From a variable or a file; also when the provider repeats it in a refusal."""
    secret = tmp_path / "secret"
    secret.write_text(f"{KEY}\n")
    named = {"api_key_env": "MY_KEY", "api_key_file": str(secret)}[source]
    echoed: Answer = refuses(401, f"{KEY} may not ask {PROMPT}")
    client = looked.client
    with loopback(first_half(HTTP[backend])) as provider:
        options = {
            "model": "m",
            "base_url": provider.base_url,
            "system_prompt": OPTION,
            source: named,
        }
        handle = start(client, backend, options, env={"MY_KEY": KEY, **DEBUG})
        ref = submit(client, handle, PROMPT)
        first_event(client, ref, "text")
        sent = provider.requests[0]
        looked.around()
        client.interrupt("a")
        interrupted = heard(client, ref)
        provider.answers(Says(), echoed, Sends(then="reset", unfinished=True))
        succeeded = turn(client, handle, PROMPT)
        refused = turn(client, handle, PROMPT)
        looked.seen["status"] = repr(client.status("a")).replace(PROMPT, "as documented")
        broken = turn(client, handle, PROMPT)
        looked.around()
        looked.back()

    assert KEY in repr(sent.headers)
    assert OPTION in repr(sent.body)
    assert refused.failure.message.startswith("(a key) may not ask")
    assert looked.hits(KEY, OPTION, PROMPT) == []
    for done in (interrupted, succeeded, refused, broken):
        assert KEY not in repr(done.messages)
        assert OPTION not in repr(done.messages)


@pytest.mark.parametrize("backend", ["claude", "codex", *HTTP])
@pytest.mark.parametrize("option", ["api_key", "api_kee", "model", "env"])
def test_E094_F039_a_refused_option_does_not_show_its_value(
    looked: Looked, backend: str, option: str
) -> None:
    """It may be a key at the wrong place; the refusal goes to screens and logs."""
    value: object = {"KEY": [KEY]} if option == "env" else [KEY] if option == "model" else KEY
    with pytest.raises(StartFailed) as refused:
        start(looked.client, backend, {option: value})
    looked.seen["refusal"] = f"{refused.value} {refused.value!r} {refused.value.__dict__}"
    for path in looked.house.run.rglob("*"):
        if path.is_file():
            looked.seen[str(path)] = _read(path)

    assert option in looked.seen["refusal"]
    assert [where for where, what in looked.seen.items() if KEY in what] == []
