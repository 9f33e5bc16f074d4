"""A turn that is an HTTP request: the same for all three dialects, and it always ends."""

from __future__ import annotations

import asyncio
import itertools
import json
import socket
from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from genagent_backends import http_turns, transport
from genagent_backends.anthropic import AnthropicBackend
from genagent_backends.anthropic_messages import AnthropicFold
from genagent_backends.base import Backend, Failed, Session
from genagent_backends.chat import ChatBackend
from genagent_backends.chat_completions import ChatFold
from genagent_backends.endpoints import read_endpoint
from genagent_backends.failures import TEXT_CHARACTERS, WHOLE_BYTES, failure_of
from genagent_backends.http_turns import REDIRECTED
from genagent_backends.openai import OpenAIBackend
from genagent_backends.openai_responses import OpenAIFold
from genagent_backends.options import Option, mapping
from genagent_backends.redaction import INSTEAD
from genagent_backends.rehearsal import Rehearsed, rehearse, settled
from genagent_backends.sse import SseReader
from genagent_protocol.events import Event
from genagent_protocol.plain import MAX_ITEMS, FrozenDict, encoded_size, freeze
from genagent_protocol.reasons import BackendError
from support.fake_provider import (
    Answer,
    FakeProvider,
    Received,
    Says,
    Sends,
    first_half,
    refuses,
    rendered,
    stream_of,
)

BACKENDS: list[type[Backend]] = [AnthropicBackend, OpenAIBackend, ChatBackend]
each_backend = pytest.mark.parametrize("backend", BACKENDS)
HTML = Sends(headers={"content-type": "text/html"}, body=b"<html>Sign in</html>")


async def started(backend: type[Backend], provider: FakeProvider, **options: object) -> Session:
    frozen = freeze({"model": "m", "base_url": provider.base_url, **options})
    assert isinstance(frozen, FrozenDict)
    session = await settled(backend().start_session(frozen))
    assert not isinstance(session, Failed), session
    return session


async def asked(
    backend: type[Backend],
    *answers: Answer,
    prompts: tuple[str, ...] = ("hi",),
    **options: object,
) -> tuple[list[Rehearsed], FakeProvider]:
    async with FakeProvider(*answers) as provider:
        session = await started(backend, provider, **options)
        done: list[Rehearsed] = []
        for prompt in prompts:
            done.append(await rehearse(backend(), session, prompt))
            session = done[-1].session
        return done, provider


def failure(done: Rehearsed) -> BackendError:
    assert done.terminal is not None
    reason = failure_of(done.terminal)
    assert isinstance(reason, BackendError), done.terminal
    return reason


def spoken(provider: FakeProvider) -> list[list[tuple[object, object]]]:
    """Return the roles and texts of each request's conversation."""
    bodies = [request.body for request in provider.requests]
    found: list[list[tuple[object, object]]] = []
    for body in bodies:
        messages: Any = body.get("messages", body.get("input"))
        found.append([(m.get("role"), _plainly(m.get("content"))) for m in messages])
    return found


def _plainly(content: Any) -> object:
    return content if isinstance(content, str) else content[-1]["text"]


@each_backend
@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("cut", [None, 1, 5])
async def test_an_answer_becomes_text_usage_and_a_result(
    backend: type[Backend], stream: bool, cut: int | None
) -> None:
    """However it is sent and cut, also inside a character."""
    [done], _ = await asked(backend, Says(pieces=("Grüß", "e, 世", "界"), cut=cut), stream=stream)

    assert done.text == "Grüße, 世界"
    assert done.kinds == ["text"] * (3 if stream else 1) + ["usage", "result"]
    assert done.usage is not None
    assert (done.usage["input_tokens"], done.usage["output_tokens"]) == (7, 3)
    assert done.terminal is not None
    assert done.terminal.data["model"] == "fake-model"


@each_backend
async def test_a_server_that_does_not_stream_is_understood_too(backend: type[Backend]) -> None:
    """What was asked for is not always what comes."""
    async with FakeProvider(Says()) as provider:
        session = await started(backend, provider, stream=False)
        whole = await rehearse(backend(), session, "hi")
        body = json.dumps({"stream": True, **_whole(backend)}).encode()
        provider.answers = [Sends(headers={"content-type": "application/json"}, body=body)]
        streaming = await started(backend, provider)
        assert (await rehearse(backend(), streaming, "hi")).text == whole.text


def _whole(backend: type[Backend]) -> dict[str, object]:
    from support import fake_provider

    render: dict[type[Backend], Callable[[Says], fake_provider.Rendered]] = {
        AnthropicBackend: fake_provider.messages,
        OpenAIBackend: fake_provider.responses,
        ChatBackend: fake_provider.chat,
    }
    return render[backend](Says())[0]


@each_backend
async def test_events_arrive_while_the_answer_is_being_said(backend: type[Backend]) -> None:
    """Whoever watches must not have to wait for the end."""
    silent = _first_half(backend)
    async with FakeProvider(silent) as provider:
        session = await started(backend, provider)
        said = asyncio.Event()
        running = asyncio.create_task(
            rehearse(backend(), session, "hi", on_event=lambda _event: said.set())
        )
        await asyncio.wait_for(said.wait(), 5)
        assert not running.done()
        running.cancel()
        await asyncio.wait({running})


def _first_half(backend: type[Backend]) -> Sends:
    """Return an answer that falls silent after its first words."""
    return replace(first_half(_path(backend)), unfinished=False)


def _path(backend: type[Backend]) -> str:
    return {
        AnthropicBackend: "/messages",
        OpenAIBackend: "/responses",
        ChatBackend: "/chat/completions",
    }[backend]


@each_backend
async def test_an_interrupt_closes_the_connection(backend: type[Backend]) -> None:
    """The provider can stop, and nothing is left open."""
    async with FakeProvider(_first_half(backend)) as provider:
        session = await started(backend, provider)
        running = asyncio.create_task(rehearse(backend(), session, "hi"))
        await asyncio.wait_for(provider.asked.wait(), 5)
        running.cancel()
        await asyncio.wait({running})

        await asyncio.wait_for(provider.left.wait(), 5)
        assert running.cancelled()


@each_backend
@pytest.mark.parametrize(
    ("status", "kind", "retryable"),
    [
        (400, "invalid_request", False),
        (401, "authentication", False),
        (403, "authentication", False),
        (404, "invalid_request", False),
        (408, "http_error", True),
        (422, "invalid_request", False),
        (429, "rate_limited", True),
        (500, "server_error", True),
        (529, "server_error", True),
    ],
)
async def test_a_refusal_says_what_and_why_and_is_not_tried_again(
    backend: type[Backend], status: int, kind: str, retryable: bool
) -> None:
    """S258: who retries, and when, is the caller's decision."""
    [done], provider = await asked(backend, refuses(status, "because", retry_after="7"))
    error = failure(done)

    assert done.kinds == ["error"]
    assert (error.kind, error.retryable, error.status) == (kind, retryable, status)
    assert (error.message, error.retry_after) == ("because", "7")
    assert isinstance(error.raw, FrozenDict)
    assert error.raw["type"] == "error"
    assert len(provider.requests) == 1


@each_backend
@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_a_redirect_is_not_followed(backend: type[Backend], status: int) -> None:
    """Key and conversation would go to another host."""
    async with FakeProvider(Says()) as other:
        elsewhere = Sends(status=status, headers={"location": other.base_url + "/messages"})
        [done], _ = await asked(backend, elsewhere)

        assert failure(done).kind == "http_error"
        assert failure(done).status == status
        assert "redirects are not followed" in failure(done).message
        assert other.requests == []


@each_backend
async def test_that_a_redirect_is_not_followed_is_told_however_much_is_said_of_it(
    backend: type[Backend],
) -> None:
    """What is ours in a message is not what is cut, and a key at the cut is still found."""
    key = "canary-key-1234567890"
    padding = "x" * (TEXT_CHARACTERS - len(REDIRECTED) - 12)
    body = json.dumps({"error": {"message": padding + key + "y" * 10_000}}).encode()
    [done], _ = await asked(backend, Sends(status=307, body=body), headers={"x-our-key": key})

    assert failure(done).message.startswith("redirects are not followed")
    assert "canary-key-1" not in failure(done).message


@each_backend
@pytest.mark.parametrize(
    "answer",
    [
        HTML,
        Sends(headers={"content-type": "application/json"}, body=b"[1]"),
        Sends(
            headers={"content-type": "application/json"},
            body=json.dumps([0] * (MAX_ITEMS + 1)).encode(),
        ),
        Sends(headers={"content-type": "application/json"}, body=b"{"),
        Sends(body=b""),
    ],
    ids=["html", "list", "long list", "broken", "empty"],
)
async def test_a_success_that_is_no_object_is_none(backend: type[Backend], answer: Sends) -> None:
    """A captive portal answers 200, too."""
    [done], _ = await asked(backend, answer)

    assert failure(done).kind == "invalid_response"


@each_backend
@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"error": "no model"}, "no model"),
        ({"message": "no model"}, "no model"),
        ({"detail": "no model"}, "no model"),
        (
            {"detail": [{"loc": ["body"], "msg": "too long"}, {"msg": "no model"}]},
            "too long; no model",
        ),
        ({"detail": [{"loc": ["body"]}], "error": {}}, None),
    ],
)
async def test_a_refusal_is_in_the_servers_own_words(
    backend: type[Backend], body: dict[str, object], message: str | None
) -> None:
    """Wherever it puts them."""
    [done], _ = await asked(backend, Sends(status=422, body=json.dumps(body).encode()))

    assert failure(done).message == (message or f"{failure(done).provider} answered 422")


@pytest.mark.parametrize("characters", [10, 70_000, 1_000_000])
async def test_a_refusal_means_the_same_however_much_is_repeated_in_it(characters: int) -> None:
    """A lost chain is given up, or every later turn would be refused for it."""
    error = FrozenDict({"code": "previous_response_not_found", "message": "not found"})
    body = json.dumps({"input": "e" * characters, "error": error}).encode()
    refusal = Sends(status=400, body=body)
    prompts = ("one", "two", "three")
    done, provider = await asked(OpenAIBackend, Says(), refusal, Says(), prompts=prompts)

    assert failure(done[1]).kind == "conversation_lost"
    assert failure(done[1]).message.endswith(": not found")
    assert isinstance(raw := failure(done[1]).raw, FrozenDict)
    assert raw["error"] == error
    assert done[2].text == "Hello there"
    assert "previous_response_id" not in provider.requests[2].body


LONG = "y" * 600_000


@each_backend
@pytest.mark.parametrize(
    "body",
    [
        LONG,
        [LONG],
        [0] * 200_000,
        {"error": {"message": LONG, "type": "overloaded_error"}},
        {"message": "no", "junk": [LONG]},
        {"error": LONG, "junk": [["z" * 900] * 50] * 50, "model": LONG, "stop_reason": LONG},
    ],
    ids=["text", "list", "many", "error", "no content", "all"],
)
@pytest.mark.parametrize("how", ["refused", "whole", "streamed"])
async def test_a_failure_is_short_however_much_is_said_of_it(
    backend: type[Backend], body: object, how: str
) -> None:
    """One that is too long to be kept would be told as that, and not as what it is."""
    said = json.dumps(body).encode()
    answer = {
        "refused": Sends(status=529, body=said),
        "whole": Sends(headers={"content-type": "application/json"}, body=said),
        "streamed": Sends(
            headers={"content-type": "text/event-stream"},
            body=b"event: error\ndata: " + said + b"\n\n",
        ),
    }[how]
    [done], _ = await asked(backend, answer)

    assert failure(done).kind
    assert encoded_size(done.events[-1].data) < 2 * WHOLE_BYTES


@each_backend
async def test_a_refusal_in_html_is_classified_by_its_status(backend: type[Backend]) -> None:
    """A proxy in between speaks no JSON."""
    page = Sends(status=502, headers={"content-type": "text/html"}, body=b"<h1>Bad gateway</h1>")
    [done], _ = await asked(backend, page)

    assert (failure(done).kind, failure(done).raw) == ("server_error", "<h1>Bad gateway</h1>")


@each_backend
@pytest.mark.parametrize("then", ["close", "reset"])
async def test_a_stream_that_breaks_off_is_no_answer(backend: type[Backend], then: str) -> None:
    """What was said so far is not what would have been said."""
    half = _first_half(backend)
    broken = Sends(
        headers=half.headers,
        body=half.body,
        then="reset" if then == "reset" else "close",
        unfinished=True,
    )
    [done], _ = await asked(backend, broken)

    assert (failure(done).kind, failure(done).retryable) == ("transport", True)


@each_backend
@pytest.mark.parametrize("then", ["close", "reset", "silence"])
async def test_a_stream_whose_end_was_seen_is_whole(backend: type[Backend], then: Any) -> None:
    """However the connection ends after it."""
    half, path = _first_half(backend), _path(backend)
    said = rendered(Says(), Received("POST", path, {}, {"stream": True}))
    whole = replace(said, headers=half.headers, then=then, unfinished=True)
    [done], _ = await asked(backend, whole)

    assert done.text == "Hello there"


@each_backend
@pytest.mark.parametrize("ending", [b"", b"data: [DONE]\n\n"])
@pytest.mark.parametrize(
    ("data", "kind", "message"),
    [
        ('{"message": "out of memory", "code": 500}', "server_error", "out of memory"),
        ('{"type": "overloaded_error", "message": "busy"}', "server_error", "busy"),
        ('{"error": {"type": "rate_limit_error", "message": "slow"}}', "rate_limited", "slow"),
        ('{"error": "gone"}', "provider_error", "gone"),
        ("upstream is gone", "provider_error", "upstream is gone"),
    ],
)
async def test_an_event_that_is_called_an_error_is_one(
    backend: type[Backend], ending: bytes, data: str, kind: str, message: str
) -> None:
    """Whatever is in it, and although the stream goes on to its end."""
    half = _first_half(backend)
    body = half.body + f"event: error\ndata: {data}\n\n".encode() + ending
    [done], _ = await asked(backend, Sends(headers=half.headers, body=body))

    assert (failure(done).kind, failure(done).message) == (kind, message)


@each_backend
@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (
            {"type": "overloaded_error", "code": 429, "message": "slow down"},
            "rate_limited",
            "slow down",
        ),
        ({"type": "overloaded_error", "message": "busy"}, "server_error", "busy"),
        ({"code": "invalid_api_key", "message": "who?"}, "authentication", "who?"),
        ("no model is loaded", "provider_error", "no model is loaded"),
    ],
)
async def test_an_error_with_a_status_of_success_keeps_its_kind_and_words(
    backend: type[Backend], error: object, kind: str, message: str
) -> None:
    """Gateways answer so; that the answer has no content says nothing."""
    body = json.dumps({"error": error}).encode()
    [done], _ = await asked(backend, Sends(headers={"content-type": "application/json"}, body=body))

    assert (failure(done).kind, failure(done).message) == (kind, message)


@each_backend
async def test_a_key_that_has_gone_is_missed_before_anything_is_sent(
    backend: type[Backend], tmp_path: Path
) -> None:
    """Without it the request would be somebody else's, or nobody's, and be sent all the same."""
    key = tmp_path / "key"
    key.write_text("sk-0123456789")
    async with FakeProvider(Says()) as provider:
        session = await started(backend, provider, api_key_file=str(key))
        session = (await rehearse(backend(), session, "one")).session
        key.unlink()
        failed = await rehearse(backend(), session, "two")
        key.write_text("sk-9876543210")
        after = await rehearse(backend(), failed.session, "three")

    assert (failure(failed).kind, failure(failed).retryable) == ("authentication", False)
    assert failure(failed).message.endswith("cannot be read: No such file or directory")
    assert after.text == "Hello there"
    assert [len(said) for said in spoken(provider)][:1] == [1]
    assert len(provider.requests) == 2


@each_backend
async def test_a_stream_without_its_end_is_no_answer(backend: type[Backend]) -> None:
    """It closed in good order, but the provider never said that it was done."""
    half = _first_half(backend)
    [done], _ = await asked(backend, Sends(headers=half.headers, body=half.body))

    assert (failure(done).kind, failure(done).retryable) == ("transport", True)


@each_backend
async def test_nobody_listening_is_a_failure_of_transport(backend: type[Backend]) -> None:
    """And trying again at once will not help."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        frozen = freeze({"model": "m", "base_url": f"http://127.0.0.1:{unused.getsockname()[1]}"})
    assert isinstance(frozen, FrozenDict)
    session = await settled(backend().start_session(frozen))
    done = await rehearse(backend(), session, "hi")

    assert (failure(done).kind, failure(done).retryable) == ("transport", False)


@each_backend
@pytest.mark.parametrize(
    ("options", "kind", "retryable"),
    [
        ({"receive_timeout_ms": 50}, "idle_timeout", True),
        ({"timeout_ms": 50}, "timeout", False),
        ({"receive_timeout_ms": 50, "timeout_ms": 60_000}, "idle_timeout", True),
        ({"receive_timeout_ms": 60_000, "timeout_ms": 50}, "timeout", False),
    ],
)
@pytest.mark.parametrize("half", [False, True], ids=["silent", "half"])
async def test_silence_ends_by_the_clock_that_fired(
    backend: type[Backend],
    options: dict[str, Any],
    kind: str,
    retryable: bool,
    half: bool,
) -> None:
    """Before the first byte and after it."""
    silent = _first_half(backend) if half else Sends(then="silence", unfinished=True)
    [done], _ = await asked(backend, silent, **options)

    assert (failure(done).kind, failure(done).retryable) == (kind, retryable)


@each_backend
async def test_a_server_that_takes_nothing_ends_the_turn_by_the_right_clock(
    backend: type[Backend],
) -> None:
    """There was a connection; the message must not speak of one that there was not."""
    with socket.socket() as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        deaf.bind(("127.0.0.1", 0))
        deaf.listen()
        url = f"http://127.0.0.1:{deaf.getsockname()[1]}"
        options = freeze({"model": "m", "base_url": url, "receive_timeout_ms": 50})
        assert isinstance(options, FrozenDict)
        session = await settled(backend().start_session(options))
        done = await rehearse(backend(), session, "x" * 20_000_000)

    assert (failure(done).kind, failure(done).retryable) == ("idle_timeout", True)
    assert failure(done).message == "nothing was taken of the request for 50 ms"


@each_backend
async def test_a_library_that_cannot_be_used_is_no_proxy(
    backend: type[Backend], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody is asked through one on this machine."""

    def broken(**_given: object) -> None:
        raise ValueError("something else")

    async with FakeProvider(Says()) as provider:
        session = await started(backend, provider)
        monkeypatch.setattr("genagent_backends.transport.httpx2.AsyncClient", broken)
        done = await rehearse(backend(), session, "hi")

    assert failure(done).kind == "transport"
    assert "proxy" not in failure(done).message


@each_backend
async def test_a_slow_consumer_is_not_cancelled_by_the_clock(
    backend: type[Backend], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock is the provider's; whoever handles the events may take their time."""
    loop = asyncio.get_running_loop()
    late = 0.0
    real = loop.time
    monkeypatch.setattr(loop, "time", lambda: real() + late)

    def be_slow(event: Event) -> None:
        nonlocal late
        if event.kind == "result":
            late = 1_000.0

    async with FakeProvider(Says()) as provider:
        session = await started(backend, provider, timeout_ms=100_000)
        done = await rehearse(backend(), session, "hi", on_event=be_slow)
    assert done.kinds[-1] == "result"


@each_backend
async def test_an_answer_that_arrived_in_time_is_given_to_a_slow_consumer(
    backend: type[Backend], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of it is there; that its first words took long to be handled is not its fault."""
    monkeypatch.setattr(transport, "LAST_LOOK_MS", 10_000)
    monkeypatch.setattr(transport, "LATE_MS", 60_000)
    loop = asyncio.get_running_loop()
    late = 0.0
    real = loop.time
    monkeypatch.setattr(loop, "time", lambda: real() + late)

    def be_slow(_event: Event) -> None:
        nonlocal late
        late = 1_000.0

    async with FakeProvider(Says(cut=40)) as provider:
        session = await started(backend, provider, timeout_ms=100_000)
        done = await rehearse(backend(), session, "hi", on_event=be_slow)

    assert done.text == "Hello there"


class Arrived(httpx2.Response):
    """A response of which these pieces have arrived; each costs a moment to take."""

    def __init__(self, pieces: list[bytes]) -> None:
        super().__init__(200)
        self._pieces = pieces
        self.taken = 0

    async def aiter_bytes(self, chunk_size: int | None = None) -> AsyncGenerator[bytes, None]:
        for piece in itertools.cycle(self._pieces):
            for _ in range(3):
                await asyncio.sleep(0)
            self.taken += len(piece)
            yield piece


@given(
    pieces=st.lists(st.binary(min_size=1, max_size=50), min_size=1), bound=st.integers(0, 10_000)
)
@settings(deadline=None)
async def test_what_has_arrived_when_the_clock_runs_out_is_taken_up_to_a_bound(
    pieces: list[bytes], bound: int
) -> None:
    """A clock that ran out meanwhile takes nothing away, and holds whoever never stops."""
    chosen = read_endpoint(
        (),
        Option("request_fields", mapping, FrozenDict()),
        FrozenDict({"model": "m", "base_url": "http://localhost", "timeout_ms": 1}),
        key_variable="KEY",
        url="",
        is_address=transport.is_address,
    )
    assert not isinstance(chosen, Failed)
    response = Arrived(pieces)
    answer = transport.Answer(response, chosen[0], asyncio.get_running_loop().time() - 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transport, "LATE_BYTES", bound)
        patch.setattr(transport, "LAST_LOOK_MS", 60_000)
        patch.setattr(transport, "LATE_MS", 60_000)
        with pytest.raises(transport.TransportProblem) as problem:
            await answer.body()

    assert problem.value.kind == "timeout"
    assert bound <= response.taken < bound + 50


@each_backend
async def test_an_endless_event_ends_the_turn(
    backend: type[Backend], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory is bounded, whatever a server sends."""
    monkeypatch.setattr(http_turns, "SseReader", lambda: SseReader(limit_bytes=1_000))
    endless = Sends(headers={"content-type": "text/event-stream"}, body=b"data: " + b"x" * 5_000)
    [done], _ = await asked(backend, endless)

    assert failure(done).kind == "line_too_long"


@each_backend
async def test_an_endless_body_ends_the_turn(
    backend: type[Backend], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same without a stream."""
    monkeypatch.setattr(transport, "MAX_BODY_BYTES", 1_000)
    [done], _ = await asked(backend, Sends(body=b"x" * 5_000))

    assert failure(done).kind == "invalid_response"


def _unsaid(backend: type[Backend], text: str) -> list[dict[str, object]]:
    """Return events of which a fold holds *text*, and of which it makes none of its own."""
    if backend is OpenAIBackend:
        item = {"type": "reasoning", "encrypted_content": text}
        return [{"type": "response.output_item.done", "item": item}]
    if backend is ChatBackend:
        return [{"choices": [{"index": 0, "delta": {"refusal": text}}]}]
    deltas: list[dict[str, object]] = [
        {"type": "thinking_delta", "thinking": text},
        {"type": "input_json_delta", "partial_json": text},
        {"type": "citations_delta", "citation": {"cited_text": text}},
    ]
    said: list[dict[str, object]] = [
        {"type": "content_block_delta", "index": 0, "delta": delta} for delta in deltas
    ]
    said.append({"type": "content_block_start", "index": len(text), "content_block": {"x": text}})
    said.append({"type": "message_delta", "delta": {text: text}, "usage": {text: text}})
    return said


@each_backend
@pytest.mark.parametrize("which", range(5))
async def test_what_is_held_of_a_stream_and_not_said_is_bounded(
    backend: type[Backend], which: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No limit of an agent counts what no event says."""
    monkeypatch.setattr(http_turns, "MAX_BODY_BYTES", 1_000)
    pieces = (_unsaid(backend, "t" * length) for length in range(100, 110))
    [done], _ = await asked(backend, stream_of(*(each[which % len(each)] for each in pieces)))

    assert failure(done).kind == "invalid_response"
    assert failure(done).message.startswith("the answer is longer than")


@each_backend
@given(events=st.lists(st.tuples(st.integers(0, 4), st.text(max_size=300)), max_size=20))
def test_a_fold_counts_all_that_it_holds(
    backend: type[Backend], events: list[tuple[int, str]]
) -> None:
    """Or whoever bounds that would be told less than there is."""
    folds: dict[type[Backend], http_turns.Fold] = {
        AnthropicBackend: AnthropicFold("s"),
        OpenAIBackend: OpenAIFold("s", established=False, lose=lambda: None),
        ChatBackend: ChatFold("s"),
    }
    fold = folds[backend]
    for which, text in events:
        unsaid = _unsaid(backend, text)
        said = freeze(unsaid[which % len(unsaid)])
        assert isinstance(said, FrozenDict)
        assert list(fold.said(said)) == []

    assert _characters(vars(fold)) <= fold.held.bytes + 1_000


def _characters(value: object) -> int:
    match value:
        case str():
            return len(value)
        case dict():
            return sum(_characters(key) + _characters(item) for key, item in value.items())
        case list() | tuple():
            return sum(map(_characters, value))
    return 0


@each_backend
async def test_a_conversation_is_told_again(backend: type[Backend]) -> None:
    """The provider knows nothing but what it is sent, or what it was asked to keep."""
    options = {"store": False} if backend is OpenAIBackend else {}
    done, provider = await asked(backend, Says(), prompts=("one", "two"), **options)

    assert [d.kinds[-1] for d in done] == ["result", "result"]
    assert spoken(provider)[1] == [
        ("user", "one"),
        ("assistant", "Hello there"),
        ("user", "two"),
    ]


@each_backend
@pytest.mark.parametrize(
    "bad",
    [
        refuses(500, "boom"),
        Says(pieces=("",)),
        Says(pieces=(" ", "\n")),
        HTML,
        Sends(headers={"content-type": "text/event-stream"}, body=b"data: {}\n\n"),
    ],
    ids=["failed", "empty", "blank", "html", "broken"],
)
async def test_what_was_not_answered_leaves_the_conversation_as_it_was(
    backend: type[Backend], bad: Answer
) -> None:
    """Roles keep alternating, and a failed prompt is not sent twice."""
    options = {"store": False} if backend is OpenAIBackend else {}
    _, provider = await asked(
        backend, Says(), bad, Says(), prompts=("one", "two", "three"), **options
    )

    assert spoken(provider)[2] == [
        ("user", "one"),
        ("assistant", "Hello there"),
        ("user", "three"),
    ]


@each_backend
@pytest.mark.parametrize(("keep", "turns"), [(0, 0), (1, 1), (2, 2)])
async def test_history_is_trimmed_by_whole_turns(
    backend: type[Backend], keep: int, turns: int
) -> None:
    """Half a turn would be a question without an answer."""
    options = {"store": False} if backend is OpenAIBackend else {}
    _, provider = await asked(
        backend, Says(), prompts=("a", "b", "c", "d"), max_history_turns=keep, **options
    )

    assert len(spoken(provider)[3]) == 2 * turns + 1


@each_backend
async def test_a_reset_forgets_the_conversation_and_renames_it(backend: type[Backend]) -> None:
    """The agent stays, its past goes."""
    async with FakeProvider(Says()) as provider:
        session = (await rehearse(backend(), await started(backend, provider), "one")).session
        fresh: Any = await settled(backend().reset_session(session))  # type: ignore[attr-defined]
        await rehearse(backend(), fresh, "two")

        assert spoken(provider)[1] == [("user", "two")]
        assert "previous_response_id" not in provider.requests[1].body
        assert fresh.session_id != session.session_id


@each_backend
async def test_the_system_prompt_and_further_fields_are_on_every_request(
    backend: type[Backend],
) -> None:
    """Instructions do not carry over."""
    _, provider = await asked(
        backend,
        Says(),
        prompts=("one", "two"),
        system_prompt="be brief",
        request_fields={"temperature": 0},
        headers={"x-team": "blue"},
        max_output_tokens=9,
    )

    for request in provider.requests:
        assert "be brief" in json.dumps(request.body)
        assert request.body["temperature"] == 0
        assert request.headers["x-team"] == "blue"
        assert 9 in request.body.values()


@each_backend
@pytest.mark.parametrize("name", ["User-Agent", "user-agent", "X-Team"])
async def test_no_header_is_sent_twice(backend: type[Backend], name: str) -> None:
    """However it is spelt, what the user says of it is all that is said."""
    received: list[str] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        received.extend(line.lower() for line in head.splitlines()[1:] if line)
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        options = freeze({"model": "m", "base_url": url, "headers": {name: "mine"}})
        assert isinstance(options, FrozenDict)
        session = await settled(backend().start_session(options))
        await rehearse(backend(), session, "hi")

    names = [line.partition(":")[0] for line in received]
    assert len(names) == len(set(names))
    assert f"{name.lower()}: mine" in received
    assert [line.startswith("user-agent: ") for line in received].count(True) == 1


@each_backend
async def test_e094_the_key_is_in_its_header_and_in_nothing_that_is_said(
    backend: type[Backend], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not in the address, not in the body, not in an event, not in a failure."""
    monkeypatch.setenv("MY_KEY", "canary-key")
    done, provider = await asked(
        backend, Says(), HTML, prompts=("one", "two"), api_key_env="MY_KEY"
    )

    request = provider.requests[0]
    carrying = [name for name, value in request.headers.items() if "canary-key" in value]
    assert carrying == ["x-api-key" if backend is AnthropicBackend else "authorization"]
    assert "canary" not in request.path + json.dumps(request.body)
    assert "canary" not in repr([turn.events for turn in done]) + repr(done[-1].session)


@each_backend
async def test_a_key_in_which_a_refusal_was_cut_leaves_nothing_of_it(
    backend: type[Backend], monkeypatch: pytest.MonkeyPatch
) -> None:
    """So much of a body that is no JSON is kept, wherever that ends."""
    key = "sk-canary-0123456789"
    monkeypatch.setenv("MY_KEY", key)
    body = "." * (TEXT_CHARACTERS - len(key) + 1) + key + "..."
    [done], _ = await asked(backend, Sends(status=401, body=body.encode()), api_key_env="MY_KEY")

    assert "sk-canary" not in repr(done.events)
    assert failure(done).raw == body[: body.index(key)] + INSTEAD


@each_backend
async def test_a_key_that_a_scheme_stands_before_is_taken_out_alone(
    backend: type[Backend],
) -> None:
    """What a server says of it has another word before it, or none."""
    key = "tok-1111122222333334"
    refusal = refuses(401, f"token {key} is revoked")
    [done], _ = await asked(backend, refusal, headers={"x-api-token": f"Bearer {key}"})

    assert failure(done).message == f"token {INSTEAD} is revoked"
    assert key not in repr(done.events)


@each_backend
async def test_a_mistaken_answer_says_nothing_and_raises_nothing(backend: type[Backend]) -> None:
    """Objects of another shape are no answers, and no crashes either."""
    for body in (b"{}", b'{"content": 5, "choices": 5, "output": 5, "status": 5}'):
        [done], _ = await asked(
            backend, Sends(headers={"content-type": "application/json"}, body=body)
        )
        assert done.kinds == ["error"]


@each_backend
async def test_a_key_is_not_in_what_a_crash_says(
    backend: type[Backend], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Should an answer ever make a fold raise, the words of that are the turn's reason."""

    def broken(body: bytes) -> None:
        raise ValueError(f"cannot read {body.decode()}")

    monkeypatch.setenv("MY_KEY", "canary-key-1")
    monkeypatch.setattr(http_turns, "json_value", broken)
    body = Sends(headers={"content-type": "application/json"}, body=b"canary-key-1 is no key")

    with pytest.raises(RuntimeError) as raised:
        await asked(backend, body, api_key_env="MY_KEY")

    assert str(raised.value) == f"ValueError: cannot read {INSTEAD} is no key"
