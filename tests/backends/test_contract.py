"""Every backend of ours passes the suite that is shipped for everybody's (S252, S257)."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import ClassVar

from genagent_backends.anthropic import AnthropicBackend
from genagent_backends.base import Backend
from genagent_backends.chat import ChatBackend
from genagent_backends.claude import ClaudeBackend
from genagent_backends.codex import CodexBackend
from genagent_backends.conformance import BackendConformance
from genagent_backends.echo import EchoBackend
from genagent_backends.openai import OpenAIBackend
from genagent_backends.scripted import ScriptedBackend
from support.backend_cli import Step, StubCli
from support.fake_provider import FakeProvider, Says, Sends, refuses, stream_of

TALKS = [{"echo": True}, {"kind": "result"}]
SILENCE: Step = {"silence": True}


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
        return {"script": [[{"spawn": "child"}, {"hang": "idle"}]], "repeat": True}


class ProgramConformance(BackendConformance):
    """A backend of a program, played by a stub in a directory that goes with the test."""

    begin: ClassVar[Step]
    succeed: ClassVar[Step]
    fail: ClassVar[Step]
    say: ClassVar[Step]

    def around(self) -> AbstractAsyncContextManager[object]:
        @asynccontextmanager
        async def directory() -> AsyncIterator[None]:
            with tempfile.TemporaryDirectory() as path:
                self.stub = StubCli(Path(path))
                yield

        return directory()

    def options(self) -> Mapping[str, object]:
        return self._plays(self.begin, self.say, self.succeed)

    def failing_options(self) -> Mapping[str, object]:
        return self._plays(self.begin, self.fail)

    def slow_options(self) -> Mapping[str, object]:
        return self._plays(self.begin, self.say, SILENCE)

    def _plays(self, *steps: Step) -> Mapping[str, object]:
        self.stub.plays(list(steps))
        return self.stub.options


class TestClaude(ProgramConformance):
    begin: ClassVar[Step] = {"line": {"type": "system", "subtype": "init", "session_id": "s-1"}}
    say: ClassVar[Step] = {
        "line": {"type": "assistant", "message": {"id": "m", "content": "hello"}}
    }
    succeed: ClassVar[Step] = {"line": {"type": "result", "result": "hello", "session_id": "s-1"}}
    fail: ClassVar[Step] = {"line": {"type": "result", "is_error": True, "session_id": "s-1"}}

    def backend(self) -> Backend:
        return ClaudeBackend()


class TestClaudeDuplex(TestClaude):
    def _plays(self, *steps: Step) -> Mapping[str, object]:
        once: list[Step] = [{"hear": True}, *steps]
        self.stub.plays([*once, *once, {"hear": True}])
        return {**self.stub.options, "mode": "duplex"}

    def slow_options(self) -> Mapping[str, object]:
        once: list[Step] = [{"hear": True}, self.begin, {"until": "interrupt"}, self.fail]
        self.stub.plays([*once, *once, {"hear": True}])
        return {**self.stub.options, "mode": "duplex"}


class TestCodex(ProgramConformance):
    begin: ClassVar[Step] = {"line": {"type": "thread.started", "thread_id": "s-1"}}
    say: ClassVar[Step] = {
        "line": {"type": "item.completed", "item": {"type": "agent_message", "text": "hello"}}
    }
    succeed: ClassVar[Step] = {"line": {"type": "turn.completed", "usage": {"input_tokens": 1}}}
    fail: ClassVar[Step] = {"line": {"type": "turn.failed", "error": {"message": "no"}}}

    def backend(self) -> Backend:
        return CodexBackend()


class ProviderConformance(BackendConformance):
    """A backend of an HTTP provider, played by a server that goes with the test."""

    first_words: ClassVar[Mapping[str, object]]

    def around(self) -> AbstractAsyncContextManager[object]:
        self.provider = FakeProvider()
        return self.provider

    def options(self) -> Mapping[str, object]:
        return self._answers(Says())

    def failing_options(self) -> Mapping[str, object]:
        return self._answers(refuses(500, "boom"))

    def slow_options(self) -> Mapping[str, object]:
        return self._answers(stream_of(self.first_words, then="silence"))

    def _answers(self, answer: Says | Sends) -> Mapping[str, object]:
        self.provider.answers = [answer]
        return {"model": "m", "base_url": self.provider.base_url}


class TestAnthropic(ProviderConformance):
    first_words: ClassVar[Mapping[str, object]] = {
        "type": "content_block_delta",
        "index": 0,
        "delta": {"type": "text_delta", "text": "Hel"},
    }

    def backend(self) -> Backend:
        return AnthropicBackend()


class TestOpenAI(ProviderConformance):
    first_words: ClassVar[Mapping[str, object]] = {
        "type": "response.output_text.delta",
        "delta": "Hel",
    }

    def backend(self) -> Backend:
        return OpenAIBackend()


class TestChat(ProviderConformance):
    first_words: ClassVar[Mapping[str, object]] = {
        "choices": [{"index": 0, "delta": {"content": "Hel"}}]
    }

    def backend(self) -> Backend:
        return ChatBackend()
