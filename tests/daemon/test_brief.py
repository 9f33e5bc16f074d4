"""What no message could hold is said all the same, and a list stays readable."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genagent_protocol import answers, codec, envelopes
from genagent_protocol.bounds import MAX_FRAME_BYTES
from genagent_protocol.errors import LocalWireError
from genagent_protocol.plain import FrozenDict
from genagent_protocol.reasons import ExitReason, PayloadTooLarge, StartError
from genagent_protocol.refs import AgentHandle, BootId, Incarnation, MonitorRef
from genagentd.daemon import brief

_PLAIN = st.recursive(
    st.none() | st.integers(0, 9) | st.text(max_size=3_000),
    lambda inner: (
        st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.text(max_size=3), inner, max_size=4).map(FrozenDict)
    ),
    max_leaves=5,
)


def _told(body: bytes) -> Any:
    (said,) = codec.decode(envelopes.ToClient, body)
    return said


def test_a_list_that_no_message_can_hold_is_refused() -> None:
    """Every client would wait for it for ever."""
    row = answers.AgentRow(name="x" * 1_000_000, state="failed")
    listing = answers.Listing(rows=(row,) * 17)

    said = _told(brief.encoded(envelopes.Reply(call=7, answer=listing)))

    assert said.call == 7
    assert isinstance(said.answer.reason, PayloadTooLarge)
    assert said.answer.reason.size_bytes > MAX_FRAME_BYTES


def test_a_down_comes_whatever_its_reason_weighs() -> None:
    """Who monitors hears of the end, if not of everything that was said of it."""
    boot = BootId("0123456789abcdef")
    handle = AgentHandle(
        name="x", incarnation=Incarnation(boot, 1), pid=1, started_ticks=1, place="h:/"
    )
    reason = ExitReason("pre_run_failed", "x" * MAX_FRAME_BYTES)
    down = envelopes.Down(monitor=MonitorRef(1), handle=handle, reason=reason)

    said = _told(brief.encoded(down))

    assert (said.monitor, said.handle, said.reason) == (
        MonitorRef(1),
        handle,
        ExitReason("pre_run_failed"),
    )


def test_what_nothing_stands_for_is_an_error() -> None:
    """It is a bug of ours that somebody has to see."""
    with pytest.raises(LocalWireError):
        brief.encoded(envelopes.UnknownType(tag="x" * MAX_FRAME_BYTES, call=None))


@given(detail=_PLAIN, message=st.text(max_size=3_000))
def test_a_row_is_short_and_what_is_short_is_whole(detail: Any, message: str) -> None:
    """However much an agent says of its end, a thousand rows are one message."""
    reason = brief.in_a_row(ExitReason("pre_run_failed", detail))
    given = StartError(kind="init_failed", message=message, detail=detail)
    error = brief.error_in_a_row(given)
    assert reason is not None
    assert error is not None

    row = answers.AgentRow(name="x", state="failed", reason=reason, error=error)

    assert len(codec.encode(row)) < 3 * 4 * brief.ROW_CHARS + 1_000
    assert reason.text == "pre_run_failed"
    assert error.message == given.message or len(given.message) > brief.ROW_CHARS
    assert brief.in_a_row(reason) == reason
