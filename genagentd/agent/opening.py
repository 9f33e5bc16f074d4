"""From the daemon's hello to an agent that is ready: in order, and each failure in one line.

The agent's class and the backend are loaded, the limits, the parameters of callbacks
and the schemas of offered functions checked, `init_agent` asked for the backend's
options and the first state, and the session opened or resumed. Whichever fails ends the
start; no termination callback is run.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from genagent_backends.base import Backend, ResumesSession, Session
from genagent_protocol.bounds import Limits
from genagent_protocol.limits import split_options
from genagent_protocol.plain import FrozenDict, NotPlain, freeze
from genagent_protocol.reasons import StartError
from genagent_protocol.requests import StartAgent
from genagent_protocol.turns.state import Offers
from genagentd.agent import behaviour, forked, functions, log
from genagentd.agent.behaviour import AnyAgent
from genagentd.agent.callbacks import Retained, offers_of, plain, settled_apart
from genagentd.agent.class_names import full_name_of, kind_of
from genagentd.agent.loading import load_agent, load_backend
from genagentd.agent.plain_agent import PlainAgent
from genagentd.agent.signatures import misfit, misspelled
from genagentd.system_text import sayable


@dataclass(frozen=True, slots=True)
class Opened:
    """An agent that is ready for its machine."""

    agent: AnyAgent = field(repr=False)
    backend: Backend = field(repr=False)
    limits: Limits
    retained: Retained
    offers: Offers


async def open_agent(
    start: StartAgent, introduce: Callable[[AnyAgent], None]
) -> Opened | StartError:
    """Return the agent that *start* asks for, with its session open, or why there is none.

    *introduce* gives the agent its context before any of its callbacks runs.
    """
    try:
        return await _opened(start, introduce)
    except BaseException as error:  # noqa: BLE001  # whatever is looked at may be code of theirs
        return _raised(start.agent or start.backend, error)


async def _opened(start: StartAgent, introduce: Callable[[AnyAgent], None]) -> Opened | StartError:
    if start.cwd is not None:
        sys.path.insert(0, sayable(start.cwd))
    split = split_options(start.options)
    if isinstance(split, StartError):
        return split
    limits, options = split
    agent = load_agent(start.agent)
    if isinstance(agent, StartError):
        return agent
    backend = load_backend(start.backend)
    if isinstance(backend, StartError):
        return backend
    unusable = _unusable_callback(agent) or _unusable_function(agent)
    if unusable is not None:
        return unusable
    unnamed = _introduced(agent, introduce)
    if unnamed is not None:
        return unnamed
    first = await _init_agent(agent, options)
    if isinstance(first, StartError):
        return first
    backend_options, state = first
    # Before there is a session, which nobody would end if this failed.
    offers = offers_of(agent, backend)
    session = await _session(backend, backend_options, start)
    if isinstance(session, StartError):
        return session
    return Opened(agent, backend, limits, Retained(state, session), offers)


def _unusable_callback(agent: AnyAgent) -> StartError | None:
    """Return why a callback of *agent* could never be called, if that is so."""
    if type(agent) is PlainAgent:
        return None
    try:
        problem = misfit(agent)
        for name, meant in misspelled(agent):
            log.line("callback.unknown", method=f"{full_name_of(agent)}.{name}", meant=meant)
    except BaseException as error:  # noqa: BLE001  # attributes may be code of theirs
        return _raised(full_name_of(agent), error)
    return None if problem is None else StartError(kind="init_failed", message=problem)


def _unusable_function(agent: AnyAgent) -> StartError | None:
    """Return why a function that *agent* offers could never be called, if that is so."""
    if all(mark.arguments is None for mark, _ in functions.offered(agent).values()):
        return None  # What reads schemas is not loaded where there is none.
    from genagentd.agent.session import Registry

    try:
        Registry(agent)
    except ValueError as error:
        return StartError(kind="init_failed", message=f"{full_name_of(agent)}.{error}")
    return None


def _introduced(agent: AnyAgent, introduce: Callable[[AnyAgent], None]) -> StartError | None:
    """Give *agent* its context, or say why it takes none."""
    try:
        introduce(agent)
    except BaseException as error:  # noqa: BLE001  # it may be a property, which is code of theirs
        log.raised("init.failed", error, callback="context")
        return StartError(
            kind="init_failed",
            message=f"{full_name_of(agent)}.context cannot be set, which raised "
            f"{log.class_of(error)}: that name is the framework's, give yours another one",
            detail=log.class_of(error),
        )
    return None


async def _init_agent(agent: AnyAgent, options: FrozenDict) -> tuple[FrozenDict, Any] | StartError:
    name = f"{full_name_of(agent)}.init_agent"
    try:
        answer = await settled_apart(lambda: agent.init_agent(options))
    except BaseException as error:  # noqa: BLE001  # user code may raise whatever it likes
        return _raised(name, error)
    if isinstance(answer, behaviour.Failed):
        reason = plain(answer.reason)
        return StartError(
            kind="init_agent_failed", message=f"{name} declined: {_told(reason)}", detail=reason
        )
    if not isinstance(answer, behaviour.Started):
        return _no_answer("init_agent_failed", name, answer, "Started or Failed")
    return _checked(agent, name, answer)


def _checked(
    agent: AnyAgent, name: str, answer: behaviour.Started[Any]
) -> tuple[FrozenDict, Any] | StartError:
    try:
        options = freeze(answer.backend_options)
    except NotPlain as error:
        return StartError(
            kind="init_agent_failed", message=f"{name}: the backend's options: {error}"
        )
    except BaseException as error:  # noqa: BLE001  # a mapping of theirs may raise whatever it likes
        return _raised(name, error)
    if not isinstance(options, FrozenDict):
        return _no_answer("init_agent_failed", name, answer.backend_options, "a mapping of options")
    try:
        with forked.Home():
            agent.copy_state(answer.state)
    except BaseException as error:  # noqa: BLE001  # the user's own objects may refuse in any way
        log.raised("init.failed", error, callback="copy_state")
        return StartError(
            kind="state_not_copyable",
            message=f"copy_state of a {kind_of(answer.state)} raised {log.class_of(error)}; "
            "a turn works on a copy of the state: define copy_state, or keep what cannot be "
            "copied outside the state",
            detail=log.class_of(error),
        )
    return options, answer.state


async def _session(
    backend: Backend, options: FrozenDict, start: StartAgent
) -> Session | StartError:
    if start.session is not None and not isinstance(backend, ResumesSession):
        return StartError(
            kind="unsupported_resume",
            message=f"the backend {start.backend} cannot resume a session; start without one",
        )
    name = full_name_of(backend)
    callback = "start_session" if start.session is None else "resume_session"
    try:
        answer = await settled_apart(lambda: _ask_for_session(backend, options, start.session))
    except BaseException as error:  # noqa: BLE001  # a backend may raise whatever it likes
        return _raised(f"{name}.{callback}", error)
    if isinstance(answer, behaviour.Failed):
        reason = plain(answer.reason)
        return StartError(
            kind="backend_start_failed",
            message=f"the backend {start.backend} declined: {_told(reason)}",
            detail=reason,
        )
    return answer


def _ask_for_session(backend: Backend, options: FrozenDict, session_id: str | None) -> Session:
    if session_id is None:
        return backend.start_session(options)
    assert isinstance(backend, ResumesSession)
    return backend.resume_session(session_id, options)


def _told(reason: Any) -> str:
    """Return a reason as text; a mapping that has a message says it itself."""
    said = reason.get("message") if isinstance(reason, FrozenDict) else None
    return said if isinstance(said, str) else str(reason)


def _raised(name: str, error: BaseException) -> StartError:
    log.raised("init.failed", error, callback=name)
    return StartError(
        kind="init_failed",
        message=f"{name} raised {log.class_of(error)}",
        detail=log.class_of(error),
    )


def _no_answer(kind: Any, name: str, answer: object, wanted: str) -> StartError:
    return StartError(kind=kind, message=f"{name} returned {kind_of(answer)}, not {wanted}")
