"""The edge to user code in the coordinator: callbacks are run, their answers are judged.

Whatever a callback raises and whatever it returns becomes a fact for the machine; a
returned state is kept only if the answer is one that this callback may give. A log
line names agent, module, callback and the class of what it raised or returned, never
what was said.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, assert_never

from genagent_backends.base import Backend, Checkpoints, ResetsSession, Session, is_session
from genagent_protocol.plain import NotPlain, Plain, encoded_size, freeze
from genagent_protocol.reasons import ExitReason
from genagent_protocol.refs import AgentHandle, RequestRef
from genagent_protocol.turns import decisions, effects, inputs
from genagent_protocol.turns.state import Offers
from genagentd.agent import behaviour, forked, log
from genagentd.agent.behaviour import AnyAgent
from genagentd.agent.class_names import full_name_of, kind_of, module_of
from genagentd.agent.sessions import called_plainly

#: The most bytes of shown state; it travels in answers and telemetry.
MAX_SHOWN_BYTES = 1_048_576
#: The most bytes of a reason that user code gives; it travels with the end it explains.
MAX_REASON_BYTES = 1_048_576

DEFAULTS = ("handle_error", "handle_event", "pre_run", "pre_turn", "post_turn", "post_run")


@dataclass(slots=True)
class Retained:
    """What the agent is between turns: the user's state and the backend's session."""

    state: Any = field(repr=False)
    session: Session = field(repr=False)


def offers_of(agent: AnyAgent, backend: Backend) -> Offers:
    """Return which of the optional callbacks these two have."""
    return Offers(
        handle_info=callable(getattr(agent, "handle_info", None)),
        checkpoint_session=isinstance(backend, Checkpoints),
        reset_session=isinstance(backend, ResetsSession),
    )


def overrides(agent: AnyAgent, name: str) -> bool:
    """Whether *agent* has a callback of its own there, and not the default that does nothing."""
    return getattr(type(agent), name) is not getattr(behaviour.Agent, name)


async def settled(call: Callable[[], Any]) -> Any:
    """Return what *call* to user code answers, which may have to be awaited.

    Raises:
        BaseException: whatever it raised.
    """
    with forked.Home():
        answer = called_plainly(call)
        return await answer if isinstance(answer, Awaitable) else answer


async def settled_apart(call: Callable[[], Any]) -> Any:
    """Return the same; what has to be awaited is, in a task of its own.

    Whoever cancels that task, while it runs or later, means this call and nobody else.

    Raises:
        BaseException: whatever it raised.
    """
    with forked.Home():
        answer = called_plainly(call)
        if not isinstance(answer, Awaitable):
            return answer
    answer, error = await asyncio.create_task(_ended(answer))
    if error is None:
        return answer
    try:
        raise error
    finally:
        del error  # Its traceback holds this frame.


async def _ended(answer: Awaitable[Any]) -> tuple[Any, BaseException | None]:
    """Return what *answer* comes to, or what it raised."""
    # As a value: asyncio lets some exceptions out of any task.
    try:
        with forked.Home():
            return await answer, None
    except BaseException as error:  # noqa: BLE001  # user code may raise whatever it likes
        return None, error


class Callbacks:
    """Runs the callbacks of one agent on its retained state and session."""

    def __init__(
        self, agent: AnyAgent, backend: Backend, retained: Retained, handle: AgentHandle
    ) -> None:
        self.agent = agent
        self.backend = backend
        self.retained = retained
        self.name = handle.name
        self._incarnation = handle.incarnation
        self._defaults = {name for name in DEFAULTS if not overrides(agent, name)}

    def does_nothing(self, callback: effects.Callback) -> bool:
        """Whether *callback* is a default, which cannot keep anybody waiting."""
        return callback.name in self._defaults

    async def run(self, callback: effects.Callback) -> inputs.FromCallback:
        """Run *callback* and return what became of it."""
        try:
            answer = await settled_apart(lambda: self._call(callback))
            # What was returned is user code as well: its attributes may be properties.
            decision = self._judged(callback, answer)
            if not decisions.fits(callback.name, decision):
                self._misfit(callback.name, answer)
        except BaseException as error:  # noqa: BLE001  # user code may raise whatever it likes
            self.failed(callback.name, error)
            return inputs.CallbackCrashed(callback.name, log.class_of(error))
        return inputs.CallbackReturned(callback.name, decision)

    def _misfit(self, name: decisions.CallbackName, answer: object) -> None:
        """Log what the callback *name* returned, by its type alone, and what it may return."""
        owner = self._owner(name)
        log.line(
            "callback.failed",
            agent=self.name,
            module=module_of(owner),
            callback=name,
            error="invalid_return",
            why=f"{full_name_of(owner)}.{name} returned {_returned(answer)}, not {_wanted(name)}",
        )

    def _owner(self, name: str) -> object:
        return self.backend if name.endswith("_session") else self.agent

    def _call(self, callback: effects.Callback) -> Any:
        agent, backend, state = self.agent, self.backend, self.retained.state
        match callback:
            case effects.PreRun():
                return agent.pre_run(state)
            case effects.PreTurn(prompt):
                return agent.pre_turn(prompt, state)
            case effects.HandleResponse(ref, response):
                return agent.handle_response(ref, response, state)
            case effects.HandleError(ref, reason):
                return agent.handle_error(ref, reason, state)
            case effects.PostTurn(ref, outcome):
                return agent.post_turn(outcome, ref, state)
            case effects.HandleEvent(event):
                return agent.handle_event(event, state)
            case effects.HandleInfo(message):
                handle_info: Callable[[object, Any], Any] = agent.handle_info  # type: ignore[attr-defined]  # offered, or it would not be invoked
                return handle_info(message, state)
            case effects.PostRun():
                return agent.post_run(state)
            case effects.CheckpointSession(session_id):
                assert isinstance(backend, Checkpoints)
                return backend.checkpoint_session(self.retained.session, session_id)
            case effects.ResetSession():
                assert isinstance(backend, ResetsSession)
                return backend.reset_session(self.retained.session)
            case _:
                assert_never(callback)

    def _judged(self, callback: effects.Callback, answer: Any) -> decisions.Decision:
        match callback:
            case effects.PostRun():
                return decisions.Done()
            case effects.CheckpointSession() | effects.ResetSession():
                return self._judged_session(callback, answer)
            case _:
                decision = self._decision(answer)
        if decisions.fits(callback.name, decision) and not isinstance(decision, decisions.Declined):
            self.retained.state = answer.state
        return decision

    def _judged_session(
        self, callback: effects.CheckpointSession | effects.ResetSession, answer: Any
    ) -> decisions.Decision:
        if is_session(answer, self.retained.session):
            self.retained.session = answer
            return decisions.Done()
        if isinstance(answer, behaviour.Failed) and isinstance(callback, effects.ResetSession):
            return decisions.Declined(plain(answer.reason))
        return decisions.Invalid()

    def _decision(self, answer: Any) -> decisions.Decision:
        match answer:
            case behaviour.NoReply():
                return decisions.NoReply()
            case behaviour.Prompt(text=given) if (text := text_of(given)) is not None:
                return decisions.Prompt(text, self._fresh_ref())
            case behaviour.Halt():
                return decisions.Halt()
            case behaviour.Run(prompt=given) if (text := text_of(given)) is not None:
                return decisions.Run(text)
            case behaviour.Skip():
                return decisions.Skip()
            case behaviour.Ok():
                return decisions.Done()
            case behaviour.Failed(reason=reason):
                return decisions.Declined(plain(reason))
            case _:
                return decisions.Invalid()

    def _fresh_ref(self) -> RequestRef:
        return RequestRef.mint(self._incarnation, os.urandom(16))

    async def terminate(self, reason: ExitReason, within_ms: int | None) -> None:
        """Run both termination callbacks; neither can prevent the end.

        Nor the other, unless that is when *within_ms* have passed; None is no limit.
        """
        last = asyncio.create_task(self._terminated(reason))
        within_s = None if within_ms is None else within_ms / 1000
        _, left = await asyncio.wait({last}, timeout=within_s)
        if left:
            log.line("terminate.overdue", agent=self.name, within_ms=within_ms)

    async def _terminated(self, reason: ExitReason) -> None:
        retained = self.retained
        await self._last(
            "terminate_agent", lambda: self.agent.terminate_agent(reason, retained.state)
        )
        await self._last(
            "terminate_session", lambda: self.backend.terminate_session(retained.session)
        )

    async def _last(self, name: str, call: Callable[[], Any]) -> None:
        try:
            await settled_apart(call)
        except BaseException as error:  # noqa: BLE001  # user code may raise whatever it likes
            self.failed(name, error)

    def failed(self, name: str, error: BaseException) -> None:
        """Log that the callback *name* raised."""
        log.raised(
            "callback.failed",
            error,
            agent=self.name,
            module=module_of(self._owner(name)),
            callback=name,
        )

    async def reapply(self, session: Session, session_id: str) -> Session:
        """Return a turn's *session* with the acknowledged id in it, or as it is if that fails."""
        backend = self.backend
        assert isinstance(backend, Checkpoints)
        try:
            answer = await settled_apart(lambda: backend.checkpoint_session(session, session_id))
            if is_session(answer, session):
                return answer
            self._misfit("checkpoint_session", answer)
        except BaseException as error:  # noqa: BLE001  # a backend may raise whatever it likes
            self.failed("checkpoint_session", error)
        return session

    def shown(self) -> Plain:
        """Return what outsiders may see of the state: `show_state`'s answer if it can be sent."""
        state = self.retained.state
        try:
            with forked.Home():
                answer = self.agent.show_state(state)
            try:
                shown = freeze(answer)
            except NotPlain:
                self._not_shown(answer)
                return kind_of(state)
            fits = encoded_size(shown) <= MAX_SHOWN_BYTES
        except BaseException as error:  # noqa: BLE001  # user code may raise whatever it likes
            self.failed("show_state", error)
            return kind_of(state)
        return shown if fits else kind_of(state)

    def _not_shown(self, answer: object) -> None:
        name = f"{full_name_of(self.agent)}.show_state"
        log.line(
            "callback.failed",
            agent=self.name,
            module=module_of(self.agent),
            callback="show_state",
            error="invalid_return",
            why=f"{name} returned {kind_of(answer)}, in which something cannot be sent: "
            "show numbers, texts, bytes, lists and dicts of them",
        )


def _returned(answer: object) -> str:
    match answer:
        case behaviour.Prompt(text=text) | behaviour.Run(prompt=text) if text_of(text) is None:
            said: object = text
            kind = "text that cannot be sent" if isinstance(said, str) else kind_of(said)
            return f"{kind_of(answer)} of {kind}"
    return kind_of(answer)


def _wanted(name: decisions.CallbackName) -> str:
    """Return what *name* may return, by the names that the agent's author writes."""
    done = "a session" if name.endswith("_session") else _WRITTEN[decisions.Done]
    written = _WRITTEN | {decisions.Done: done}
    names = [written[decision] for decision in decisions.fitting(name)]
    return " or ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else names[0]


#: What an author writes for each decision.
_WRITTEN = {
    decisions.Done: "Ok",
    decisions.Declined: "Failed",
    decisions.Run: "Run",
    decisions.Skip: "Skip",
    decisions.Halt: "Halt",
    decisions.NoReply: "NoReply",
    decisions.Prompt: "Prompt",
}


def text_of(value: object) -> str | None:
    """Return the text that *value* is, without a class of its own, if it can leave the process."""
    try:
        found = freeze(value)
    except NotPlain:
        return None
    return found if isinstance(found, str) else None


def plain(reason: object) -> Plain:
    """Return a reason that user code gave as plain data: itself, or what it calls itself."""
    try:
        frozen = _frozen(reason)
        fits = encoded_size(frozen) <= MAX_REASON_BYTES
    except BaseException:  # noqa: BLE001  # the reason is user code, too
        return kind_of(reason)
    return frozen if fits else kind_of(reason)


def _frozen(reason: object) -> Plain:
    try:
        return freeze(reason)
    except NotPlain:
        code = getattr(reason, "code", None)
        return freeze(code) if isinstance(code, str) else kind_of(reason)
