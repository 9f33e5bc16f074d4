"""Bounds of plain values so small that drawn values meet them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from genagent_backends import foreign
from genagent_protocol import plain

ITEMS = 24
FOREIGN_ITEMS = ITEMS - (plain.MAX_ITEMS - foreign.FOREIGN_ITEMS)
#: Longer than every key of ours.
KEY_CHARS = 40


@contextmanager
def narrow_bounds() -> Iterator[None]:
    """Let lists, mappings and keys meanwhile be as long as that and no longer."""
    with (
        mock.patch.object(plain, "MAX_ITEMS", ITEMS),
        mock.patch.object(plain, "MAX_KEY_CHARS", KEY_CHARS),
        mock.patch.object(foreign, "FOREIGN_ITEMS", FOREIGN_ITEMS),
        mock.patch.object(foreign, "MAX_KEY_CHARS", KEY_CHARS),
    ):
        yield
