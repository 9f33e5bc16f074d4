"""The turn machine once more, as naively as possible: plain lists, added up each time.

Only what callers can see is modelled: who is admitted, which prompts run in which
order, who gets which outcome, and the counts of a snapshot. Gates let everything
through; what an event leads to is written in the event.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgpack

from genagent_protocol.bounds import Limits


def weight(value: object) -> int:
    """Return what a value counts: the length of its encoding, really encoded."""
    return len(msgpack.packb(value))


@dataclass
class Prompted:
    """One request: its number, or None if nobody outside knows it."""

    number: int | None
    text: str
    kind: str
    fails_on_halt: bool = False
    attempt: int = 1


@dataclass
class Model:
    """What a correct agent would have shown so far."""

    limits: Limits
    current: Prompted | None = None
    slot: Prompted | None = None
    queue: list[Prompted] = field(default_factory=list)
    kept: list[tuple[str, int]] = field(default_factory=list)
    halted: bool = False
    halt_pending: bool = False
    started: list[str] = field(default_factory=list)
    outcomes: list[tuple[int, str]] = field(default_factory=list)
    answers: list[tuple[int, str]] = field(default_factory=list)
    handled: list[str] = field(default_factory=list)
    overloads: int = 0
    remembered: list[tuple[int, str]] = field(default_factory=list)

    # What is let in

    def room_for(self, text: str) -> bool:
        waiting = [weight(request.text) for request in self.queue]
        fits = sum(waiting) + weight(text) <= self.limits.max_pending_prompt_bytes
        return len(waiting) < self.limits.max_pending_prompts and fits

    def prompt(self, request: Prompted) -> str:
        """Take a caller's prompt in; return `ok` or why not."""
        if self.halted and request.fails_on_halt:
            return "halted"
        if self.current is None and not self.halted:
            self.start(request)
            return "ok"
        if not self.room_for(request.text):
            self.overloads += 1
            return "overloaded"
        self.queue.append(request)
        return "ok"

    def notify(self, event: str, size: int | None = None, *, owed: bool = False) -> str:
        """Take an event or a message in; return `ok` or why not. What is owed always fits."""
        if self.current is None:
            self.handle(event, idle=True)
            self.go_on()
            return "ok"
        size = weight(event) if size is None else size
        waiting = [weighs for _, weighs in self.kept]
        fits = sum(waiting) + size <= self.limits.max_pending_notification_bytes
        if not owed and (len(waiting) >= self.limits.max_pending_notifications or not fits):
            self.overloads += 1
            return "overloaded"
        self.kept.append((event, size))
        return "ok"

    # Turns

    def start(self, request: Prompted) -> None:
        self.current = request
        self.started.append(request.text)

    def turn_over(self, outcome: str, decision: str | None) -> None:
        """End the turn; the decision is None, `halt`, or the text of a prompt."""
        request = self.current
        assert request is not None
        self.current = None
        prompts = decision is not None and decision != "halt"
        fits = prompts and weight(decision) <= self.limits.max_pending_prompt_bytes
        retries = prompts and outcome not in ("ok", "interrupted") and request.number is not None
        if retries and fits:
            assert decision is not None
            request.text, request.attempt = decision, request.attempt + 1
            self.slot = request
        else:
            self.deliver(request, outcome)
            if fits:
                assert decision is not None
                self.slot = Prompted(None, decision, "self_chain")
            elif prompts:
                self.overloads += 1
        if decision == "halt":
            self.halt()
        while self.kept:
            self.handle(self.kept.pop(0)[0], idle=False)
        if self.halt_pending:
            self.halt()
        self.go_on()

    def deliver(self, request: Prompted, outcome: str) -> None:
        if request.number is None:
            return
        if request.kind == "ask":
            self.answers.append((request.number, outcome))
            return
        self.outcomes.append((request.number, outcome))
        self.remembered.append((request.number, outcome))
        del self.remembered[: -self.limits.max_tell_results or len(self.remembered)]

    def handle(self, event: str, *, idle: bool) -> None:
        self.handled.append(event)
        verb, _, text = event.partition(":")
        if verb == "halt":
            self.halt()
        elif verb == "prompt" and idle and not self.halted:
            self.start(Prompted(None, text, "event"))
        elif verb == "prompt" and self.room_for(text):
            self.queue.append(Prompted(None, text, "event"))
        elif verb == "prompt":
            self.overloads += 1

    def go_on(self) -> None:
        """Become idle: an ask is answered only now, and the next prompt is taken."""
        self.outcomes += self.answers
        self.answers.clear()
        if self.halted or self.current is not None:
            return
        if self.slot is not None:
            request, self.slot = self.slot, None
            self.start(request)
        elif self.queue:
            self.start(self.queue.pop(0))

    # Control

    def halt(self) -> None:
        self.halt_pending = False
        if self.halted:
            return
        self.halted = True
        if self.slot is not None and self.slot.fails_on_halt:
            self.deliver(self.slot, "halted")
            self.slot = None
        for request in [request for request in self.queue if request.fails_on_halt]:
            self.queue.remove(request)
            self.deliver(request, "halted")

    def halt_from_outside(self) -> None:
        if self.current is None:
            self.halt()
        else:
            self.halt_pending = True

    def resume(self) -> None:
        self.halted = self.halt_pending = False
        self.go_on()

    def cancel(self, number: int) -> str:
        """Cancel a waiting tell; return the answer."""
        if self.slot is not None and self.slot.number == number and self.slot.kind == "tell":
            self.deliver(self.slot, "cancelled")
            self.slot = None
            return "cancelled"
        for request in self.queue:
            if request.number == number and request.kind == "tell":
                self.queue.remove(request)
                self.deliver(request, "cancelled")
                return "cancelled"
        if self.current is not None and self.current.number == number:
            return "current" if self.current.kind == "tell" else "not_found"
        known = dict(self.remembered).get(number)
        if known is None:
            return "not_found"
        return "cancelled" if known == "cancelled" else "already_finished"

    def poll(self, number: int) -> str:
        """Return what a poll would say."""
        waiting = [self.current, self.slot, *self.queue]
        if any(request is not None and request.number == number for request in waiting):
            return "pending"
        return dict(self.remembered).get(number, "not_found")
