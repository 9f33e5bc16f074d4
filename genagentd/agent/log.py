"""One line of key=value in the agent's log.

Lines name agents, modules, classes and places in code; never what a user, a model or
an exception said. Once it is held, the log is a descriptor of its own: whatever the
agent's code does to its standard streams, lines go on. One that cannot be written is
lost, and nothing else happens.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import sys
import traceback
from collections.abc import Iterator

from genagent_protocol.errors import GenAgentError
from genagentd.agent import class_names
from genagentd.log_line import log_line

_CODE = re.compile(r"[a-z_]{1,40}")
#: Where a traceback is, whatever a class says of its attributes.
_TRACEBACK = BaseException.__dict__["__traceback__"]
#: What Python says in place of a StopIteration that leaves a coroutine, which none can.
_STOPPED = "coroutine raised StopIteration"
_CAUSE = BaseException.__dict__["__cause__"]
_ARGS = BaseException.__dict__["args"]
#: The descriptor of the log, while it is held.
_held: list[int] = []


def hold() -> None:
    """Write to what is standard error now, whatever becomes of that."""
    with contextlib.suppress(OSError):
        _held[:] = [fcntl.fcntl(2, fcntl.F_DUPFD_CLOEXEC, 3)]


def line(event: str, **fields: object) -> None:
    """Write one line; fields that are None are left out."""
    _write(log_line(event, fields))


def raised(event: str, error: BaseException, **fields: object) -> None:
    """Write that code of others raised: its class, and file, line and function of each frame.

    An error of ours that has a reason is told with the code of that. This does not raise,
    whatever the exception is: its class and its attributes may be code of others, too.
    """
    error = meant(error)
    line(event, **fields, error=class_of(error), code=_code_of(error))
    for file, number, name in _places(error):
        _write(f"  at {file}:{number} {name}\n")


def _places(error: BaseException) -> Iterator[tuple[str, int | None, str]]:
    # Not extract_tb: it has the loader of a module find the source, and that may be theirs.
    for frame, number in traceback.walk_tb(_TRACEBACK.__get__(error)):
        yield frame.f_code.co_filename, number, frame.f_code.co_name


def broke(error: BaseException) -> None:
    """Write that code of ours raised, with everything that helps to mend it."""
    line("agent.broke", error=class_of(error))
    _write("".join(traceback.format_exception(error)))


def class_of(error: BaseException) -> str:
    """Return how the class of *error* is called in reasons and lines; it can always be sent."""
    return class_names.class_of(meant(error))


def meant(error: BaseException) -> BaseException:
    """Return what code of others raised, where *error* is what Python put in its place.

    Callbacks are run in coroutines, and out of a coroutine no StopIteration comes as itself.
    """
    # By its type: an exception of others may be called alike and answer for itself.
    if type(error) is not RuntimeError:
        return error
    said: tuple[object, ...] = _ARGS.__get__(error)
    cause: BaseException | None = _CAUSE.__get__(error)
    if cause is None or [type(one) for one in said] != [str] or said[0] != _STOPPED:
        return error
    return cause


def _code_of(error: BaseException) -> str | None:
    # By its type: `isinstance` asks the exception itself as well.
    if not issubclass(type(error), GenAgentError):
        return None
    try:
        code = getattr(getattr(error, "reason", None), "code", None)
    except BaseException:  # noqa: BLE001  # a class that somebody derived from ours
        return None
    # Ours are words like not_allowed; whatever else stands there may be what somebody said.
    return code if isinstance(code, str) and _CODE.fullmatch(code) else None


def _write(text: str) -> None:
    # A closed stream raises ValueError; a full disk, OSError; a stream that is None has no write.
    with contextlib.suppress(OSError, ValueError, AttributeError):
        if _held:
            os.write(_held[0], text.encode("utf-8", "backslashreplace"))
        else:
            sys.stderr.write(text)
            sys.stderr.flush()
