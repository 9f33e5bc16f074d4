"""What the agent's shell holds can reach a log as a repr; what was said must not."""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
from collections.abc import Iterator

import pytest

import genagentd.agent
from genagentd.agent import behaviour, functions
from genagentd.agent.sessions import Wanted

#: Made by users for the agent, and shown to users only.
THEIRS = {behaviour.__name__, functions.__name__}
#: What a field can be called without holding content, in any record of the shell.
PLAIN = {
    *("address", "began_ms", "bytes", "call", "call_id", "caller", "catalog", "catalog_ids"),
    *("current_ref", "delivery", "dispatched", "first", "function", "guide", "handle", "kind"),
    *("last", "limits", "missing_from", "offers", "peers", "ref", "retained", "sessions"),
    *("size", "surface", "taken", "timeout_ms", "to", "turn", "watched", "work"),
}


def records() -> Iterator[type]:
    """Yield every record of the shell."""
    for found in pkgutil.iter_modules(genagentd.agent.__path__):
        module = importlib.import_module(f"{genagentd.agent.__name__}.{found.name}")
        for value in vars(module).values():
            ours = getattr(value, "__module__", None) == module.__name__
            record = isinstance(value, type) and dataclasses.is_dataclass(value)
            if ours and record and module.__name__ not in THEIRS:
                yield value


@pytest.mark.parametrize("record", list(records()), ids=lambda record: record.__name__)
def test_no_repr_shows_content(record: type) -> None:
    """A field shows in the repr only if its name is known to hold none."""
    shown = {field.name for field in dataclasses.fields(record) if field.repr}
    if record is Wanted:
        shown.remove("session")  # The address of a client there; a backend's session elsewhere.
    assert shown <= PLAIN, f"{record.__name__}: {shown - PLAIN}: content? then field(repr=False)"


def test_the_records_of_a_turn_are_among_them() -> None:
    """An empty search would pass the test above."""
    assert {"Work", "Ended", "Reading", "Retained", "Wanted"} <= {r.__name__ for r in records()}
