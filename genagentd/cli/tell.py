"""`genagent tell`: one prompt by its ref, from sent to its end, or as long as one waits.

The name is resolved once, the process is watched first, and then the prompt is sent;
what is heard afterwards is about exactly that process. Giving up the waiting cancels
nothing: the ref was printed, and `genagent poll` goes on from there.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from genagent_protocol.envelopes import Admission, EventMessage, Gap
from genagent_protocol.errors import Refused, TurnFailed
from genagent_protocol.events import Completed, Event, Failed
from genagent_protocol.reasons import NOCONNECTION, ExitReason
from genagent_protocol.refs import RequestRef
from genagent_protocol.submission import Submission
from genagentd.cli import exits
from genagentd.cli.agents import (
    app,
    connected,
    found,
    milliseconds,
    name_argument,
    shown_ref,
)
from genagentd.cli.exits import Failure
from genagentd.cli.output import Output
from genagentd.cli.program import command, output
from genagentd.cli.values import payload_text, response_fields, seconds_or_none, shown

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


def _waiting(text: str) -> float:
    """Return the seconds to wait; what a bare `--wait` stands for is as long as it takes."""
    return float("inf") if text == "inf" else seconds_or_none(text)


@command(app, "tell", cls=_TellCommand)
@name_argument()
@click.argument("prompt", required=False)
@click.option("--file", type=click.Path(), help="Read the prompt from this file.")
@click.option(
    "--wait",
    type=_waiting,
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
    follow: _Follow | None = None
    try:
        with connected() as client:
            agent = client.at(found(client, name))
            agent.monitor()
            sent = agent.submit_with_completion(
                text, on_halt=on_halt, stream_to=client if stream else None
            )
            follow = _Follow(client, name, sent.ref, waits)
            return follow.to_the_end(seconds)
    except KeyboardInterrupt:
        if follow is None:
            raise
        raise follow.given_up() from None


class _Follow:
    """One request, as far as it was heard of."""

    def __init__(self, client: Client, name: object, ref: RequestRef, waits: bool) -> None:
        self._client = client
        self._out: Output = output()
        self._fields: dict[str, Any] = {"agent": name, "ref": ref.text}
        self._story = Submission(ref=ref)
        self._waits = waits
        self._told_ref = False
        self._streamed = ""

    @property
    def _poll_hint(self) -> str:
        return f"ask again with: genagent poll {shown(self._fields['agent'])} {self._story.ref}"

    @property
    def _shown(self) -> str:
        return shown_ref(self._story.ref)

    def to_the_end(self, seconds: float | None) -> int:
        """Listen until there is nothing more to wait for; return the exit code."""
        deadline = None if seconds is None else time.monotonic() + seconds
        while not self._over():
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            message = self._client.receive(milliseconds(left))
            if message is None:
                raise self._pending(seconds or 0)
            self._hear(message)
        return self._told()

    def given_up(self) -> Failure:
        """Return how it ends when nobody wants to wait any longer."""
        self._tell_ref()
        return Failure(
            exits.INTERRUPTED,
            "interrupted",
            "stopped waiting; nothing was cancelled",
            self._poll_hint,
            {**self._fields, "state": self._story.word},
        )

    def _over(self) -> bool:
        enough = self._story.accepted is not None and not self._waits
        return enough or self._story.permit_returned

    def _hear(self, message: Message) -> None:
        from genagentd.client.story import hear

        self._story = hear(self._story, message)
        match message:
            case Admission(refused=None):
                self._tell_ref()
            case EventMessage():
                self._show(message.event)
            case Gap():
                self._gap(message)
            case _:
                pass  # It is in the story.

    def _tell_ref(self) -> None:
        if self._told_ref:
            return
        self._told_ref = True
        self._out.done = f"{'accepted' if self._story.accepted else 'sent'} as {self._story.ref}"
        if not self._out.as_json:
            self._out.text(f"{self._story.ref}\n")

    def _show(self, event: Event) -> None:
        self._tell_ref()
        if self._out.as_json:
            self._out.object({**self._fields, "event": event.kind, "data": event.data})
        elif event.kind == "text" and isinstance(text := event.data.get("text"), str):
            # As in the response: a message of its own begins after a blank line.
            opens = event.data.get("message_boundary") is True and self._streamed and text
            said = f"\n\n{text}" if opens else text
            self._streamed += said
            self._out.text(said)

    def _gap(self, gap: Gap) -> None:
        if self._out.as_json:
            self._out.object({**self._fields, "gap": {"from": gap.first, "to": gap.last}})
        self._out.note(f"events {gap.first} to {gap.last} were dropped on the way")

    def _told(self) -> int:
        """Say what came of it; return the exit code.

        Raises:
            Refused: it was not accepted.
            TurnFailed: it was, and failed.
            Failure: nothing more can be known.
        """
        story = self._story
        if story.refusal is not None:
            raise Refused(f"{self._shown} was refused: {story.refusal}", story.refusal)
        if story.ended is not None and story.outcome is None:
            raise self._uncertain(story.ended)
        self._tell_ref()
        if self._streamed and not self._streamed.endswith("\n"):
            self._out.text("\n")
        match story.outcome:
            case Completed(response):
                text = "" if self._streamed else response.text
                fields = response_fields(response)
                self._out.result(text, state=story.word, **self._fields, **fields)
            case Failed(reason):
                raise TurnFailed(f"{self._shown} failed: {reason}", reason)
            case None:
                self._out.result("", state=story.word, **self._fields)
        return exits.OK

    def _uncertain(self, reason: ExitReason) -> Failure:
        known = "its outcome" if self._story.accepted else "whether it was accepted"
        if reason == NOCONNECTION:
            return Failure(
                exits.UNCERTAIN,
                self._story.word,
                f"{self._shown}: the connection to the daemon was lost; {known} is unknown",
                "an agent does not outlive its daemon; see whether there is one with: "
                "genagentd status",
                {**self._fields, "reason": str(reason), "accepted": self._story.accepted},
            )
        return Failure(
            exits.UNCERTAIN,
            self._story.word,
            f"{self._shown}: the agent process is down ({reason}); {known} is unknown",
            f"see what it printed with: genagent logs {shown(self._fields['agent'])}",
            {**self._fields, "reason": str(reason), "accepted": self._story.accepted},
        )

    def _pending(self, seconds: float) -> Failure:
        self._tell_ref()
        return Failure(
            exits.PENDING,
            "pending",
            f"{self._shown} is {self._story.word} and has no outcome after {seconds:g} s; "
            "nothing was cancelled",
            self._poll_hint,
            {**self._fields, "state": self._story.word},
        )
