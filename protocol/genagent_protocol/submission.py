"""What one client may know about one request, and nothing more: a fold over what it heard.

    sent ─ admission ─ events ─ completion          known at every step
      └─────────┴─────────┴──── DOWN                from here on the rest is unknown

Hearing nothing proves nothing. A completion proves acceptance, whether or not an
admission comes; a refusal proves that there is no completion; an event proves that
a turn began. A DOWN adds no knowledge, it ends the hope for more: what is known
stays known, and what is not stays unknown. A lost connection is the same.

What has been heard first stands. An agent never contradicts itself; if one does
(two completions, a completion after a refusal, a word after the DOWN), the fold
keeps what it knows, takes what it did not know yet, and says `contradicted`: to
raise in the middle of a mailbox would lose the messages behind.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from genagent_protocol.events import Completed, Failed, Outcome
from genagent_protocol.reasons import CANCELLED, NOPROC, ExitReason, Failure
from genagent_protocol.refs import RequestRef

#: The words for what is known of a request; documentation and output use no others.
Word: TypeAlias = Literal[
    "sent", "accepted", "started", "completed", "failed", "cancelled", "uncertain", "lost"
]

_CANCELLED = Failed(CANCELLED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """Everything one client has heard about one ref. A new one has only been sent.

    `admitted` says that the admission itself came; `accepted` is what follows from
    all that was heard. `events` counts events heard and `missing` those that a gap
    left out. `ended` is the DOWN, or `noconnection`, of the process it was sent to.

    This keeps no time and asks nobody: a deadline of the caller changes nothing
    in it, because it changes nothing about the request.
    """

    ref: RequestRef
    admitted: bool = False
    refusal: Failure | None = None
    events: int = 0
    missing: int = 0
    outcome: Outcome | None = None
    ended: ExitReason | None = None
    contradicted: bool = False

    @property
    def accepted(self) -> bool | None:
        """Whether the agent accepted the request; None as long as nobody can know."""
        if self.refusal is not None:
            return False
        heard = self.admitted or self.started or self.outcome is not None
        return True if heard else None

    @property
    def started(self) -> bool:
        """Whether a turn of it is known to have begun."""
        return self.events + self.missing > 0

    @property
    def final(self) -> bool:
        """Whether the fate of the request is known: refused, or over with an outcome."""
        return self.refusal is not None or self.outcome is not None

    @property
    def permit_returned(self) -> bool:
        """Whether the caller may count this request as no longer outstanding.

        True after a refusal, a completion, a confirmed cancellation, or a DOWN. A
        timeout of the caller's own is none of these.

        This does not say that a provider's work has settled.
        """
        return self.final or self.ended is not None

    @property
    def word(self) -> Word:
        """What is known, in one word.

        A refused request reads `failed`, and `accepted` is False: it never ran.
        `uncertain` had a chance to run before its process ended. `lost` was
        watched only after the process was dead, and nothing was heard of it.
        """
        if self.outcome is not None:
            return _word_of(self.outcome)
        if self.refusal is not None:
            return "failed"
        if self.ended is not None:
            unheard = self.accepted is None and self.ended.text == NOPROC.text
            return "lost" if unheard else "uncertain"
        if self.started:
            return "started"
        return "accepted" if self.admitted else "sent"

    def hear_admitted(self) -> Submission:
        """Return what is known after the admission `ok`. It never reopens a finished request."""
        if self.admitted or self.refusal is not None:
            return self._contradicted()
        return replace(self._spoken(), admitted=True)

    def hear_refused(self, reason: Failure) -> Submission:
        """Return what is known after a refusal, by the agent or on the way to it."""
        if self.accepted is not None:
            return self._contradicted()
        return replace(self._spoken(), refusal=reason)

    def hear_event(self) -> Submission:
        """Return what is known after one event of its stream.

        A stream that goes elsewhere has no order with the completion, so an event
        may come late without contradiction.
        """
        if self.refusal is not None:
            return self._contradicted()
        return replace(self._spoken(), events=self.events + 1)

    def hear_gap(self, first: int, last: int) -> Submission:
        """Return what is known after events *first* to *last* were dropped on the way."""
        if self.refusal is not None or last < first:
            return self._contradicted()
        return replace(self._spoken(), missing=self.missing + last - first + 1)

    def hear_completed(self, outcome: Outcome) -> Submission:
        """Return what is known after the completion; it stays known whatever follows.

        The completion of a request whose cancellation was confirmed says the same.
        """
        if self.outcome == outcome == _CANCELLED:
            return self
        if self.final:
            return self._contradicted()
        return replace(self._spoken(), outcome=outcome)

    def hear_cancelled(self) -> Submission:
        """Return what is known after a cancel was answered `cancelled`.

        A cancel without an answer tells nothing: do not report it here.
        """
        return self.hear_completed(_CANCELLED)

    def hear_down(self, reason: ExitReason) -> Submission:
        """Return what is known after the DOWN of its process, or `noconnection`.

        The first one stands; several monitors of one process hear one each.
        """
        return self if self.ended is not None else replace(self, ended=reason)

    def _spoken(self) -> Submission:
        """Return self; the process spoke, which it cannot do after its DOWN."""
        return self if self.ended is None else self._contradicted()

    def _contradicted(self) -> Submission:
        return self if self.contradicted else replace(self, contradicted=True)


def _word_of(outcome: Outcome) -> Word:
    match outcome:
        case Completed():
            return "completed"
        case Failed(reason):
            return "cancelled" if reason == CANCELLED else "failed"
