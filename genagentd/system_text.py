"""Text that came over the wire, as the system has it: bytes, in whatever locale we were started.

Python says names and variables in the encoding of its locale, and in that of `C` it can
be one that has hardly any letters. What cannot be said in it is meant as UTF-8.
"""

from __future__ import annotations

import os


def sayable(text: str) -> str:
    """Return *text* such that this process hands the system the bytes that are meant.

    It may look different then: show people what came, and not this.
    """
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        return os.fsdecode(text.encode("utf-8", "surrogateescape"))
    return text
