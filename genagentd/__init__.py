"""A supervisor daemon for long-running LLM agents: one OS process per agent.

Everything a user of the library needs has its name here. A name is looked up, and its
module imported, when it is first used: importing this package opens, starts and reads
nothing, and a process that never asks for the client never carries it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from genagent_protocol.answers import AgentRow as AgentRow
    from genagent_protocol.answers import NotFound as NotFound
    from genagent_protocol.answers import PollCompleted as PollCompleted
    from genagent_protocol.answers import PollFailed as PollFailed
    from genagent_protocol.answers import PollPending as PollPending
    from genagent_protocol.answers import Snapshot as Snapshot
    from genagent_protocol.answers import Status as Status
    from genagent_protocol.envelopes import Admission as Admission
    from genagent_protocol.envelopes import Completion as Completion
    from genagent_protocol.envelopes import Down as Down
    from genagent_protocol.envelopes import EventMessage as EventMessage
    from genagent_protocol.envelopes import Gap as Gap
    from genagent_protocol.envelopes import Telemetry as Telemetry
    from genagent_protocol.envelopes import TelemetryLost as TelemetryLost
    from genagent_protocol.envelopes import Undeliverable as Undeliverable
    from genagent_protocol.errors import CallError as CallError
    from genagent_protocol.errors import CallTimeout as CallTimeout
    from genagent_protocol.errors import DaemonLost as DaemonLost
    from genagent_protocol.errors import FunctionFailed as FunctionFailed
    from genagent_protocol.errors import GenAgentError as GenAgentError
    from genagent_protocol.errors import NotReachable as NotReachable
    from genagent_protocol.errors import ProcessDown as ProcessDown
    from genagent_protocol.errors import Refused as Refused
    from genagent_protocol.errors import SendBufferFull as SendBufferFull
    from genagent_protocol.errors import StartFailed as StartFailed
    from genagent_protocol.errors import TooLarge as TooLarge
    from genagent_protocol.errors import TurnFailed as TurnFailed
    from genagent_protocol.errors import UsageError as UsageError
    from genagent_protocol.errors import VersionMismatch as VersionMismatch
    from genagent_protocol.events import Completed as Completed
    from genagent_protocol.events import Event as Event
    from genagent_protocol.events import Response as Response
    from genagent_protocol.failed import Failed as Failed
    from genagent_protocol.refs import AgentHandle as AgentHandle
    from genagent_protocol.refs import MailboxAddress as MailboxAddress
    from genagent_protocol.refs import MonitorRef as MonitorRef
    from genagent_protocol.refs import RequestRef as RequestRef
    from genagent_protocol.submission import Submission as Submission
    from genagent_protocol.supervision.terms import RestartPolicy as RestartPolicy
    from genagentd.agent.behaviour import Agent as Agent
    from genagentd.agent.behaviour import Halt as Halt
    from genagentd.agent.behaviour import NoReply as NoReply
    from genagentd.agent.behaviour import Ok as Ok
    from genagentd.agent.behaviour import Prompt as Prompt
    from genagentd.agent.behaviour import Run as Run
    from genagentd.agent.behaviour import Skip as Skip
    from genagentd.agent.behaviour import Started as Started
    from genagentd.agent.functions import function as function
    from genagentd.client.aio import AsyncClient as AsyncClient
    from genagentd.client.boxes import Message as Message
    from genagentd.client.boxes import about as about
    from genagentd.client.calls import Lost as Lost
    from genagentd.client.calls import Submitted as Submitted
    from genagentd.client.client import Client as Client
    from genagentd.client.spec import AgentSpec as AgentSpec
    from genagentd.client.story import hear as hear
    from genagentd.version import __version__ as __version__

_HOMES = {
    "genagent_protocol.answers": (
        "AgentRow",
        "NotFound",
        "PollCompleted",
        "PollFailed",
        "PollPending",
        "Snapshot",
        "Status",
    ),
    "genagent_protocol.envelopes": (
        "Admission",
        "Completion",
        "Down",
        "EventMessage",
        "Gap",
        "Telemetry",
        "TelemetryLost",
        "Undeliverable",
    ),
    "genagent_protocol.errors": (
        "CallError",
        "CallTimeout",
        "DaemonLost",
        "FunctionFailed",
        "GenAgentError",
        "NotReachable",
        "ProcessDown",
        "Refused",
        "SendBufferFull",
        "StartFailed",
        "TooLarge",
        "TurnFailed",
        "UsageError",
        "VersionMismatch",
    ),
    "genagent_protocol.events": (
        "Completed",
        "Event",
        "Response",
    ),
    "genagent_protocol.failed": ("Failed",),
    "genagent_protocol.refs": (
        "AgentHandle",
        "MailboxAddress",
        "MonitorRef",
        "RequestRef",
    ),
    "genagent_protocol.submission": ("Submission",),
    "genagent_protocol.supervision.terms": ("RestartPolicy",),
    "genagentd.agent.behaviour": (
        "Agent",
        "Halt",
        "NoReply",
        "Ok",
        "Prompt",
        "Run",
        "Skip",
        "Started",
    ),
    "genagentd.agent.functions": ("function",),
    "genagentd.client.aio": ("AsyncClient",),
    "genagentd.client.boxes": (
        "Message",
        "about",
    ),
    "genagentd.client.calls": (
        "Lost",
        "Submitted",
    ),
    "genagentd.client.client": ("Client",),
    "genagentd.client.spec": ("AgentSpec",),
    "genagentd.client.story": ("hear",),
    "genagentd.version": ("__version__",),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "Admission",
    "Agent",
    "AgentHandle",
    "AgentRow",
    "AgentSpec",
    "AsyncClient",
    "CallError",
    "CallTimeout",
    "Client",
    "Completed",
    "Completion",
    "DaemonLost",
    "Down",
    "Event",
    "EventMessage",
    "Failed",
    "FunctionFailed",
    "Gap",
    "GenAgentError",
    "Halt",
    "Lost",
    "MailboxAddress",
    "Message",
    "MonitorRef",
    "NoReply",
    "NotFound",
    "NotReachable",
    "Ok",
    "PollCompleted",
    "PollFailed",
    "PollPending",
    "ProcessDown",
    "Prompt",
    "Refused",
    "RequestRef",
    "Response",
    "RestartPolicy",
    "Run",
    "SendBufferFull",
    "Skip",
    "Snapshot",
    "StartFailed",
    "Started",
    "Status",
    "Submission",
    "Submitted",
    "Telemetry",
    "TelemetryLost",
    "TooLarge",
    "TurnFailed",
    "Undeliverable",
    "UsageError",
    "VersionMismatch",
    "__version__",
    "about",
    "function",
    "hear",
]


def __getattr__(name: str) -> object:
    """Return the public *name*, importing its module now."""
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME_OF[name]), name)


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted(__all__)
