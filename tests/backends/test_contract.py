"""Every backend of ours passes the suite that is shipped for everybody's."""

from __future__ import annotations

from collections.abc import Mapping

from genagent_backends.base import Backend
from genagent_backends.conformance import BackendConformance
from genagent_backends.echo import EchoBackend
from genagent_backends.scripted import ScriptedBackend

TALKS = [{"echo": True}, {"kind": "result"}]


class TestEcho(BackendConformance):
    def backend(self) -> Backend:
        return EchoBackend()

    def slow_options(self) -> Mapping[str, object]:
        return {"chunk": 1, "delay_ms": 200}


class TestScripted(BackendConformance):
    def backend(self) -> Backend:
        return ScriptedBackend()

    def options(self) -> Mapping[str, object]:
        return {"script": [TALKS], "repeat": True, "session_id": "s-1"}

    def failing_options(self) -> Mapping[str, object]:
        return {"script": [[{"kind": "text", "text": "a"}, {"kind": "error", "reason": "r"}]]}

    def slow_options(self) -> Mapping[str, object]:
        return {"script": [[{"spawn": "child"}, {"hang": "idle"}]]}
