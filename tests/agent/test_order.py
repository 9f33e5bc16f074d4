"""The order of sending: everything goes in its place, and nobody pays for somebody else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genagentd.agent.order import Order, Place


def complaints() -> list[BaseException]:
    """Return what the loop's exception handler is going to hear."""
    heard: list[BaseException] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _loop, context: heard.append(context["exception"])
    )
    return heard


async def test_who_leaves_does_not_hear_that_another_could_not_send() -> None:
    """It has sent its own, and those behind both of them are not held up."""
    heard, order, sent = complaints(), Order(), list[str]()

    def fail() -> None:
        raise OSError("the other's")

    with order.place():
        order.send(fail)
        order.send(lambda: sent.append("behind it"))
        waiting = order.place()
        reached = asyncio.create_task(waiting.reached())
        await asyncio.sleep(0)
    await asyncio.wait([reached], timeout=30)

    assert [str(error) for error in heard] == ["the other's"]
    assert sent == ["behind it"]
    assert reached.done()


async def test_who_sends_at_once_hears_itself_that_it_could_not() -> None:
    """Nobody stands between the two."""
    heard = complaints()

    with pytest.raises(ZeroDivisionError):
        Order().send(lambda: 1 // 0)
    assert heard == []


@given(
    st.lists(
        st.tuples(st.sampled_from(["send", "fill", "leave", "wait"]), st.booleans()), max_size=12
    ),
    st.data(),
)
def test_everything_goes_in_its_place_whoever_fails(
    begun: list[tuple[str, bool]], data: st.DataObject
) -> None:
    """Places are filled in any order; what fails is told, and moves nobody."""
    asyncio.run(_all_in_order(begun, data.draw(st.permutations(range(len(begun))))))


async def _all_in_order(begun: list[tuple[str, bool]], settled: list[int]) -> None:
    order, sent = Order(), list[int]()
    told = complaints()
    # Open from the start, so that nothing is sent at once.
    head = order.place()
    places: dict[int, Place] = {}
    waiting: list[asyncio.Task[None]] = []

    def act(number: int, fails: bool) -> Callable[[], object]:
        def done() -> None:
            sent.append(number)
            if fails:
                raise RuntimeError(number)

        return done

    async def reach(place: Place, number: int) -> None:
        with place:
            await place.reached()
            sent.append(number)

    for number, (how, fails) in enumerate(begun):
        if how == "send":
            order.send(act(number, fails))
        elif how == "wait":
            waiting.append(asyncio.create_task(reach(order.place(), number)))
        else:
            places[number] = order.place()
    await asyncio.sleep(0)
    for number in settled:
        if number in places and begun[number][0] == "fill":
            places[number].fill(act(number, begun[number][1]))
        elif number in places:
            places[number].leave()
    head.leave()
    await asyncio.wait_for(asyncio.gather(*waiting), 30)

    expected = [number for number, (how, _) in enumerate(begun) if how != "leave"]
    failing = [number for number in expected if begun[number][0] != "wait" and begun[number][1]]
    assert sent == expected
    assert [error.args[0] for error in told] == failing
    order.send(lambda: sent.append(-1))
    assert sent[-1:] == [-1]
