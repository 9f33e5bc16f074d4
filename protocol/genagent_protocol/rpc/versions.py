"""Which spellings of the protocol version name the same version.

The wire says `v1.0` or `1.0`, catalogs say `1.0`; both are version 1.0. An answer
uses the spelling of its request, so this module compares and never rewrites.
"""

from __future__ import annotations

import re
from typing import Final

#: What this package says when nobody chose.
VERSION: Final = "v1.0"
#: What messages may say.
SPELLINGS: Final = frozenset({"v1.0", "1.0"})
#: What a catalog document that names no version is written for.
UNNAMED_VERSION: Final = "0.9"

_NUMBER = r"(?:0|[1-9][0-9]*)"
_IDENTIFIER = rf"(?:{_NUMBER}|[0-9]*[a-zA-Z-][0-9a-zA-Z-]*)"
_VERSION = re.compile(
    rf"v?(?P<major>{_NUMBER})\.(?P<minor>{_NUMBER})(?:\.{_NUMBER})?"
    rf"(?:-(?P<early>{_IDENTIFIER}(?:\.{_IDENTIFIER})*))?"
    r"(?:\+[0-9a-zA-Z-]+(?:\.[0-9a-zA-Z-]+)*)?"
)


def is_version(text: str) -> bool:
    """Tell whether *text* is a version as catalog documents write it, without a `v`."""
    return not text.startswith("v") and _VERSION.fullmatch(text) is not None


def same_version(one: str, other: str) -> bool:
    """Tell whether two spellings name one protocol version; patches of it are the same.

    This does not find versions compatible: 1.1 is not 1.0, and 1.0-rc.1 is neither.
    """
    if one == other:
        return True
    known = _canonical(one)
    return known is not None and known == _canonical(other)


def _canonical(text: str) -> tuple[str, str, str | None] | None:
    match = _VERSION.fullmatch(text)
    return (match["major"], match["minor"], match["early"]) if match else None
