"""The order in which an agent sends: what was begun first goes first, whatever it waits for.

A notification by name, or a call, has its place from the moment it is begun, and goes when
its target is known; what is begun later waits behind it. Where nothing waits, nothing is
held. Nothing here looks up a name or sends.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from types import TracebackType


class Order:
    """Who sends next. Used in the coordinator's loop only."""

    def __init__(self) -> None:
        self._places: deque[Place] = deque()

    def send(self, act: Callable[[], object]) -> None:
        """Do *act* when everything before it was sent: now, if nothing waits."""
        if self._places:
            self.place().fill(act)
        else:
            act()

    def place(self) -> Place:
        """Return a place behind everything begun so far; it has to be filled or left."""
        place = Place(self)
        self._places.append(place)
        return place

    def advance(self) -> None:
        """Do what has its turn, up to the first place that is still open.

        What an act raises, the loop's exception handler hears.
        """
        while self._places and (act := self._places[0].act) is not None:
            self._places.popleft()
            try:
                act()
            except BaseException as error:  # noqa: BLE001  # whatever came through, who is behind has to go
                # Who brought us here may only have left a place before it, and is not to blame.
                asyncio.get_running_loop().call_exception_handler(
                    {"message": "What had waited for its place was not sent", "exception": error}
                )
        if self._places:
            self._places[0].is_first()

    def first(self, place: Place) -> bool:
        """Whether everything before *place* was sent."""
        return self._places[0] is place


class Place:
    """Where something will be sent. With `with`, it is left at the end of the block."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._turn: asyncio.Future[None] | None = None
        #: What is done in its turn, once that is known.
        self.act: Callable[[], object] | None = None

    def fill(self, act: Callable[[], object]) -> None:
        """Do *act* here, now or when everything before it was sent."""
        self.act = act
        self._order.advance()

    def leave(self) -> None:
        """Send nothing here, or nothing more: what comes behind may go. Twice is fine."""
        self.fill(lambda: None)

    async def reached(self) -> None:
        """Return when everything before was sent; what comes behind waits until this is left."""
        if not self._order.first(self):
            self._turn = asyncio.get_running_loop().create_future()
            await self._turn

    def is_first(self) -> None:
        """Everything before was sent."""
        if self._turn is not None and not self._turn.done():
            self._turn.set_result(None)

    def __enter__(self) -> Place:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.leave()
