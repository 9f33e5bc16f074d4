"""What the evaluation of one call may still use: bytes and steps, shared by all that is in it.

The arguments of one message may call functions hundreds of times, a template
that a data model holds may lead back to itself, and a schema says the same of every
part of a value; a bound on each part would bound nothing.
"""

from __future__ import annotations

from genagent_protocol.rpc.faults import ExpressionFault
from genagent_protocol.rpc.json_values import Json, Unfit, copied
from genagent_protocol.rpc.limits import RpcLimits


class Allowance:
    """The allowance of one evaluation; the only thing here that changes in place."""

    __slots__ = ("bytes_left", "steps_left")

    def __init__(self, limits: RpcLimits) -> None:
        self.bytes_left = limits.max_resolved_bytes
        self.steps_left = limits.max_work_steps

    def work(self, steps: int) -> None:
        """Count some work.

        Raises:
            ExpressionFault: that was more than one call may take.
        """
        self.steps_left -= steps
        if self.steps_left < 0:
            raise ExpressionFault("To evaluate the arguments of the call takes too long.")

    def copy(self, value: object, what: str) -> Json:
        """Return a copy of *value* and count its bytes.

        Raises:
            ExpressionFault: JSON cannot hold it, or it is one too large.
        """
        copy = copied(value, max_bytes=self.bytes_left)
        if isinstance(copy, Unfit):
            raise ExpressionFault(f"{what} cannot be used: {copy.problem}.")
        self.bytes_left -= copy.size_bytes
        return copy.value
