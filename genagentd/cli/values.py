"""What people type and what they get shown: names, options, prompts, and answers as JSON.

A name is text; any other is written `json:["a",1]`. An option's value is JSON if it
parses as JSON, and text otherwise. A prompt comes from exactly one place and
arrives byte for byte.
"""

from __future__ import annotations

import json
import math
import sys
from typing import Any, BinaryIO

import click

from genagent_protocol import schema
from genagent_protocol.codec import MAX_PAYLOAD_BYTES
from genagent_protocol.errors import TooLarge
from genagent_protocol.events import Response
from genagent_protocol.plain import NotPlain, freeze, printable
from genagent_protocol.reasons import PayloadTooLarge
from genagent_protocol.refs import AgentHandle, MalformedIdentity, RequestRef
from genagentd.cli import exits
from genagentd.cli.exits import Failure
from genagentd.cli.output import shortened

_JSON = "json:"
#: How much of what was typed is told with what is wrong with it.
_MAX_QUOTED = 80


def name_of(text: str) -> object:
    """Return the name that *text* spells: itself, or what follows `json:`."""
    if not text:
        raise click.BadParameter("the name is empty")
    if not text.startswith(_JSON):
        return text
    try:
        return _parsed(text.removeprefix(_JSON))
    except json.JSONDecodeError as error:
        raise click.BadParameter(f"{_quoted(text)} is not json:<JSON>: {error}") from None


def ref_of(text: str) -> RequestRef:
    """Return the ref that *text* spells."""
    try:
        return RequestRef.parse(text)
    except MalformedIdentity as error:
        raise click.BadParameter(str(error)) from None


def option_of(text: str) -> tuple[str, object]:
    """Return the key and the value of `key=value`, JSON or text."""
    key, value = variable_of(text)
    return key, json_or_text(value)


def variable_of(text: str) -> tuple[str, str]:
    """Return the key and the text of `key=value`."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise click.BadParameter(f"{_quoted(text)} is not of the form key=value")
    return key, value


def each_once(
    _context: click.Context, _option: click.Parameter, pairs: tuple[tuple[str, Any], ...]
) -> tuple[tuple[str, Any], ...]:
    """Return *pairs*, if no key is in them twice: nobody could say which value is meant."""
    keys = [key for key, _ in pairs]
    for key in keys:
        if keys.count(key) > 1:
            raise click.BadParameter(f"{_quoted(key)} is given {keys.count(key)} times")
    return pairs


def environment_of(text: str) -> tuple[str, str]:
    """Return the name and the value of a variable that an agent may get."""
    from genagentd.environment import why_withheld, withheld

    name, value = variable_of(text)
    if withheld(name):
        raise click.BadParameter(why_withheld(name))
    return name, value


#: The longest time that can be asked for, some thirty years.
_LONGEST_S = 1_000_000_000


def seconds(text: str | float) -> float:
    """Return the time that *text* spells: more than nothing, and not for ever."""
    found = seconds_or_none(text)
    if found == 0:
        raise click.BadParameter("0 seconds is no time to wait")
    return found


def seconds_or_none(text: str | float) -> float:
    """Return the time that *text* spells, which may be no time at all."""
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not 0 <= found <= _LONGEST_S:
        told = _quoted(str(text))
        raise click.BadParameter(f"{told} is not a number of seconds from 0 to {_LONGEST_S}")
    return found


def json_or_text(text: str) -> Any:
    """Return what *text* means as JSON, or else the text."""
    try:
        return _parsed(text)
    except json.JSONDecodeError:
        return text


def is_broken_json(text: str) -> bool:
    """Whether *text* begins as JSON that was meant to be more than text, and is none."""
    if not text.lstrip().startswith(("{", "[")):
        return False
    try:
        _parsed(text)
    except json.JSONDecodeError:
        return True
    return False


def _parsed(text: str) -> Any:
    """Return what *text* means as JSON.

    Raises:
        JSONDecodeError: it is none.
        BadParameter: it is, but no message holds such a value.
    """
    try:
        value = json.loads(text)
        freeze(value)
    except json.JSONDecodeError:
        raise
    except RecursionError:
        problem = "nested too deeply"
    except NotPlain as error:
        where = f", at {shortened(error.path, _MAX_QUOTED)}" if error.path else ""
        problem = f"{error.problem}{where}"
    except ValueError:
        # Python refuses to read a number of some thousand digits at all.
        problem = "an integer of more than 64 bits"
    else:
        return value
    raise click.BadParameter(f"{_quoted(text)} cannot be sent: {problem}")


def _quoted(text: str) -> str:
    """Return *text* for a line about it: in quotes, and not longer than a line."""
    return repr(shortened(text, _MAX_QUOTED))


def payload_text(argument: str | None, file: str | None, what: str) -> str:
    """Return the one prompt or event that was given: argument, `-` for stdin, or a file.

    Raises:
        Failure: none or two of them were given, it is not UTF-8, or there is nothing in it.
        TooLarge: there is more than one message holds.
    """
    text = _given_text(argument, file, what)
    if not text:
        # Nearly always a pipe or a substitution that failed.
        raise Failure(exits.USAGE, "usage", f"the {what} is empty; nothing was sent")
    return text


def _given_text(argument: str | None, file: str | None, what: str) -> str:
    ways = "as an argument, as - for stdin, or as --file"
    if argument is None and file is None:
        raise Failure(exits.USAGE, "usage", f"give the {what} {ways}")
    if argument is not None and file is not None:
        twice = f"the {what} is given twice, as an argument and as --file; give one of them"
        raise Failure(exits.USAGE, "usage", twice)
    try:
        if file is not None:
            with open(file, "rb") as opened:
                return _all_of(opened, what)
        if argument == "-":
            return _stdin(what)
    except OSError as error:
        where = "stdin" if file is None else file
        raise Failure(exits.USAGE, "usage", f"{where}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise Failure(exits.USAGE, "usage", f"the {what} is not UTF-8: {error}") from None
    assert argument is not None
    return argument


def _stdin(what: str) -> str:
    if sys.stdin is None:
        raise Failure(exits.USAGE, "usage", f"the {what} is to come from stdin, which is closed")
    if sys.stdin.isatty():
        raise Failure(
            exits.USAGE, "usage", f"the {what} is to come from stdin, and that is a terminal"
        )
    return _all_of(sys.stdin.buffer, what)


def _all_of(given: BinaryIO, what: str) -> str:
    """Return what is *given*, which need not have an end, if one message could hold it."""
    data = given.read(MAX_PAYLOAD_BYTES + 1)
    if len(data) > MAX_PAYLOAD_BYTES:
        raise TooLarge(
            f"{what}: more than {MAX_PAYLOAD_BYTES} bytes, which is the limit; nothing was sent",
            PayloadTooLarge(size_bytes=len(data), limit_bytes=MAX_PAYLOAD_BYTES),
        )
    return data.decode("utf-8")


def shown(name: object) -> str:
    """Return an agent's name as it is typed, on one line."""
    if isinstance(name, str) and not name.startswith(_JSON):
        return printable(name)
    return _JSON + json.dumps(name, ensure_ascii=False, default=str)


def handle_fields(handle: AgentHandle) -> dict[str, Any]:
    """Return the stable fields of a handle."""
    return {
        "name": handle.name,
        "incarnation": handle.incarnation.text,
        "pid": handle.pid,
        "started_ticks": handle.started_ticks,
        "place": handle.place,
    }


def response_fields(response: Response) -> dict[str, Any]:
    """Return the stable fields of a response."""
    return {
        "text": response.text,
        "final_message": response.final_message,
        "usage": response.usage,
        "duration_ms": response.duration_ms,
        "session_id": response.session_id,
        "event_coverage": fields_of(response.event_coverage),
    }


def fields_of(record: object) -> dict[str, Any]:
    """Return every field of a record of the protocol, defaults included."""
    plain = {name: getattr(record, name) for name in record.__slots__}  # type: ignore[attr-defined]  # a slotted dataclass
    return {name: _plain(value) for name, value in plain.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, RequestRef):
        return value.text
    if hasattr(value, "__dataclass_fields__"):
        return {key: item for key, item in schema.dump(value).items() if key != schema.TAG}
    return value
