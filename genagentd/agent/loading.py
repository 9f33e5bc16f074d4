"""From names to classes: the user's agent, and the backend it talks to.

Nothing is imported before it is wanted, and nothing is guessed: what cannot be found
is said with the place that was looked at and what to do about it.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import sys
from collections.abc import Mapping
from functools import cache
from typing import Any, cast

from genagent_backends.base import Backend
from genagent_protocol.reasons import StartError
from genagentd.agent import log
from genagentd.agent.behaviour import Agent, AnyAgent
from genagentd.agent.plain_agent import PlainAgent

BACKENDS = "genagentd.backends"


@cache
def installed_backends() -> Mapping[str, str]:
    """Return the backends that installed packages offer: their names, and `module:Class`.

    Looked up once; the helper that agents are forked from does it for all of them.
    """
    found = importlib.metadata.entry_points(group=BACKENDS)
    return {point.name: point.value for point in found}


def load_agent(spelled: str | None) -> AnyAgent | StartError:
    """Return a new agent of the class *spelled* `package.module:Class`; None is the plain one."""
    if spelled is None:
        return PlainAgent()
    found = _attribute(spelled, "unknown_agent", "agent")
    if isinstance(found, StartError):
        return found
    if not isinstance(found, type) or not issubclass(found, Agent):
        return StartError(
            kind="unknown_agent",
            message=f"{spelled} is not a class derived from genagentd.Agent",
        )
    missing = sorted(getattr(found, "__abstractmethods__", ()))
    if missing:
        return StartError(
            kind="unknown_agent", message=f"{spelled} does not define {', '.join(missing)}"
        )
    made = _instance(found, spelled)
    return made if isinstance(made, StartError) else cast("AnyAgent", made)


def load_backend(name: str) -> Backend | StartError:
    """Return a new backend by its installed name, or by `module:Class`."""
    spelled = name if ":" in name else installed_backends().get(name)
    if spelled is None:
        known = ", ".join(sorted(installed_backends())) or "none"
        return StartError(
            kind="unknown_backend",
            message=f"there is no backend {name!r}; installed are: {known}; "
            "another one is spelled package.module:Class",
        )
    found = _attribute(spelled, "unknown_backend", "backend")
    if isinstance(found, StartError):
        return found
    lacking = [need for need in _NEEDED if not callable(getattr(found, need, None))]
    if not callable(found) or lacking:
        return StartError(
            kind="unknown_backend",
            message=f"{spelled} is no backend: it lacks {', '.join(lacking)}",
        )
    made = _instance(found, spelled)
    return made if isinstance(made, StartError) else cast("Backend", made)


_NEEDED = ("start_session", "prompt", "terminate_session")


def _attribute(spelled: str, kind: Any, what: str) -> Any:
    """Return the object that *spelled* means, or why there is none."""
    module_name, _, path = spelled.partition(":")
    if not module_name or not path:
        return StartError(
            kind=kind, message=f"the {what} {spelled!r} is not spelled package.module:Class"
        )
    try:
        found: Any = importlib.import_module(module_name)
    except BaseException as error:  # noqa: BLE001  # the module's own code may raise whatever it likes
        return _not_imported(module_name, error)
    for step in path.split("."):
        if not hasattr(found, step):
            where = getattr(sys.modules.get(module_name), "__file__", None) or module_name
            return StartError(kind=kind, message=f"there is no {path} in {where}")
        found = getattr(found, step)
    return found


def _not_imported(module_name: str, error: BaseException) -> StartError:
    log.raised("import.failed", error, module=module_name)
    # The text of an import error names a module, and nothing that a user said.
    said = f": {error}" if isinstance(error, ImportError) else ""
    return StartError(
        kind="import_failed",
        message=f"{module_name} cannot be imported in {os.getcwd()} "
        f"({log.class_of(error)}{said}); the interpreter is {sys.executable}, "
        f"its path {os.pathsep.join(sys.path)}",
    )


def _instance(made_by: Any, spelled: str) -> Any:
    try:
        return made_by()
    except BaseException as error:  # noqa: BLE001  # a constructor is user code
        log.raised("init.failed", error, callback=spelled)
        return StartError(
            kind="init_failed",
            message=f"{spelled}() raised {log.class_of(error)}",
            detail=log.class_of(error),
        )
