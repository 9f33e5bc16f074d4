"""Commands about an agent's life: start, drain, stop, reset."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import click

from genagent_protocol.errors import StartFailed
from genagent_protocol.limits import CHECKS
from genagent_protocol.plain import Plain
from genagentd.cli import exits
from genagentd.cli.agents import (
    app,
    connected,
    known_rows,
    milliseconds,
    name_argument,
    timeout_option,
)
from genagentd.cli.exits import Failure, failure_of
from genagentd.cli.program import command, output
from genagentd.cli.standing import row_of, taken
from genagentd.cli.values import each_once, environment_of, handle_fields, option_of, seconds, shown

if TYPE_CHECKING:
    from genagentd.client.client import Client


@command(app, "start")
@name_argument()
@click.option("--agent", metavar="MODULE:CLASS", help="The agent's class; without it a plain one.")
@click.option("--backend", default="echo", show_default=True, help="What answers its prompts.")
@click.option(
    "-o",
    "options",
    type=option_of,
    metavar="KEY=VALUE",
    multiple=True,
    callback=each_once,
    help="An option or limit; the value is JSON, or else text.",
)
@click.option("--cwd", metavar="DIR", help="Its working directory; the current one by default.")
@click.option(
    "--env",
    type=environment_of,
    metavar="NAME=VALUE",
    multiple=True,
    callback=each_once,
    help="A variable of its environment.",
)
@click.option(
    "--restart",
    type=click.Choice(["temporary", "transient", "permanent"]),
    default="temporary",
    show_default=True,
    help="After which ends it is started again, without its state; Python says how often, too.",
)
@click.option("--session", metavar="ID", help="A recorded session of the backend to resume.")
@click.option("--may-start", is_flag=True, help="Let it start agents of its own.")
@click.option(
    "--timeout",
    type=seconds,
    default=60.0,
    show_default=True,
    metavar="S",
    help="Seconds it may take.",
)
def start(
    name: object,
    agent: str | None,
    backend: str,
    options: tuple[tuple[str, Any], ...],
    cwd: str | None,
    env: tuple[tuple[str, str], ...],
    restart: Any,
    session: str | None,
    may_start: bool,
    timeout: float,
) -> None:
    """Start an agent and wait until it is ready.

    \b
    genagent start scratch
    genagent start coder --backend claude -o model=haiku -o watchdog_ms=60000
    genagent start mine --agent app.agents:Reviewer --cwd ~/project
    """
    with connected() as client, _near_misses(dict(options)), _taken(client, name), _goes_on(name):
        handle = client.start_agent(
            agent,
            name=name,
            backend=backend,
            options=dict(options),
            cwd=cwd,
            env=dict(env),
            restart=restart,
            start_timeout_ms=milliseconds(timeout),
            session=session,
            may_start=may_start,
        )
    output().result(f"{shown(handle.name)} started (pid {handle.pid})", **handle_fields(handle))


@contextmanager
def _goes_on(name: object) -> Iterator[None]:
    """Say of a start that nobody waits for any longer that the daemon goes on with it."""
    try:
        yield
    except KeyboardInterrupt:
        raise Failure(
            exits.INTERRUPTED,
            "interrupted",
            f"stopped waiting; {shown(name)} goes on starting",
            f"genagent status {shown(name)}; genagent stop {shown(name)}",
            {"agent": name},
        ) from None


@contextmanager
def _taken(client: Client, name: object) -> Iterator[None]:
    """Say of a name that is taken how it becomes free, which depends on whose it is."""
    try:
        yield
    except StartFailed as error:
        if error.reason.kind != "already_started":
            raise
        raise taken(error, row_of(known_rows(client), shown(name)), shown(name)) from error


@contextmanager
def _near_misses(options: dict[str, Any]) -> Iterator[None]:
    """If a start fails over an option that nearly is a limit, name the limit.

    What an agent and its backend take is theirs to say; the limits are the same for all.
    A backend that gives a code for what is wrong knows every other option that it got.
    """
    try:
        yield
    except StartFailed as error:
        near = {
            key: get_close_matches(key, CHECKS, 1, _NEAR)
            for key in options
            if key not in CHECKS and _unknown(key, error.reason.detail)
        }
        meant = [f"{key} may mean {found[0]}" for key, found in near.items() if found]
        failure = failure_of(error)
        if not meant or "did you mean" in failure.message:
            raise
        hint = f"{', '.join(meant)}, which is a limit"
        raise Failure(
            failure.exit_code, failure.code, failure.message, hint, failure.details
        ) from error


def _unknown(option: str, refusal: Plain) -> bool:
    """Return whether nobody may know *option*, as far as *refusal* tells."""
    match refusal:
        case {"code": "unknown_option", "option": named}:
            return named == option
        case {"code": _}:
            return False
    return True


#: How much of a word must be that of a limit; a forgotten unit leaves that much.
_NEAR = 0.6


@command(app, "drain")
@name_argument()
@timeout_option()
def drain(name: object, timeout: float | None) -> None:
    """Let an agent finish its turn and end; what is queued is refused."""
    with connected(timeout) as client:
        client.drain(name, milliseconds(timeout))
    output().result("drained", agent=name, state="drained")


@command(app, "stop")
@name_argument()
@timeout_option()
def stop(name: object, timeout: float | None) -> None:
    """Stop an agent and wait until it is gone."""
    with connected(timeout) as client:
        reason = client.stop(name, timeout_ms=milliseconds(timeout))
    output().result(f"stopped ({reason})", agent=name, reason=reason.text, detail=reason.detail)


@command(app, "reset")
@name_argument()
@timeout_option()
def reset(name: object, timeout: float | None) -> None:
    """Start the conversation with the backend anew; state and queue stay."""
    with connected(timeout) as client:
        client.reset_session(name, milliseconds(timeout))
    output().result("reset", agent=name, state="reset")
