"""openUrl: which URLs may be opened at all. Opening them is the host's deed.

Only absolute http and https URLs pass. A URL comes from an agent or from data,
so everything else (scripts, local files, other programs) is refused here, before
a host could be asked.
"""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import urlsplit

from genagent_protocol.rpc.faults import ExpressionFault
from genagent_protocol.rpc.functions import Body, Scope
from genagent_protocol.rpc.json_values import Arguments

_SCHEMES = frozenset({"http", "https"})
_MAX_SHOWN = 40


def url_opener(open_url: Callable[[str], None] | None) -> Body:
    """Return the body of openUrl, which calls *open_url* with every URL that may be opened."""

    def opened(args: Arguments, _scope: Scope) -> None:
        url = args.get("url")
        if not isinstance(url, str) or not url.strip():
            return
        checked = checked_url(url)
        if open_url is not None:
            open_url(checked)

    return opened


def checked_url(url: str) -> str:
    """Return *url* without blanks around it.

    Raises:
        ExpressionFault: it is no absolute URL, or not one that may be opened.
    """
    wanted = url.strip()
    # What splits URLs drops line breaks and tabs, which would hide a scheme.
    if any(character.isspace() or not character.isprintable() for character in wanted):
        raise ExpressionFault("The URL has blanks or control characters in it.")
    try:
        parts = urlsplit(wanted)
    except ValueError:
        raise ExpressionFault("The URL cannot be read.") from None
    if parts.scheme not in _SCHEMES:
        raise ExpressionFault(f"Unsupported URL scheme: '{parts.scheme[:_MAX_SHOWN]}'.")
    if not parts.hostname:
        raise ExpressionFault("The URL names no host.")
    return wanted
