"""Turns of real agents on a provider's backend: begun, heard to their end, looked at.

What a turn says is collected in the order in which it came, so that a test can ask
for that order, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from genagent_protocol.envelopes import Admission, Completion, Down, EventMessage, Gap
from genagent_protocol.events import Completed, Event, Failed, Response
from genagent_protocol.reasons import BackendError, Failure
from genagent_protocol.refs import AgentHandle, RequestRef
from genagentd.client.boxes import Message, about
from genagentd.client.client import Client
from support.backend_cli import StubCli
from support.daemons import PrivateDaemon, living_below, waiting_in
from support.fleet import Identity, identities
from support.waiting import until

PATIENCE_MS = 60_000


@dataclass(slots=True)
class Heard:
    """What one request's messages were, up to its completion."""

    ref: RequestRef
    messages: list[Message] = field(default_factory=list)

    @property
    def events(self) -> list[Event]:
        """What the backend said."""
        return [m.event for m in self.messages if isinstance(m, EventMessage)]

    @property
    def kinds(self) -> list[str]:
        """The kinds of its events."""
        return [event.kind for event in self.events]

    @property
    def texts(self) -> list[object]:
        """The texts of its text events."""
        return [event.data["text"] for event in self.events if event.kind == "text"]

    @property
    def response(self) -> Response:
        """What it came to; it must have succeeded."""
        outcome = self._completion.outcome
        assert isinstance(outcome, Completed), outcome
        return outcome.response

    @property
    def reason(self) -> Failure:
        """Why it failed; it must have."""
        outcome = self._completion.outcome
        assert isinstance(outcome, Failed), outcome
        return outcome.reason

    @property
    def failure(self) -> BackendError:
        """The provider's failure in normal form; it must have had one."""
        assert isinstance(self.reason, BackendError), self.reason
        return self.reason

    @property
    def ending(self) -> str:
        """What it came to, in a word: `completed`, or the code of its failure."""
        outcome = self._completion.outcome
        return "completed" if isinstance(outcome, Completed) else outcome.reason.code

    @property
    def _completion(self) -> Completion:
        last = self.messages[-1]
        assert isinstance(last, Completion)
        return last


def start(
    client: Client, backend: str, options: Mapping[str, object], name: str = "a", **terms: Any
) -> AgentHandle:
    """Start a plain agent on that backend."""
    return client.start_agent(None, name=name, backend=backend, options=options, **terms)


def submit(client: Client, handle: AgentHandle, prompt: str = "go") -> RequestRef:
    """Send a prompt whose events come here, too."""
    return client.at(handle).submit_with_completion(prompt, stream_to=client.address).ref


def heard(client: Client, ref: RequestRef) -> Heard:
    """Return what comes of that request; everything up to its completion."""
    found = Heard(ref)
    while not found.messages or not isinstance(found.messages[-1], Completion):
        message = client.receive(PATIENCE_MS, matching=about(ref))
        assert message is not None, f"no completion came, only {found.kinds}"
        assert not isinstance(message, Down | Gap), message
        found.messages.append(message)
    assert [type(m) for m in found.messages if not isinstance(m, EventMessage)] == [
        Admission,
        Completion,
    ]
    return found


def turn(client: Client, handle: AgentHandle, prompt: str = "go") -> Heard:
    """Run one turn to its end."""
    return heard(client, submit(client, handle, prompt))


def first_event(client: Client, ref: RequestRef, kind: str) -> Event:
    """Wait for the first event of that kind, and leave the rest to whoever asks for it."""
    found = client.receive(
        PATIENCE_MS,
        matching=lambda m: isinstance(m, EventMessage) and m.ref == ref and m.event.kind == kind,
    )
    assert isinstance(found, EventMessage), f"no {kind} came"
    return found.event


def below(handle: AgentHandle) -> list[Identity]:
    """Return what lives below an agent's process now."""
    return identities(living_below(handle.pid))


def program(stub: StubCli) -> list[int]:
    """Return the pids of the latest run of *stub*: its own first, then its helpers'."""
    run = until(lambda: stub.runs, "the program has begun")[-1]
    return [run.pid, *run.helpers]


@contextmanager
def agents_end(client: Client, house: PrivateDaemon) -> Iterator[None]:
    """Stop every agent that is left afterwards, and see that nothing of any of them is."""
    assert house.guardian is not None
    guardian = house.guardian.pid
    before = set(living_below(guardian))

    def left() -> set[int]:
        # Who waits to become the next agent is nobody's, and need not be who waited before.
        return set(living_below(guardian)) - before - waiting_in(house)

    yield
    for row in client.list():
        client.stop(row.name)
    until(lambda: not left(), f"no process of an agent is left: {left()}", within_s=10)
