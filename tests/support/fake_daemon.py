"""A daemon that says what a test tells it to, on a real socket, from a thread of its own.

It welcomes every client, answers the core, and records what it hears; everything
else it answers by `answer`, or not at all.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

from genagent_protocol import codec, schema
from genagent_protocol.answers import Ok
from genagent_protocol.envelopes import (
    Call,
    CoreState,
    CoreStatus,
    Hello,
    Ping,
    Pong,
    Reply,
    Request,
    ToAgent,
    ToDaemon,
    VersionRefused,
    Welcome,
)
from genagent_protocol.header import DAEMON, DeliveryClass, Header, decode_header, encode_header
from genagent_protocol.requests import DemonitorAgent, MonitorAgent, WatchTelemetry
from genagentd.arrivals import Message
from genagentd.channels import Listener
from genagentd.paths import Places
from support.peer import BOOT, OWN, PLACE
from support.waiting import until

Answer: TypeAlias = Callable[[Any], Any]


def nothing(_request: object) -> None:
    """Leave every question open."""


class FakeDaemon:
    """One listener in a private runtime directory."""

    def __init__(self, answer: Answer = nothing, version: int = 1) -> None:
        self.run = Path(tempfile.mkdtemp(prefix="ga"))
        self.answer = answer
        self.heard: list[Any] = []
        #: Whether it hears and does not even welcome or pong.
        self.silent = False
        self._version = version
        self._routes: list[bytes] = []
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="fake-daemon")
        self._thread.start()
        self._ready.wait()

    @property
    def path(self) -> str:
        """Where it listens."""
        return Places(self.run, self.run).socket

    def _serve(self) -> None:
        async def listen() -> None:
            self._listener = Listener(self.path, self._hear, lambda _fd: None)

        self._loop.run_until_complete(listen())
        self._loop.call_soon(self._ready.set)
        self._loop.run_forever()
        self._listener.close()
        self._loop.close()

    def _hear(self, message: Message) -> None:
        if message.route not in self._routes:
            self._routes.append(message.route)
        header = decode_header(message.header)
        union = ToDaemon if header.to == DAEMON else ToAgent
        [envelope] = codec.decode(union, message.body)
        self.heard.append(envelope)
        answer = None if self.silent else self._answer_to(envelope)
        if answer is not None:
            self._send(message.route, answer)

    def _answer_to(self, envelope: Any) -> Any:
        match envelope:
            case Hello():
                return self._hello()
            case Ping():
                return Pong.to(envelope)
            case CoreStatus():
                return _core_state(envelope.call)
            case Request(request=MonitorAgent() | DemonitorAgent() | WatchTelemetry()):
                return Reply(call=envelope.call, answer=Ok())
            case Request() | Call():
                answer = self.answer(envelope.request)
                return None if answer is None else Reply(call=envelope.call, answer=answer)
            case _:
                return None

    def _hello(self) -> Any:
        if self._version != 1:
            return VersionRefused(
                min_version=self._version, max_version=self._version, software="other"
            )
        return Welcome(version=1, boot=BOOT, mailbox=OWN, place=PLACE, software="fake")

    def _send(self, route: bytes, *envelopes: Any, delivery: DeliveryClass = "must_keep") -> None:
        body = codec.join(codec.encode(envelope) for envelope in envelopes)
        kind = schema.tag_of(type(envelopes[0]))
        header = Header(kind, OWN.text, DAEMON, delivery, bodies=len(envelopes), size=len(body))
        self._listener.send(route, encode_header(header), body)

    def say(self, *envelopes: Any, client: int = 0) -> None:
        """Send one message to the client that came in that place."""
        until(lambda: len(self._routes) > client, "the client has spoken")
        self._loop.call_soon_threadsafe(lambda: self._send(self._routes[client], *envelopes))

    def wait_for(self, kind: type[Any], count: int = 1) -> Any:
        """Wait until *count* envelopes of *kind* were heard; return the last."""
        found = until(lambda: self._of(kind, count), f"{count} {kind.__name__} were heard")
        return found[count - 1]

    def _of(self, kind: type[Any], count: int) -> list[Any]:
        found = [envelope for envelope in list(self.heard) if isinstance(envelope, kind)]
        return found if len(found) >= count else []

    def close(self) -> None:
        """Close the socket and end the thread; clients lose their daemon."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()

    def cleanup(self) -> None:
        """Close, and remove the directory."""
        self.close()
        shutil.rmtree(self.run)


def _core_state(call: int) -> CoreState:
    return CoreState(
        call=call,
        pid=1,
        boot=BOOT,
        software="fake",
        ready=True,
        draining=False,
        agents=0,
        clients=1,
        uptime_ms=1,
        bad_frames=0,
    )


@contextmanager
def fake_daemon(answer: Answer = nothing, version: int = 1) -> Iterator[FakeDaemon]:
    """Yield a running fake daemon."""
    daemon = FakeDaemon(answer, version)
    try:
        yield daemon
    finally:
        daemon.cleanup()
