"""The backends that need no library of their own: agents come with them already imported.

Agents are forked from a helper that imports this once, which saves each of them the
time and the memory of doing it itself. What imports an HTTP library does not belong
here: it would be in the memory of agents that never use it.
"""

from __future__ import annotations

import genagent_backends.claude
import genagent_backends.codex
import genagent_backends.echo
import genagent_backends.scripted  # noqa: F401
