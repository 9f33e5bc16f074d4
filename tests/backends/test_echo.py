"""The echo is faithful, cheap to import, and paced only on request."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genagent_backends.base import Failed
from genagent_backends.echo import EchoBackend, EchoSession
from genagent_backends.rehearsal import rehearse
from genagent_protocol.plain import EMPTY, FrozenDict


def started(**options: str | int) -> EchoSession:
    session = EchoBackend().start_session(FrozenDict(options))
    assert not isinstance(session, Failed)
    return session


@given(prompt=st.text(), chunk=st.none() | st.integers(1, 7))
def test_the_answer_is_the_prompt_however_it_is_cut(prompt: str, chunk: int | None) -> None:
    """An echo that changed a byte could not prove that the way is clean."""
    session = started(**({} if chunk is None else {"chunk": chunk}))

    done = asyncio.run(rehearse(EchoBackend(), session, prompt))

    assert done.text == prompt
    assert done.kinds[-2:] == ["usage", "result"]
    texts = [str(event.data["text"]) for event in done.events if event.kind == "text"]
    assert all(0 < len(text) <= (chunk or len(prompt)) for text in texts)


async def test_a_paced_echo_says_the_same() -> None:
    """The pause is for demonstrations; it must not change what is said."""
    done = await rehearse(EchoBackend(), started(delay_ms=1, chunk=2), "abcde")

    assert [event.data.get("text") for event in done.events[:3]] == ["ab", "cd", "e"]


async def test_the_result_names_the_session_and_a_reset_names_another() -> None:
    """A conversation is known by its id."""
    backend, session = EchoBackend(), started(session_id="mine")

    done = await rehearse(backend, session, "hello")
    assert done.terminal is not None
    assert done.terminal.data["session_id"] == "mine"
    assert backend.reset_session(session).session_id != "mine"


def test_a_session_can_be_resumed_under_its_id() -> None:
    """What was recorded of an earlier life must be usable in the next."""
    resumed = EchoBackend().resume_session("earlier", EMPTY)

    assert resumed == EchoSession("earlier", None, 0)


@pytest.mark.parametrize("options", [{"chunk": 0}, {"delay_ms": -1}, {"session_id": ""}, {"x": 1}])
def test_a_bad_option_refuses_the_start(options: dict[str, int | str]) -> None:
    """Nothing is guessed."""
    assert isinstance(EchoBackend().start_session(FrozenDict(options)), Failed)
    assert isinstance(EchoBackend().resume_session("id", FrozenDict(options)), Failed)


def test_importing_it_loads_no_client_library_and_no_event_loop() -> None:
    """Every agent process pays for what the default backend imports."""
    code = "import genagent_backends.echo, sys; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()

    assert "genagent_backends.echo" in loaded
    assert not {"asyncio", "httpx2", "ssl", "subprocess", "difflib"} & set(loaded)
