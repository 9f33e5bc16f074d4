"""Bytes to values and back: the only file that knows msgpack.

Everything from outside is decoded by a fresh decoder under fixed limits on size,
length and depth; a map with a repeated key, a key that is not text, an extension
type or bytes left over make the whole frame bad. Whatever can go wrong with foreign
bytes is a `RemoteWireError`; what this side should not have sent, a `LocalWireError`.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any, NoReturn

import msgpack

from genagent_protocol import schema
from genagent_protocol.bounds import MAX_FRAME_BYTES
from genagent_protocol.errors import LocalWireError, RemoteWireError
from genagent_protocol.plain import (
    EMPTY,
    MAX_DEPTH,
    MAX_ITEMS,
    MAX_KEY_CHARS,
    FrozenDict,
    NotPlain,
    Plain,
    deeper_than,
    freeze,
)

#: The most a prompt, a notification or one event may hold.
MAX_PAYLOAD_BYTES = 8 * 1024 * 1024
#: Envelopes nest their payload a few levels deep.
MAX_FRAME_DEPTH = MAX_DEPTH + 16
#: The most envelopes of one body.
MAX_ENVELOPES = 65_536

_LIMITS: dict[str, Any] = {
    "use_list": False,
    "strict_map_key": True,
    "timestamp": 0,
    "max_str_len": MAX_FRAME_BYTES,
    "max_bin_len": MAX_FRAME_BYTES,
    "max_array_len": MAX_ITEMS,
    "max_map_len": MAX_ITEMS,
    "max_ext_len": 0,
}
# msgpack raises many classes for bad bytes, some of its own, some built-in.
_BAD = (ValueError, TypeError, OverflowError, RecursionError, msgpack.UnpackException)


class UnknownMessage(RemoteWireError):
    """A well-formed message of a type that this version does not know; `tag` names it.

    `call` is the number under which its sender waits for an answer, if it does.
    """

    def __init__(self, tag: str, call: int | None = None) -> None:
        self.tag = tag
        self.call = call
        super().__init__(f"unknown message type {tag!r}")


class MalformedMessage(RemoteWireError):
    """A message of the known type `tag` that holds something else than that type has.

    `call` is the number under which its sender waits for an answer, if it said one.
    """

    def __init__(self, problem: str, tag: str, call: int | None = None) -> None:
        self.tag = tag
        self.call = call
        super().__init__(problem)


class _MoreThanOne(RemoteWireError):
    """Something follows the first value."""


def pack(value: object) -> bytes:
    """Return the msgpack encoding of a plain value.

    Raises:
        LocalWireError: it is not plain, or larger than a frame; the path to what
            cannot be sent is in the message.
    """
    try:
        packed: bytes = msgpack.packb(value, use_bin_type=True)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise LocalWireError(f"this value cannot be sent: {_fault(value) or error}") from error
    if len(packed) > MAX_FRAME_BYTES:
        raise LocalWireError(
            f"a message of {len(packed)} bytes is over the frame limit of {MAX_FRAME_BYTES} bytes"
        )
    return packed


def _fault(value: object) -> NotPlain | None:
    """Look for what is wrong with a value that msgpack refused, and where it is."""
    try:
        freeze(value, max_depth=MAX_FRAME_DEPTH)
    except NotPlain as fault:
        return fault
    return None


def unpack(data: bytes) -> Plain:
    """Return the one plain value that *data* encodes.

    Raises:
        RemoteWireError: anything else.
    """
    value = _unpacked(data)
    if deeper_than(value, MAX_FRAME_DEPTH):
        raise RemoteWireError(f"nested deeper than {MAX_FRAME_DEPTH} levels")
    return value


def unpack_map(data: bytes) -> FrozenDict:
    """Return the one map that *data* encodes, for a reader that looks at its scalars alone.

    Raises:
        RemoteWireError: anything else.
    """
    value = _unpacked(data)
    if not isinstance(value, FrozenDict):
        raise RemoteWireError("expected a map")
    return value


def _unpacked(data: bytes) -> Plain:
    _check_size(data)
    try:
        value: Plain = msgpack.unpackb(
            data, object_pairs_hook=_map, ext_hook=_no_extension, **_LIMITS
        )
    except msgpack.ExtraData as more:
        raise _MoreThanOne(f"{len(more.extra)} bytes after the value") from None
    except _BAD as bad:
        raise _refusal(bad) from None
    return value


def unpack_each(data: bytes) -> list[Plain]:
    """Return the values that *data* encodes one after another. This does not check their depth.

    Raises:
        RemoteWireError: *data* is not that, breaks a limit, or ends in the middle.
    """
    try:
        return [_unpacked(data)]
    except _MoreThanOne:
        pass
    decoder = msgpack.Unpacker(
        max_buffer_size=MAX_FRAME_BYTES,
        object_pairs_hook=_map,
        ext_hook=_no_extension,
        **_LIMITS,
    )
    values: list[Plain] = []
    end = 0
    try:
        decoder.feed(data)
        for value in islice(decoder, MAX_ENVELOPES + 1):
            values.append(value)
            # Asked after each value: at the end it would count what is not complete, too.
            end = decoder.tell()
    except _BAD as bad:
        raise _refusal(bad) from None
    if len(values) > MAX_ENVELOPES:
        raise RemoteWireError(f"a body of more than {MAX_ENVELOPES} envelopes")
    if end != len(data):
        raise RemoteWireError(f"a body that is complete at byte {end} of {len(data)}")
    return values


def _check_size(data: bytes) -> None:
    if len(data) > MAX_FRAME_BYTES:
        raise RemoteWireError(f"a frame of {len(data)} bytes is over {MAX_FRAME_BYTES} bytes")


def _refusal(bad: Exception) -> RemoteWireError:
    return RemoteWireError(f"not a message: {type(bad).__name__}: {bad}")


def _map(pairs: list[tuple[object, Plain]]) -> FrozenDict:
    if not pairs:
        return EMPTY
    found = FrozenDict(pairs)  # type: ignore[arg-type]  # the keys are checked below
    if len(found) != len(pairs):
        raise RemoteWireError("a map names the same key twice")
    for key in found:
        if type(key) is not str or len(key) > MAX_KEY_CHARS:
            raise RemoteWireError(f"a map has a key that is not text of {MAX_KEY_CHARS} characters")
    return found


def _no_extension(code: int, _data: bytes) -> NoReturn:
    raise RemoteWireError(f"extension type {code} is not part of the protocol")


def encode(envelope: object) -> bytes:
    """Return the body that carries *envelope*.

    Raises:
        LocalWireError: it does not fit a frame or holds what cannot be sent.
    """
    try:
        written = schema.dump(envelope)
    except schema.Mismatch as mismatch:
        raise LocalWireError(f"this message cannot be sent: {mismatch}") from None
    return pack(written)


def decode(union: object, body: bytes) -> list[Any]:
    """Return the envelopes of *union* that *body* carries, in order.

    A body with one bad envelope is bad as a whole.

    Raises:
        UnknownMessage: one is well-formed and of a type that *union* does not have.
        MalformedMessage: one is of a type that *union* has, and not what that type is.
        RemoteWireError: the bytes are not that.
    """
    return [read(union, raw) for raw in unpack_each(body)]


def read(union: object, raw: Plain) -> Any:
    """Return the envelope of *union* that the plain map *raw* spells; raises as `decode`."""
    try:
        return schema.load(union, raw)
    except schema.UnknownTag as unknown:
        raise UnknownMessage(unknown.tag, _call_of(raw)) from None
    except schema.Mismatch as mismatch:
        tag = raw.get(schema.TAG) if isinstance(raw, FrozenDict) else None
        if not isinstance(tag, str):
            raise RemoteWireError(str(mismatch)) from None
        raise MalformedMessage(str(mismatch), tag, _call_of(raw)) from None


def _call_of(raw: Plain) -> int | None:
    call = raw.get("call") if isinstance(raw, FrozenDict) else None
    return call if type(call) is int else None


def name_key(name: Plain) -> bytes:
    """Return the canonical bytes of an agent's name: equal names, equal bytes.

    1, 1.0 and True are three names. Maps are written in the order of their keys.
    """
    return pack(_ordered(name))


def _ordered(value: Plain) -> object:
    match value:
        case FrozenDict():
            return {key: _ordered(value[key]) for key in sorted(value)}
        case tuple():
            return [_ordered(item) for item in value]
        case _:
            return value


def join(bodies: Iterable[bytes]) -> bytes:
    """Return one body frame that carries all *bodies*, in order."""
    return b"".join(bodies)
