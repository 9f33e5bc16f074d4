"""Anthropic's Messages API as a backend; the conversation is kept here and sent every time.

It needs the extra `genagentd[http]`. The key is named by `api_key_env` (by default
ANTHROPIC_API_KEY, unless `base_url` leads to this machine) or `api_key_file`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import date

from genagent_backends.anthropic_messages import AnthropicFold
from genagent_backends.base import Failed, Streaming, Turn
from genagent_backends.endpoints import Endpoint, read_endpoint, request_fields
from genagent_backends.foreign import items_at, text_at
from genagent_backends.history import History
from genagent_backends.http_turns import converse, request
from genagent_backends.options import BadValue, Option, flag, text
from genagent_backends.transport import Connections, is_address
from genagent_protocol.plain import FrozenDict, Plain

BASE_URL = "https://api.anthropic.com/v1"
KEY_VARIABLE = "ANTHROPIC_API_KEY"
MAX_OUTPUT_TOKENS = 1_024


def _date(value: Plain) -> str:
    try:
        if re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text(value)):
            return date.fromisoformat(text(value)).isoformat()
    except ValueError:
        pass
    raise BadValue("must be a date like 2023-06-01")


API_VERSION: Option[str] = Option("api_version", _date, "2023-06-01")
CACHE: Option[bool] = Option("cache", flag, False)
FIELDS: Option[FrozenDict] = Option(
    "request_fields",
    request_fields(
        "model",
        "max_tokens",
        "messages",
        "system",
        "cache_control",
        "stream",
        "tools",
        "tool_choice",
    ),
    FrozenDict(),
)


@dataclass(frozen=True, slots=True)
class AnthropicSession:
    """One conversation. Printing it shows neither keys nor what was said."""

    endpoint: Endpoint
    api_version: str
    cached: bool
    session_id: str
    history: History = field(default_factory=History)
    #: The prompt of the turn that is under way; it enters the history with its answer.
    asked: str | None = field(default=None, repr=False)
    connections: Connections = field(default_factory=Connections, repr=False, compare=False)


class AnthropicBackend:
    """Turns prompts into Messages requests, and streams what comes back.

    Options of its own: `api_version`, `cache` (the five-minute prompt cache) and
    `request_fields`; `endpoints.py` lists the others. Failures have the provider
    `anthropic`. A refused, cut-off, failed or blank answer leaves the conversation
    as it was.

    This does not run tools, and it cannot resume: the conversation dies with the agent.
    """

    def start_session(self, options: FrozenDict) -> AnthropicSession | Failed:
        """Check every option, then that there is a key; nothing is sent yet."""
        read = read_endpoint(
            (API_VERSION, CACHE),
            FIELDS,
            options,
            key_variable=KEY_VARIABLE,
            url=BASE_URL,
            is_address=is_address,
        )
        if isinstance(read, Failed):
            return read
        endpoint, chosen = read
        return AnthropicSession(
            endpoint, API_VERSION.of(chosen), CACHE.of(chosen), os.urandom(16).hex()
        )

    def prompt(self, session: AnthropicSession, prompt: str, _turn: Turn) -> Streaming:
        """Send the conversation with *prompt* at its end."""
        sent = request(
            session.endpoint,
            "/messages",
            _body(session, prompt),
            lambda key: {"x-api-key": key},
            {"anthropic-version": session.api_version},
        )
        events = converse(
            session.connections, session.endpoint, sent, AnthropicFold(session.session_id)
        )
        return Streaming(events, replace(session, asked=prompt))

    def update_session(self, session: AnthropicSession, data: FrozenDict) -> AnthropicSession:
        """Keep question and answer; the answer whole, with what the model thought."""
        said = data.get("text")
        if session.asked is None:
            return session
        if not isinstance(said, str) or not said.strip():
            return replace(session, asked=None)
        answer = _sent_again(items_at(data, "raw", "content"))
        history = session.history.with_turn(
            _message("user", session.asked),
            _message("assistant", answer),
            keep=session.endpoint.max_history_turns,
        )
        return replace(session, history=history, asked=None)

    def reset_session(self, session: AnthropicSession) -> AnthropicSession:
        """Begin a new conversation."""
        return replace(session, session_id=os.urandom(16).hex(), history=History(), asked=None)

    def terminate_session(self, _session: AnthropicSession) -> None:
        """Do nothing: no connection outlives its turn."""


def _body(session: AnthropicSession, prompt: str) -> Mapping[str, object]:
    endpoint = session.endpoint
    optional = {
        "system": endpoint.system_prompt,
        "cache_control": {"type": "ephemeral"} if session.cached else None,
    }
    return {
        "model": endpoint.model,
        "max_tokens": endpoint.max_output_tokens or MAX_OUTPUT_TOKENS,
        "messages": [*session.history.messages, _message("user", prompt)],
        "stream": endpoint.stream,
        **{name: value for name, value in optional.items() if value is not None},
    }


def _sent_again(blocks: tuple[FrozenDict, ...]) -> tuple[FrozenDict, ...]:
    """Return the *blocks* of an answer without those that the provider sends but refuses.

    That is blank text, and the use of a tool of its own whose input came in pieces that
    are no JSON together; what the tool returned goes with it.
    """
    broken = [block for block in blocks if isinstance(block.get("input"), str)]
    uses = {block["id"] for block in broken if block.get("id") is not None}
    return tuple(
        block
        for block in blocks
        if (block.get("type") != "text" or (text_at(block, "text") or "").strip())
        and block not in broken
        and block.get("tool_use_id") not in uses
    )


def _message(role: str, content: Plain) -> FrozenDict:
    return FrozenDict({"role": role, "content": content})
