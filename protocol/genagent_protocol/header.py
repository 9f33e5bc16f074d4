"""The first frame of every message: what a switchboard needs, and nothing of the body.

A message is two frames, `[header, body]`. The header is one msgpack map; the body
holds `bodies` envelopes one after another, all of one class for one recipient. The
daemon reads headers and stamps `sender`; it never decodes a body that is not for it.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from genagent_protocol import codec
from genagent_protocol.errors import RemoteWireError
from genagent_protocol.plain import FrozenDict

#: The route of the daemon itself. Agents are reached at their incarnation's text,
#: clients at their mailbox's.
DAEMON = "daemon"

#: `must_keep` is never dropped for a connected peer; `droppable` leaves a visible gap.
DeliveryClass = Literal["must_keep", "droppable"]

_CLASSES = ("must_keep", "droppable")


class Header(NamedTuple):
    """What one message is, for whom, from whom.

    `kind` is the tag of its envelopes, or `batch` when they differ. `first` and
    `last` number the droppable envelopes of one stream, so that a gap can be named.
    """

    kind: str
    to: str
    sender: str = ""
    delivery: DeliveryClass = "must_keep"
    ref: str | None = None
    first: int = 0
    last: int = 0
    bodies: int = 1
    size: int = 0
    version: int = 1


def encode_header(header: Header) -> bytes:
    """Return the first frame of a message."""
    fields: dict[str, Any] = {
        "v": header.version,
        "kind": header.kind,
        "class": header.delivery,
        "to": header.to,
        "from": header.sender,
        "size": header.size,
    }
    if header.bodies != 1:
        fields["bodies"] = header.bodies
    if header.ref is not None:
        fields["ref"] = header.ref
    if header.last:
        fields["seq"] = (header.first, header.last)
    return codec.pack(fields)


def decode_header(frame: bytes) -> Header:
    """Return the header that *frame* spells; unknown fields are ignored.

    Raises:
        RemoteWireError: it is not a header.
    """
    if len(frame) > 4096:
        raise RemoteWireError(f"a header of {len(frame)} bytes is over 4096 bytes")
    fields = codec.unpack(frame)
    if not isinstance(fields, FrozenDict):
        raise RemoteWireError("a header is a map")
    first, last = _sequence(fields.get("seq"))
    delivery = fields.get("class", "must_keep")
    if delivery not in _CLASSES:
        raise RemoteWireError(f"unknown delivery class {delivery!r}")
    ref = fields.get("ref")
    return Header(
        kind=_text(fields, "kind"),
        to=_text(fields, "to"),
        sender=_text(fields, "from", ""),
        delivery=delivery,  # type: ignore[arg-type]  # checked two lines above
        ref=None if ref is None else _text(fields, "ref"),
        first=first,
        last=last,
        bodies=_number(fields, "bodies", 1),
        size=_number(fields, "size", 0),
        version=_number(fields, "v"),
    )


def _text(fields: FrozenDict, key: str, default: str | None = None) -> str:
    value = fields.get(key, default)
    if not isinstance(value, str):
        raise RemoteWireError(f"a header's {key} is text")
    return value


def _number(fields: FrozenDict, key: str, default: int | None = None) -> int:
    value = fields.get(key, default)
    if type(value) is not int or value < 0:
        raise RemoteWireError(f"a header's {key} is a number that is not negative")
    return value


def _sequence(value: object) -> tuple[int, int]:
    match value:
        case None:
            return (0, 0)
        case (int(first), int(last)) if 0 < first <= last:
            return (first, last)
        case _:
            raise RemoteWireError("a header's seq is two growing numbers")
