"""The last module the helper imports: what agents share is not touched again.

The backends that come with the product are imported here once, for all agents; those
of other packages are not, for they may start threads, which no fork survives.
Freezing the heap keeps a collection in an agent from writing to every shared page.
Importing this anywhere else would be a mistake.
"""

from __future__ import annotations

import gc
import importlib

from genagentd import kernel
from genagentd.agent.loading import installed_backends
from genagentd.agent.rehearsal import rehearse


def _import_our_backends() -> None:
    for spelled in installed_backends().values():
        module, _, _ = spelled.partition(":")
        if module.startswith("genagent_backends."):
            # One that lacks its extra says so when an agent wants it.
            try:
                importlib.import_module(module)
            except ImportError:
                continue


kernel.die_with_parent()
_import_our_backends()
rehearse()
gc.collect()
gc.freeze()
