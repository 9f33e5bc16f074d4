"""How much one session may ask of a handler: the numbers, and nothing that enforces them.

They bound what an agent or a client can make the other side hold or compute.
None of them is part of the A2UI protocol, except where a comment says so.
"""

from __future__ import annotations

from dataclasses import dataclass

#: The protocol's own: one call has at most so many arguments.
MAX_ARGUMENTS = 1_000
#: The protocol's own: a template has at most so many characters, parts and levels.
MAX_TEMPLATE_CHARACTERS = 10_000
MAX_TEMPLATE_PARTS = 1_000
MAX_TEMPLATE_DEPTH = 100
#: How deep function calls may nest while arguments are resolved. More than a
#: template may nest, because the call that holds the template counts too.
MAX_CALL_DEPTH = MAX_TEMPLATE_DEPTH + 8
#: What parts of the evaluation of arguments count as work. One step, a state of a pattern that
#: is looked at, takes about a third of a microsecond, and the others were measured in steps.
CALL_STEPS = 200
#: A part of a schema that is held against a value, a keyword in it, a complaint, a character.
SCHEMA_PART_STEPS = 3
SCHEMA_KEYWORD_STEPS = 3
SCHEMA_ERROR_STEPS = 15
SCHEMA_CHARACTER_STEPS = 1
TEMPLATE_CHARACTER_STEPS = 5
PATTERN_CHARACTER_STEPS = 20
PATTERN_STATE_STEPS = 10
#: How long the id of a call, a surface or a catalog and the name of a function may be, so
#: that they and the largest value fit into one message.
MAX_ID_CHARACTERS = 65_536
#: How much of a foreign error text is passed on.
MAX_ERROR_CHARACTERS = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RpcLimits:
    """The limits of one handler, with the defaults of the product.

    Bytes are those of the msgpack encoding.
    """

    max_pending: int = 1_000
    max_argument_bytes: int = 1_048_576
    max_resolved_bytes: int = 8_388_608
    max_value_bytes: int = 8_388_608
    #: What evaluating the arguments of one call may take in all, however it is divided: about
    #: a second.
    max_work_steps: int = 2_000_000
