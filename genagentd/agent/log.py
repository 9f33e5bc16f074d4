"""One line of key=value on standard error, which is the agent's log.

Lines name agents, modules, classes and places in code; never what a user, a model or
an exception said.
"""

from __future__ import annotations

import sys
import traceback

#: What a value is quoted for: otherwise a line could not be taken apart again.
_SPECIAL = frozenset(" =\\'\"")


def line(event: str, **fields: object) -> None:
    """Write one line; fields that are None are left out."""
    said = "".join(f" {key}={_value(value)}" for key, value in fields.items() if value is not None)
    print(f"{event}{said}", file=sys.stderr, flush=True)


def _value(value: object) -> str:
    text = value if isinstance(value, str) else str(value)
    plain = text.isprintable() and not _SPECIAL.intersection(text)
    return text if text and plain else ascii(text)


def raised(event: str, error: BaseException, **fields: object) -> None:
    """Write that code of others raised: its class, and file, line and function of each frame."""
    line(event, **fields, error=class_of(error))
    for frame in traceback.extract_tb(error.__traceback__):
        print(f"  at {frame.filename}:{frame.lineno} {frame.name}", file=sys.stderr, flush=True)


def class_of(error: BaseException) -> str:
    """Return how the class of *error* is called in reasons and lines."""
    return type(error).__qualname__
