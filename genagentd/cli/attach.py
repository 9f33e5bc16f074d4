"""Functions between a terminal and an agent: `attach` answers an agent's, `call` calls one.

The terminal is a client like any other: it serves one small catalog, and an agent
that wants something of a person names it. What an agent says is shown and never
obeyed by the terminal; without an answer the agent hears that there was none.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import click

from genagent_protocol.errors import FunctionFailed, Refused
from genagent_protocol.reasons import NOCONNECTION, NORMAL, NOT_FOUND, SHUTDOWN
from genagentd.cli import exits
from genagentd.cli.agents import app, connected, milliseconds, name_argument, timeout_option
from genagentd.cli.exits import Failure
from genagentd.cli.output import shortened
from genagentd.cli.person import Person
from genagentd.cli.program import command, output
from genagentd.cli.standing import not_asked
from genagentd.cli.values import json_or_text, shown

if TYPE_CHECKING:
    from genagentd.client.aio import AsyncClient
    from genagentd.client.session import AsyncSession, Session
    from genagentd.rpc import Catalog

#: The catalog that a terminal serves.
TERMINAL_CATALOG_ID = "urn:genagentd:terminal"
#: The agent's answer to a call of what it does not offer.
UNKNOWN_FUNCTION = "UNKNOWN_FUNCTION"
#: The time of a call is over.
TIMEOUT = "TIMEOUT"
#: How a call ends whose session is over, during it or before.
ENDED = ("CANCELLED", "DISPOSED")

#: What each function takes: the names of its texts, and which of them must be there.
_TEXTS = {
    "ask": (("question", "detail"), ("question",)),
    "confirm": (("question", "detail"), ("question",)),
    "show": (("text",), ("text",)),
}


@command(app, "attach")
@name_argument()
def attach(name: object) -> int:
    """Answer what an agent asks, until it ends or Ctrl-C.

    An agent asks with the catalog urn:genagentd:terminal: `confirm` (yes or no),
    `ask` (a line of text) and `show`.

    \b
    genagent attach deployer
    """
    return asyncio.run(_attached(name))


async def _attached(name: object) -> int:
    from genagentd.client.aio import AsyncClient

    out = output()
    async with (
        AsyncClient() as client,
        await _session(client, name, Person(out)) as session,
    ):
        out.note(f"attached to {shown(name)}; Ctrl-C detaches")
        await session.serve()
        return _ended(session, name)


async def _session(client: AsyncClient, name: object, person: Person) -> AsyncSession:
    try:
        return await client.attach(name, catalogs=[_catalog()], functions=person.functions)
    except Refused as refused:
        if refused.reason != NOT_FOUND:
            raise
        out = output()
        known = not_asked(await client.list(), out.command, out.agent)
        if known is None:
            raise
        raise known from refused


@command(app, "call")
@name_argument()
@click.argument("function")
@click.argument("arguments", required=False, default="{}")
@timeout_option()
def call(name: object, function: str, arguments: str, timeout: float | None) -> None:
    """Call a function that an agent offers, and print its value.

    A text is printed as it is, anything else as JSON; with --json it is the `value`.

    \b
    genagent call builder look_up_build '{"sha": "9f2c"}'
    """
    given = json_or_text(arguments)
    if not isinstance(given, dict):
        told = f"the arguments are a JSON object, not {shortened(arguments, 80)!r}"
        raise Failure(exits.USAGE, "usage", told)
    with connected(timeout) as client, client.attach(name) as session:
        try:
            value = session.call(function, given, timeout_ms=milliseconds(timeout))
        except FunctionFailed as error:
            failure = _without_value(error, name, function, session)
            if failure is None:
                raise
            raise failure from None
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    output().result(text, agent=name, function=function, value=value)


def _without_value(
    error: FunctionFailed, name: object, function: str, session: Session
) -> Failure | None:
    """Return how the command fails if it was not the function that did."""
    code = {"code": error.code}
    if error.code == UNKNOWN_FUNCTION and function not in session.offered:
        return _not_offered(name, function, session.offered)
    if error.code == TIMEOUT:
        return Failure(exits.PENDING, "timeout", str(error), "", code)
    if error.code in ENDED and session.over is not None:
        return _over(session, name, code)
    return None


def _not_offered(name: object, function: str, offered: tuple[str, ...]) -> Failure:
    known = f"it offers: {', '.join(sorted(offered))}" if offered else "it offers none"
    return Failure(
        exits.FAILED,
        "function_failed",
        f"{shown(name)} offers no function {shortened(function, 80)}",
        known,
        {"code": UNKNOWN_FUNCTION, "offered": sorted(offered)},
    )


def _catalog() -> Catalog:
    from genagentd.rpc import Catalog, Function

    def schema(texts: tuple[str, ...], required: tuple[str, ...]) -> dict[str, Any]:
        properties = {text: {"type": "string"} for text in texts}
        closed = {"type": "object", "properties": properties, "additionalProperties": False}
        return {**closed, "required": list(required)}

    return Catalog(
        catalog_id=TERMINAL_CATALOG_ID,
        functions=tuple(
            Function.made(name, arguments=schema(*texts), allowed_callers="agentOnly")
            for name, texts in _TEXTS.items()
        ),
    )


def _ended(session: AsyncSession, name: object) -> int:
    """Say how it ended; return the exit code.

    Raises:
        Failure: the agent did not end in order.
    """
    if session.ended in (NORMAL, SHUTDOWN):
        output().result("", agent=name, state="ended", reason=str(session.ended))
        return exits.OK
    raise _over(session, name, {})


def _over(session: Session | AsyncSession, name: object, details: dict[str, Any]) -> Failure:
    """Return how a command fails whose session ended under it."""
    if session.ended is None:
        return Failure(exits.REFUSED, "inbox_full", f"{shown(name)}: {session.over}", "", details)
    if session.ended == NOCONNECTION:
        message = f"{shown(name)}: the connection to the daemon was lost"
        return Failure(exits.UNCERTAIN, "daemon_lost", message, "", details)
    message = f"{shown(name)}: {session.over}"
    return Failure(exits.UNCERTAIN, "process_down", message, "", details)
