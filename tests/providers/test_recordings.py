"""Recorded runs of the real programs, through a real daemon and a real agent process."""

from __future__ import annotations

import pytest

from genagentd.client.client import Client
from support.backend_cli import StubCli
from support.provider_turns import start, turn
from support.recordings import Recording, agrees, recordings

pytestmark = pytest.mark.process
#: Here the program says that there is no such session.
NOT_RESUMED = {"resume-missing"}


@pytest.mark.parametrize("recording", list(recordings()))
def test_a_recording_comes_out_of_an_agent_as_it_should(
    client: Client, stub: StubCli, recording: Recording
) -> None:
    """Kinds, text, usage, session id and ending: nothing is lost or changed on the way."""
    expected = recording.expected
    replay = {"file": str(recording.path), "cut": 1_000}
    stub.plays([{"read_stdin": True}, replay, {"exit": expected["exit_status"]}])
    handle = start(client, recording.provider, stub.options)

    done = turn(client, handle, "the prompt")

    assert stub.runs[0].stdin == "the prompt"
    assert done.kinds == recording.kinds
    assert done.texts == recording.texts
    assert done.events[-1].data.get("session_id") == expected["session_id"]
    usages = [event.data for event in done.events if event.kind == "usage"]
    assert (usages[-1] if usages else None) == expected["usage"]
    if expected["terminal"] == "result":
        response = done.response
        assert response.events == tuple(done.events)
        assert (response.text, response.usage) == (expected["final_text"], expected["usage"])
        assert response.session_id == expected["session_id"]
    else:
        agrees(done.reason, recording)


@pytest.mark.parametrize("recording", list(recordings()))
def test_the_session_of_a_recording_is_resumed_by_the_next_turn(
    client: Client, stub: StubCli, recording: Recording
) -> None:
    """Whether the turn succeeded or not, the conversation is what its program said it was."""
    stub.plays([{"file": str(recording.path)}, {"exit": recording.expected["exit_status"]}])
    handle = start(client, recording.provider, stub.options)

    for prompt in ("one", "two"):
        turn(client, handle, prompt)

    resumed = " ".join(stub.runs[1].argv)
    assert (str(recording.expected["session_id"]) in resumed) == (
        recording.path.stem not in NOT_RESUMED
    )
