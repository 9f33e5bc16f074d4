"""The first frame of every message: what a switchboard needs, and nothing of the body.

A message is two frames, `[header, body]`. The header is one msgpack map; the body
holds `bodies` envelopes one after another, all of one class for one recipient. The
daemon reads headers and stamps `sender`; it never decodes a body that is not for it.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from genagent_protocol import codec
from genagent_protocol.errors import RemoteWireError

#: The route of the daemon itself. Agents are reached at their incarnation's text,
#: clients at their mailbox's.
DAEMON = "daemon"

#: `must_keep` is never dropped for a connected peer; `droppable` leaves a visible gap.
DeliveryClass = Literal["must_keep", "droppable"]

#: The kinds that may give way: whoever misses one is told which.
DROPPABLE = frozenset({"event_message", "telemetry"})
#: A header names a few short texts; a larger frame is none.
MAX_HEADER_BYTES = 4096
#: A ref is the one text that is handed on as somebody wrote it: it leaves room for the stamps.
MAX_REF_CHARS = 512


class Header(NamedTuple):
    """What one message is, for whom, from whom.

    `kind` is the tag of its envelopes, or `batch` when they differ. `first` and
    `last` number the droppable envelopes of one stream, so that a gap can be named.
    `answers` is a client's word that this answers what the agent asked in the session;
    `behind` is the daemon's: it overtook so many messages to this agent.
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
    answers: bool = False
    behind: int = 0


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
    if header.answers:
        fields["answers"] = True
    if header.behind:
        fields["behind"] = header.behind
    return codec.pack(fields)


def decode_header(frame: bytes) -> Header:
    """Return the header that *frame* spells; unknown fields are ignored.

    Raises:
        RemoteWireError: it is not a header.
    """
    if len(frame) > MAX_HEADER_BYTES:
        raise RemoteWireError(f"a header of {len(frame)} bytes is over {MAX_HEADER_BYTES} bytes")
    read: Any = codec.unpack_map(frame).get
    first, last = _sequence(read("seq"))
    header = Header(
        read("kind"),
        read("to"),
        read("from", ""),
        read("class", "must_keep"),
        read("ref"),
        first,
        last,
        read("bodies", 1),
        read("size", 0),
        read("v"),
        read("answers", False),
        read("behind", 0),
    )
    _check(header)
    return header


def _check(header: Header) -> None:
    kind, to, sender, delivery, ref, _, last, bodies, size, version, answers, behind = header
    if not (type(kind) is type(to) is type(sender) is str and (ref is None or type(ref) is str)):
        raise RemoteWireError("a header's kind, to, from and ref are text")
    if ref is not None and len(ref) > MAX_REF_CHARS:
        raise RemoteWireError(f"a header's ref has at most {MAX_REF_CHARS} characters")
    if not (type(bodies) is type(size) is type(version) is type(behind) is int):
        raise RemoteWireError("a header's v, bodies, size and behind are integers")
    if version < 1 or bodies < 1 or size < 0 or behind < 0:
        raise RemoteWireError("a header's v and bodies count from one, and its size is positive")
    if type(answers) is not bool:
        raise RemoteWireError("a header's answers is true or false")
    if delivery == "droppable":
        if kind not in DROPPABLE or not last:
            raise RemoteWireError(f"only numbered {' and '.join(sorted(DROPPABLE))} are droppable")
    elif delivery != "must_keep":
        raise RemoteWireError("a header's class is must_keep or droppable")


def _sequence(value: object) -> tuple[int, int]:
    if value is None:
        return (0, 0)
    if type(value) is tuple and len(value) == 2:
        first, last = value
        if type(first) is type(last) is int and 0 < first <= last:
            return (first, last)
    raise RemoteWireError("a header's seq is two growing numbers")
