"""Any server that speaks Chat Completions as a backend: local models, proxies, gateways.

It needs the extra `genagentd[http]`. The key is named by `api_key_env` (by default
OPENAI_API_KEY) or `api_key_file`; a server on this machine needs none, and gets none
that is not named. The conversation is kept here and sent every time.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from genagent_backends.base import Failed, Streaming, Turn
from genagent_backends.chat_completions import ChatFold
from genagent_backends.endpoints import (
    MAX_OUTPUT_TOKENS,
    Endpoint,
    read_endpoint,
    request_fields,
    set_twice,
)
from genagent_backends.history import History
from genagent_backends.http_turns import bearer, converse, request
from genagent_backends.options import Chosen, Option, choice, flag
from genagent_backends.transport import Connections, is_address
from genagent_protocol.plain import FrozenDict

BASE_URL = "https://api.openai.com/v1"
KEY_VARIABLE = "OPENAI_API_KEY"

TOKENS_FIELDS = ("max_tokens", "max_completion_tokens")
#: Newer servers of the provider that invented the API want the longer name.
TOKENS_FIELD: Option[str] = Option("max_tokens_field", choice(*TOKENS_FIELDS), "max_tokens")
STREAM_USAGE: Option[bool] = Option("stream_usage", flag, True)
FIELDS: Option[FrozenDict] = Option(
    "request_fields",
    request_fields(
        "model", "messages", "stream", "stream_options", "n", "tools", "tool_choice", "functions"
    ),
    FrozenDict(),
)


@dataclass(frozen=True, slots=True)
class ChatSession:
    """One conversation. Printing it shows neither keys nor what was said."""

    endpoint: Endpoint
    tokens_field: str
    stream_usage: bool
    session_id: str
    history: History = field(default_factory=History)
    #: The prompt of the turn that is under way; it enters the history with its answer.
    asked: str | None = field(default=None, repr=False)
    connections: Connections = field(default_factory=Connections, repr=False, compare=False)


class ChatBackend:
    """Turns prompts into Chat Completions requests, and streams what comes back.

    Options of its own: `max_tokens_field`, `stream_usage` (ask for usage at the end of
    a stream; switch it off for servers that refuse the question) and
    `request_fields`; `endpoints.py` lists the others. Failures have the provider
    `chat`. A refused, cut-off, failed or blank answer leaves the conversation as it was.

    This does not run tools, and it cannot resume: the conversation dies with the agent.
    """

    def start_session(self, options: FrozenDict) -> ChatSession | Failed:
        """Check every option, then that there is a key if one is needed; nothing is sent yet."""
        read = read_endpoint(
            (TOKENS_FIELD, STREAM_USAGE),
            FIELDS,
            options,
            key_variable=KEY_VARIABLE,
            url=BASE_URL,
            is_address=is_address,
            check=_contradiction,
        )
        if isinstance(read, Failed):
            return read
        endpoint, chosen = read
        return ChatSession(
            endpoint, TOKENS_FIELD.of(chosen), STREAM_USAGE.of(chosen), os.urandom(16).hex()
        )

    def prompt(self, session: ChatSession, prompt: str, _turn: Turn) -> Streaming:
        """Send the conversation with *prompt* at its end."""
        sent = request(session.endpoint, "/chat/completions", _body(session, prompt), bearer)
        events = converse(session.connections, session.endpoint, sent, ChatFold(session.session_id))
        return Streaming(events, replace(session, asked=prompt))

    def update_session(self, session: ChatSession, data: FrozenDict) -> ChatSession:
        """Keep question and answer, unless the answer said nothing."""
        said = data.get("text")
        if session.asked is None:
            return session
        if not isinstance(said, str) or not said.strip():
            return replace(session, asked=None)
        history = session.history.with_turn(
            _message("user", session.asked),
            _message("assistant", said),
            keep=session.endpoint.max_history_turns,
        )
        return replace(session, history=history, asked=None)

    def reset_session(self, session: ChatSession) -> ChatSession:
        """Begin a new conversation."""
        return replace(session, session_id=os.urandom(16).hex(), history=History(), asked=None)

    def terminate_session(self, _session: ChatSession) -> None:
        """Do nothing: no connection outlives its turn."""


def _contradiction(chosen: Chosen) -> Failed | None:
    if MAX_OUTPUT_TOKENS.of(chosen) is None:
        return None
    # Also by the other name: two limits that differ are a mistake.
    return set_twice(FIELDS.of(chosen), dict.fromkeys(TOKENS_FIELDS, MAX_OUTPUT_TOKENS))


def _body(session: ChatSession, prompt: str) -> Mapping[str, object]:
    endpoint = session.endpoint
    system = () if endpoint.system_prompt is None else (_message("system", endpoint.system_prompt),)
    optional: dict[str, object] = {}
    if endpoint.max_output_tokens is not None:
        optional[session.tokens_field] = endpoint.max_output_tokens
    if endpoint.stream and session.stream_usage:
        optional["stream_options"] = {"include_usage": True}
    return {
        "model": endpoint.model,
        "messages": [*system, *session.history.messages, _message("user", prompt)],
        "stream": endpoint.stream,
        **optional,
    }


def _message(role: str, content: str) -> FrozenDict:
    return FrozenDict({"role": role, "content": content})
