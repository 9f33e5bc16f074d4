"""Exceptions that are as rude as a class can be: they are told like any other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genagent_protocol import codec, envelopes, requests
from genagent_protocol.errors import GenAgentError
from genagent_protocol.events import Failed, Response
from genagent_protocol.plain import FrozenDict, freeze
from genagent_protocol.reasons import TaskCrashed
from genagent_protocol.refs import RequestRef
from genagentd.agent import class_names, log
from genagentd.agent.behaviour import Agent, NoReply
from genagentd.agent.functions import function
from genagentd.agent.loading import load_agent
from support.agent_life import CLIENT, living, mint


class _Answers(type):
    """A metaclass that lets nobody read anything of its classes."""

    def __getattribute__(cls, name: str) -> Any:
        raise LookupError(name)


class UnreadableClass(Exception, metaclass=_Answers):
    """Its class cannot be asked anything."""


class Unreadable(Exception):
    """Nothing can be read of it."""

    def __getattribute__(self, name: str) -> Any:
        raise LookupError(name)

    def __str__(self) -> str:
        raise LookupError


class Disguised(Exception):
    """Raises when it is asked what it is."""

    @property  # type: ignore[misc]  # that is the point
    def __class__(self) -> Any:
        raise LookupError

    @property
    def __traceback__(self) -> Any:  # type: ignore[override]  # as above
        raise LookupError


class Derived(GenAgentError):
    """An error of ours, to which somebody gave a reason of their own."""

    @property
    def reason(self) -> Any:
        raise SystemExit


def _named(name: object) -> type[Exception]:
    return type("E", (Exception,), {"__qualname__": name})


def _from(module: object) -> type[Exception]:
    return type("E", (Exception,), {"__module__": module})


class _Spelt(str):
    """Text that raises when it is used."""

    def __str__(self) -> str:
        raise LookupError

    __format__ = encode = __getitem__ = __len__ = __str__  # type: ignore[assignment]  # all alike


RUDE: dict[str, Callable[[], BaseException]] = {
    "unreadable class": UnreadableClass,
    "unreadable": Unreadable,
    "disguised": Disguised,
    "derived": Derived,
    "no text": lambda: _named("E\udc80")(),
    "huge": lambda: _named("E" * 17_000_000)(),
    "spelt": lambda: _named(_Spelt("E"))(),
    "from nowhere": lambda: _from(5)(),
}


class Rude(Agent[None]):
    """Raises the exception that an event names, and as a backend the one that a prompt does."""

    def handle_event(self, event: Any, _state: None) -> Any:
        raise RUDE[event]()

    def handle_response(self, _ref: RequestRef, _response: Response, state: None) -> NoReply[None]:
        return NoReply(state)


class RudeDesk(Rude):
    """Raises or returns, in a function that it offers, what its client names."""

    @function
    def fail(self, arguments: Any, _state: None) -> Any:
        raise RUDE[arguments["how"]]()

    @function
    def give(self, arguments: Any, _state: None) -> Any:
        return RUDE[arguments["how"]]()


class RudeBackend:
    """Raises the exception that the prompt names."""

    def start_session(self, _options: FrozenDict) -> str:
        return "session"

    def terminate_session(self, _session: str) -> None:
        return None

    def prompt(self, _session: str, prompt: str, _turn: object) -> Any:
        raise RUDE[prompt]()


@pytest.mark.parametrize("watched", [False, True])
@pytest.mark.parametrize("rude", RUDE)
async def test_a_rude_exception_is_an_outcome_and_a_line_like_any_other(
    rude: str, watched: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """Telling of it runs none of its code, so the agent stays, and who asked hears of a failure."""
    async with living(f"{__name__}:Rude", backend=f"{__name__}:RudeBackend") as agent:
        agent.say(envelopes.TelemetryWanted(on=watched))
        await agent.notified(rude)
        answer = await agent.call(requests.Ask(ref=mint(), prompt=rude))
        outcome = await agent.run(rude)
        await agent.shown()

    assert isinstance(answer, Failed)
    assert isinstance(answer.reason, TaskCrashed)
    assert len(answer.reason.error) <= class_names.MAX_CHARS
    assert outcome == answer
    said = capsys.readouterr().err
    assert f"callback.failed agent=anna module={__name__} callback=handle_event error=" in said
    assert "turn.crashed agent=anna" in said
    assert "test_class_names.py:" in said


@pytest.mark.parametrize("name", ["fail", "give"])
async def test_a_rude_exception_of_a_function_is_an_answer(name: str) -> None:
    """Raised or returned: the client hears of each, and the agent stays."""
    async with living(f"{__name__}:RudeDesk", "echo") as agent:
        attach = requests.AttachUi(session=3)
        agent.say(envelopes.Call(call=1, request=attach), CLIENT.text, "1")
        await agent.next(envelopes.Reply)
        for rude in RUDE:
            call = FrozenDict({"@call": name, "args": FrozenDict(how=rude)})
            body = FrozenDict(surfaceId="main", functionCallId=rude, callFunction=call)
            message = FrozenDict(version="v1.0", callAgentFunction=body)
            agent.say(envelopes.UiMessage(message=message), CLIENT.text, "3")
            answer: Any = (await agent.next(envelopes.UiMessage)).message["agentFunctionResponse"]

            assert answer["functionCallId"] == rude
            assert "error" in answer


@pytest.mark.parametrize("rude", RUDE)
def test_a_rude_exception_at_an_import_refuses_the_start(
    rude: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start that fails says so, whatever it failed with."""

    def importing(_name: str, *_more: object) -> None:
        raise RUDE[rude]()

    monkeypatch.setattr("importlib.import_module", importing)
    refused = load_agent("some.module:Agent")

    assert refused.kind == "import_failed"  # type: ignore[union-attr]  # it is no agent
    assert codec.encode(envelopes.StartRefused(error=refused))  # type: ignore[arg-type]  # as above


@pytest.mark.parametrize("rude", RUDE)
def test_a_rude_exception_is_logged_in_one_line_and_its_places(
    rude: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever is known of it, the line is there."""
    try:
        raise RUDE[rude]()
    except BaseException as error:  # that is the point
        log.raised("broke", error)

    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert "test_class_names.py:" in lines[1]


names = st.text(st.characters(), max_size=300) | st.just("\ud800" * 300)


@given(name=names.filter(lambda name: "\0" not in name))
def test_a_class_is_told_in_text_that_can_be_sent(name: str) -> None:
    """Of whatever characters and however long its name is."""
    error = _named(name)()

    told = class_names.class_of(error), class_names.full_name_of(error), class_names.kind_of(error)
    assert freeze(told) == told
    assert all(len(text) < 2_500 for text in told)
