"""The last thing the helper does before it has agents born: what they share is not touched again.

The backends that come with the product are imported here once, for all agents; those
of other packages are not, for they may start threads, which no fork survives.
Freezing the heap keeps a collection in an agent from writing to every shared page, and
filling it keeps what an agent makes from being strewn over them.
"""

from __future__ import annotations

import gc
import importlib

from genagentd.agent.immortal import immortalize
from genagentd.agent.loading import installed_backends
from genagentd.agent.rehearsal import rehearse

#: The sizes of Python's small blocks, as `bytes` objects make them, and what those add.
_SMALL_BLOCKS = range(48, 513, 16)
_BYTES_OVERHEAD = 33
#: So many blocks side by side come from memory that is new; a pool of the largest holds 31.
_SIDE_BY_SIDE = 16
#: Another allocator may have no such order; then this does no good, and ends.
_MOST_OF_ONE_SIZE = 10_000


#: What fills the gaps.
_kept: list[bytes] = []


def _import_our_backends() -> None:
    for spelled in installed_backends().values():
        module, _, _ = spelled.partition(":")
        if module.startswith("genagent_backends."):
            # One that lacks its extra says so when an agent wants it.
            try:
                importlib.import_module(module)
            except ImportError:
                continue


def _fillers() -> list[bytes]:
    """Return what fills every gap between small blocks that imports and garbage have left."""
    made: list[bytes] = []
    for block in _SMALL_BLOCKS:
        last, run = 0, 0
        for _ in range(_MOST_OF_ONE_SIZE):
            made.append(bytes(block - _BYTES_OVERHEAD))
            run = run + 1 if id(made[-1]) == last + block else 0
            last = id(made[-1])
            if run == _SIDE_BY_SIDE:
                break
    return made


def share() -> None:
    """Have all that agents may share, for good."""
    _import_our_backends()
    rehearse()
    gc.collect()
    _kept.extend(_fillers())
    immortalize()
    gc.freeze()
