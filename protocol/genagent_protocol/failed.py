"""What was asked could not be done, and why: the one word for it, said by either side.

A callback answers it, and a turn that failed has it as its outcome. The outcome is a
class of its own only because its reason is one of ours; it is a `Failed` all the
same, so whoever imports this name can match both with it, and compare them.
"""

from __future__ import annotations

from dataclasses import dataclass

from genagent_protocol.plain import Plain
from genagent_protocol.reasons import Failure


@dataclass(frozen=True, slots=True, eq=False)
class Failed:
    """What was asked could not be done, for this reason.

    As the answer of `init_agent`, `start_session` or `resume_session` it fails the
    start; of `pre_run`, the agent; of a backend's `prompt`, the turn, with exactly
    this reason, and leaves the session as it was. As the outcome of a turn its
    reason is always a `Failure`, with a `code` to branch on.
    """

    reason: Plain | Failure

    def __eq__(self, other: object) -> bool:
        return self.reason == other.reason if isinstance(other, Failed) else NotImplemented

    def __hash__(self) -> int:
        return hash((Failed, self.reason))
