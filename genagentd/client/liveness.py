"""Whether a captured process lives, by the kernel's word and without asking anyone.

Pids mean something only inside one pid namespace: where the daemon's is not ours,
nothing can be checked, and every process of this boot counts as alive.
"""

from __future__ import annotations

import os

from genagent_protocol.refs import AgentHandle, BootId
from genagentd import kernel


def same_pid_namespace(pid: int) -> bool:
    """Whether process *pid*, as we see it, counts processes the way we do."""
    if pid <= 0:
        return False
    try:
        theirs = os.readlink(f"/proc/{pid}/ns/pid")
        return theirs == os.readlink("/proc/self/ns/pid")
    except OSError:
        return False


def is_alive(handle: AgentHandle, boot: BootId, *, local: bool) -> bool:
    """Whether exactly the captured process lives now; it may be gone a moment later."""
    if handle.incarnation.boot != boot:
        return False
    return not local or kernel.is_alive(handle.pid, handle.started_ticks)
