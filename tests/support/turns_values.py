"""Refs, responses and endings for tests of the turn machine, short to write."""

from __future__ import annotations

from genagent_protocol.bounds import Limits
from genagent_protocol.events import Completed, EventCoverage, Failed, Response, event
from genagent_protocol.reasons import BackendFailed, Failure
from genagent_protocol.refs import BootId, Incarnation, RequestRef
from genagent_protocol.turns.state import Offers

INCARNATION = Incarnation(BootId("00000000000000aa"), 7)
ALL = Offers(handle_info=True, checkpoint_session=True, reset_session=True)
DEFAULTS = Limits()
#: Numbers from here on are drawn for generated prompts, so that they meet no caller's.
FIRST_GENERATED = 1_000


def ref(number: int) -> RequestRef:
    """Return the ref that a caller minted as its *number*-th."""
    return RequestRef.mint(INCARNATION, number.to_bytes(16, "big"))


def number_of(which: RequestRef) -> int:
    """Return the number under which *which* was made here."""
    return int(which.token, 16)


def label(which: RequestRef) -> str:
    """Return the short name of a ref: `r1` of a caller, `g1` of a generated prompt."""
    number = number_of(which)
    return f"g{number - FIRST_GENERATED}" if number > FIRST_GENERATED else f"r{number}"


def response(text: str = "done") -> Response:
    """Return the response of a turn that said *text*."""
    terminal = event("result", text=text)
    return Response(
        text=text,
        final_message=text,
        events=(terminal,),
        terminal=terminal,
        event_coverage=EventCoverage(
            observed_events=1, retained_events=1, retained_bytes=terminal.size_bytes
        ),
    )


def done(text: str = "done") -> Completed:
    """Return the outcome of a turn that said *text*."""
    return Completed(response(text))


def failed(reason: str | Failure = "broken") -> Failed:
    """Return the outcome of a turn that failed; text stands for a backend's own reason."""
    return Failed(BackendFailed(reason) if isinstance(reason, str) else reason)
