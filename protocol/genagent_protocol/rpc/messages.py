"""The A2UI v1.0 messages of function calls: their names, who sends them, one writer for each.

What is written here holds only what it was given, field by field, and has the
shape that the published schemas demand. Reading is done in `reading`.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from genagent_protocol.rpc.json_values import Json

Message: TypeAlias = "dict[str, Json]"
Sender = Literal["agent", "renderer"]
CallKind = Literal["callRendererFunction", "callAgentFunction"]
ResponseKind = Literal["rendererFunctionResponse", "agentFunctionResponse"]
Kind = Literal[
    "createSurface",
    "updateComponents",
    "updateDataModel",
    "deleteSurface",
    "callRendererFunction",
    "agentFunctionResponse",
    "action",
    "callAgentFunction",
    "rendererFunctionResponse",
    "error",
]

#: Who may send what.
SENDERS: Final[dict[Kind, Sender]] = {
    "createSurface": "agent",
    "updateComponents": "agent",
    "updateDataModel": "agent",
    "deleteSurface": "agent",
    "callRendererFunction": "agent",
    "agentFunctionResponse": "agent",
    "action": "renderer",
    "callAgentFunction": "renderer",
    "rendererFunctionResponse": "renderer",
    "error": "renderer",
}


def call_message(
    kind: CallKind, version: str, function_call_id: str, surface_id: str | None, call: Json
) -> Message:
    """Return a message that calls a function of the other side."""
    body: dict[str, Json] = {} if surface_id is None else {"surfaceId": surface_id}
    body |= {"functionCallId": function_call_id, "callFunction": call}
    return {"version": version, kind: body}


def value_message(kind: ResponseKind, version: str, function_call_id: str, value: Json) -> Message:
    """Return the answer to a call that gave *value*; null is a value too."""
    return {"version": version, kind: {"functionCallId": function_call_id, "value": value}}


def error_message(
    kind: ResponseKind, version: str, function_call_id: str, code: str, text: str
) -> Message:
    """Return the answer to a call that was refused or failed."""
    error: Json = {"code": code, "message": text}
    return {"version": version, kind: {"functionCallId": function_call_id, "error": error}}
