"""Peers: what an agent sends to others, what it waits for, and what ends the wait."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genagent_protocol import codec, envelopes, requests
from genagent_protocol.answers import Found, Ok, Refused
from genagent_protocol.envelopes import Call, Completion, Down, Reply, Request, Submit
from genagent_protocol.errors import CallTimeout, UsageError
from genagent_protocol.errors import Refused as RefusedError
from genagent_protocol.events import Completed, EventCoverage, Failed, Response, event
from genagent_protocol.header import DAEMON
from genagent_protocol.reasons import (
    INTERRUPTED,
    NORMAL,
    NOT_FOUND,
    SHUTDOWN,
    Reason,
    StartError,
)
from genagent_protocol.refs import AgentHandle, Incarnation, MonitorRef
from genagent_protocol.supervision.effects import NotStarted, Started, Stopped
from genagentd.agent import entry
from genagentd.agent.calls import Calls
from genagentd.agent.own_refs import OwnRefs
from genagentd.agent.peers import Peers
from support.agent_life import (
    BOOT,
    CLIENT,
    INCARNATION,
    Conversation,
    living,
    mint,
)
from support.plain_values import anything
from support.wires import until

TALKER = "support.recorders:Talker"
ANNA = AgentHandle("anna", INCARNATION, 1, 2, "here")
BOB = AgentHandle("bob", Incarnation(BOOT, 9), 1, 2, "here")
RESPONSE = Response(
    text="hi",
    final_message="hi",
    events=(),
    terminal=event("result"),
    event_coverage=EventCoverage(),
)


def talking(*turns: object) -> Any:
    """Begin the life of a talker with these scripted turns."""
    return living(TALKER, options={"script": list(turns)})


async def asked(agent: Conversation, kind: type) -> Request:
    """Return the next request of *kind* that the agent makes of the daemon."""
    return await agent.next(Request, lambda said: isinstance(said.request, kind))


async def resolve(agent: Conversation, handle: AgentHandle | None = BOB) -> None:
    """Answer the agent's question where bob is."""
    wanted = await asked(agent, requests.Whereis)
    assert isinstance(wanted.request, requests.Whereis)
    assert wanted.request.name == "bob"
    agent.say(Reply(call=wanted.call, answer=Found(handle=handle)))


def notify(agent: Conversation, *event_: object) -> None:
    """Have the talker do something; it may wait in its callback for a while."""
    agent.say(envelopes.Notify(event=event_), CLIENT.text)  # type: ignore[arg-type]  # plain tuples


async def heard(agent: Conversation) -> tuple[str, ...]:
    """Return what the talker has heard."""
    shown: tuple[str, ...] = await agent.shown()
    return shown


async def test_an_answer_reaches_a_callback_that_waits_for_it() -> None:
    """Everything else that arrives meanwhile is kept."""
    async with talking() as agent:
        notify(agent, "ask", "bob", "hello")
        await resolve(agent)
        said = await agent.next_said(Call)
        agent.say(envelopes.Ping(call=3))
        agent.say(Reply(call=said.envelope.call, answer=Completed(RESPONSE)), BOB.incarnation.text)
        await agent.next(envelopes.Pong)

        assert said.header.to == BOB.incarnation.text
        assert said.header.ref == str(said.envelope.call)
        assert said.envelope.request.ref.incarnation == BOB.incarnation
        assert await heard(agent) == ("answer hi",)


async def test_a_called_agent_is_watched_for_as_long_as_the_call_lasts() -> None:
    """The watch is before the call, and nobody hears of it."""
    async with talking() as agent:
        notify(agent, "ask", "bob", "hello")
        await resolve(agent)
        watch = await asked(agent, requests.MonitorAgent)
        call = await agent.next(Call)
        agent.say(Reply(call=call.call, answer=Completed(RESPONSE)), BOB.incarnation.text)
        end = await asked(agent, requests.DemonitorAgent)

        assert isinstance(watch.request, requests.MonitorAgent)
        assert isinstance(end.request, requests.DemonitorAgent)
        assert watch.request.handle == BOB
        assert watch.request.monitor == end.request.monitor


async def test_the_end_of_a_called_agent_ends_the_wait() -> None:
    """Its DOWN passes, because the callback waits for just that; handle_info never sees it."""
    async with talking() as agent:
        notify(agent, "ask", "bob", "hello")
        await resolve(agent)
        watch = await asked(agent, requests.MonitorAgent)
        await agent.next(Call)
        assert isinstance(watch.request, requests.MonitorAgent)
        agent.say(Down(monitor=watch.request.monitor, handle=BOB, reason=NORMAL))

        assert await heard(agent) == ("ProcessDown normal",)


async def test_the_end_of_an_agent_that_has_just_answered_is_shown_to_nobody() -> None:
    """Its `Down` may be under way when the call is over, and `handle_info` knows no such watch."""
    async with talking() as agent:
        notify(agent, "ask", "bob", "hello")
        await resolve(agent)
        watch = await asked(agent, requests.MonitorAgent)
        call = await agent.next(Call)
        agent.say(Reply(call=call.call, answer=Completed(RESPONSE)), BOB.incarnation.text)
        end = await asked(agent, requests.DemonitorAgent)
        assert isinstance(watch.request, requests.MonitorAgent)
        agent.say(Down(monitor=watch.request.monitor, handle=BOB, reason=NORMAL))
        agent.say(Reply(call=end.call, answer=Ok()))

        assert await heard(agent) == ("answer hi",)


class Watching:
    """A daemon that keeps the watches of one agent: in order, and at most one `Down` of each."""

    def __init__(self) -> None:
        self.alive: set[int] = set()
        self.watches: dict[int, int] = {}
        #: What is on its way to the agent.
        self.owed: deque[Reply | Down] = deque()

    def heard(self, said: Request) -> None:
        match said.request:
            case requests.MonitorAgent(monitor=monitor, handle=handle):
                self.owed.append(Reply(call=said.call, answer=Ok()))
                if handle.incarnation.number in self.alive:
                    self.watches[monitor.number] = handle.incarnation.number
                else:
                    self._down(monitor.number, handle.incarnation.number)
            case requests.DemonitorAgent(monitor=monitor):
                self.watches.pop(monitor.number, None)
                self.owed.append(Reply(call=said.call, answer=Ok()))

    def ends(self, number: int) -> None:
        self.alive.discard(number)
        for monitor, watched in list(self.watches.items()):
            if watched == number:
                del self.watches[monitor]
                self._down(monitor, number)

    def _down(self, monitor: int, number: int) -> None:
        handle = replace(BOB, incarnation=Incarnation(BOOT, number))
        self.owed.append(Down(monitor=MonitorRef(monitor), handle=handle, reason=NORMAL))


_STEPS = st.lists(
    st.sampled_from(["call", "monitor", "answer", "end", "give up", "hear"]), max_size=30
)


@given(steps=_STEPS, picks=st.lists(st.integers(0, 3), min_size=30, max_size=30))
def test_only_what_the_agent_watches_itself_is_shown_and_once(
    steps: list[str], picks: list[int]
) -> None:
    """In whatever order calls begin and end, agents end, and the daemon's words arrive."""
    asyncio.run(_only_its_own(steps, picks))


async def _only_its_own(steps: list[str], picks: list[int]) -> None:
    daemon, shown, own = Watching(), list[int](), set[int]()
    daemon.alive = {0, 1, 2}
    calls = Calls(lambda _to, said, _ref: daemon.heard(said) if isinstance(said, Request) else None)
    running: list[asyncio.Task[Any]] = []

    def hear() -> None:
        match daemon.owed.popleft():
            case Reply() as reply:
                calls.answered(DAEMON, reply)
            case Down() as down if not calls.ended(down):
                shown.append(down.monitor.number)

    for step, pick in zip(steps, picks, strict=False):
        handle = replace(BOB, incarnation=Incarnation(BOOT, pick))
        if step == "call":
            call = calls.of_agent(handle, requests.GetStatus(), "status")
            running.append(asyncio.ensure_future(call))
        elif step == "monitor":
            monitor = calls.new_monitor()
            own.add(monitor.number)
            calls.tell_daemon(requests.MonitorAgent(monitor=monitor, handle=handle))
        elif step == "answer":
            for number in range(200):
                calls.answered(handle.incarnation.text, Reply(call=number, answer=Ok()))
        elif step == "end":
            daemon.ends(pick)
        elif step == "give up":
            for task in running[pick:]:
                task.cancel()
        elif daemon.owed:
            hear()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    for number in range(4):
        daemon.ends(number)

    def over() -> bool:
        if daemon.owed:
            hear()
        return not daemon.owed and all(task.done() for task in running)

    await until(over, "all is heard, and nothing is waited for")
    await asyncio.gather(*running, return_exceptions=True)
    while daemon.owed:
        hear()
        await asyncio.sleep(0)
    # What was heard last has its consequences in the next turn of the loop.
    await asyncio.sleep(0)

    assert sorted(shown) == sorted(own)
    assert not calls._watches


async def test_an_answer_that_does_not_come_in_time_is_given_up_and_dropped_later() -> None:
    """Its effect is unknown, and a late answer means nothing to anybody."""
    async with talking() as agent:
        notify(agent, "ask_soon", "bob", "hello")
        await resolve(agent)
        call = await agent.next(Call)
        agent.begin_call(requests.GetStatus())
        await agent.next(Reply)
        agent.say(Reply(call=call.call, answer=Completed(RESPONSE)), BOB.incarnation.text)

        assert await heard(agent) == ("CallTimeout None",)


async def test_nobody_answers_for_another_agent() -> None:
    """An answer is taken from whom it was asked, or from the daemon in its place."""
    async with talking() as agent:
        notify(agent, "ask", "bob", "hello")
        await resolve(agent)
        call = await agent.next(Call)
        forged = Reply(call=call.call, answer=Completed(RESPONSE))
        agent.say(forged, f"{BOOT}-10")
        agent.say(Reply(call=call.call, answer=Refused(Reason("inbox_full"))), DAEMON)

        assert await heard(agent) == ("Refused inbox_full",)


async def test_a_failed_turn_of_a_peer_is_told_with_its_reason() -> None:
    """It was accepted and failed, which is no refusal."""
    async with talking() as agent:
        notify(agent, "ask", "bob", "hello")
        await resolve(agent)
        call = await agent.next(Call)
        agent.say(Reply(call=call.call, answer=Failed(INTERRUPTED)), BOB.incarnation.text)

        assert await heard(agent) == ("TurnFailed interrupted",)


@pytest.mark.parametrize("what", ["ask", "tell", "notify_ack"])
async def test_a_name_that_nobody_has_is_refused(what: str) -> None:
    """Nothing was sent."""
    async with talking() as agent:
        notify(agent, what, "bob", "hello")
        await resolve(agent, None)

        assert await heard(agent) == ("Refused not_found",)
        assert agent.told(Call) == []


@pytest.mark.parametrize("what", ["ask", "tell", "notify_ack"])
async def test_an_agent_does_not_wait_for_itself(what: str) -> None:
    """It would wait for ever, for it answers nobody while it waits."""
    async with talking() as agent:
        notify(agent, what, "bob", "hello")
        await resolve(agent, AgentHandle("bob", INCARNATION, 1, 2, "here"))

        assert await heard(agent) == ("Refused self_call",)


async def test_a_notification_by_name_is_sent_once_the_name_is_known() -> None:
    """The sender goes on at once; two of them stay in their order."""
    async with talking() as agent:
        notify(agent, "notify", "bob", "one")
        notify(agent, "notify", "bob", "two")
        await resolve(agent)
        await resolve(agent)
        said = [await agent.next_said(envelopes.Notify) for _ in "12"]

        assert [s.envelope.event for s in said] == ["one", "two"]
        assert {s.header.to for s in said} == {BOB.incarnation.text}
        assert await heard(agent) == ("notified", "notified")


async def test_a_notification_for_nobody_is_dropped() -> None:
    """It is best effort."""
    async with talking() as agent:
        notify(agent, "notify", "bob", "one")
        await resolve(agent, None)

        assert await heard(agent) == ("notified",)
        assert agent.told(envelopes.Notify) == []


async def test_a_notification_by_name_is_sent_even_if_the_agent_ends_right_after() -> None:
    """The last thing a stage of a pipeline does is to tell the next one."""
    async with talking() as agent:
        notify(agent, "notify", "bob", "over to you")
        agent.say(envelopes.StopAsked(reason=NORMAL, drain=True))
        await resolve(agent)
        await agent.ended()

        sent = [
            said.header.to for said in agent.said if isinstance(said.envelope, envelopes.Notify)
        ]
        assert sent == [BOB.incarnation.text]


async def test_a_name_that_nobody_answers_for_does_not_hold_up_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The last notifications get a moment, and the last word is said after it."""
    monkeypatch.setattr(entry, "LAST_NOTIFICATIONS_MS", 1)
    async with talking() as agent:
        notify(agent, "notify", "bob", "over to you")
        await asked(agent, requests.Whereis)
        last = await agent.stop()

        assert last.reason == SHUTDOWN
        assert agent.told(envelopes.Notify) == []


async def test_a_told_prompt_completes_in_handle_info() -> None:
    """The agent is the recipient of what it asked for."""
    async with talking() as agent:
        notify(agent, "tell", "bob", "hello")
        await resolve(agent)
        call = await agent.next(Call)
        tell = call.request
        assert isinstance(tell, requests.Tell)
        agent.say(Reply(call=call.call, answer=Ok()), BOB.incarnation.text)
        done = Completion(agent="bob", ref=tell.ref, outcome=Completed(RESPONSE))
        agent.say(done, BOB.incarnation.text)

        assert tell.recipient == INCARNATION
        assert await heard(agent) == (f"told {BOB.incarnation}", "completion hi")


async def test_the_end_of_a_watched_agent_reaches_handle_info() -> None:
    """It waits its turn like every other message."""
    async with talking() as agent:
        notify(agent, "watch", "bob")
        await resolve(agent)
        watch = await asked(agent, requests.MonitorAgent)
        assert isinstance(watch.request, requests.MonitorAgent)
        agent.say(Down(monitor=watch.request.monitor, handle=BOB, reason=NORMAL))

        assert await heard(agent) == ("watching 1", "down normal")


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (Started(BOB), "started 9"),
        (
            NotStarted(StartError(kind="not_allowed", message="may_start")),
            "StartFailed not_allowed",
        ),
    ],
)
async def test_another_agent_can_be_started(answer: Started | NotStarted, told: str) -> None:
    """By its class, in the directory of this one."""
    async with talking() as agent:
        notify(agent, "start", "bob")
        wanted = await asked(agent, requests.StartAgent)
        assert isinstance(wanted.request, requests.StartAgent)
        agent.say(Reply(call=wanted.call, answer=answer))

        assert wanted.request.agent == "support.recorders:Sparse"
        assert wanted.request.cwd is not None
        assert await heard(agent) == (told,)


async def test_an_agent_cannot_stop_itself_and_can_stop_others() -> None:
    """It would wait for its own end."""
    async with talking() as agent:
        notify(agent, "stop", "anna")
        notify(agent, "stop", "bob")
        wanted = await asked(agent, requests.StopAgent)
        agent.say(Reply(call=wanted.call, answer=Stopped(NORMAL)))

        assert await heard(agent) == ("Refused self_stop", "stopped")


async def test_the_turns_thread_reaches_peers_too() -> None:
    """Through the coordinator, which is free while a turn runs."""
    turn = [{"kind": "question"}, {"kind": "result", "text": "done"}]
    async with talking(turn) as agent:
        ref = agent.submit("go")
        await resolve(agent)
        call = await agent.next(Call)
        agent.say(Reply(call=call.call, answer=Completed(RESPONSE)), BOB.incarnation.text)
        await agent.completion(ref)

        assert await heard(agent) == ("answer hi",)


# Without a life


class Sent:
    """What was said, for peers without a life."""

    def __init__(self) -> None:
        self.said: list[tuple[str, Any, str | None]] = []
        self.calls = Calls(self.say)
        self._located = 0

    def to(self, handle: AgentHandle) -> list[Any]:
        """Return what was said to that agent."""
        return [said for to, said, _ in self.said if to == handle.incarnation.text]

    def locates(self, handle: AgentHandle) -> bool:
        """Say as the daemon that *handle* is who was looked up next; False if nobody was."""
        asked = self.asked(requests.Whereis)
        if self._located == len(asked):
            return False
        answer = Reply(call=asked[self._located].call, answer=Found(handle=handle))
        self._located += 1
        self.calls.answered(DAEMON, answer)
        return True

    def asked(self, *kinds: type) -> list[Request]:
        """Return what was asked of the daemon, of these kinds."""
        asked = [said for to, said, _ in self.said if to == DAEMON and isinstance(said, Request)]
        return [said for said in asked if isinstance(said.request, kinds)]

    def say(self, to: str, envelope: object, ref: str | None = None) -> None:
        self.said.append((to, envelope, ref))

    def peers(self) -> Peers:
        return Peers(ANNA, self.say, self.calls, OwnRefs())


async def test_a_submission_to_a_handle_is_sent_at_once() -> None:
    """A plain callback can do that; the ref says whose it is."""
    sent = Sent()
    ref = sent.peers().submit_with_completion(BOB, "hello", on_halt="fail")

    submit = Submit(ref=ref, prompt="hello", recipient=INCARNATION, on_halt="fail")
    assert sent.said == [(BOB.incarnation.text, submit, ref.text)]
    assert ref.incarnation == BOB.incarnation


async def test_what_follows_a_notification_by_name_does_not_overtake_it() -> None:
    """Both may be for the same agent, and pair by pair everything keeps its order."""
    sent = Sent()
    peers = sent.peers()
    peers.notify("bob", "first")
    peers.notify(BOB, "second")
    peers.submit_with_completion(BOB, "third")
    asking = asyncio.create_task(peers.ask(BOB, "fourth"))
    await asyncio.sleep(0)

    sent.locates(BOB)
    await until(lambda: len(sent.to(BOB)) == 4, "everything is sent")

    first, second, third, fourth = sent.to(BOB)
    assert (first, second) == (envelopes.Notify(event="first"), envelopes.Notify(event="second"))
    assert third.prompt == "third"
    assert fourth.request.prompt == "fourth"
    asking.cancel()


async def test_a_stop_does_not_overtake_what_was_sent_before_it() -> None:
    """The last words to an agent would come too late for it."""
    sent = Sent()
    peers = sent.peers()
    peers.notify("bob", "last words")
    stopping = asyncio.create_task(peers.stop("bob"))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not sent.asked(requests.StopAgent)

    sent.locates(BOB)
    while not sent.asked(requests.StopAgent):
        await asyncio.sleep(0)

    assert sent.to(BOB) == [envelopes.Notify(event="last words")]
    stopping.cancel()


async def test_a_turn_waits_for_what_it_has_sent() -> None:
    """Its thread has a loop of its own, and the lookups are of the coordinator's."""
    sent = Sent()
    peers = sent.peers()

    async def turn() -> list[Any]:
        peers.notify("bob", "last words")
        await peers.all_sent(30_000)
        return sent.to(BOB)

    speaking = asyncio.create_task(asyncio.to_thread(lambda: asyncio.run(turn())))
    await until(lambda: sent.locates(BOB) or speaking.done(), "it is asked where bob is")

    assert await speaking == [envelopes.Notify(event="last words")]


@pytest.mark.parametrize("target", ["bob", BOB])
async def test_the_time_of_a_call_includes_what_comes_before_it(target: Any) -> None:
    """The name, and the notifications that go first; whoever gives up then has sent nothing."""
    sent = Sent()
    peers = sent.peers()
    peers.notify("carl", "first")

    with pytest.raises(CallTimeout, match="ask got no answer within 20 ms; nothing was sent"):
        await peers.ask(target, "hi", timeout_ms=20)
    assert sent.to(BOB) == []


async def test_of_a_call_that_was_sent_the_effect_is_unknown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also if finding its target took a part of the time."""
    sent = Sent()
    passing: list[Callable[[], object]] = []
    loop = asyncio.get_running_loop()
    call_at = loop.call_at

    def noted(when: float, passed: Callable[[], object], *rest: Any) -> asyncio.TimerHandle:
        passing.append(passed)
        return call_at(when, passed, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(loop, "call_at", noted)
        asking = asyncio.create_task(sent.peers().ask("bob", "hi", timeout_ms=10**9))
        await asyncio.sleep(0)
    sent.locates(BOB)
    await until(lambda: sent.to(BOB), "it is sent")
    [its_time_is_over] = passing
    its_time_is_over()

    with pytest.raises(CallTimeout, match=r"ask got no answer within .* ms; its effect is unknown"):
        await asking
    assert len(sent.to(BOB)) == 1


@pytest.mark.parametrize("limit_ms", [None, 10**9])
async def test_no_wait_of_a_call_has_a_limit_of_its_own(
    limit_ms: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is asked for without a limit is not given up while its target is looked up."""
    sent = Sent()
    set_for: list[float] = []
    loop = asyncio.get_running_loop()
    call_at = loop.call_at

    def noted(when: float, *rest: Any) -> asyncio.TimerHandle:
        set_for.append(when)
        return call_at(when, *rest)

    monkeypatch.setattr(loop, "call_at", noted)
    now = loop.time()
    peers = sent.peers()
    peers.notify("carl", "first")
    asking = asyncio.create_task(peers.ask("bob", "hi", timeout_ms=limit_ms))
    for _ in range(5):
        await asyncio.sleep(0)
    while sent.locates(BOB):
        pass
    # Not `until`, which has a limit of its own.
    for _ in range(10):
        await asyncio.sleep(0)

    assert len(sent.to(BOB)) == 2
    assert all(limit_ms is not None and when >= now + limit_ms / 1000 for when in set_for)
    asking.cancel()


class Hostile(str):
    """Text that does not let itself be shown."""

    __slots__ = ()

    def __repr__(self) -> str:
        raise RuntimeError("hostile")

    __str__ = __repr__


async def refusal(sent: Sent, use: Any) -> str:
    """Return what a call to a name says that nobody has."""
    asking = asyncio.ensure_future(use)
    await until(lambda: sent.asked(requests.Whereis, requests.StopAgent), "it is asked for")
    [asked] = sent.asked(requests.Whereis, requests.StopAgent)
    where = isinstance(asked.request, requests.Whereis)
    answer = Found(handle=None) if where else Refused(NOT_FOUND)
    sent.calls.answered(DAEMON, Reply(call=asked.call, answer=answer))
    with pytest.raises(RefusedError) as error:
        await asking
    assert error.value.reason == NOT_FOUND
    return str(error.value)


@pytest.mark.parametrize(
    "use",
    [
        lambda peers, name: peers.ask(name, "hi"),
        lambda peers, name: peers.notify_ack(name, "hi"),
        lambda peers, name: peers.tell_with_completion(name, "hi"),
        lambda peers, name: peers.stop(name),
    ],
)
async def test_a_name_that_nobody_has_is_shown_as_it_was_sent(use: Any) -> None:
    """What the caller handed over may be of a class of its own."""
    sent = Sent()

    assert (await refusal(sent, use(sent.peers(), Hostile("zoe")))).endswith("is named zoe")


async def test_who_takes_a_handle_for_an_agent_is_told_what_it_is() -> None:
    """A handle is a name like any other, and rarely meant as one."""
    sent = Sent()

    assert "use handle.name" in await refusal(sent, sent.peers().stop(BOB))


async def test_what_is_ready_at_the_same_moment_keeps_its_order() -> None:
    """A name is known, and whoever is next in the loop sends before anybody has looked at that."""
    sent = Sent()
    peers = sent.peers()
    loop = asyncio.get_running_loop()
    peers.notify("bob", "first")

    sent.locates(BOB)
    loop.call_soon(peers.notify, BOB, "third")
    peers.notify(BOB, "second")
    await asyncio.sleep(0)
    await asyncio.sleep(0)

    assert [notification.event for notification in sent.to(BOB)] == ["first", "second", "third"]


async def test_who_gives_up_holds_nobody_up() -> None:
    """A call that ends before its turn has come leaves its place to those behind it."""
    sent = Sent()
    peers = sent.peers()
    peers.notify("bob", "first")
    given_up = asyncio.create_task(peers.ask(BOB, "never"))
    refused = asyncio.create_task(peers.ask(ANNA, "to itself"))
    await asyncio.sleep(0)
    peers.notify(BOB, "second")
    given_up.cancel()
    await asyncio.wait([given_up, refused])

    sent.locates(BOB)
    await asyncio.sleep(0)

    assert [notification.event for notification in sent.to(BOB)] == ["first", "second"]


class TurnsThread:
    """A loop in a thread of its own, as that of an agent's turns."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever)
        self._thread.start()

    def do(self, act: Callable[[], object]) -> None:
        """Do *act*, and the first step of the tasks that it makes; the coordinator stands still."""

        async def done() -> None:
            act()
            await asyncio.sleep(0)

        asyncio.run_coroutine_threadsafe(done(), self.loop).result(30)

    async def _end_all(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._end_all(), self.loop).result(30)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


@contextlib.contextmanager
def turns_thread() -> Iterator[TurnsThread]:
    """Begin such a thread, and end it and what it still waits for."""
    turn = TurnsThread()
    try:
        yield turn
    finally:
        turn.close()


async def test_what_follows_a_call_in_a_turn_does_not_overtake_it() -> None:
    """The call has its first step in the coordinator later than a notification is sent there."""
    sent = Sent()
    peers = sent.peers()

    def speak() -> None:
        calls.append(asyncio.create_task(peers.notify_ack(BOB, "first")))
        asyncio.get_running_loop().call_soon(peers.notify, BOB, "second")

    calls: list[asyncio.Task[None]] = []
    with turns_thread() as turn:
        turn.do(speak)
        await until(lambda: len(sent.to(BOB)) == 2, "both are sent")

    assert [_event_of(said) for said in sent.to(BOB)] == ["first", "second"]


@pytest.mark.parametrize("by", ["turn", "coordinator"])
async def test_a_call_that_is_given_up_before_its_first_step_is_not_sent_and_holds_nobody_up(
    by: str,
) -> None:
    """The turn may have ended by then, or somebody cancels whatever the coordinator does."""
    sent, others = Sent(), asyncio.all_tasks()
    peers = sent.peers()
    calls: list[asyncio.Task[None]] = []
    with turns_thread() as turn:
        turn.do(lambda: calls.append(asyncio.create_task(peers.notify_ack(BOB, "never"))))
        if by == "turn":
            turn.do(lambda: calls[0].cancel())
        else:
            asyncio.get_running_loop().call_soon(
                lambda: [task.cancel() for task in asyncio.all_tasks() - others]
            )
        turn.do(lambda: peers.notify(BOB, "second"))
        await until(lambda: sent.to(BOB), "the second is sent")
        await peers.all_sent(30_000)
        await until(calls[0].done, "it is given up")

    assert calls[0].cancelled()
    assert sent.to(BOB) == [envelopes.Notify(event="second")]


@given(
    in_turn=st.booleans(),
    done=st.lists(
        st.sampled_from(
            [
                *(f"{what} {when}" for what in ("name", "handle", "call") for when in ("", "soon")),
                *("answer", "turn"),
            ]
        ),
        max_size=25,
    ),
)
def test_what_is_sent_arrives_in_the_order_in_which_it_was_begun(
    in_turn: bool, done: list[str]
) -> None:
    """By callbacks or by a turn, whenever the names are known, and before a stop."""

    async def sent_so(do: Callable[[Callable[[], object]], object]) -> None:
        sent = Sent()
        peers = sent.peers()
        begun: list[int] = []
        calls: list[asyncio.Task[None]] = []

        async def called() -> None:
            begun.append(len(begun))
            await peers.notify_ack("bob" if len(begun) % 2 else BOB, begun[-1], timeout_ms=None)

        def send(what: str) -> None:
            if what == "call":
                calls.append(asyncio.create_task(called()))
                return
            begun.append(len(begun))
            peers.notify("bob" if what == "name" else BOB, begun[-1])

        for step in done:
            what, _, when = step.partition(" ")
            match what, when:
                case "answer", _:
                    sent.locates(BOB)
                case "turn", _:
                    await asyncio.sleep(0)
                case _, "soon":
                    asyncio.get_running_loop().call_soon(do, partial(send, what))
                case _:
                    do(partial(send, what))
        for _ in range(2):
            await asyncio.sleep(0)
        do(lambda: calls.append(asyncio.create_task(peers.stop("bob"))))
        await until(
            lambda: not sent.locates(BOB) and sent.asked(requests.StopAgent), "bob is to be stopped"
        )
        await peers.all_sent(30_000)

        [stop] = sent.asked(requests.StopAgent)
        assert [_event_of(said) for said in sent.to(BOB)] == begun
        said = [said for _, said, _ in sent.said]
        assert said.index(stop) > max(map(said.index, sent.to(BOB)), default=-1)
        do(lambda: [task.cancel() for task in calls])

    if not in_turn:
        asyncio.run(sent_so(lambda act: act()))
        return
    with turns_thread() as turn:
        asyncio.run(sent_so(turn.do))


def _event_of(said: envelopes.Notify | envelopes.Call) -> object:
    if isinstance(said, envelopes.Notify):
        return said.event
    assert isinstance(said.request, requests.NotifyAck)
    return said.request.event


async def test_from_another_thread_things_are_sent_by_the_coordinator() -> None:
    """The socket belongs to one thread."""
    sent = Sent()
    peers = sent.peers()
    await asyncio.to_thread(peers.notify, BOB, "hello")
    await asyncio.sleep(0)

    assert sent.said == [(BOB.incarnation.text, envelopes.Notify(event="hello"), None)]


@pytest.mark.parametrize("bad", [{1, 2}, "\ud800", "x" * (8 * 1024 * 1024 + 1)])
async def test_what_cannot_be_sent_is_refused_before_anything_is(bad: object) -> None:
    """The caller gets it, not somebody's log."""
    sent = Sent()
    with pytest.raises(UsageError):
        sent.peers().notify(BOB, bad)
    with pytest.raises(UsageError):
        sent.peers().submit_with_completion(BOB, bad)  # type: ignore[arg-type]  # that is the point

    assert sent.said == []


async def test_a_name_is_bounded_for_an_agent_as_it_is_for_a_client() -> None:
    """It travels with every message about its agent, whoever started that (C1)."""
    peers = Peers(ANNA, _refuse_to_say, Calls(_refuse_to_say), OwnRefs())
    long = "x" * 1022

    for use in (
        lambda: peers.start_agent(None, name=long, backend="echo"),
        lambda: peers.whereis(long),
        lambda: peers.ask(long, "hi"),
        lambda: peers.stop(long),
    ):
        with pytest.raises(UsageError, match="name: 1025 bytes, the limit is 1024"):
            await use()
    with pytest.raises(UsageError, match="name: 1025 bytes, the limit is 1024"):
        peers.notify(long, None)


@pytest.mark.parametrize(
    ("use", "named"),
    [
        (lambda peers: peers.submit_with_completion("bob", "hi"), "captured handle"),
        (lambda peers: peers.submit_with_completion(BOB, "hi", on_halt="bogus"), "on_halt"),
        (lambda peers: peers.monitor(None), "captured handle"),
        (lambda peers: peers.monitor(5), "captured handle"),
        (lambda peers: peers.demonitor(5), "monitor"),
        (lambda peers: peers.tell_with_completion("bob", "hi", on_halt="bogus"), "on_halt"),
        (lambda peers: peers.tell_with_completion("bob", 5), "prompt"),
        (lambda peers: peers.tell_with_completion("bob", "hi", timeout_ms=-1), "timeout_ms"),
        (lambda peers: peers.ask("bob", None), "prompt"),
        (lambda peers: peers.ask("bob", "hi", timeout_ms=1.5), "timeout_ms"),
        (lambda peers: peers.notify_ack(BOB, "hi", timeout_ms="x"), "timeout_ms"),
        (
            lambda peers: peers.start_agent(
                None, name="c", backend="echo", limits={"watchdogms": 1}
            ),
            "limits: watchdogms .* watchdog_ms",
        ),
        (lambda peers: peers.start_agent(None, name="c", backend="echo", session=5), "session"),
        (lambda peers: peers.start_agent(None, name="c", backend="echo", env=5), "env"),
    ],
)
async def test_an_agent_hears_of_a_bad_argument_before_anything_is_sent(
    use: Callable[[Any], Any], named: str
) -> None:
    """By the checks of the client: what cannot be read would never be answered."""
    peers = Peers(ANNA, _refuse_to_say, Calls(_refuse_to_say), OwnRefs())

    async def used() -> None:
        sent = use(peers)
        if inspect.isawaitable(sent):
            await sent

    with pytest.raises(UsageError, match=named):
        await used()


ELSEWHERE = replace(BOB, place="otherhost:/x")


@pytest.mark.parametrize(
    "use",
    [
        lambda peers: peers.notify(ELSEWHERE, "e"),
        lambda peers: peers.submit_with_completion(ELSEWHERE, "hi"),
        lambda peers: peers.monitor(ELSEWHERE),
        lambda peers: peers.notify_ack(ELSEWHERE, "e"),
        lambda peers: peers.tell_with_completion(ELSEWHERE, "hi"),
        lambda peers: peers.ask(ELSEWHERE, "hi"),
    ],
)
async def test_a_handle_of_another_place_is_refused_before_a_ref_is_minted(
    use: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its incarnation may be spelt as that of an agent here, who is somebody else."""
    refs = OwnRefs()
    monkeypatch.setattr(refs, "mint", _refuse_to_say)
    peers = Peers(ANNA, _refuse_to_say, Calls(_refuse_to_say), refs)

    async def used() -> None:
        sent = use(peers)
        if inspect.isawaitable(sent):
            await sent

    with pytest.raises(UsageError, match="lives at otherhost:/x, and this agent lives at here"):
        await used()


def _refuse_to_say(*_: object) -> None:
    raise AssertionError("something was sent")


async def test_settled_calls_leave_nothing_behind() -> None:
    """The table holds what is waited for, and nothing else."""
    sent = Sent()
    answered = sent.calls.ask_daemon(requests.Whereis(name="bob"))
    sent.calls.answered(DAEMON, Reply(call=1, answer=Found(handle=BOB)))
    sent.calls.answered(DAEMON, Reply(call=1, answer=Found(handle=None)))
    waiting = asyncio.create_task(sent.calls.of_agent(BOB, requests.Poll(ref=mint()), "poll"))
    await asyncio.sleep(0)
    assert sent.calls.ended(Down(monitor=MonitorRef(1), handle=BOB, reason=NORMAL))
    assert not sent.calls.ended(Down(monitor=MonitorRef(2), handle=BOB, reason=NORMAL))
    await asyncio.wait([waiting])

    assert await answered == Found(handle=BOB)
    assert waiting.exception() is not None
    assert len(sent.calls) == 0


#: Everything an agent says to others, with one argument that may be anything.
USES: dict[str, Callable[[Peers, Any], Any]] = {
    "notify": lambda peers, value: peers.notify(BOB, value),
    "notify whom": lambda peers, value: peers.notify(value, "e"),
    "submit": lambda peers, value: peers.submit_with_completion(BOB, value),
    "submit to": lambda peers, value: peers.submit_with_completion(value, "p"),
    "submit on halt": lambda peers, value: peers.submit_with_completion(BOB, "p", on_halt=value),
    "monitor": lambda peers, value: peers.monitor(value),
    "demonitor": lambda peers, value: peers.demonitor(value),
    "notify_ack": lambda peers, value: peers.notify_ack(BOB, value),
    "ask": lambda peers, value: peers.ask(BOB, value),
    "ask whom": lambda peers, value: peers.ask(value, "p"),
    "ask how long": lambda peers, value: peers.ask(BOB, "p", timeout_ms=value),
    "tell": lambda peers, value: peers.tell_with_completion(BOB, value),
    "tell on halt": lambda peers, value: peers.tell_with_completion(BOB, "p", on_halt=value),
    "start": lambda peers, value: peers.start_agent(None, name="c", backend="echo", session=value),
    "start what": lambda peers, value: peers.start_agent(value, name="c", backend="echo"),
    "stop": lambda peers, value: peers.stop(value),
}


@pytest.mark.parametrize("use", USES)
@given(value=anything)
def test_whatever_an_agent_hands_over_is_refused_or_read(use: str, value: object) -> None:
    """By the daemon or the other agent: what they cannot read would be waited for."""
    sent = Sent()

    async def used() -> None:
        with contextlib.suppress(UsageError):
            said = USES[use](sent.peers(), value)
            if inspect.isawaitable(said):
                with contextlib.suppress(CallTimeout):
                    async with asyncio.timeout(0):
                        await said

    with contextlib.suppress(TimeoutError):
        asyncio.run(used())

    for to, envelope, _ in sent.said:
        union = envelopes.ToDaemon if to == DAEMON else envelopes.ToAgent
        assert repr(codec.decode(union, codec.encode(envelope))) == repr([envelope])
