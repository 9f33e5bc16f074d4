"""The last module the helper imports: what agents share is not touched again.

Freezing the heap keeps a collection in an agent from writing to every shared
page. Importing this anywhere else would be a mistake.
"""

from __future__ import annotations

import gc

from genagentd import kernel

kernel.die_with_parent()
gc.collect()
gc.freeze()
