"""Events without the keys that were sent: providers and tools repeat them, and events are kept.

What a provider says goes to whoever sent the prompt, and into the state of an agent
that keeps it, from where it is shown. So a key is taken out of every event wherever it
stands whole in one text, and out of a failure also where a text was cut inside a key
and begins with its end or ends with its beginning. What a crash of ours says ends up
in the same places, and may quote what was read.

This does not find a part of a key in the middle of a text, as some providers show it,
nor one whose pieces came in several events.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Collection, Iterator, Mapping
from contextlib import aclosing

from genagent_protocol.events import Event, event
from genagent_protocol.plain import FrozenDict, Plain

#: A key is at least this long and has a digit in it; what is longer than a word needs none.
#: The rest ("dummy", "lm-studio") stands for "no key is needed" and may be an ordinary word.
SHORTEST = 8
LONGER_THAN_WORDS = 20
#: So much of a key at the edge of a text that was cut is taken out, too.
SHORTEST_PART = 8
INSTEAD = "(a key)"
#: Variables and header fields that hold one, by what they are called.
NAMED_SO = re.compile(r"(^|[_-])(KEY|TOKEN|SECRET|PASSWORD)$", re.IGNORECASE)
#: What stands between the parts of a header field.
PARTED = re.compile(r"""[\s,;="']+""")
#: What is ours in a failure, whatever a key may be.
OUR_WORDS = frozenset({"code", "provider", "kind", "retryable", "status"})
#: What is left of a character that was cut.
HALF = "\N{REPLACEMENT CHARACTER}"


def secrets_in(env: Mapping[str, str], named: Collection[str] = ()) -> frozenset[str]:
    """Return the values of the variables that are *named*, or are called so."""
    return frozenset(value for name, value in env.items() if name in named or NAMED_SO.search(name))


def secrets_in_fields(fields: Mapping[str, str]) -> frozenset[str]:
    """Return the values of the header fields that are called so, and the parts of each.

    A scheme such as `Bearer` may stand before a key, and is not repeated with it.
    """
    values = secrets_in(fields)
    return values | {part for value in values for part in PARTED.split(value)}


def is_key(value: str) -> bool:
    """Return whether *value* is likely to be a key, and not a word that stands for none."""
    if len(value) >= LONGER_THAN_WORDS:
        return True
    return len(value) >= SHORTEST and any(map(str.isdigit, value))


class Redactor:
    """Takes *secrets* out of events, those of them that are likely to be keys."""

    def __init__(self, secrets: Collection[str]) -> None:
        self._keys = [secret for secret in secrets if is_key(secret)]

    def redacted(self, said: Event) -> Event:
        """Return *said* without the keys; an event that has none in it as it is."""
        if not self._keys:
            return said
        failed = said.kind == "error"
        clean = {
            name: self._reason(value) if failed and name == "reason" else self._clean(value, failed)
            for name, value in said.data.items()
        }
        return said if clean == said.data else event(said.kind, clean, at_ms=said.at_ms)

    def words(self, text: str) -> str:
        """Return *text*, which may have been cut, without the keys."""
        return self._text(text, cut=True)

    def _reason(self, reason: Plain) -> Plain:
        if not isinstance(reason, FrozenDict):
            return self._clean(reason, cut=True)
        return FrozenDict(
            {
                name: value if name in OUR_WORDS else self._clean(value, cut=True)
                for name, value in reason.items()
            }
        )

    def _clean(self, value: Plain, cut: bool) -> Plain:
        match value:
            case str():
                return self._text(value, cut)
            case FrozenDict():
                return FrozenDict(
                    {self._text(key, cut): self._clean(item, cut) for key, item in value.items()}
                )
            case tuple():
                return tuple(self._clean(item, cut) for item in value)
            case _:
                return value

    def _text(self, text: str, cut: bool) -> str:
        found = [span for key in self._keys for span in _whole(text, key)]
        if cut:
            found += [span for key in self._keys for span in _at_edges(text, key)]
        said, end = [], 0
        for start, stop in _apart(found):
            said += [text[end:start], INSTEAD]
            end = stop
        return "".join([*said, text[end:]])


def _whole(text: str, key: str) -> Iterator[tuple[int, int]]:
    start = text.find(key)
    while start >= 0:
        yield start, start + len(key)
        start = text.find(key, start + 1)


def _at_edges(text: str, key: str) -> Iterator[tuple[int, int]]:
    """Yield where *text* begins with the end of *key*, ends with its beginning, or is inside."""
    begin = len(text) - len(text.lstrip(HALF))
    end = len(text.rstrip(HALF))
    if end - begin >= SHORTEST_PART and text[begin:end] in key:
        yield begin, end
        return
    lengths = range(min(len(key), end - begin), SHORTEST_PART - 1, -1)
    if (part := next((n for n in lengths if text.startswith(key[-n:], begin)), 0)) > 0:
        yield begin, begin + part
    if (part := next((n for n in lengths if text.endswith(key[:n], begin, end)), 0)) > 0:
        yield end - part, end


def _apart(spans: Collection[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield *spans* in order, those that overlap made one."""
    start = stop = 0
    for begin, end in sorted(spans):
        if begin >= stop:
            if stop:
                yield start, stop
            start = begin
        stop = max(stop, end)
    if stop:
        yield start, stop


async def redacting(
    events: AsyncGenerator[Event, None], secrets: Collection[str]
) -> AsyncGenerator[Event, None]:
    """Yield *events* without the keys among *secrets*; closing this closes them.

    Raises:
        Exception: what *events* raised.
        RuntimeError: they raised something with a key in its words; here are the others.
    """
    redactor = Redactor(secrets)
    try:
        async with aclosing(events):
            async for said in events:
                yield redactor.redacted(said)
    except Exception as error:
        words = str(error)
        clean = redactor.words(words)
        if clean == words:
            raise
        # No context either, which would be shown beside it; the places in our code are kept.
        said_instead = RuntimeError(f"{type(error).__name__}: {clean}")
        raise said_instead.with_traceback(error.__traceback__) from None
