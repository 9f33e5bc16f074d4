"""How much may be on its way to the daemon, and what goes out all the same."""

from __future__ import annotations

from genagent_protocol.envelopes import Credit, Request, UiDetach
from genagent_protocol.requests import DemonitorAgent, WatchTelemetry

#: What may be sent and not yet taken in by the daemon before sends are refused.
SEND_BOUND_BYTES = 64 * 1024 * 1024


def takes_back(envelope: object) -> bool:
    """Whether this only takes back what was said before: it is small, and no bound keeps it.

    Whoever it is for would else keep, and wait for, what nobody here answers any more.
    """
    match envelope:
        case Credit() | UiDetach() | Request(request=DemonitorAgent() | WatchTelemetry(on=False)):
            return True
    return False
