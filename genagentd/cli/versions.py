"""Which version this is, which protocol it speaks, and which version the daemon is."""

from __future__ import annotations

import contextlib

import click

from genagent_protocol.errors import CallTimeout, DaemonLost, NotReachable
from genagentd.cli.program import output
from genagentd.paths import places
from genagentd.version import __version__

#: How long a daemon may take to say its version.
_TIMEOUT_MS = 2_000


def show_version() -> None:
    """Print the versions; a daemon that does not answer is not waited for long."""
    from genagent_protocol.envelopes import MAX_VERSION, MIN_VERSION
    from genagentd.client.core import core_state

    daemon: str | None = None
    with contextlib.suppress(NotReachable, DaemonLost, CallTimeout):
        daemon = core_state(places().socket, _TIMEOUT_MS).software
    output().result(
        f"genagentd {__version__}\nprotocol {MIN_VERSION} to {MAX_VERSION}\n"
        f"daemon {daemon or 'not running'}",
        version=__version__,
        protocol={"min": MIN_VERSION, "max": MAX_VERSION},
        daemon=daemon,
    )


def _show(context: click.Context, _option: click.Parameter, wanted: bool) -> None:
    if wanted and not context.resilient_parsing:
        show_version()
        context.exit()


#: `--version` of both programs.
version_option = click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show,
    help="Show the versions of program, protocol and daemon.",
)
