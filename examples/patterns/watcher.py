"""Watcher: an agent that is never prompted; events wake it, most of them do not.

    notify {"level": "info", …}  ──▶ nothing
    notify {"level": "error", …} ──▶ one turn about exactly this event

What waits is kept with its event. A turn's error belongs to the event that is being
looked at; a refused prompt belongs to the newest one, which never got that far.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from examples.patterns.company import Voice, cast, of_voice, shown, stopping, watching
from examples.patterns.stage import stage
from genagent_protocol.plain import FrozenDict, Plain
from genagentd import (
    Agent,
    AgentHandle,
    Client,
    NoReply,
    Prompt,
    RequestRef,
    Response,
    Run,
    Skip,
    Started,
)
from genagentd.messages import Failure
from genagentd.testing import says


@dataclass(frozen=True)
class Seen:
    """One event that matters, and what was made of it."""

    number: int
    event: str
    finding: str = ""
    failure: str = ""

    @property
    def prompt(self) -> str:
        """What the model is asked; the number makes it this event's alone."""
        return f"Event {self.number}: {self.event}\nSay in one sentence what it means."


@dataclass(frozen=True)
class Post:
    """What the watcher knows: events that wait, the one it looks at, and the ones done."""

    count: int = 0
    waiting: tuple[Seen, ...] = ()
    active: Seen | None = None
    done: tuple[Seen, ...] = ()


class Watcher(Agent[Post]):
    """Looks at what matters, in the order in which it happened."""

    def init_agent(self, options: FrozenDict) -> Started[Post]:
        return Started(of_voice(options), Post())

    def handle_event(self, event: Plain, post: Post) -> NoReply[Post] | Prompt[Post]:
        match event:
            case {"level": "error" | "critical", "what": str(what)}:
                seen = Seen(post.count + 1, what)
                post = replace(post, count=seen.number, waiting=(*post.waiting, seen))
                return Prompt(seen.prompt, post)
        return NoReply(post)

    def pre_turn(self, prompt: str, post: Post) -> Run[Post] | Skip[Post]:
        if not post.waiting or prompt != post.waiting[0].prompt:
            # Nobody's event: somebody prompted the watcher directly.
            return Skip(post)
        return Run(prompt, replace(post, active=post.waiting[0], waiting=post.waiting[1:]))

    def handle_response(self, _ref: RequestRef, response: Response, post: Post) -> NoReply[Post]:
        assert post.active is not None
        return NoReply(_settled(post, replace(post.active, finding=response.text)))

    def handle_error(self, _ref: RequestRef, reason: Failure, post: Post) -> NoReply[Post]:
        if post.active is not None:
            return NoReply(_settled(post, replace(post.active, failure=str(reason))))
        if reason.code in ("overloaded", "draining") and post.waiting:
            *older, newest = post.waiting
            failed = replace(newest, failure=reason.code)
            return NoReply(replace(post, waiting=tuple(older), done=(*post.done, failed)))
        return NoReply(post)

    def show_state(self, post: Post) -> FrozenDict:
        return FrozenDict(
            waiting=tuple(seen.number for seen in post.waiting),
            done=tuple(
                FrozenDict(
                    number=seen.number,
                    event=seen.event,
                    finding=seen.finding,
                    failure=seen.failure,
                )
                for seen in post.done
            ),
        )


def _settled(post: Post, seen: Seen) -> Post:
    return replace(post, active=None, done=(*post.done, seen))


def begin(
    client: Client, name: str, voice: Voice, limits: dict[str, object] | None = None
) -> AgentHandle:
    """Start a watcher. It does nothing until something happens."""
    return client.start_agent(cast(Watcher, name, voice, limits=limits))


def findings(client: Client, name: str) -> Sequence[Mapping[str, Any]]:
    """Return the events that were dealt with, in order, each with a finding or a failure."""
    done: Sequence[Mapping[str, Any]] = shown(client, name)["done"]
    return done


def main() -> None:
    """Five events, two of which matter."""
    with stage("Watcher: events wake it.") as here, watching(here.client) as watch:
        voice = here.voice(
            says("The queue grows faster than it is read."),
            says("The disk will be full within the hour."),
        )
        with stopping(here.client, [begin(here.client, "watcher", voice)]):
            for level, what in (
                ("info", "backup began"),
                ("error", "queue length 40,000"),
                ("info", "backup ended"),
                ("critical", "disk at 98 %"),
                ("debug", "tick"),
            ):
                here.say(f"{level}: {what}")
                here.client.notify("watcher", {"level": level, "what": what})
            watch.until(lambda: len(findings(here.client, "watcher")) == 2, "both are looked at")
            for seen in findings(here.client, "watcher"):
                here.say(f"  {seen['event']} -> {seen['finding'] or seen['failure']}")
            if not any(seen["finding"] for seen in findings(here.client, "watcher")):
                here.fail("nothing was found out about any event")


if __name__ == "__main__":
    main()
