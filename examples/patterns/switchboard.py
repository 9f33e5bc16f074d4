"""Switchboard: a person manages a fleet of agents by name, and reads what came in when it suits.

    manager ──▶ Switchboard ──▶ agent "docs"      no agent knows another one,
                            ──▶ agent "tests"     none goes on by itself,
                            ──▶ agent "review"    everything is kept until it was read

An acknowledgement says how many entries its reader saw. So a result that arrives
meanwhile stays unread, and an older acknowledgement cannot undo a newer one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from examples.patterns.company import Voice, cast, of_voice, shown, start_all, stopping, watching
from examples.patterns.stage import stage
from genagent_protocol.plain import FrozenDict, Plain
from genagentd import (
    Agent,
    AgentHandle,
    Client,
    Halt,
    NoReply,
    PollCompleted,
    Refused,
    RequestRef,
    Response,
    Started,
)
from genagentd.messages import Failure, StartError
from genagentd.testing import breaks, says

#: What one agent keeps; the oldest entries leave first, and the numbers go on.
MAX_ENTRIES = 200


@dataclass(frozen=True)
class Desk:
    """What one agent has to show: its entries, how many were read, and a summary."""

    entries: tuple[FrozenDict, ...] = ()
    arrived: int = 0
    acknowledged: int = 0
    summary: str = ""

    def with_entry(self, **entry: Plain) -> Desk:
        """Return the desk with one more entry, numbered."""
        numbered = FrozenDict({"number": self.arrived + 1, **entry})
        kept = (*self.entries, numbered)[-MAX_ENTRIES:]
        return replace(self, entries=kept, arrived=self.arrived + 1)

    def read_up_to(self, count: int) -> Desk:
        """Return the desk after its reader has seen *count* entries; never fewer than before."""
        return replace(self, acknowledged=max(self.acknowledged, min(count, self.arrived)))


class Operator(Agent[Desk]):
    """Answers, keeps the answer, and obeys the manager's commands."""

    def init_agent(self, options: FrozenDict) -> Started[Desk]:
        return Started(of_voice(options), Desk())

    def handle_response(self, ref: RequestRef, response: Response, desk: Desk) -> NoReply[Desk]:
        return NoReply(
            desk.with_entry(
                ref=ref.text,
                text=response.text,
                usage=response.usage,
                duration_ms=response.duration_ms,
            )
        )

    def handle_error(self, ref: RequestRef, reason: Failure, desk: Desk) -> NoReply[Desk]:
        return NoReply(desk.with_entry(ref=ref.text, error=str(reason)))

    def handle_event(self, event: Plain, desk: Desk) -> NoReply[Desk] | Halt[Desk]:
        match event:
            case {"acknowledge": int(count)}:
                return NoReply(desk.read_up_to(count))
            case {"summary": str(text)}:
                return NoReply(replace(desk, summary=text))
            case "halt":
                return Halt(desk)
        return NoReply(desk)

    def show_state(self, desk: Desk) -> FrozenDict:
        return FrozenDict(
            entries=desk.entries,
            arrived=desk.arrived,
            acknowledged=desk.acknowledged,
            summary=desk.summary,
        )


class Switchboard:
    """What the manager holds. Commands are acknowledged, so an overload is an error here."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def open(self, voices: dict[str, Voice]) -> list[AgentHandle]:
        """Start an agent for each name, or none."""
        return start_all(self._client, [cast(Operator, name, voices[name]) for name in voices])

    def submit(self, name: str, prompt: str) -> RequestRef:
        """Hand in a prompt. A busy agent queues it: there is no need to look first."""
        return self._client.tell(name, prompt)

    def broadcast(
        self, names: Iterable[str], prompt: str
    ) -> dict[str, RequestRef | Failure | StartError]:
        """Hand the prompt to each of *names*; one outcome each, whatever becomes of the others."""
        outcomes: dict[str, RequestRef | Failure | StartError] = {}
        for name in names:
            try:
                outcomes[name] = self.submit(name, prompt)
            except Refused as refused:
                outcomes[name] = refused.reason
        return outcomes

    def answer(self, name: str, ref: RequestRef) -> str | None:
        """Return the answer to *ref*, if it is there."""
        known = self._client.poll(name, ref)
        return known.response.text if isinstance(known, PollCompleted) else None

    def inbox(self, name: str) -> list[Mapping[str, Any]]:
        """Return the entries that were not acknowledged. This does not acknowledge them."""
        desk = shown(self._client, name)
        return [entry for entry in desk["entries"] if entry["number"] > desk["acknowledged"]]

    def acknowledge(self, name: str, seen: int) -> None:
        """Mark the first *seen* entries as read: the number of the last one that was shown."""
        self._client.notify_ack(name, {"acknowledge": seen})

    def summary(self, name: str) -> str:
        """Return what was last written about the agent."""
        return str(shown(self._client, name)["summary"])

    def summarise(self, name: str, text: str) -> None:
        """Write a summary to be seen by whoever looks."""
        self._client.notify_ack(name, {"summary": text})

    def transcript(self, name: str, limit: int) -> Sequence[Mapping[str, Any]]:
        """Return the last *limit* entries, read or not."""
        entries: Sequence[Mapping[str, Any]] = shown(self._client, name)["entries"]
        return entries[-limit:] if limit > 0 else ()

    def halt(self, name: str) -> None:
        """Have the agent halt after its turn; what is queued waits for `resume`."""
        self._client.notify_ack(name, "halt")

    def resume(self, name: str) -> None:
        """Let it go on."""
        self._client.resume(name)

    def stop(self, name: str) -> None:
        """End the agent; its entries go with it."""
        self._client.stop(name)


def main() -> None:
    """Three agents, two rounds, one failure."""
    with stage("Switchboard: a person manages many.") as here, watching(here.client) as watch:
        board = Switchboard(here.client)
        voices = {
            "docs": here.voice(says("The guide covers 9 of 11 commands."), says("Done.")),
            "tests": here.voice(says("All 212 pass."), breaks("the runner is offline")),
            "review": here.voice(says("Two remarks on main.py."), says("Both are fixed.")),
        }
        with stopping(here.client, board.open(voices)):
            fleet = ("docs", "tests", "review")
            for prompt in ("How far are we? One sentence.", "Anything new? One sentence."):
                board.broadcast(fleet, prompt)
                here.say(f"asked all: {prompt}")
            watch.until(
                lambda: all(len(board.inbox(name)) == 2 for name in fleet), "every answer is there"
            )
            answered = 0
            for name in fleet:
                for entry in board.inbox(name):
                    answered += "text" in entry
                    said = entry.get("text") or f"failed: {entry.get('error')}"
                    here.say(f"  {name} #{entry['number']}: {said}")
                board.acknowledge(name, 2)
            if not answered:
                here.fail("nobody had an answer")
            here.say(f"unread now: {sum(len(board.inbox(name)) for name in fleet)}")


if __name__ == "__main__":
    main()
