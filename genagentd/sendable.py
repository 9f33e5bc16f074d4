"""What users hand over to be sent, checked and frozen: a name, a prompt, a payload and so on.

Whatever is wrong with it is a `UsageError` that names it, the value's path and the
limit; whatever passes here fits a message. Clients and agents send by the same rules.
"""

from __future__ import annotations

from genagent_protocol import codec, schema
from genagent_protocol.errors import Refused, TooLarge, UsageError
from genagent_protocol.plain import (
    MAX_DEPTH,
    FrozenDict,
    NotPlain,
    Plain,
    deeper_than,
    encoded_size,
    freeze,
    printable,
)
from genagent_protocol.reasons import NOT_FOUND, PayloadTooLarge
from genagent_protocol.refs import AgentHandle
from genagentd.environment import why_withheld, withheld

#: The most bytes a name may have: it travels with every message about its agent.
MAX_NAME_BYTES = 1024
#: How deep a name may be nested: it stands in other values, a handle that is a name among them.
MAX_NAME_DEPTH = MAX_DEPTH // 2
#: The most bytes that a start may add to an environment, as `NAME=value` and a NUL each: what
#: Linux allows one variable of a program, so that whatever fits here fits the agent's programs.
MAX_ENVIRONMENT_BYTES = 128 * 1024


def frozen(value: object, what: str) -> Plain:
    """Return *value* deeply frozen.

    Raises:
        UsageError: something in it cannot cross a process border.
    """
    try:
        return freeze(value)
    except NotPlain as error:
        raise UsageError(f"{what}: {error}") from None


def agent_name(value: object) -> Plain:
    """Return *value* as the name of an agent. A handle is a name like any other.

    Raises:
        UsageError: it cannot be a name.
    """
    name = frozen(schema.dump(value) if isinstance(value, AgentHandle) else value, "name")
    if encoded_size(name) > MAX_NAME_BYTES:
        raise UsageError(
            f"name: {encoded_size(name)} bytes, the limit is {MAX_NAME_BYTES}; use a shorter one"
        )
    if deeper_than(name, MAX_NAME_DEPTH):
        raise UsageError(f"name: nested deeper than {MAX_NAME_DEPTH} levels; use a simpler one")
    return name


def nobody(what: str, name: object) -> Refused:
    """Return what says that no agent has that name."""
    shown = printable(agent_name(name))
    if isinstance(name, AgentHandle):
        # Somebody may mean it so. Most who write it mean the agent, or the process.
        shown = "that handle (a handle is a name here; use handle.name, or at(handle) of a client)"
    return Refused(f"{what}: no agent is named {shown}", NOT_FOUND)


def payload(value: object, what: str) -> Plain:
    """Return *value* frozen, if one message can hold it.

    Raises:
        TooLarge: it is over the limit.
        UsageError: something in it cannot cross a process border.
    """
    found = frozen(value, what)
    size = encoded_size(found)
    if size > codec.MAX_PAYLOAD_BYTES:
        raise TooLarge(
            f"{what}: {size} bytes, the limit is {codec.MAX_PAYLOAD_BYTES}",
            PayloadTooLarge(size_bytes=size, limit_bytes=codec.MAX_PAYLOAD_BYTES),
        )
    return found


def text(value: object, what: str) -> str:
    """Return *value* if it is text that one message can hold; raises as `payload`."""
    if not isinstance(value, str):
        raise UsageError(f"{what}: text is wanted, not {type(value).__name__}")
    found = payload(value, what)
    assert isinstance(found, str)
    return found


def prompt(value: object) -> str:
    """Return *value* if it is text that one message can hold; raises as `payload`."""
    return text(value, "prompt")


def mapping(value: object, what: str) -> FrozenDict:
    """Return *value* if it is a mapping from text to plain values; raises as `payload`."""
    found = payload(value, what)
    if not isinstance(found, FrozenDict):
        raise UsageError(f"{what}: a mapping is wanted, not {type(value).__name__}")
    return found


def environment(value: object) -> FrozenDict:
    """Return *value* if it is variables for an agent; raises as `payload`."""
    found = mapping(value, "env")
    for name, set_to in found.items():
        if not isinstance(set_to, str):
            raise UsageError(f"env: the value of {name} is not text")
        # The kernel's rules: whatever breaks them would end the process that sets it.
        if not name or "=" in name or "\0" in name:
            raise UsageError(f"env: {name!r} is not a name: it is empty, or holds = or NUL")
        if "\0" in set_to:
            raise UsageError(f"env: the value of {name} holds a NUL character")
        if withheld(name):
            raise UsageError(f"env: {why_withheld(name)}")
    size = sum(len(f"{name}={set_to!s}\0".encode()) for name, set_to in found.items())
    if size > MAX_ENVIRONMENT_BYTES:
        raise TooLarge(
            f"env: {size} bytes, the limit is {MAX_ENVIRONMENT_BYTES}; put it into a file",
            PayloadTooLarge(size_bytes=size, limit_bytes=MAX_ENVIRONMENT_BYTES),
        )
    return found
