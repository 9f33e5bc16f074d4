"""For tests of your own agents: a private daemon, turns that are written down, and no sleeping.

With the package installed, pytest offers the fixtures of `plugin` by itself; the names
here serve any other test runner. The product imports nothing of it, and every run of
pytest imports this file: names are looked up when they are used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from genagent_backends.gates import Gates as Gates
    from genagentd.testing.daemon import PrivateDaemon as PrivateDaemon
    from genagentd.testing.heard import Heard as Heard
    from genagentd.testing.heard import NotHeard as NotHeard
    from genagentd.testing.turns import breaks as breaks
    from genagentd.testing.turns import cannot_start as cannot_start
    from genagentd.testing.turns import echoes as echoes
    from genagentd.testing.turns import hangs as hangs
    from genagentd.testing.turns import holds as holds
    from genagentd.testing.turns import says as says
    from genagentd.testing.turns import scripted as scripted
    from genagentd.testing.waiting import until as until

_HOME_OF = {
    "Gates": "genagent_backends.gates",
    "Heard": "genagentd.testing.heard",
    "NotHeard": "genagentd.testing.heard",
    "PrivateDaemon": "genagentd.testing.daemon",
    "breaks": "genagentd.testing.turns",
    "cannot_start": "genagentd.testing.turns",
    "echoes": "genagentd.testing.turns",
    "hangs": "genagentd.testing.turns",
    "holds": "genagentd.testing.turns",
    "says": "genagentd.testing.turns",
    "scripted": "genagentd.testing.turns",
    "until": "genagentd.testing.waiting",
}

__all__ = [
    "Gates",
    "Heard",
    "NotHeard",
    "PrivateDaemon",
    "breaks",
    "cannot_start",
    "echoes",
    "hangs",
    "holds",
    "says",
    "scripted",
    "until",
]


def __getattr__(name: str) -> object:
    """Return the public *name*, importing its module now."""
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME_OF[name]), name)


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted(__all__)
