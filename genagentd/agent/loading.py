"""From names to classes: the user's agent, and the backend it talks to.

Nothing is imported before it is wanted, and nothing is guessed: what cannot be found
is said with the place that was looked at and what to do about it.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.metadata
import inspect
import os
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any, cast

from genagent_backends.base import Backend
from genagent_protocol.errors import GenAgentError
from genagent_protocol.plain import printable
from genagent_protocol.reasons import StartError
from genagentd.agent import forked, log
from genagentd.agent.behaviour import Agent, AnyAgent
from genagentd.agent.class_names import kind_of
from genagentd.agent.plain_agent import PlainAgent
from genagentd.agent.signatures import ARGUMENTS

BACKENDS = "genagentd.backends"
#: How much of what an import says is told.
MAX_SAID = 1_000


@cache
def installed_backends() -> Mapping[str, str]:
    """Return the backends that installed packages offer: their names, and `module:Class`.

    Looked up once; the helper that agents are forked from does it for all of them. What
    was installed or removed since then is seen after `look_again`.
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
            kind="unknown_agent",
            message=f"{spelled} does not define {', '.join(missing)}{_instead(found, missing[0])}",
        )
    made = _instance(found, spelled)
    # By its type: `isinstance` asks the object itself as well, and that is code of others.
    if issubclass(type(made), StartError):
        return cast("StartError", made)
    if not issubclass(type(made), Agent):
        return StartError(
            kind="init_failed", message=f"{spelled}() made {kind_of(made)}, and no agent"
        )
    return cast("AnyAgent", made)


def look_again() -> None:
    """Forget what was installed when this process, or the one it was forked from, looked."""
    importlib.invalidate_caches()
    installed_backends.cache_clear()


def load_backend(name: str) -> Backend | StartError:
    """Return a new backend by its installed name, or by `module:Class`."""
    spelled = _spelled(name)
    found = _of_backend(name, spelled)
    if isinstance(found, StartError):
        # It may have been installed, moved or removed since the helper looked.
        look_again()
        if spelled is None or _spelled(name) != spelled:
            spelled = _spelled(name)
            found = _of_backend(name, spelled)
    if isinstance(found, StartError):
        return found
    lacking = [need for need in _NEEDED if not callable(getattr(found, need, None))]
    if not callable(found) or lacking:
        return StartError(
            kind="unknown_backend",
            message=f"{spelled} is no backend: it lacks {', '.join(lacking)}",
        )
    made = _instance(found, spelled or name)
    return made if isinstance(made, StartError) else cast("Backend", made)


def _spelled(name: str) -> str | None:
    return name if ":" in name else installed_backends().get(name)


def _of_backend(name: str, spelled: str | None) -> Any:
    """Return what makes the backend *name*, or why there is none."""
    if spelled is not None:
        return _attribute(spelled, "unknown_backend", "backend")
    known = sorted(installed_backends())
    return StartError(
        kind="unknown_backend",
        message=f"there is no backend {name!r}{_near(name, known)}; "
        f"installed are: {', '.join(known) or 'none'}; "
        "another one is spelled package.module:Class",
    )


_NEEDED = ("start_session", "prompt", "terminate_session")


def _attribute(spelled: str, kind: Any, what: str) -> Any:
    """Return the object that *spelled* means, or why there is none."""
    module_name, _, path = spelled.partition(":")
    steps = module_name.split(".")
    if not path or not all(step.isidentifier() for step in steps) or os.path.isfile(module_name):
        return StartError(
            kind=kind,
            message=f"the {what} {spelled!r} is not spelled package.module:Class{_meant(spelled)}",
        )
    try:
        with forked.Home():
            found: Any = importlib.import_module(module_name)
    except BaseException as error:  # noqa: BLE001  # the module's own code may raise whatever it likes
        return _not_imported(module_name, error)
    for step in path.split("."):
        if not hasattr(found, step):
            where = getattr(sys.modules.get(module_name), "__file__", None) or module_name
            near = _near(step, _public(found))
            return StartError(kind=kind, message=f"there is no {path} in {where}{near}")
        found = getattr(found, step)
    return found


def _near(word: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean {near[0]}?" if near else ""


def _public(place: object) -> Iterator[str]:
    """Yield the names of the classes in *place*, a module or a class."""
    for name, value in list(getattr(place, "__dict__", {}).items()):
        if isinstance(value, type):
            yield name


def _instead(found: type, missing: str) -> str:
    """Return what to do about a callback that *found* does not define."""
    own = [name for name in vars(found) if not hasattr(Agent, name)]
    near = difflib.get_close_matches(missing, own, n=1)
    if near:
        return f"; is {near[0]} meant to be it?"
    given = ", ".join(("self", *ARGUMENTS[missing])) if missing in ARGUMENTS else "self"
    return f"; write def {missing}({given}) into the class"


def _meant(spelled: str) -> str:
    """Return what to write instead of a module that was spelled as a file."""
    file, _, path = spelled.partition(":")
    where, name = os.path.split(os.path.normpath(file.removesuffix(".py")))
    if not os.path.isabs(file):
        where, name = "", ".".join([*where.split(os.sep), name] if where else [name])
    if not path or not all(step.isidentifier() for step in name.split(".")):
        return ""
    there = f", and start it in {where}" if where else ""
    return f"; write {name}:{path}{there}"


def _not_imported(module_name: str, error: BaseException) -> StartError:
    log.raised("import.failed", error, module=module_name)
    log.line("import.path", interpreter=sys.executable, path=os.pathsep.join(sys.path))
    return StartError(
        kind="import_failed",
        message=f"{module_name} cannot be imported: {_told(module_name, error)}",
        detail=log.class_of(error),
    )


def _told(module_name: str, error: BaseException) -> str:
    try:
        return _import_problem(module_name, error)
    except BaseException:  # noqa: BLE001  # the exception's attributes may be code of others
        return log.class_of(error)


def _import_problem(module_name: str, error: BaseException) -> str:
    """Return in one line what is wrong, where, and what to do.

    The text of the exception is told: at an import nobody has said anything yet.
    """
    text = _text(error)
    said = f"{log.class_of(error)}: {text}" if text else log.class_of(error)
    match error:
        case SyntaxError(filename=str(file), lineno=int(line), msg=wrong):
            source = f": {error.text.strip()}" if error.text else ""
            problem = f"{log.class_of(error)} in {file}, line {line}: {wrong}{source}"
            advice = "mend it and start again"
        case ModuleNotFoundError(name=str(missing)) if _is_part(missing, module_name):
            problem = f"there is no module {missing} in {os.getcwd()}"
            advice = (
                f"start it in the directory that holds it (--cwd, cwd=), or install it for "
                f"{sys.executable}"
            )
        case ModuleNotFoundError(name=str(missing)) if text != f"No module named {missing!r}":
            problem = text  # Somebody has written what is missing, and how to get it.
            advice = f"do that for {sys.executable}"
        case ModuleNotFoundError(name=str(missing)):
            problem = f"{said}{_where(error)}"
            advice = f"install {missing} for {sys.executable}, or start it where it is found"
        case GenAgentError():
            problem = f"{said}{_where(error)}"
            advice = (
                "an agent imports this file, too: what talks to the daemon belongs "
                "under if __name__ == '__main__':"
            )
        case _:
            problem = f"{said}{_where(error)}"
            advice = "mend it and start again"
    return f"{printable(' '.join(problem.split())[:MAX_SAID])}; {advice}"


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException:  # noqa: BLE001  # even this is code of others
        return ""


def _is_part(missing: str, module_name: str) -> bool:
    """Whether *missing* is the module that is wanted, or a package around it."""
    return f"{module_name}.".startswith(f"{missing}.")


def _where(error: BaseException) -> str:
    """Return the place where it happened: the innermost line that is the user's own."""
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [frame for frame in frames if not _is_machinery(frame.filename)]
    beside = [frame for frame in theirs if _is_beside(frame.filename)]
    found = (beside or theirs)[-1:]
    return "".join(f" at {frame.filename}:{frame.lineno}" for frame in found)


def _is_beside(file: str) -> bool:
    """Whether the file is the user's own, rather than installed, as far as that can be told."""
    return file.startswith(os.path.join(os.getcwd(), "")) and "site-packages" not in file


def _is_machinery(file: str) -> bool:
    return file.startswith("<frozen ") or file in (__file__, importlib.__file__)


def _instance(made_by: Any, spelled: str) -> Any:
    try:
        with forked.Home():
            return made_by()
    except BaseException as error:  # noqa: BLE001  # a constructor is user code
        log.raised("init.failed", error, callback=spelled)
        return StartError(
            kind="init_failed",
            message=f"{spelled}() raised {log.class_of(error)}{_wants_more(made_by)}",
            detail=log.class_of(error),
        )


def _wants_more(made_by: Any) -> str:
    """Return what is to be said if *made_by* cannot be called without arguments."""
    try:
        inspect.signature(made_by).bind()
    except TypeError:
        return ": it is made without arguments; what it needs reaches init_agent as options"
    except BaseException:  # noqa: BLE001  # its signature may be code of others
        return ""
    return ""
