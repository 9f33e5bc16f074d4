"""Two ways to read a message: strictly at the edge, loosely where an answer is owed.

`read_message` lets through only what has the shape the protocol gives it, from
the side that may send it. `read_loosely` is for a handler that is handed a
message all the same: it finds what it can and never fails.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias, cast

from genagent_protocol.plain import MAX_DEPTH
from genagent_protocol.rpc.bodies import attempted
from genagent_protocol.rpc.json_values import (
    Json,
    Unfit,
    copied,
    is_sendable,
    plain_object,
    plain_text,
)
from genagent_protocol.rpc.limits import MAX_ID_CHARACTERS
from genagent_protocol.rpc.messages import SENDERS, Kind, Message, Sender
from genagent_protocol.rpc.outcomes import INVALID_FUNCTION_CALL, RpcError
from genagent_protocol.rpc.versions import SPELLINGS, VERSION

#: The id of an answer to a call whose id cannot be read.
UNKNOWN_ID: Final = "unknown"
#: As large as one frame of the wire may be.
MAX_MESSAGE_BYTES: Final = 16_777_216

_Types: TypeAlias = "dict[str, type]"
_NOUNS: Final[dict[type, str]] = {str: "text", dict: "an object"}
_SURFACE_FAULTS: Final = frozenset({"VALIDATION_FAILED", "UNALLOWED_PARENT", "UNALLOWED_CHILD"})
_NO_MESSAGE: Final = "The function failed and did not say why."
_MAX_SHOWN: Final = 80


@dataclass(frozen=True, slots=True)
class Envelope:
    """A well-formed message; `body` is a copy of what stands under its one key."""

    version: str
    kind: Kind
    body: dict[str, Json]


@dataclass(frozen=True, slots=True)
class Malformed:
    """Why a message cannot be taken, and what it names, as far as that can be read."""

    problem: str
    function_call_id: str | None = None
    surface_id: str | None = None
    #: Each call that is named, and by which message: both sides count their calls alike.
    named: tuple[tuple[Kind, str], ...] = ()

    def calls(self, *kinds: Kind) -> tuple[str, ...]:
        """Return the ids of the calls that messages of these *kinds* name."""
        return tuple(call_id for kind, call_id in self.named if kind in kinds)


@dataclass(frozen=True, slots=True)
class Loose:
    """What a handler can make of whatever it was handed; `body` may be empty."""

    version: str
    body: dict[str, object]

    @property
    def function_call_id(self) -> str:
        """The id to answer under."""
        found = _id_in(self.body, "functionCallId")
        return UNKNOWN_ID if found is None else found


def read_message(message: object, sender: Sender) -> Envelope | Malformed:
    """Return the message as an envelope that *sender* may have sent, or why it is none.

    The four messages of calls and `error` are checked to the last field; of the
    others only that they are objects. Whatever else is broken, the calls that the
    message names are found: somebody may wait for them. This does not check a call
    against any catalog.
    """
    read = _read(message, sender)
    if isinstance(read, Envelope):
        return read
    named = attempted(lambda: _named(message, sender))
    calls, surface_id = ((), None) if isinstance(named, RpcError) else named
    first = calls[0][1] if calls else None
    return Malformed(read, first, surface_id, calls)


def malformed_report(malformed: Malformed, version: str = VERSION) -> Message | None:
    """Return the `error` message by which a renderer reports a malformed one.

    There is none when the malformed message named neither a call nor a surface:
    the protocol has no address for that. A call that it *answers* is none of the
    agent's, which may have one of the same id.
    """
    error: dict[str, Json] = {"code": INVALID_FUNCTION_CALL, "message": malformed.problem}
    made = (*malformed.calls("callRendererFunction"), None)
    call_id = made[0] if malformed.named else malformed.function_call_id
    if call_id is not None:
        error["functionCallId"] = call_id
    elif malformed.surface_id is not None:
        error["surfaceId"] = malformed.surface_id
    else:
        return None
    return {"version": version, "error": error}


def read_loosely(message: object, kind: Kind) -> Loose:
    """Return what can be read of a message of this *kind*, or of its inner part alone."""
    # A message that did not come over a wire may be of classes of its own, whose code fails.
    loose = attempted(lambda: _read_loosely(message, kind))
    return Loose(VERSION, {}) if isinstance(loose, RpcError) else loose


def _read_loosely(message: object, kind: Kind) -> Loose:
    whole = plain_object(message)
    body = plain_object(whole[kind]) if kind in whole else whole
    version = text_in(whole, "version")
    return Loose(VERSION if version is None else version, body)


def text_in(body: Mapping[str, object], key: str) -> str | None:
    """Return the text under *key*, or None where there is none that could be sent back."""
    value = body.get(key)
    # Not by `isinstance`, which also asks the value itself what it is.
    text = plain_text(cast(str, value)) if issubclass(type(value), str) else None
    return text if text is not None and is_sendable(text) else None


def reported_error(error: object, default_code: str, function_call_id: str) -> RpcError:
    """Return an error as the other side reported it; what it left out is filled in."""
    said = plain_object(error) if isinstance(error, dict) else {"message": error}
    code = text_in(said, "code") or default_code
    return RpcError(code, text_in(said, "message") or _NO_MESSAGE, function_call_id)


def _read(message: object, sender: Sender) -> Envelope | str:
    copy = attempted(lambda: copied(message, max_bytes=MAX_MESSAGE_BYTES, max_depth=MAX_DEPTH))
    if isinstance(copy, RpcError):
        return "The message cannot be read: its own code failed."
    if isinstance(copy, Unfit):
        return f"The message is not JSON: {copy.problem}."
    if not isinstance(copy.value, dict):
        return "The message is not an object."
    return _read_object(copy.value, sender)


def _read_object(message: dict[str, Json], sender: Sender) -> Envelope | str:
    version = message.get("version")
    if not isinstance(version, str) or version not in SPELLINGS:
        return "The message names no protocol version that is spoken here."
    keys = [key for key in message if key != "version"]
    if len(keys) != 1:
        return f"The message has {len(keys)} message keys instead of one."
    kind = next((kind for kind in SENDERS if kind == keys[0]), None)
    if kind is None or SENDERS[kind] != sender:
        return f"{_shown(keys[0])} is no message that the {sender} sends."
    return _read_body(version, kind, message[kind])


def _read_body(version: str, kind: Kind, body: Json) -> Envelope | str:
    if not isinstance(body, dict):
        return f"{kind} is not an object."
    problem = (_CHECKS[kind](body) if kind in _CHECKS else None) or _long_id(body)
    return Envelope(version, kind, body) if problem is None else f"{kind}: {problem}."


def _named(message: object, sender: Sender) -> tuple[tuple[tuple[Kind, str], ...], str | None]:
    """Return the calls and the surface that the messages in *message* name.

    Those that *sender* may not send name nothing. Calls come before answers.
    """
    whole = plain_object(message)
    kinds = [kind for kind, its in SENDERS.items() if its == sender and kind in whole]
    bodies = {kind: plain_object(whole[kind]) for kind in kinds}
    found = [(kind, _id_in(body, "functionCallId")) for kind, body in bodies.items()]
    calls = tuple(
        (kind, call_id) for kind, call_id in found if call_id is not None and kind in _CHECKS
    )
    surfaces = [_id_in(body, "surfaceId") for body in bodies.values()]
    return calls, next((surface_id for surface_id in surfaces if surface_id is not None), None)


def _id_in(body: dict[str, object], key: str) -> str | None:
    found = text_in(body, key)
    return None if found is None or len(found) > MAX_ID_CHARACTERS else found


def _long_id(body: dict[str, Json]) -> str | None:
    for key in ("functionCallId", "surfaceId"):
        value = body.get(key)
        if isinstance(value, str) and len(value) > MAX_ID_CHARACTERS:
            return f"{key} is longer than {MAX_ID_CHARACTERS} characters"
    return None


def _field_problem(body: dict[str, Json], required: _Types, optional: _Types) -> str | None:
    """Say which field is missing, unknown or of the wrong type; the first one counts."""
    for key in required:
        if key not in body:
            return f"{key} is missing"
    wanted = optional | required
    for key, value in body.items():
        if key not in wanted:
            return f"unknown field {_shown(key)}"
        if not isinstance(value, wanted[key]):
            return f"{key} is not {_NOUNS[wanted[key]]}"
    return None


def _renderer_call_problem(body: dict[str, Json]) -> str | None:
    return _field_problem(
        body, {"functionCallId": str, "callFunction": dict}, {"surfaceId": str}
    ) or _function_problem(body["callFunction"], {"@call": str, "catalogId": str}, {"args": dict})


def _agent_call_problem(body: dict[str, Json]) -> str | None:
    return _field_problem(
        body, {"surfaceId": str, "functionCallId": str, "callFunction": dict}, {}
    ) or _function_problem(body["callFunction"], {"@call": str}, {"catalogId": str, "args": dict})


def _function_problem(call: Json, required: _Types, optional: _Types) -> str | None:
    assert isinstance(call, dict)
    problem = _field_problem(call, required, optional)
    if problem is None and not call["@call"]:
        problem = "@call is empty"
    return problem and f"callFunction: {problem}"


def _response_problem(body: dict[str, Json], required: _Types, optional: _Types) -> str | None:
    problem = _field_problem(body, {"functionCallId": str}, {"value": object, "error": dict})
    if problem is not None:
        return problem
    if ("value" in body) == ("error" in body):
        return "exactly one of value and error is wanted"
    error = body.get("error")
    if isinstance(error, dict):
        problem = _field_problem(error, required, optional)
    return problem and f"error: {problem}"


def _renderer_response_problem(body: dict[str, Json]) -> str | None:
    return _response_problem(body, {"code": str, "message": str}, {})


def _agent_response_problem(body: dict[str, Json]) -> str | None:
    # An agent's error without a code is taken; it settles as UNKNOWN_ERROR.
    return _response_problem(body, {"message": str}, {"code": str})


def _error_problem(body: dict[str, Json]) -> str | None:
    texts: _Types = {"code": str, "message": str}
    code = body.get("code")
    # A list or an object is in no set: to ask is an exception, and not a no.
    if isinstance(code, str) and code in _SURFACE_FAULTS:
        return _field_problem(body, texts | {"surfaceId": str, "path": str}, {})
    others: _Types = dict.fromkeys(body, object)
    addresses: _Types = {"surfaceId": str, "functionCallId": str}
    problem = _field_problem(body, texts, others | addresses)
    if problem is None and ("surfaceId" in body) == ("functionCallId" in body):
        return "exactly one of surfaceId and functionCallId is wanted"
    return problem


def _shown(key: str) -> str:
    return repr(key[:_MAX_SHOWN])


#: How the messages that are about calls are read.
_CHECKS: Final[dict[Kind, Callable[[dict[str, Json]], str | None]]] = {
    "callRendererFunction": _renderer_call_problem,
    "callAgentFunction": _agent_call_problem,
    "rendererFunctionResponse": _renderer_response_problem,
    "agentFunctionResponse": _agent_response_problem,
    "error": _error_problem,
}
