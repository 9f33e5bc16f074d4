"""Streamed text in as few events as a turn may keep, however small its pieces are.

A provider streams some characters at a time, and a turn keeps a thousand events. The
first pieces go out as they are; from then on pieces are joined until they are worth
an event, measured by what has gone out before. So an answer of any length fits, and
short ones are as lively as the provider. What is held goes out, too, when nothing
more has come for a moment: whoever looks on sees all of it while the provider thinks.

Nothing is lost, and nothing passes what was said before it by the same speaker. The
text of two speakers at a time may change places, since each is joined for itself.
This does not keep what is held when a turn is interrupted: that is lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field

from genagent_protocol.events import Event, event, text_or_none
from genagent_protocol.plain import FrozenDict, Plain

#: How many events of any kind go out before anything is joined.
EVENTS_AS_THEY_COME = 256
#: From then on an event has at least this part of the text before it. A turn of a
#: mebibyte has about 256 + 64 * ln(4096) = 788 events of text then.
PART = 64
#: How long nothing more may come before what is held goes out.
PAUSE_MS = 100
#: Each such pause has to be longer than the one before, or a provider that stops after
#: every word would fill the turn: there are 100 of them in four minutes, 170 in two hours.
LONGER = 1.05
#: Of so many speakers something may be held; one more, and that of the oldest goes out.
MAX_SPEAKERS = 64


@dataclass(slots=True)
class _Held:
    """Text of one speaker that has not gone out yet, and the data of its first piece."""

    data: FrozenDict
    pieces: list[str] = field(default_factory=list)
    characters: int = 0


class Joiner:
    """Joins the pieces of one turn."""

    def __init__(self) -> None:
        self._held: dict[FrozenDict, _Held] = {}
        self._events = 0
        self._characters = 0
        self._pause_ms = float(PAUSE_MS)

    @property
    def pause_ms(self) -> float | None:
        """How long to wait for more before `paused`; None while nothing is held."""
        return self._pause_ms if self._held else None

    def paused(self) -> list[Event]:
        """Return what is held, since nothing more has come for `pause_ms`."""
        self._pause_ms *= LONGER
        return self.rest()

    def feed(self, said: Event) -> list[Event]:
        """Return what goes out now that *said* has come: nothing, that, or what was held and it."""
        text = text_or_none(said.data.get("text")) if said.kind == "text" else None
        if text is None:
            return [*self.rest(), *self._out(said, 0)]
        speaker = _speaker(said.data)
        gone: list[Event] = []
        if said.data.get("message_boundary") is True:
            gone = self._release(speaker)
        held = self._held.setdefault(speaker, _Held(said.data))
        held.pieces.append(text)
        held.characters += len(text)
        if self._events < EVENTS_AS_THEY_COME or held.characters * PART >= self._characters:
            gone += self._release(speaker)
        if len(self._held) > MAX_SPEAKERS:
            gone += self._release(next(iter(self._held)))
        return gone

    def rest(self) -> list[Event]:
        """Return what is held; nothing is held any more."""
        return [gone for speaker in list(self._held) for gone in self._release(speaker)]

    def _release(self, speaker: FrozenDict) -> list[Event]:
        held = self._held.pop(speaker, None)
        if held is None:
            return []
        whole = event("text", {**held.data, "text": "".join(held.pieces)})
        return self._out(whole, held.characters)

    def _out(self, gone: Event, characters: int) -> list[Event]:
        self._events += 1
        self._characters += characters
        return [gone]


def _speaker(data: FrozenDict) -> FrozenDict:
    """Return what the pieces that belong together have in common."""
    own = {"text", "message_boundary"}
    common: dict[str, Plain] = {name: value for name, value in data.items() if name not in own}
    return FrozenDict(common)


async def joined(events: AsyncGenerator[Event, None]) -> AsyncGenerator[Event, None]:
    """Yield *events* with their text joined; closing this closes them."""
    joiner = Joiner()
    async with aclosing(events):
        while True:
            if joiner.pause_ms is None:
                said = await anext(events, None)
            else:
                # In a task of its own: the wait for it ends, and it goes on.
                async with _begun(events) as coming:
                    await asyncio.wait({coming}, timeout=joiner.pause_ms / 1000)
                    if not coming.done():
                        for gone in joiner.paused():
                            yield gone
                    said = await coming
            if said is None:
                break
            for gone in joiner.feed(said):
                yield gone
    for gone in joiner.rest():
        yield gone


@asynccontextmanager
async def _begun(
    events: AsyncGenerator[Event, None],
) -> AsyncIterator[asyncio.Task[Event | None]]:
    """Begin to wait for the next event, or None; on leaving nobody waits for it any more."""

    async def following() -> Event | None:
        return await anext(events, None)

    coming = asyncio.create_task(following())
    try:
        yield coming
    finally:
        if not coming.done():
            coming.cancel()
            await asyncio.gather(coming, return_exceptions=True)
        elif not coming.cancelled():
            coming.exception()  # one that nobody has asked for is logged, whatever it quotes
