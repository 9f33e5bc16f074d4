"""What a turn works with can reach a log as a repr; what was said must not."""

from dataclasses import fields

import pytest

from genagentd.agent.stream import Ended, Work


@pytest.mark.parametrize(
    ("value", "content"),
    [
        (Work, {"agent", "backend", "prompt", "state", "session", "offer"}),
        (Ended, {"outcome", "state", "session"}),
    ],
)
def test_no_repr_shows_content(value: type, content: set[str]) -> None:
    """Every field that holds content is left out of the repr, and stays a field."""
    assert {field.name for field in fields(value) if not field.repr} == content
