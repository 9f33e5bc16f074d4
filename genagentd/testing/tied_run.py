"""The program of a tied daemon: `genagentd run` that asks first to end with its owner.

Small on purpose: this process becomes the guardian.
"""

from __future__ import annotations

import os
import signal
import sys

from genagentd import kernel
from genagentd.cli.main import daemon_main


def main() -> None:
    """Run the daemon of the process whose pid is the first argument, with those behind it."""
    owner = int(sys.argv.pop(1))
    kernel.die_with_parent(signal.SIGTERM)
    # It may be dead already, and then nobody tells.
    if os.getppid() != owner:
        sys.exit(1)
    daemon_main()


if __name__ == "__main__":
    main()
