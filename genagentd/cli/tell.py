"""`genagent tell`: one prompt by its ref, from sent to its end, or as long as one waits.

The name is resolved once, the process is watched first, and then the prompt is sent;
what is heard afterwards is about exactly that process. Giving up the waiting cancels
nothing: the ref was printed, and `genagent poll` goes on from there.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from genagent_protocol.envelopes import (
    Admission,
    Completion,
    Down,
    EventMessage,
    Gap,
    Undeliverable,
)
from genagent_protocol.errors import Refused, TurnFailed
from genagent_protocol.events import Completed, Event
from genagent_protocol.reasons import ExitReason
from genagent_protocol.refs import RequestRef
from genagentd.cli import exits
from genagentd.cli.agents import app, connected, found, name_argument, shown_ref
from genagentd.cli.exits import Failure
from genagentd.cli.output import Output
from genagentd.cli.program import command, output
from genagentd.cli.values import payload_text, response_fields, shown

if TYPE_CHECKING:
    from genagentd.client.boxes import Message
    from genagentd.client.client import Client

#: How long a `tell` without `--wait` waits for the agent's decision to accept.
ADMISSION_S = 5.0


class _TellCommand(click.Command):
    """`--wait` takes a number of seconds, or none: then it waits as long as it takes."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Give a bare `--wait` its meaning before click looks for its value."""
        return super().parse_args(ctx, _spelled_out(args))


def _spelled_out(args: list[str]) -> list[str]:
    found: list[str] = []
    rest = list(args)
    while rest:
        word = rest.pop(0)
        if word == "--":
            return [*found, word, *rest]
        if word == "--wait":
            follows = rest[0] if rest else ""
            word = f"--wait={rest.pop(0)}" if _is_number(follows) else "--wait=inf"
        found.append(word)
    return found


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


@command(app, "tell", cls=_TellCommand)
@name_argument()
@click.argument("prompt", required=False)
@click.option("--file", type=click.Path(), help="Read the prompt from this file.")
@click.option(
    "--wait",
    type=click.FloatRange(min=0),
    metavar="[S]",
    help="Wait for the response, at most S seconds if given.",
)
@click.option("--stream", is_flag=True, help="Print the response's text as it comes.")
@click.option(
    "--on-halt",
    type=click.Choice(["queue", "fail"]),
    default="queue",
    show_default=True,
    help="What to do when the agent is halted.",
)
def tell(
    name: object,
    prompt: str | None,
    file: str | None,
    wait: float | None,
    stream: bool,
    on_halt: Any,
) -> int:
    """Have a prompt accepted and print its ref; with --wait its response too.

    \b
    genagent tell coder "Add tests" --wait
    genagent tell coder --file task.md --stream
    genagent poll coder $(genagent tell coder "Run the tests")
    """
    text = payload_text(prompt, file, "prompt")
    waits = wait is not None or stream
    seconds = ADMISSION_S if not waits else None if wait in (None, float("inf")) else wait
    with connected() as client:
        agent = client.at(found(client, name))
        agent.monitor()
        sent = agent.submit_with_completion(
            text, on_halt=on_halt, stream_to=client if stream else None
        )
        follow = _Follow(client, name, sent.ref, waits)
        return follow.to_the_end(seconds)


class _Follow:
    """One request, as far as it was heard of."""

    def __init__(self, client: Client, name: object, ref: RequestRef, waits: bool) -> None:
        self._client = client
        self._out: Output = output()
        self._fields: dict[str, Any] = {"agent": name, "ref": ref.text}
        self._ref = ref
        self._waits = waits
        self._accepted = False
        self._told_ref = False
        self._streamed = ""

    def to_the_end(self, seconds: float | None) -> int:
        """Listen until there is nothing more to wait for; return the exit code."""
        deadline = None if seconds is None else time.monotonic() + seconds
        try:
            while True:
                left = None if deadline is None else max(0.0, deadline - time.monotonic())
                message = self._client.receive(None if left is None else round(left * 1000))
                if message is None:
                    return self._still_pending(seconds or 0)
                code = self._hear(message)
                if code is not None:
                    return code
        except KeyboardInterrupt:
            self._tell_ref()
            self._out.note("stopped waiting; nothing was cancelled")
            raise

    def _hear(self, message: Message) -> int | None:
        match message:
            case Admission(refused=None):
                self._accepted = True
                self._tell_ref()
                return None if self._waits else self._done()
            case Admission(refused=reason) if reason is not None:
                raise Refused(f"{shown_ref(self._ref)} was refused: {reason}", reason)
            case Undeliverable():
                raise Refused(
                    f"{shown_ref(self._ref)} never arrived: {message.reason}", message.reason
                )
            case EventMessage():
                self._show(message.event)
            case Gap():
                self._gap(message)
            case Completion():
                return self._completed(message)
            case Down():
                raise self._down(message.reason)
            case _:
                pass  # Telemetry was not asked for.
        return None

    def _tell_ref(self) -> None:
        if self._told_ref:
            return
        self._told_ref = True
        if not self._out.as_json:
            self._out.text(f"{self._ref}\n")

    def _done(self) -> int:
        self._out.result("", state="accepted", **self._fields)
        return exits.OK

    def _show(self, event: Event) -> None:
        self._tell_ref()
        if self._out.as_json:
            self._out.object({**self._fields, "event": event.kind, "data": event.data})
        elif event.kind == "text" and isinstance(text := event.data.get("text"), str):
            self._streamed += text
            self._out.text(text)

    def _gap(self, gap: Gap) -> None:
        if self._out.as_json:
            self._out.object({**self._fields, "gap": {"from": gap.first, "to": gap.last}})
        self._out.note(f"events {gap.first} to {gap.last} were dropped on the way")

    def _completed(self, message: Completion) -> int:
        self._tell_ref()
        if self._streamed and not self._streamed.endswith("\n"):
            self._out.text("\n")
        match message.outcome:
            case Completed(response):
                text = "" if self._streamed else response.text
                fields = response_fields(response)
                self._out.result(text, state="completed", **self._fields, **fields)
                return exits.OK
            case failed:
                raise TurnFailed(f"{shown_ref(self._ref)} failed: {failed.reason}", failed.reason)

    def _down(self, reason: ExitReason) -> Failure:
        what = "its outcome is unknown" if self._accepted else "whether it was accepted is unknown"
        return Failure(
            exits.UNCERTAIN,
            "uncertain",
            f"{shown_ref(self._ref)}: the agent process is down ({reason}); {what}",
            "see what it printed with: genagent logs NAME",
            {**self._fields, "reason": str(reason), "accepted": self._accepted},
        )

    def _still_pending(self, seconds: float) -> int:
        self._tell_ref()
        state = "accepted" if self._accepted else "sent"
        raise Failure(
            exits.PENDING,
            "pending",
            f"{shown_ref(self._ref)} is {state} and has no outcome after {seconds:g} s; "
            "nothing was cancelled",
            f"ask again with: genagent poll {shown(self._fields['agent'])} {self._ref}",
            {**self._fields, "state": state},
        )
