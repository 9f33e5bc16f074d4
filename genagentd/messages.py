"""What arrives in a mailbox, and the outcomes, answers and reasons inside.

All of them are frozen values; compare, match and keep them as you like. `Failed` is
an outcome here; the `Failed` of `genagentd` matches and equals it.
"""

from genagent_protocol.answers import (
    AgentRow,
    CurrentRequest,
    NotFound,
    PollCompleted,
    PollFailed,
    PollPending,
    Snapshot,
    Status,
)
from genagent_protocol.envelopes import (
    Admission,
    Completion,
    CoreState,
    Down,
    EventMessage,
    Gap,
    Telemetry,
    TelemetryLost,
    Undeliverable,
)
from genagent_protocol.events import Completed, Event, EventCoverage, Failed, Outcome, Response
from genagent_protocol.reasons import (
    AgentTerminated,
    BackendError,
    BackendFailed,
    EventCaptureOverflow,
    ExitReason,
    Failure,
    Overloaded,
    PayloadTooLarge,
    Reason,
    StartError,
    TaskCrashed,
)
from genagentd.client.boxes import Message, about
from genagentd.client.calls import Lost, Submitted
from genagentd.client.story import hear

__all__ = [
    "Admission",
    "AgentRow",
    "AgentTerminated",
    "BackendError",
    "BackendFailed",
    "Completed",
    "Completion",
    "CoreState",
    "CurrentRequest",
    "Down",
    "Event",
    "EventCaptureOverflow",
    "EventCoverage",
    "EventMessage",
    "ExitReason",
    "Failed",
    "Failure",
    "Gap",
    "Lost",
    "Message",
    "NotFound",
    "Outcome",
    "Overloaded",
    "PayloadTooLarge",
    "PollCompleted",
    "PollFailed",
    "PollPending",
    "Reason",
    "Response",
    "Snapshot",
    "StartError",
    "Status",
    "Submitted",
    "TaskCrashed",
    "Telemetry",
    "TelemetryLost",
    "Undeliverable",
    "about",
    "hear",
]
