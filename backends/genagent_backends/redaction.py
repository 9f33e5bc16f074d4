"""Failures without the keys that were sent: providers repeat them, and failures are kept.

A provider's words about a failure go to whoever sent the prompt, and into the state of
an agent that keeps them, from where they are shown. So a key is taken out of a failure
wherever it stands whole. This does not find a part of one, as some providers show it,
and it leaves texts alone that are too short to be a key and may be ordinary words.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Collection, Mapping
from contextlib import aclosing

from genagent_protocol.events import Event, event
from genagent_protocol.plain import FrozenDict, Plain

#: Keys are longer; what is shorter stands for "no key is needed".
SHORTEST = 8
INSTEAD = "(a key)"
#: Variables and header fields that hold one, by what they are called.
NAMED_SO = re.compile(r"(^|[_-])(KEY|TOKEN|SECRET|PASSWORD)$", re.IGNORECASE)


def secrets_in(env: Mapping[str, str], named: Collection[str] = ()) -> frozenset[str]:
    """Return the values of the variables that are *named*, or are called so."""
    return frozenset(value for name, value in env.items() if name in named or NAMED_SO.search(name))


def redacted(said: Event, secrets: Collection[str]) -> Event:
    """Return an `error` event without *secrets*, and any other event as it is."""
    hidden = sorted((s for s in secrets if len(s) >= SHORTEST), key=len, reverse=True)
    if said.kind != "error" or not hidden:
        return said
    pattern = re.compile("|".join(map(re.escape, hidden)))
    clean = _clean(said.data, pattern)
    assert isinstance(clean, FrozenDict)
    return event("error", clean)


def _clean(value: Plain, pattern: re.Pattern[str]) -> Plain:
    match value:
        case str():
            return pattern.sub(INSTEAD, value)
        case FrozenDict():
            return FrozenDict(
                {pattern.sub(INSTEAD, key): _clean(item, pattern) for key, item in value.items()}
            )
        case tuple():
            return tuple(_clean(item, pattern) for item in value)
        case _:
            return value


async def redacting(
    events: AsyncGenerator[Event, None], secrets: Collection[str]
) -> AsyncGenerator[Event, None]:
    """Yield *events* without *secrets* in a failure; closing this closes them."""
    async with aclosing(events):
        async for said in events:
            yield redacted(said, secrets)
