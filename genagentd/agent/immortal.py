"""The helper's objects are immortal: nobody counts references to them, so no agent writes to them.

CPython keeps an object's count beside its value, and whoever uses the object writes there; an agent
would have copies of half the heap for nothing else. One whose count has a certain value,
that of `None`, is not counted (PEP 683, since Python 3.12). Any object can be made such a one,
but the interpreter offers it to C code only, and late (`PyUnstable_SetImmortal`, 3.15).
"""

from __future__ import annotations

import ctypes
import gc
import sys
import types
from collections.abc import Iterable, Iterator

#: Where this was tried, and the count is 32 bits at the beginning of an object.
KNOWN = ((3, 12), (3, 13))
#: Frames end, whatever is counted. A module of C code may hold the dead, to use them again.
_LEFT_OUT = (types.FrameType, types.ModuleType)


def possible() -> bool:
    """Return whether this interpreter has immortal objects, and keeps counts where we know it."""
    return (
        sys.implementation.name == "cpython"
        and sys.version_info[:2] in KNOWN
        # Built without the lock, it counts in two places.
        and "t" not in sys.abiflags
        and _count_of(None) < 0 < _count_of(object())
    )


def immortalize() -> int:
    """Have what lives now live as long as this process and its forks; return how many objects.

    Nobody writes to them any more just to use them. What is made later is counted and freed
    as ever. It does not keep their values as they are: who changes one changes it. An object
    that loses its last name keeps its memory. Where it is not `possible`, nothing is
    done, and 0 is returned.
    """
    if not possible():
        return 0
    count = _field(None).value
    # Gathered first: while one is looked at, none of those that were seen may go.
    objects = list(_living())
    for one in objects:
        _field(one).value = count
    return len(objects)


def _living() -> Iterator[object]:
    """Yield what the collector knows and what that holds, each once."""
    waiting = gc.get_objects()
    seen = set(map(id, waiting))
    while waiting:
        one = waiting.pop()
        if isinstance(one, _LEFT_OUT):
            continue
        yield one
        for held in (*gc.get_referents(one), *_parts(one)):
            if id(held) not in seen:
                seen.add(id(held))
                waiting.append(held)


def _parts(one: object) -> Iterable[object]:
    """Return what an object holds that the collector never looks at."""
    if not isinstance(one, types.CodeType):
        return ()
    texts = (one.co_name, one.co_qualname, one.co_filename, one.co_linetable)
    return (one.co_consts, one.co_names, one.co_exceptiontable, *one.co_varnames, *texts)


def _count_of(one: object) -> int:
    return ctypes.c_int32.from_address(id(one)).value


def _field(one: object) -> ctypes.c_uint32:
    return ctypes.c_uint32.from_address(id(one))
