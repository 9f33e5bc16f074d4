"""OpenAI's Responses API as a backend; the conversation is kept there, or here on request.

It needs the extra `genagentd[http]`. The key is named by `api_key_env` (by default
OPENAI_API_KEY, unless `base_url` leads to this machine) or `api_key_file`. With `store`
the provider keeps the conversation and each request names the response before it;
without, everything is sent again.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from genagent_backends.base import Failed, Streaming, Turn
from genagent_backends.endpoints import (
    MAX_HISTORY_TURNS,
    Endpoint,
    read_endpoint,
    request_fields,
    set_twice,
)
from genagent_backends.foreign import items_at
from genagent_backends.history import History
from genagent_backends.http_turns import bearer, converse, request
from genagent_backends.openai_responses import OpenAIFold
from genagent_backends.options import Chosen, Option, choice, flag, refuse, text
from genagent_backends.transport import Connections, is_address
from genagent_protocol.plain import FrozenDict

BASE_URL = "https://api.openai.com/v1"
KEY_VARIABLE = "OPENAI_API_KEY"

STORE: Option[bool] = Option("store", flag, True)
TRUNCATION: Option[str | None] = Option("truncation", choice("auto", "disabled"), None)
EFFORT: Option[str | None] = Option("reasoning_effort", text, None)
FIELDS: Option[FrozenDict] = Option(
    "request_fields",
    request_fields(
        "model",
        "input",
        "instructions",
        "store",
        "stream",
        "previous_response_id",
        "conversation",
        "max_output_tokens",
        "truncation",
        "background",
        "tools",
        "tool_choice",
    ),
    FrozenDict(),
)


class Chain:
    """What a conversation continues: a response there, or a history here.

    The one thing of a session that changes in place: a failed turn teaches the
    session nothing, but a conversation that turned out to be lost must be given up.
    """

    def __init__(self, previous: str | None = None, history: History | None = None) -> None:
        self.previous = previous
        self.history = history or History()

    def __repr__(self) -> str:
        return f"Chain({self.previous}, {self.history!r})"

    @property
    def established(self) -> bool:
        """Whether there is anything to continue."""
        return self.previous is not None or bool(self.history.turns)

    def give_up(self) -> None:
        """Continue nothing: the next prompt begins anew."""
        self.previous, self.history = None, History()


@dataclass(frozen=True, slots=True)
class OpenAISession:
    """One conversation. Printing it shows neither keys nor what was said."""

    endpoint: Endpoint
    stored: bool
    truncation: str | None
    reasoning_effort: str | None
    session_id: str
    chain: Chain = field(default_factory=Chain)
    #: The prompt of the turn that is under way.
    asked: str | None = field(default=None, repr=False)
    connections: Connections = field(default_factory=Connections, repr=False, compare=False)


class OpenAIBackend:
    """Turns prompts into Responses requests, and streams what comes back.

    Options of its own: `store` (true), `truncation`, `reasoning_effort` and
    `request_fields`; `endpoints.py` lists the others. Failures have the provider
    `openai`. A refused, cut-off, failed or blank answer leaves the conversation as it
    was; one that the provider has lost is given up once (`conversation_lost`).

    This does not run tools, and it cannot resume: the conversation dies with the agent.
    """

    def start_session(self, options: FrozenDict) -> OpenAISession | Failed:
        """Check every option, then that there is a key; nothing is sent yet."""
        read = read_endpoint(
            (STORE, TRUNCATION, EFFORT),
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
        return OpenAISession(
            endpoint,
            STORE.of(chosen),
            TRUNCATION.of(chosen),
            EFFORT.of(chosen),
            os.urandom(16).hex(),
        )

    def prompt(self, session: OpenAISession, prompt: str, _turn: Turn) -> Streaming:
        """Send *prompt*, with what it continues and the instructions, which do not carry over."""
        sent = request(session.endpoint, "/responses", _body(session, prompt), bearer)
        fold = OpenAIFold(
            session.session_id,
            established=session.chain.established,
            stored=session.stored,
            lose=session.chain.give_up,
        )
        events = converse(session.connections, session.endpoint, sent, fold)
        return Streaming(events, replace(session, asked=prompt))

    def update_session(self, session: OpenAISession, data: FrozenDict) -> OpenAISession:
        """Continue from the response that succeeded, unless it said nothing."""
        said, response_id = data.get("text"), data.get("response_id")
        if session.asked is None:
            return session
        if not isinstance(said, str) or not said.strip():
            return replace(session, asked=None)
        if session.stored:
            # Without an id it was no answer; the fold sees to that.
            chain = Chain(response_id) if isinstance(response_id, str) else session.chain
            return replace(session, chain=chain, asked=None)
        history = session.chain.history.with_turn(
            _question(session.asked),
            *items_at(data, "raw", "output"),
            keep=session.endpoint.max_history_turns,
        )
        return replace(session, chain=Chain(history=history), asked=None)

    def reset_session(self, session: OpenAISession) -> OpenAISession:
        """Begin a new conversation."""
        return replace(session, session_id=os.urandom(16).hex(), chain=Chain(), asked=None)

    def terminate_session(self, _session: OpenAISession) -> None:
        """Do nothing: no connection outlives its turn."""


def _contradiction(chosen: Chosen) -> Failed | None:
    if STORE.of(chosen) and MAX_HISTORY_TURNS.of(chosen) is not None:
        return refuse(
            "unsupported_option",
            "max_history_turns",
            "option max_history_turns needs store=false: the provider keeps the conversation",
        )
    ours: dict[str, Option[Any]] = {}
    if EFFORT.of(chosen) is not None:
        ours["reasoning"] = EFFORT
    if not STORE.of(chosen):
        ours["include"] = STORE
    return set_twice(FIELDS.of(chosen), ours)


def _body(session: OpenAISession, prompt: str) -> Mapping[str, object]:
    endpoint, effort = session.endpoint, session.reasoning_effort
    optional = {
        "instructions": endpoint.system_prompt,
        "max_output_tokens": endpoint.max_output_tokens,
        "truncation": session.truncation,
        "reasoning": {"effort": effort} if effort else None,
        "previous_response_id": session.chain.previous,
        # Without it, what the model thought could not be sent again.
        "include": None if session.stored else ["reasoning.encrypted_content"],
    }
    return {
        "model": endpoint.model,
        "input": [*session.chain.history.messages, _question(prompt)],
        "store": session.stored,
        "stream": endpoint.stream,
        **{name: value for name, value in optional.items() if value is not None},
    }


def _question(prompt: str) -> FrozenDict:
    return FrozenDict({"role": "user", "content": prompt})
