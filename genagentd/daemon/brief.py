"""What the daemon says of an end where no message could hold all of it.

What an agent says of its own end may be as large as a message. One row of a list says
as much of it as a person would read; an answer or a DOWN that is over the limit is
said without what makes it so. Nothing here shortens what fits.
"""

from __future__ import annotations

import dataclasses

from genagent_protocol import codec, schema
from genagent_protocol.answers import Refused
from genagent_protocol.bounds import MAX_FRAME_BYTES
from genagent_protocol.envelopes import Down, Reply, Telemetry
from genagent_protocol.errors import LocalWireError
from genagent_protocol.plain import FrozenDict, Plain, encoded_size, freeze
from genagent_protocol.reasons import ExitReason, PayloadTooLarge, StartError

#: How much a row says of a reason, and of each text of an error.
ROW_CHARS = 1_000


def in_a_row(reason: ExitReason | None) -> ExitReason | None:
    """Return *reason* as a row of a list says it."""
    return None if reason is None else dataclasses.replace(reason, detail=_cut(reason.detail))


def error_in_a_row(error: StartError | None) -> StartError | None:
    """Return *error* as a row of a list says it."""
    if error is None:
        return None
    return dataclasses.replace(error, message=_cut_text(error.message), detail=_cut(error.detail))


def _cut(detail: Plain) -> Plain:
    """Return *detail*, or the beginning of it as text."""
    if isinstance(detail, str):
        return _cut_text(detail)
    return detail if encoded_size(detail) <= ROW_CHARS else _cut_text(str(detail))


def _cut_text(text: str) -> str:
    return text if len(text) <= ROW_CHARS else text[: ROW_CHARS - 1] + "…"


def encoded(envelope: object) -> bytes:
    """Return the body of *envelope*, or of what is said in its place.

    Raises:
        LocalWireError: it cannot be said, and nothing stands in its place.
    """
    try:
        return codec.encode(envelope)
    except LocalWireError:
        match envelope:
            case Reply():
                size = encoded_size(freeze(schema.dump(envelope.answer), max_depth=_ANY_DEPTH))
                refused = Refused(PayloadTooLarge(size_bytes=size, limit_bytes=MAX_FRAME_BYTES))
                return codec.encode(dataclasses.replace(envelope, answer=refused))
            case Down():
                code = ExitReason(envelope.reason.text)
                return codec.encode(dataclasses.replace(envelope, reason=code))
            case Telemetry():
                # A name may be as deep as a value can be, and lies one level deeper in there.
                kept = {key: said for key, said in envelope.metadata.items() if _flat(said)}
                return codec.encode(dataclasses.replace(envelope, metadata=FrozenDict(kept)))
        raise


#: Deeper than anything that is said is.
_ANY_DEPTH = 1_000


def _flat(said: Plain) -> bool:
    return not isinstance(said, tuple | FrozenDict)
