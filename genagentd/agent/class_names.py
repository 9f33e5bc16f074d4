"""What classes of others are called: text that can be logged and sent, read without their code.

What a class says of itself may be anything. Its metaclass may answer for it, or raise;
its name may be no text that can leave the process, or megabytes of it. So it is read
past all of that, cut, and what cannot be sent in it is escaped.
"""

from __future__ import annotations

#: What is told of a longer name is its beginning.
MAX_CHARS = 200

_NAME = type.__dict__["__name__"]
_QUALNAME = type.__dict__["__qualname__"]
_MODULE = type.__dict__["__module__"]


def kind_of(value: object) -> str:
    """Return the bare name of *value*'s class."""
    return _text(_NAME.__get__(type(value)))


def class_of(value: object) -> str:
    """Return the name of *value*'s class as its module knows it; inner classes have dots."""
    return _text(_QUALNAME.__get__(type(value)))


def module_of(value: object) -> str:
    """Return where *value*'s class says it was made; a question mark if it does not say."""
    try:
        return _text(_MODULE.__get__(type(value)))
    except AttributeError:
        return "?"


def full_name_of(value: object) -> str:
    """Return the class of *value* with its module."""
    return f"{module_of(value)}.{class_of(value)}"


def _text(said: object) -> str:
    # By its type: `isinstance` asks the value itself as well.
    if not issubclass(type(said), str):
        return "?"
    text = str.__str__(said)[:MAX_CHARS]
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
