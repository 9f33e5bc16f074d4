"""Which options a backend takes, and the refusal of every other one.

A backend declares its options as values and reads what it was given once, at the
start of a session, before it looks up a key or starts a process. An option that
is unknown, malformed, impossible here or given twice with two values refuses the
start; a refusal names the option and never repeats its value, which may be secret.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeAlias, TypeVar, cast

from genagent_backends.base import Failed
from genagent_protocol.plain import FrozenDict, Plain

T = TypeVar("T")

RefusalCode: TypeAlias = Literal[
    "unknown_option", "invalid_option", "unsupported_option", "conflicting_options"
]


class BadValue(ValueError):
    """A check's verdict: the value is not what the option takes.

    The message completes the sentence "option NAME ..." ("must be text") and does
    not contain the value.
    """


def refuse(code: RefusalCode, option: str, message: str) -> Failed:
    """Return the refusal of *option*: a mapping of `code`, `option` and `message`."""
    return Failed(FrozenDict({"code": code, "option": option, "message": message}))


@dataclass(frozen=True, slots=True)
class Option(Generic[T]):
    """One option: its name, the check that reads its value, and what it is if not given.

    `aliases` are old names: accepted, with a `FutureWarning`, which the agent's log
    shows. `None` as a value means "not given", as JSON's null does.
    """

    name: str
    check: Callable[[Plain], T]
    default: T
    aliases: tuple[str, ...] = ()

    def of(self, chosen: Chosen) -> T:
        """Return what was chosen for this option."""
        return cast("T", chosen.values[self.name])


@dataclass(frozen=True, slots=True)
class Unsupported:
    """A known option that cannot be honoured here; `why` completes "option NAME ...".

    An explicit false (or null) asks for nothing and is accepted.
    """

    name: str
    why: str


Declared: TypeAlias = Option[Any] | Unsupported


@dataclass(frozen=True, slots=True, repr=False)
class Chosen:
    """The value of every declared option. Printing it shows the names that were given only."""

    values: Mapping[str, object]
    given: frozenset[str]

    def __repr__(self) -> str:
        return f"Chosen({', '.join(sorted(self.given))})"


def read_options(declared: Iterable[Declared], given: Mapping[str, Plain]) -> Chosen | Failed:
    """Return what *given* chooses among the *declared* options, or the first refusal.

    Raises:
        Nothing: a check's `BadValue` becomes the refusal `invalid_option`.
    """
    options = {option.name: option for option in declared}
    renamed = _without_aliases(options, given)
    if isinstance(renamed, Failed):
        return renamed
    values: dict[str, object] = {
        option.name: option.default for option in options.values() if isinstance(option, Option)
    }
    for name, value in renamed.items():
        read = _read_one(options, name, value)
        if isinstance(read, Failed):
            return read
        values.update(read)
    return Chosen(values, frozenset(renamed))


def _without_aliases(
    options: Mapping[str, Declared], given: Mapping[str, Plain]
) -> dict[str, Plain] | Failed:
    names = {
        alias: option.name
        for option in options.values()
        if isinstance(option, Option)
        for alias in option.aliases
    }
    renamed: dict[str, Plain] = {}
    for name, value in given.items():
        if value is None:
            continue
        real = names.get(name, name)
        if real != name:
            warnings.warn(f"option {name} is an old name of {real}", FutureWarning, stacklevel=4)
        if real in renamed and renamed[real] != value:
            return refuse(
                "conflicting_options", real, f"{real} was given twice, with different values"
            )
        renamed[real] = value
    return renamed


def _read_one(
    options: Mapping[str, Declared], name: str, value: Plain
) -> dict[str, object] | Failed:
    match options.get(name):
        case None:
            return refuse(
                "unknown_option", name, f"there is no option {name}{_hint(name, options)}"
            )
        case Unsupported(why=why):
            if value is False:
                return {}
            return refuse("unsupported_option", name, f"option {name} {why}")
        case Option(check=check):
            try:
                return {name: check(value)}
            except BadValue as error:
                return refuse("invalid_option", name, f"option {name} {error}")


def _hint(name: str, options: Mapping[str, Declared]) -> str:
    # Only a refusal needs it, and every agent process would pay for the import.
    from difflib import get_close_matches

    near = get_close_matches(name, list(options), n=1)
    if near:
        return f"; did you mean {near[0]}?"
    known = sorted(each for each, how in options.items() if isinstance(how, Option))
    return f"; there are {', '.join(known)}" if known else ""


# -- checks ------------------------------------------------------------------------------------


def text(value: Plain) -> str:
    """Accept text that is not empty and has no NUL byte (no program could be given one)."""
    if isinstance(value, bool | int | float):
        # On a command line an option is JSON if it can be: `-o model=4` is a number.
        raise BadValue("""must be text, in double quotes as JSON has it: -o 'NAME="..."'""")
    if not isinstance(value, str) or not value or "\0" in value:
        raise BadValue("must be text that is not empty")
    return value


def flag(value: Plain) -> bool:
    """Accept true or false."""
    if not isinstance(value, bool):
        raise BadValue("must be true or false")
    return value


def whole(minimum: int = 0) -> Callable[[Plain], int]:
    """Accept integers of at least *minimum*; true and false are no numbers."""

    def check(value: Plain) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or value < minimum:
            raise BadValue(f"must be an integer of at least {minimum}")
        return value

    return check


def duration_ms(value: Plain) -> int | None:
    """Accept a positive number of milliseconds, or "infinity" for none at all."""
    if value == "infinity":
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
        raise BadValue('must be a positive number of milliseconds or "infinity"')
    return value


def amount(value: Plain) -> float:
    """Accept a positive number."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < 1e12:
        raise BadValue("must be a positive number")
    return float(value)


def choice(*allowed: str) -> Callable[[Plain], str]:
    """Accept exactly the *allowed* words."""

    def check(value: Plain) -> str:
        if not isinstance(value, str) or value not in allowed:
            raise BadValue(f"must be one of {', '.join(allowed)}")
        return value

    return check


def texts(value: Plain) -> tuple[str, ...]:
    """Accept one text or a list of them, none empty."""
    items = (value,) if isinstance(value, str) else value
    if not isinstance(items, tuple):
        raise BadValue("must be a list of texts")
    return tuple(text(item) for item in items)


def mapping(value: Plain) -> FrozenDict:
    """Accept any mapping."""
    if not isinstance(value, FrozenDict):
        raise BadValue("must be a mapping")
    return value


def variables(value: Plain) -> FrozenDict:
    """Accept a mapping whose names environment variables can have."""
    for name in mapping(value):
        if not name or "=" in name or "\0" in name:
            raise BadValue("has a name that no environment variable can have")
    return mapping(value)


def environment(value: Plain) -> Mapping[str, str | None]:
    """Accept a mapping from names to texts; false or null unsets a variable."""
    changes: dict[str, str | None] = {}
    for name, item in variables(value).items():
        if item is not None and item is not False and not isinstance(item, str):
            raise BadValue(f"must give {name} text, or false to unset it")
        if isinstance(item, str) and "\0" in item:
            raise BadValue(f"gives {name} a text with a NUL byte")
        changes[name] = item if isinstance(item, str) else None
    return changes
