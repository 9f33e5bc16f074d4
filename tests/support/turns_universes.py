"""The small agents whose every course is walked: what each is about, and how large it may get.

The everyday ones close within a second or two together. The large ones mix what
the everyday ones keep apart.
"""

from __future__ import annotations

from genagent_protocol.bounds import Limits
from genagent_protocol.turns import inputs as heard
from genagent_protocol.turns.requests import OnHalt
from support.turns_explorer import SMALL, Control, Universe
from support.turns_values import ref

#: Room for one prompt and one event, by number.
FEW = Limits(
    max_pending_prompts=1,
    max_pending_prompt_bytes=100,
    max_pending_notifications=1,
    max_tell_results=1,
    watchdog_ms=50,
)
#: The same by weight: a prompt of `SMALL` weighs exactly what may wait.
TIGHT = Limits(
    max_pending_prompts=2,
    max_pending_prompt_bytes=2,
    max_pending_notifications=1,
    max_tell_results=1,
    watchdog_ms=50,
)
ROOMY = Limits(max_pending_prompts=2, max_pending_prompt_bytes=4, watchdog_ms=50)


def submission(number: int, on_halt: OnHalt = "queue") -> heard.PromptSubmitted:
    """Return a submission of a small prompt."""
    return heard.PromptSubmitted(ref=ref(number), prompt=SMALL, recipient="bob", on_halt=on_halt)


def an_ask(number: int) -> heard.AskReceived:
    """Return an ask of a small prompt; its call is its ref."""
    return heard.AskReceived(call=ref(number), ref=ref(number), prompt=SMALL, caller="carl")


def a_tell(number: int) -> heard.TellReceived:
    """Return a tell of a small prompt whose outcome is sent to bob."""
    return heard.TellReceived(call=f"tell{number}", ref=ref(number), prompt=SMALL, recipient="bob")


def _controls(*names: Control) -> frozenset[Control]:
    return frozenset(names)


EVERYDAY = (
    Universe(
        name="queue and cancel",
        limits=FEW,
        arrivals=(submission(1), a_tell(2), submission(3, "fail")),
        controls=_controls("cancel", "halt"),
    ),
    Universe(
        name="interrupts",
        limits=TIGHT,
        arrivals=(submission(1), an_ask(2)),
        generated=1,
        controls=_controls("interrupt", "interrupt_request", "caller_down"),
    ),
    Universe(
        name="events and chains",
        limits=TIGHT,
        arrivals=(submission(1),),
        events=1,
        generated=2,
        controls=_controls("halt"),
        large_prompts=True,
    ),
    Universe(
        name="the gate",
        limits=FEW,
        arrivals=(submission(1), an_ask(2)),
        generated=2,
        turns=1,
        gate_refuses=True,
        controls=_controls("halt"),
    ),
    Universe(
        name="ends",
        limits=TIGHT,
        arrivals=(submission(1), an_ask(2)),
        events=1,
        controls=_controls("drain", "stop", "refuse"),
    ),
)

LARGE_ONES = (
    Universe(
        name="three prompts, room for two",
        limits=ROOMY,
        arrivals=(submission(1), an_ask(2), submission(3, "fail")),
        generated=1,
        turns=3,
        controls=_controls("cancel", "halt", "interrupt_request"),
    ),
    Universe(
        name="two events, two prompts",
        limits=ROOMY,
        arrivals=(submission(1), submission(2, "fail")),
        events=2,
        generated=2,
        turns=3,
        gate_refuses=True,
        controls=_controls("halt"),
        large_prompts=True,
    ),
    Universe(
        name="everything that ends",
        limits=TIGHT,
        arrivals=(an_ask(1), submission(2, "fail"), an_ask(3)),
        events=1,
        generated=1,
        controls=_controls("drain", "stop", "refuse", "interrupt", "halt", "caller_down"),
    ),
)
