"""The program `genagent`, and what its commands have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from genagent_protocol.errors import Refused
from genagent_protocol.reasons import NOT_FOUND
from genagent_protocol.refs import AgentHandle, RequestRef
from genagentd.cli.program import CONTEXT, flags
from genagentd.cli.values import name_of, ref_of, shown
from genagentd.cli.versions import version_option

if TYPE_CHECKING:
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


@contextmanager
def connected(timeout: float | None = None) -> Iterator[Client]:
    """Yield a client of the daemon; connecting may take *timeout* seconds, if that is less."""
    from genagentd.client.client import Client
    from genagentd.client.conversation import CONNECT_TIMEOUT_MS

    own = CONNECT_TIMEOUT_MS if timeout is None else round(timeout * 1000)
    with Client().connect(min(CONNECT_TIMEOUT_MS, own)) as client:
        yield client


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


def milliseconds(seconds: float | None) -> int | None:
    """Return seconds as milliseconds, None as no limit."""
    return None if seconds is None else round(seconds * 1000)


def name_argument() -> Decorator:
    """Take the name of an agent."""
    return click.argument("name", type=name_of, metavar="NAME")


def ref_argument(*, required: bool = True) -> Decorator:
    """Take the ref of a request."""
    metavar = "REF" if required else "[REF]"
    return click.argument("ref", type=ref_of, metavar=metavar, required=required)


def timeout_option(default: float | None = None) -> Decorator:
    """Take the seconds a command may wait; without a default there is no limit."""
    return click.option(
        "--timeout",
        type=click.FloatRange(min=0),
        default=default,
        show_default=default is not None,
        metavar="S",
        help="Seconds to wait.",
    )
