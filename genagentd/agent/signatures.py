"""Whether the callbacks that a class defines can be called with what they will get.

Asked at the start, where there is somebody to read the answer: otherwise the agent
starts, and dies at its first prompt, or never hears what its author wrote a method for.
Only what a class defines itself is looked at.

This does not look into what a callback does with its arguments, or how it names them.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Iterator

from genagentd.agent import functions
from genagentd.agent.behaviour import Agent, AnyAgent
from genagentd.agent.class_names import full_name_of

#: What each callback gets, in this order and without names.
ARGUMENTS = {
    "init_agent": ("options",),
    "handle_response": ("ref", "response", "state"),
    "handle_error": ("ref", "reason", "state"),
    "handle_event": ("event", "state"),
    "handle_info": ("message", "state"),
    "handle_stream_event": ("event", "state"),
    "pre_run": ("state",),
    "pre_turn": ("prompt", "state"),
    "post_turn": ("outcome", "ref", "state"),
    "post_run": ("state",),
    "terminate_agent": ("reason", "state"),
    "copy_state": ("state",),
    "show_state": ("state",),
}
_OF_FUNCTIONS = ("arguments", "state")
#: Their answer is wanted at once, by whoever asks for a status or begins a turn.
_PLAIN = frozenset({"copy_state", "show_state"})
#: How much a method has to be spelled like a callback to be taken for one.
_LIKENESS = 0.85


def misfit(agent: AnyAgent) -> str | None:
    """Return in one line the first callback or function that cannot be called, or None."""
    for name, arguments in _of_its_own(agent):
        method = getattr(agent, name)
        if name in _PLAIN and inspect.iscoroutinefunction(method):
            return f"{full_name_of(agent)}.{name} is an async def, and nobody can wait for it: def"
        try:
            signature = inspect.signature(method)
        except (TypeError, ValueError):
            continue  # Nothing that Python can tell the parameters of.
        try:
            signature.bind(*arguments)
        except TypeError:
            where = f"{full_name_of(agent)}.{name}"
            takes = ", ".join(signature.parameters)
            return (
                f"{where} cannot be called with ({', '.join(arguments)}): "
                f"it is defined with ({takes}), besides self"
            )
    return None


def misspelled(agent: AnyAgent) -> Iterator[tuple[str, str]]:
    """Yield each method that nobody will call, and the callback that its name is close to.

    A guess, and no fault: a class may have methods of its own for itself.
    """
    defined = {name for name, _ in _of_its_own(agent)}
    for kind in type(agent).__mro__:
        if kind in (Agent, object):
            continue
        for name, value in vars(kind).items():
            if callable(value) and not hasattr(Agent, name) and name not in defined:
                undefined = ARGUMENTS.keys() - defined
                for meant in difflib.get_close_matches(name, undefined, 1, _LIKENESS):
                    yield name, meant


def _of_its_own(agent: AnyAgent) -> Iterator[tuple[str, tuple[str, ...]]]:
    for name, arguments in ARGUMENTS.items():
        found = getattr(type(agent), name, None)
        if found is not None and found is not getattr(Agent, name, None):
            yield name, arguments
    for name in functions.offered(agent):
        yield name, _OF_FUNCTIONS
