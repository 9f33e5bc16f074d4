"""What may be sent as a call: the host's request, checked before anything is registered.

A request that cannot be sent is refused with the sentence that says why; one
that can is copied and frozen, so that what was checked is what goes out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from genagent_protocol.plain import MAX_INT, FrozenDict, encoded_size
from genagent_protocol.rpc.json_values import (
    Json,
    Unfit,
    copied,
    frozen_object,
    is_sendable,
    plain_text,
)
from genagent_protocol.rpc.limits import MAX_ARGUMENTS, MAX_ID_CHARACTERS, RpcLimits
from genagent_protocol.rpc.messages import CallKind
from genagent_protocol.rpc.versions import SPELLINGS

NO_NAME: Final = "The call names no function."


def sendable_call(call: object, kind: CallKind, limits: RpcLimits) -> FrozenDict | str:
    """Return the function call object of a message, or why *call* makes none.

    It says `@call`, names a catalog only if *call* does, and always has `args`.
    A call to the agent may write `call` for `@call`; one to the renderer may not,
    and must name its catalog.
    """
    if not isinstance(call, dict):
        return NO_NAME
    plain_key = kind == "callAgentFunction" and "@call" not in call
    name, catalog_id = call.get("call" if plain_key else "@call"), call.get("catalogId")
    if not isinstance(name, str) or not plain_text(name):
        return NO_NAME
    if not is_id(name) or not is_id(catalog_id, optional=True):
        return "The name of the function or of its catalog is not text that can be sent."
    if catalog_id is None and kind == "callRendererFunction":
        return f"The call of function '{name}' names no catalogId, which a renderer needs."
    args = sendable_arguments(call.get("args", {}), limits)
    if isinstance(args, str):
        return args
    catalog = {"catalogId": plain_text(catalog_id)} if isinstance(catalog_id, str) else {}
    return FrozenDict({"@call": plain_text(name), **catalog, "args": args})


def sendable_arguments(args: object, limits: RpcLimits) -> FrozenDict | str:
    """Return a frozen copy of the arguments, or why they cannot be sent."""
    if isinstance(args, Mapping) and not isinstance(args, dict):
        args = dict(args)
    if not isinstance(args, dict):
        return "The arguments are not an object."
    if len(args) > MAX_ARGUMENTS:
        return f"The call has {len(args)} arguments; at most {MAX_ARGUMENTS} are allowed."
    copy = copied(args, max_bytes=limits.max_argument_bytes)
    if isinstance(copy, Unfit):
        return f"The arguments cannot be sent: {copy.problem}."
    return _within(copy.value, limits.max_argument_bytes)


def address_problem(kind: CallKind, surface_id: object, function_call_id: object) -> str | None:
    """Say why the ids of a call cannot be sent, or None."""
    if surface_id is None and kind == "callAgentFunction":
        return "A call to the agent names the surface it comes from."
    if not is_id(surface_id, optional=True):
        return "The surface id is not text that can be sent."
    if not is_id(function_call_id, optional=True):
        return "The function call id is not text that can be sent."
    return None


def option_problem(timeout_ms: object, version: object) -> str | None:
    """Say why a timeout or a version cannot be meant, or None."""
    if timeout_ms is not None and not is_duration(timeout_ms):
        return "The timeout is not a number of milliseconds."
    if version is not None and not (isinstance(version, str) and version in SPELLINGS):
        return "The version is none that is spoken here."
    return None


def is_id(value: object, *, optional: bool = False) -> bool:
    """Tell whether *value* is text that both JSON and msgpack carry, and not too long for an id."""
    if not isinstance(value, str):
        return value is None and optional
    text = plain_text(value)
    return len(text) <= MAX_ID_CHARACTERS and is_sendable(text)


def is_duration(value: object) -> bool:
    """Tell whether *value* is a number of milliseconds; infinity is one."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return value in (math.inf, -math.inf) or abs(value) <= MAX_INT


def _within(args: Json, max_bytes: int) -> FrozenDict | str:
    assert isinstance(args, dict)
    kept = frozen_object(args)
    size_bytes = encoded_size(kept)
    if size_bytes > max_bytes:
        return f"The arguments take {size_bytes} bytes; at most {max_bytes} are allowed."
    return kept
