"""The three HTTP backends in real agents, against a provider on loopback.

What a backend makes of an answer is shown beside the backends; here, that it comes out
of the agent process whole, in order, while it is being said, and that an agent outlives
whatever a provider does.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from genagent_protocol.reasons import EventCaptureOverflow
from genagentd.client.client import Client
from support.fake_provider import Answer, Says, Sends, first_half, refuses
from support.fleet import rest
from support.provider_thread import Loopback, loopback
from support.provider_turns import first_event, heard, start, submit, turn

pytestmark = pytest.mark.process

PATHS = {"anthropic": "/messages", "openai": "/responses", "chat": "/chat/completions"}
each_backend = pytest.mark.parametrize("backend", list(PATHS))


@pytest.fixture
def provider() -> Iterator[Loopback]:
    with loopback(Says()) as running:
        yield running


def options(provider: Loopback, **more: Any) -> dict[str, Any]:
    return {"model": "m", "base_url": provider.base_url, **more}


@each_backend
@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
def test_an_answer_comes_out_as_it_was_said(
    client: Client, provider: Loopback, backend: str, stream: bool
) -> None:
    """Cut inside its characters, with its usage and a session id."""
    provider.answers(Says(pieces=("Grüß", "e, 世", "界"), usage=(7, 3), cut=1))
    handle = start(client, backend, options(provider, stream=stream))

    done = turn(client, handle)

    assert done.kinds == ["text"] * (3 if stream else 1) + ["usage", "result"]
    assert done.response.text == "Grüße, 世界"
    assert done.response.usage is not None
    assert (done.response.usage["input_tokens"], done.response.usage["output_tokens"]) == (7, 3)
    assert done.response.events == tuple(done.events)


@each_backend
def test_events_arrive_while_the_provider_is_still_speaking(
    client: Client, provider: Loopback, backend: str
) -> None:
    """And an interrupt then closes the connection; the next turn is as if it had not been."""
    provider.answers(first_half(PATHS[backend]))
    handle = start(client, backend, options(provider))
    ref = submit(client, handle, "one")

    said = first_event(client, ref, "text").data["text"]
    during = client.status("a").current_request
    stopped = client.at(handle).interrupt_request(ref)
    provider.wait_left()
    broken = heard(client, ref)
    provider.answers(Says())
    after = turn(client, handle, "two")

    assert (said, during, stopped) == ("Hello", ref, "accepted")
    assert broken.reason.code == "interrupted"
    assert after.response.text == "Hello there"
    assert "one" not in repr(provider.requests[0].body)
    assert list(rest(client)) == []


@each_backend
@pytest.mark.parametrize("half", [True, False], ids=["half-said", "silent"])
def test_E076_the_watchdog_ends_a_turn_whose_provider_fell_silent(
    client: Client, provider: Loopback, backend: str, half: bool
) -> None:
    """E076: before its first word and after it."""
    silent = Sends(then="silence", unfinished=True)
    provider.answers(first_half(PATHS[backend]) if half else silent)
    handle = start(client, backend, options(provider), limits={"watchdog_ms": 500})

    done = turn(client, handle)
    provider.wait_left()
    provider.answers(Says())

    assert done.reason.code == "timeout"
    assert turn(client, handle).response.text == "Hello there"


HTML = Sends(headers={"content-type": "text/html"}, body=b"<html>Sign in</html>")
#: An answer, and what the failure says: kind, whether it may help to try again, status.
REFUSALS: list[tuple[Answer, tuple[str, bool, int | None]]] = [
    (refuses(400, "because"), ("invalid_request", False, 400)),
    (refuses(401, "because"), ("authentication", False, 401)),
    (refuses(429, "because", retry_after="7"), ("rate_limited", True, 429)),
    (refuses(500, "because"), ("server_error", True, 500)),
    (refuses(529, "because"), ("server_error", True, 529)),
    (HTML, ("invalid_response", False, 200)),
    (Sends(status=307, headers={"location": "/v1/elsewhere"}), ("http_error", False, 307)),
    (Sends(then="reset", unfinished=True), ("transport", True, None)),
    (Sends(then="silence", unfinished=True), ("idle_timeout", True, None)),
]


@each_backend
def test_whatever_a_provider_refuses_is_told_and_the_conversation_goes_on(
    client: Client, provider: Loopback, backend: str
) -> None:
    """One agent meets every failure in turn; nothing is tried again, and nothing of it stays."""
    more = {"store": False} if backend == "openai" else {}
    handle = start(client, backend, options(provider, receive_timeout_ms=500, **more))
    turn(client, handle, "the first")

    for answer, (kind, retryable, status) in REFUSALS:
        provider.answers(answer)
        failed = turn(client, handle, "not answered").failure

        assert (failed.provider, failed.kind, failed.retryable) == (backend, kind, retryable)
        assert failed.status == status
        assert len(provider.requests) == 1
    provider.answers(refuses(429, "because", retry_after="7"))
    assert turn(client, handle, "not answered").failure.retry_after == "7"
    provider.answers(Says())

    assert turn(client, handle, "the last").response.text == "Hello there"
    told = repr(provider.requests[0].body)
    assert "the first" in told
    assert "not answered" not in told


@each_backend
@pytest.mark.parametrize("then", ["close", "reset"])
def test_an_answer_that_breaks_off_is_no_answer(
    client: Client, provider: Loopback, backend: str, then: Any
) -> None:
    """Its first words were events, and the turn failed all the same."""
    provider.answers(first_half(PATHS[backend], then))
    handle = start(client, backend, options(provider))

    done = turn(client, handle)

    assert done.kinds == ["text", "error"]
    assert (done.failure.kind, done.failure.retryable) == ("transport", True)
    assert client.status("a").state == "idle"


@each_backend
def test_a_conversation_is_reset_and_the_agent_lives(
    client: Client, provider: Loopback, backend: str
) -> None:
    """The provider hears nothing of what was said before."""
    handle = start(client, backend, options(provider))
    turn(client, handle, "the first")

    client.reset_session("a")
    provider.answers(Says())
    turn(client, handle, "the second")

    assert "the first" not in repr(provider.requests[0].body)
    assert client.whereis("a") == handle


#: 2 MB of text, more than a turn keeps unless its limits say otherwise.
PIECE = "0123456789abcdef" * 4_096
LONG = Says(pieces=[PIECE] * 32)


@each_backend
def test_E073_an_answer_of_2_MB_meets_the_capture_limit_and_is_told_what_to_do(
    client: Client, provider: Loopback, backend: str
) -> None:
    """E073: by default the turn fails, its connection is closed, and the next one works."""
    provider.answers(LONG, Says())
    handle = start(client, backend, options(provider))

    done = turn(client, handle)

    reason = done.reason
    assert isinstance(reason, EventCaptureOverflow)
    assert (reason.limit, reason.max_bytes) == ("bytes", 1_048_576)
    assert "raise the limit max_event_bytes_per_turn" in str(reason)
    assert "event_retention=compact" in str(reason)
    # What was kept had been handed on, and nothing beyond it.
    assert len(done.events) == reason.retained_events > 1
    assert turn(client, handle).response.text == "Hello there"
    assert "0123456789abcdef" not in repr(provider.requests[1].body)


@each_backend
@pytest.mark.parametrize(
    ("limits", "pieces"),
    [({"max_event_bytes_per_turn": 3_000_000}, 12), ({"event_retention": "compact"}, 32)],
    ids=["raised", "compact"],
)
def test_E073_a_long_answer_is_whole_once_the_limits_say_so(
    client: Client, provider: Loopback, backend: str, limits: dict[str, Any], pieces: int
) -> None:
    """E073: compact keeps a prefix of the events, and all of the text; the stream is whole.

    Where the answer is in three events, no limit keeps 2 MB of it: its completion may not fit.
    """
    provider.answers(Says(pieces=[PIECE] * pieces))
    handle = start(client, backend, options(provider), limits=limits)

    done = turn(client, handle)

    assert done.response.text == "".join(map(str, done.texts)) == PIECE * pieces
    coverage = done.response.event_coverage
    assert coverage.mode == ("exact" if "max_event_bytes_per_turn" in limits else "compact")
    assert len(done.response.events) == coverage.retained_events <= len(done.events)
    assert (coverage.retained_events < coverage.observed_events) == (coverage.mode == "compact")
