"""The program `genagent`, and what its commands have in common."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, overload

import click

from genagent_protocol.errors import GenAgentError, Refused, TurnFailed
from genagent_protocol.reasons import NOT_FOUND, TIMEOUT
from genagent_protocol.refs import AgentHandle, RequestRef
from genagentd.cli.output import Output
from genagentd.cli.program import CONTEXT, flags, output
from genagentd.cli.standing import not_asked, ran_too_long, row_of
from genagentd.cli.values import name_of, ref_of, seconds, shown
from genagentd.cli.versions import version_option

if TYPE_CHECKING:
    from genagent_protocol.answers import AgentRow
    from genagentd.client.client import Client

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


@click.group(context_settings=CONTEXT, no_args_is_help=False)
@version_option
def app() -> None:
    """Talk to long-running LLM agents.

    \b
    genagent start coder --backend claude
    genagent ask coder "What does main.py do?"
    genagent tell coder "Add tests for it" --wait
    genagent list
    """


flags(app)

#: How long connecting may take at least: a limit that is shorter is about the answer.
_CONNECT_MS = 1_000


@contextmanager
def connected(timeout: float | None = None) -> Iterator[Client]:
    """Yield a client of the daemon; connecting may take *timeout* seconds, within bounds.

    Raises:
        Failure: no agent of the given name was found, and the daemon knows why; or a turn
            failed for its length, and the daemon knows the limit.
    """
    from genagentd.client.client import Client
    from genagentd.client.conversation import CONNECT_TIMEOUT_MS

    own = CONNECT_TIMEOUT_MS if timeout is None else milliseconds(timeout)
    with Client().connect(max(_CONNECT_MS, min(CONNECT_TIMEOUT_MS, own))) as client:
        try:
            yield client
        except Refused as refused:
            if refused.reason != NOT_FOUND:
                raise
            out = output()
            known = not_asked(known_rows(client), out.command, out.agent)
            if known is None:
                raise
            raise known from refused
        except TurnFailed as failed:
            if failed.reason != TIMEOUT:
                raise
            agent = output().agent
            row = row_of(known_rows(client), agent)
            raise ran_too_long(failed, row, agent) from failed


def known_rows(client: Client) -> tuple[AgentRow, ...]:
    """Return what the daemon knows of each agent, or nothing if it does not say so at once."""
    try:
        return client.list(_CONNECT_MS)
    except GenAgentError:
        return ()


def found(client: Client, name: object) -> AgentHandle:
    """Return the handle of the agent of that name; without one nothing would be sent.

    Raises:
        Refused: `not_found`.
    """
    handle = client.whereis(name)
    if handle is None:
        raise Refused(f"no agent is named {shown(name)}", NOT_FOUND)
    return handle


def shown_ref(ref: RequestRef | None) -> str:
    """Return a ref the way it is shown in a sentence."""
    return f"request {ref}"


@overload
def milliseconds(seconds: float) -> int: ...
@overload
def milliseconds(seconds: float | None) -> int | None: ...
def milliseconds(seconds: float | None) -> int | None:
    """Return seconds as milliseconds, rounded up; None as no limit."""
    return None if seconds is None else math.ceil(seconds * 1000)


def name_argument() -> Decorator:
    """Take the name of an agent."""
    return click.argument("name", type=name_of, metavar="NAME", callback=_told)


def _told(context: click.Context, _argument: click.Parameter, name: object) -> object:
    """Keep what was typed for messages about it."""
    out = context.find_object(Output)
    if out is not None:
        out.command, out.agent = context.info_name or "", shown(name)
    return name


def ref_argument(*, required: bool = True) -> Decorator:
    """Take the ref of a request."""
    metavar = "REF" if required else "[REF]"
    return click.argument("ref", type=ref_of, metavar=metavar, required=required)


def timeout_option(default: float | None = None) -> Decorator:
    """Take the seconds a command may wait; without a default there is no limit."""
    return click.option(
        "--timeout",
        type=seconds,
        default=default,
        show_default=default is not None,
        metavar="S",
        help="Seconds to wait.",
    )
