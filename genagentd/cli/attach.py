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
from genagentd.cli.person import Person
from genagentd.cli.program import command, output
from genagentd.cli.standing import not_asked
from genagentd.cli.values import json_or_text, shown

if TYPE_CHECKING:
    from genagentd.client.aio import AsyncClient
    from genagentd.client.session import AsyncSession
    from genagentd.rpc import Catalog

#: The catalog that a terminal serves.
TERMINAL_CATALOG_ID = "urn:genagentd:terminal"
#: The agent's answer to a call of what it does not offer.
UNKNOWN_FUNCTION = "UNKNOWN_FUNCTION"

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
    """Call a function that an agent offers, and print its value as JSON.

    \b
    genagent call builder look_up_build '{"sha": "9f2c"}'
    """
    given = json_or_text(arguments)
    if not isinstance(given, dict):
        raise Failure(exits.USAGE, "usage", f"the arguments are a JSON object, not {arguments!r}")
    with connected(timeout) as client, client.attach(name) as session:
        try:
            value = session.call(function, given, timeout_ms=milliseconds(timeout))
        except FunctionFailed as error:
            if error.code != UNKNOWN_FUNCTION or function in session.offered:
                raise
            raise _not_offered(name, function, session.offered) from None
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    output().result(text, agent=name, function=function, value=value)


def _not_offered(name: object, function: str, offered: tuple[str, ...]) -> Failure:
    known = f"it offers: {', '.join(sorted(offered))}" if offered else "it offers none"
    return Failure(
        exits.FAILED,
        "function_failed",
        f"{shown(name)} offers no function {function}",
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
    if session.ended == NOCONNECTION:
        message = f"{shown(name)}: the connection to the daemon was lost"
        raise Failure(exits.UNCERTAIN, "daemon_lost", message)
    raise Failure(exits.UNCERTAIN, "process_down", f"{shown(name)}: {session.over}")
