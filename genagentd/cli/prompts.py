"""Commands about prompts and turns: ask, poll, notify, interrupt, cancel, halt, resume."""

from __future__ import annotations

from typing import Any

import click

from genagent_protocol.answers import NotFound, PollCompleted, PollFailed, PollPending
from genagent_protocol.errors import CallTimeout, TurnFailed
from genagent_protocol.refs import RequestRef
from genagentd.cli import exits
from genagentd.cli.agents import (
    app,
    connected,
    found,
    milliseconds,
    name_argument,
    ref_argument,
    shown_ref,
    timeout_option,
)
from genagentd.cli.exits import Failure
from genagentd.cli.program import command, output
from genagentd.cli.values import is_broken_json, json_or_text, payload_text, response_fields, shown


@command(app, "ask")
@name_argument()
@click.argument("prompt", required=False)
@click.option("--file", type=click.Path(), help="Read the prompt from this file.")
@timeout_option()
def ask(name: object, prompt: str | None, file: str | None, timeout: float | None) -> None:
    """Run a prompt and print the response.

    The request is its caller's: after --timeout or Ctrl-C a turn that has begun runs on
    unheard, and what still waits in the queue is dropped. `tell` keeps it.

    \b
    genagent ask coder "What does main.py do?"
    git diff | genagent ask reviewer -
    """
    text = payload_text(prompt, file, "prompt")
    try:
        with connected(timeout) as client:
            response = client.ask(name, text, milliseconds(timeout))
    except CallTimeout as late:
        message = f"{shown(name)} has not answered within {timeout:g} s"
        raise _left(
            exits.PENDING, "timeout", message, name, {"timeout_ms": late.timeout_ms}
        ) from None
    except KeyboardInterrupt:
        raise _left(exits.INTERRUPTED, "interrupted", "stopped waiting", name, {}) from None
    output().result(response.text, agent=name, state="completed", **response_fields(response))


def _left(
    exit_code: int, code: str, message: str, name: object, details: dict[str, Any]
) -> Failure:
    """Return how an ask ends whose caller leaves."""
    return Failure(
        exit_code,
        code,
        f"{message}; the turn runs on if it had begun, and is dropped if it was still queued",
        f"what is to be kept is sent with: genagent tell {shown(name)}",
        {"agent": name, **details},
    )


@command(app, "poll")
@name_argument()
@ref_argument()
def poll(name: object, ref: RequestRef) -> int:
    """Say what became of a request: its response, `pending`, or why there is none."""
    with connected() as client:
        known = client.poll(name, ref)
        if isinstance(known, PollFailed):
            raise TurnFailed(f"{shown_ref(ref)} failed: {known.reason}", known.reason)
    fields: dict[str, Any] = {"agent": name, "ref": ref.text}
    match known:
        case PollPending():
            output().result("pending", state="pending", **fields)
            return exits.PENDING
        case PollCompleted(response):
            output().result(response.text, state="completed", **fields, **response_fields(response))
            return exits.OK
        case NotFound():
            raise Failure(
                exits.NO_SUCH_AGENT,
                "not_found",
                f"{shown(name)} knows nothing of {ref}",
                "not processed yet, rejected, or its result is no longer kept",
                fields,
            )
        case _:
            raise Failure(
                exits.UNCERTAIN,
                "lost",
                f"the life of the agent that {ref} belonged to is over",
                "its outcome is not known; nothing runs under it any more",
                fields,
            )


@command(app, "notify")
@name_argument()
@click.argument("event", required=False)
@click.option("--file", type=click.Path(), help="Read the event from this file.")
@click.option(
    "--ack",
    is_flag=True,
    help="Wait until it was handled, or retained in memory.",
)
@timeout_option()
def notify(
    name: object, event: str | None, file: str | None, ack: bool, timeout: float | None
) -> None:
    """Send an event, JSON or text, to an agent.

    What is no JSON is sent as text; a note on standard error says so if it begins as JSON
    does. With --ack, `accepted` does not say what the agent made of it: its handle_event may
    have raised or returned what it may not, which its log tells.

    \b
    genagent notify watcher '{"ci": "failed"}'
    """
    given = payload_text(event, file, "event")
    value = json_or_text(given)
    with connected(timeout) as client:
        if ack:
            client.notify_ack(name, value, milliseconds(timeout))
        else:
            found(client, name)
            client.notify(name, value, milliseconds(timeout))
    if is_broken_json(given):
        output().note("sent as text: it is no JSON")
    state = "accepted" if ack else "sent"
    output().result(state, agent=name, state=state)


@command(app, "interrupt")
@name_argument()
@ref_argument(required=False)
@timeout_option()
def interrupt(name: object, ref: RequestRef | None, timeout: float | None) -> None:
    """Stop the active turn: whatever it is, or only if it is that request's.

    Without REF the answer is `sent`, also where no turn runs: nobody waits for one. With REF it is
    `accepted`, or exit 4 with `idle` (no turn runs) or `not_current` (another one does).
    """
    with connected(timeout) as client:
        if ref is None:
            found(client, name)
            client.interrupt(name, milliseconds(timeout))
            result = "sent"
        else:
            result = client.interrupt_request(name, ref, milliseconds(timeout))
    if result in ("not_current", "idle"):
        raise _no(result, f"{shown_ref(ref)} is not the active turn" if ref else "", name, ref)
    output().result(result, agent=name, ref=ref and ref.text, state=result)


@command(app, "cancel")
@name_argument()
@ref_argument()
@timeout_option()
def cancel(name: object, ref: RequestRef, timeout: float | None) -> None:
    """Remove a queued request."""
    with connected(timeout) as client:
        result = client.cancel_request(name, ref, milliseconds(timeout))
    match result:
        case "current":
            raise _no(result, f"{shown_ref(ref)} is the active turn; interrupt it", name, ref)
        case "already_finished":
            raise _no(result, f"{shown_ref(ref)} is finished; poll it", name, ref)
        case "not_found":
            message = f"there is no queued {shown_ref(ref)}"
            raise _no(result, message, name, ref, exits.NO_SUCH_AGENT)
        case _:
            output().result(result, agent=name, ref=ref.text, state=result)


def _no(
    code: str, message: str, name: object, ref: RequestRef | None, exit_code: int = exits.REFUSED
) -> Failure:
    return Failure(exit_code, code, message, "", {"agent": name, "ref": ref and ref.text})


@command(app, "resume")
@name_argument()
def resume(name: object) -> None:
    """Let a halted agent go on."""
    with connected() as client:
        found(client, name)
        client.resume(name)
    output().result("sent", agent=name, state="sent")


@command(app, "halt")
@name_argument()
def halt(name: object) -> None:
    """Have an agent halt, after its turn if there is one; it goes on admitting."""
    with connected() as client:
        found(client, name)
        client.halt(name)
    output().result("sent", agent=name, state="sent")
