"""Paths into a data model: JSON Pointers, widened by relative ones and by tolerance.

`/a/b` starts at the root, `a/b` at the scope, and the empty path and `.` are the
scope itself. Empty segments count for nothing. A path never fails: what is not
there is null.
"""

from __future__ import annotations

from typing import Final

ROOT: Final = "/"
#: More digits than the index of any list has.
_MAX_INDEX_DIGITS: Final = 12


def joined(scope: str, path: str) -> str:
    """Return *path* as an absolute path, where *scope* is what relative paths start from."""
    if path.startswith("/"):
        return path
    base = scope.rstrip("/")
    if path in ("", "."):
        return base or ROOT
    return f"{base}/{path}"


def value_at(model: object, path: str) -> object:
    """Return what the absolute *path* leads to in *model*, or None where it leads nowhere.

    The value is the model's own: whoever keeps it copies it.
    """
    found = model
    for segment in path.split("/"):
        if segment:
            found = _step(found, segment.replace("~1", "/").replace("~0", "~"))
    return found


def _step(container: object, key: str) -> object:
    if isinstance(container, dict):
        return container.get(key)
    if isinstance(container, list | tuple) and _is_index(key):
        return container[int(key)] if int(key) < len(container) else None
    return None


def _is_index(text: str) -> bool:
    """Tell whether *text* is a list index as it is written canonically: no sign, no zero before."""
    if not (text.isascii() and text.isdigit()) or len(text) > _MAX_INDEX_DIGITS:
        return False
    return text == "0" or not text.startswith("0")
