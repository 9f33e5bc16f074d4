"""A provider on loopback: Messages, Responses and Chat Completions, as JSON and as a stream.

Every request takes the next of the `answers` it was given (the last one repeats) and
is remembered in `requests`. An answer is what the model says (`Says`), rendered in
the dialect of the path that was asked, or bytes that are sent as they are (`Sends`),
cut where a test wants them cut, and ended as a test wants them ended.
"""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Literal, Self
from zlib import crc32


@dataclass(frozen=True, slots=True)
class Received:
    """One request as it arrived."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: dict[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Says:
    """What the model says, whatever the dialect."""

    pieces: Sequence[str] = ("Hello", " there")
    stop: str | None = None
    usage: tuple[int, int] = (7, 3)
    thinking: str | None = None
    refusal: str | None = None
    tool: tuple[str, Mapping[str, object]] | None = None
    #: How a stream is cut: into pieces of this many bytes.
    cut: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sends:
    """Bytes, and how the connection goes on after them."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    cut: int | None = None
    then: Literal["close", "reset", "silence"] = "close"
    #: Pretend that more is to come, so that closing cuts the answer short.
    unfinished: bool = False


Answer = Says | Sends


def refuses(status: int, message: str, *, code: str = "", **headers: str) -> Sends:
    """Return a refusal in the shape that all three dialects share."""
    error = {"type": code or "some_error", "code": code, "message": message}
    return Sends(
        status=status,
        headers={"content-type": "application/json", **headers},
        body=json.dumps({"type": "error", "error": error}).encode(),
    )


def stream_of(
    *events: Mapping[str, object] | str,
    cut: int | None = None,
    then: Literal["close", "reset", "silence"] = "close",
    unfinished: bool = False,
) -> Sends:
    """Return a stream of exactly these events."""
    headers = {"content-type": "text/event-stream; charset=utf-8"}
    return Sends(headers=headers, body=sse(*events), cut=cut, then=then, unfinished=unfinished)


def sse(*events: Mapping[str, object] | str) -> bytes:
    """Return events as a stream has them."""
    rendered = []
    for event in events:
        if isinstance(event, str):
            rendered.append(f"data: {event}\n\n")
        else:
            name = f"event: {event['type']}\n" if "type" in event else ""
            rendered.append(f"{name}data: {json.dumps(event, ensure_ascii=False)}\n\n")
    return "".join(rendered).encode()


class FakeProvider:
    """The server. Use it as an asynchronous context manager."""

    def __init__(self, *answers: Answer, tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls
        self.answers: list[Answer] = list(answers) or [Says()]
        self.requests: list[Received] = []
        self.asked = asyncio.Event()
        #: Set once the other side has left an answer that had fallen silent.
        self.left = asyncio.Event()
        self._serving: set[asyncio.Task[None]] = set()

    @property
    def base_url(self) -> str:
        """Where it listens, with the path that all dialects share."""
        return f"{self.origin}/v1"

    @property
    def origin(self) -> str:
        """Where it listens."""
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self._port}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0, ssl=self._tls)
        self._port: int = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self._server.close()
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)
        await self._server.wait_closed()

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._serving.add(task)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                received = await _request(reader)
                if received is None:
                    await self._send(writer, reader, refuses(400, "this is no HTTP"))
                    return
                if received.method != "POST" or not _known(received.path):
                    await self._send(writer, reader, refuses(404, "there is nothing here"))
                    return
                self.requests.append(received)
                self.asked.set()
                turn = min(len(self.requests), len(self.answers)) - 1
                answer = self.answers[turn]
                sends = answer if isinstance(answer, Sends) else rendered(answer, received)
                await self._send(writer, reader, sends)
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    async def _send(
        self, writer: asyncio.StreamWriter, reader: asyncio.StreamReader, sends: Sends
    ) -> None:
        length = len(sends.body) + (1 if sends.unfinished or sends.then != "close" else 0)
        lines = [f"HTTP/1.1 {sends.status} X", f"content-length: {length}", "connection: close"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in sends.headers.items()]
        writer.write("\r\n".join([*lines, "", ""]).encode())
        step = sends.cut or max(len(sends.body), 1)
        for start in range(0, len(sends.body), step):
            writer.write(sends.body[start : start + step])
            await writer.drain()
            # The other side shall see each piece on its own.
            await asyncio.sleep(0)
        if sends.then == "silence":
            await reader.read()
            self.left.set()
        elif sends.then == "reset":
            sock: socket.socket = writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()


async def _request(reader: asyncio.StreamReader) -> Received | None:
    start = await reader.readexactly(1)
    if not start.isalpha():
        return None  # as real servers see at once when somebody speaks TLS to them
    head = (start + await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.split("\r\n")
    method, target, _version = first.split(" ")
    headers = {
        name.strip().lower(): value.strip()
        for name, _, value in (line.partition(":") for line in lines if line)
    }
    if "chunked" in headers.get("transfer-encoding", ""):
        body = b"".join([piece async for piece in _chunks(reader)])
    else:
        body = await reader.readexactly(int(headers.get("content-length", "0")))
    parsed = json.loads(body) if body else {}
    return Received(method, target.partition("?")[0], headers, parsed)


async def _chunks(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while size := int(await reader.readline(), 16):
        yield await reader.readexactly(size)
        await reader.readline()
    await reader.readline()


def _known(path: str) -> bool:
    return path.endswith(("/messages", "/responses", "/chat/completions"))


# -- dialects ----------------------------------------------------------------------------------


def rendered(says: Says, received: Received) -> Sends:
    """Return what *says* is in the dialect of the path, streamed if that was asked for."""
    if received.path.endswith("/messages"):
        whole, events = messages(says)
    elif received.path.endswith("/responses"):
        whole, events = responses(says)
    else:
        whole, events = chat(says)
    if received.body.get("stream") is True:
        return stream_of(*events, cut=says.cut)
    return Sends(
        headers={"content-type": "application/json"}, body=json.dumps(whole).encode(), cut=says.cut
    )


def first_half(path: str, then: Literal["close", "reset", "silence"] = "silence") -> Sends:
    """Return an answer to *path* that says its first words, and then what *then* says."""
    whole = rendered(Says(), Received("POST", path, {}, {"stream": True}))
    end = whole.body.index(b"\n\n", whole.body.index(b"Hello")) + 2
    return Sends(headers=whole.headers, body=whole.body[:end], then=then, unfinished=True)


Rendered = tuple[dict[str, object], list[Mapping[str, object] | str]]


def messages(says: Says) -> Rendered:
    """Render the Messages dialect."""
    tokens_in, tokens_out = says.usage
    blocks: list[dict[str, object]] = []
    events: list[Mapping[str, object] | str] = []

    def block(start: dict[str, object], deltas: Iterator[dict[str, object]]) -> None:
        index = len(blocks)
        events.append({"type": "content_block_start", "index": index, "content_block": start})
        events.extend(
            {"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas
        )
        events.append({"type": "content_block_stop", "index": index})

    if says.thinking is not None:
        start: dict[str, object] = {"type": "thinking", "thinking": "", "signature": ""}
        thought: dict[str, object] = {"type": "thinking_delta", "thinking": says.thinking}
        block(start, iter([thought, {"type": "signature_delta", "signature": "sig"}]))
        blocks.append({"type": "thinking", "thinking": says.thinking, "signature": "sig"})
    block(
        {"type": "text", "text": ""},
        ({"type": "text_delta", "text": piece} for piece in says.pieces),
    )
    blocks.append({"type": "text", "text": "".join(says.pieces)})
    if says.tool is not None:
        name, given = says.tool
        call = {"type": "tool_use", "id": "toolu_fake", "name": name}
        partial: dict[str, object] = {
            "type": "input_json_delta",
            "partial_json": json.dumps(given),
        }
        block({**call, "input": {}}, iter([partial]))
        blocks.append({**call, "input": given})
    stop = says.stop or ("tool_use" if says.tool else "end_turn")
    message: dict[str, object] = {
        "id": f"msg_{crc32(repr(blocks).encode()):08x}",
        "type": "message",
        "role": "assistant",
        "model": "fake-model",
        "stop_reason": stop,
        "stop_sequence": None,
    }
    usage = {
        "input_tokens": tokens_in,
        "output_tokens": tokens_out,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 2,
    }
    opening = {
        **message,
        "stop_reason": None,
        "content": [],
        "usage": {**usage, "output_tokens": 1},
    }
    stream: list[Mapping[str, object] | str] = [
        {"type": "message_start", "message": opening},
        {"type": "ping"},
        *events,
        {
            "type": "message_delta",
            "delta": {"stop_reason": stop, "stop_sequence": None},
            "usage": {"output_tokens": tokens_out},
        },
        {"type": "message_stop"},
    ]
    return {**message, "content": blocks, "usage": usage}, stream


def responses(says: Says) -> Rendered:
    """Render the Responses dialect."""
    tokens_in, tokens_out = says.usage
    text = "".join(says.pieces)
    part: dict[str, object] = {"type": "output_text", "text": text, "annotations": []}
    if says.refusal is not None:
        part = {"type": "refusal", "refusal": says.refusal}
    output: list[dict[str, object]] = []
    if says.thinking is not None:
        output.append(
            {"type": "reasoning", "id": "rs_fake", "summary": [], "encrypted_content": "enc"}
        )
    output.append(
        {
            "type": "message",
            "id": "msg_fake",
            "role": "assistant",
            "status": "completed",
            "content": [part],
        }
    )
    if says.tool is not None:
        name, given = says.tool
        output.append(
            {
                "type": "function_call",
                "id": "fc_fake",
                "call_id": "call_fake",
                "name": name,
                "arguments": json.dumps(given),
                "status": "completed",
            }
        )
    status = says.stop or "completed"
    response: dict[str, object] = {
        "id": "resp_fake",
        "object": "response",
        "status": status,
        "model": "fake-model",
        "output": output,
        "error": {"code": "server_error", "message": "boom"} if status == "failed" else None,
        "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
        "usage": {
            "input_tokens": tokens_in,
            "input_tokens_details": {"cached_tokens": 2},
            "output_tokens": tokens_out,
            "output_tokens_details": {"reasoning_tokens": 1},
            "total_tokens": tokens_in + tokens_out,
        },
    }
    events: list[Mapping[str, object] | str] = [
        {
            "type": "response.created",
            "response": {**response, "status": "in_progress", "output": [], "usage": None},
        }
    ]
    for index, item in enumerate(output):
        added = {**item, "status": "in_progress", "content": [], "arguments": ""}
        events.append({"type": "response.output_item.added", "output_index": index, "item": added})
        if item["type"] == "message" and says.refusal is None:
            events.extend(
                {
                    "type": "response.output_text.delta",
                    "item_id": "msg_fake",
                    "output_index": index,
                    "content_index": 0,
                    "delta": piece,
                }
                for piece in says.pieces
            )
        events.append({"type": "response.output_item.done", "output_index": index, "item": item})
    last = status if status in ("completed", "failed", "incomplete") else "completed"
    events.append({"type": f"response.{last}", "response": response})
    return response, events


def chat(says: Says) -> Rendered:
    """Render the Chat Completions dialect."""
    tokens_in, tokens_out = says.usage
    stop = says.stop or "stop"
    usage = {
        "prompt_tokens": tokens_in,
        "completion_tokens": tokens_out,
        "total_tokens": tokens_in + tokens_out,
        "prompt_tokens_details": {"cached_tokens": 2},
    }
    head = {"id": "chatcmpl-fake", "model": "fake-model"}

    def chunk(delta: Mapping[str, object], reason: str | None = None) -> Mapping[str, object]:
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        return {**head, "object": "chat.completion.chunk", "choices": [choice]}

    events: list[Mapping[str, object] | str] = [chunk({"role": "assistant", "content": ""})]
    events += [chunk({"content": piece}) for piece in says.pieces]
    if says.refusal is not None:
        events.append(chunk({"refusal": says.refusal}))
    events += [chunk({}, stop), {**head, "choices": [], "usage": usage}, "[DONE]"]
    message = {
        "role": "assistant",
        "content": "".join(says.pieces),
        "refusal": says.refusal,
    }
    choice = {"index": 0, "message": message, "finish_reason": stop}
    return {**head, "object": "chat.completion", "choices": [choice], "usage": usage}, events
