"""What environment an agent gets: some of the daemon's, what its start adds, none of ours."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping

#: What an agent's environment is made of, unless a start adds to it.
ALLOWED = ("PATH", "HOME", "LANG", "LANGUAGE", "TZ", "TMPDIR", "USER", "LOGNAME", "SHELL")
ALLOWED_PREFIXES = ("LC_", "SSL_CERT_")
#: Ours and the service manager's; an agent never gets them.
STRIPPED_PREFIXES = ("GENAGENT_", "WATCHDOG_", "LISTEN_")
STRIPPED = ("NOTIFY_SOCKET",)


def withheld(name: str) -> bool:
    """Whether no agent gets the variable *name*, whoever gives it."""
    return name in STRIPPED or name.startswith(STRIPPED_PREFIXES)


def why_withheld(name: str) -> str:
    """Return the line that refuses such a variable."""
    ours = ", ".join([*(f"{prefix}*" for prefix in STRIPPED_PREFIXES), *STRIPPED])
    return f"{name}: no agent gets the variables of its daemon ({ours}); rename it"


def agent_environment(
    passed: Collection[str], added: Mapping[str, str], environ: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """Return exactly the environment an agent gets: the allow-list, *passed*, then *added*."""
    names = {*ALLOWED, *passed}
    found = {
        name: value
        for name, value in environ.items()
        if name in names or name.startswith(ALLOWED_PREFIXES)
    }
    found |= added
    return {name: value for name, value in found.items() if not withheld(name)}
