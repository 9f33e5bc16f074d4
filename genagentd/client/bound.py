"""How much may be on its way to the daemon, what goes out all the same, and what passes there."""

from __future__ import annotations

from genagent_protocol.envelopes import Credit, Request, UiDetach, UiMessage
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


def answers(envelope: object) -> bool:
    """Whether this is about what an agent asked: it may be waiting for that and nothing else.

    In a session a client says this, or it calls a function of the agent.
    """
    return isinstance(envelope, UiMessage) and "callAgentFunction" not in envelope.message
