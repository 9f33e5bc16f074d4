"""Bytes to values and back: the only file that knows msgpack.

Everything from outside is decoded by a fresh decoder under fixed limits on size,
length and depth; a map with a repeated key, a key that is not text, an extension
type or bytes left over make the whole frame bad. Whatever can go wrong with foreign
bytes is a `RemoteWireError`; what this side should not have sent, a `LocalWireError`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

import msgpack

from genagent_protocol import schema
from genagent_protocol.errors import LocalWireError, RemoteWireError
from genagent_protocol.plain import MAX_DEPTH, FrozenDict, Plain, freeze

#: The most one ZeroMQ frame may hold. A larger one would drop the connection silently.
MAX_FRAME_BYTES = 16 * 1024 * 1024
#: The most a prompt, a notification or one event may hold.
MAX_PAYLOAD_BYTES = 8 * 1024 * 1024
#: The most items of one list or map.
MAX_ITEMS = 131_072
#: Envelopes nest their payload a few levels deep.
MAX_FRAME_DEPTH = MAX_DEPTH + 16


class UnknownMessage(RemoteWireError):
    """A well-formed message of a type that this version does not know; `tag` names it."""

    def __init__(self, tag: str) -> None:
        self.tag = tag
        super().__init__(f"unknown message type {tag!r}")


def pack(value: object) -> bytes:
    """Return the msgpack encoding of a plain value.

    Raises:
        LocalWireError: it is not plain, or larger than a frame.
    """
    try:
        packed: bytes = msgpack.packb(value, use_bin_type=True)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise LocalWireError(f"this value cannot be sent: {error}") from error
    if len(packed) > MAX_FRAME_BYTES:
        raise LocalWireError(
            f"a message of {len(packed)} bytes is over the frame limit of {MAX_FRAME_BYTES} bytes"
        )
    return packed


def unpack(data: bytes) -> Plain:
    """Return the one plain value that *data* encodes.

    Raises:
        RemoteWireError: anything else.
    """
    values = unpack_all(data)
    if len(values) != 1:
        raise RemoteWireError(f"expected one value, found {len(values)}")
    return values[0]


def unpack_all(data: bytes) -> list[Plain]:
    """Return the plain values that *data* encodes one after another.

    Raises:
        RemoteWireError: *data* is not that, breaks a limit, or ends in the middle.
    """
    if len(data) > MAX_FRAME_BYTES:
        raise RemoteWireError(f"a frame of {len(data)} bytes is over {MAX_FRAME_BYTES} bytes")
    decoder = msgpack.Unpacker(
        max_buffer_size=MAX_FRAME_BYTES,
        use_list=False,
        strict_map_key=True,
        object_pairs_hook=_map,
        ext_hook=_no_extension,
        timestamp=0,
        max_str_len=MAX_FRAME_BYTES,
        max_bin_len=MAX_FRAME_BYTES,
        max_array_len=MAX_ITEMS,
        max_map_len=MAX_ITEMS,
        max_ext_len=0,
    )
    try:
        decoder.feed(data)
        values: list[Plain] = list(decoder)
    except RemoteWireError:
        raise
    # msgpack raises many classes for bad bytes, some of its own, some built-in.
    except (ValueError, TypeError, OverflowError, RecursionError, msgpack.UnpackException) as bad:
        raise RemoteWireError(f"not a message: {type(bad).__name__}: {bad}") from None
    if decoder.tell() != len(data):
        raise RemoteWireError(f"a message that ends after {len(data)} bytes is not complete")
    for value in values:
        _check_depth(value, MAX_FRAME_DEPTH)
    return values


def _map(pairs: list[tuple[object, Plain]]) -> FrozenDict:
    found = FrozenDict(pairs)  # type: ignore[arg-type]  # the keys are checked on the next lines
    if len(found) != len(pairs):
        raise RemoteWireError("a map names the same key twice")
    if not all(type(key) is str for key in found):
        raise RemoteWireError("a map has a key that is not text")
    return found


def _no_extension(code: int, _data: bytes) -> NoReturn:
    raise RemoteWireError(f"extension type {code} is not part of the protocol")


def _check_depth(value: Plain, left: int) -> None:
    if not isinstance(value, (tuple, FrozenDict)):
        return
    if left <= 0:
        raise RemoteWireError(f"nested deeper than {MAX_FRAME_DEPTH} levels")
    for child in value.values() if isinstance(value, FrozenDict) else value:
        if isinstance(child, (tuple, FrozenDict)):
            _check_depth(child, left - 1)


def encode(envelope: object) -> bytes:
    """Return the body that carries *envelope*.

    Raises:
        LocalWireError: it does not fit a frame or holds what cannot be sent.
    """
    return pack(schema.dump(envelope))


def decode(union: object, body: bytes) -> list[Any]:
    """Return the envelopes of *union* that *body* carries, in order.

    Raises:
        UnknownMessage: one is well-formed and of a type that *union* does not have.
        RemoteWireError: the bytes are not that.
    """
    return [read(union, raw) for raw in unpack_all(body)]


def read(union: object, raw: Plain) -> Any:
    """Return the envelope of *union* that the plain map *raw* spells; raises as `decode`."""
    try:
        return schema.load(union, raw)
    except schema.UnknownTag as unknown:
        raise UnknownMessage(unknown.tag) from None
    except schema.Mismatch as mismatch:
        raise RemoteWireError(str(mismatch)) from None


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


def frozen_options(options: Mapping[str, object]) -> FrozenDict:
    """Return *options* frozen, for an envelope.

    Raises:
        NotPlain: a value cannot be sent; the path names the option.
    """
    frozen = freeze(options)
    assert isinstance(frozen, FrozenDict)
    return frozen
