"""The page of the logs' events has all that the code writes, with its fields, and no other."""

from __future__ import annotations

import ast
import re

import pytest

from genagentd.agent.observing import LOGGED
from support import log_events
from support.log_events import ROOT, Found, Written

if not (ROOT / "genagentd").is_dir():
    pytest.skip("the sources are not beside these tests", allow_module_level=True)

PAGE = (ROOT / "docs/reference/log-events.md").read_text(encoding="utf-8")
PROGRAM_VERSIONS = ROOT / "backends/genagent_backends/program_versions.py"

#: Lines whose name comes from elsewhere, where it is looked for as well.
_HANDED_ON = {
    # What the machine orders: found where it is ordered.
    "genagentd/daemon/shell.py",
    "protocol/genagent_protocol/supervision/draft.py",
    # What raised: found where it is called.
    "genagentd/agent/log.py",
    # The telemetry that is logged: its names are LOGGED.
    "genagentd/agent/observing.py",
}


@pytest.mark.parametrize(
    "found", [log_events.of_daemon(), log_events.of_agent()], ids=["daemon", "agent"]
)
def test_no_name_of_an_event_is_put_together(found: Found) -> None:
    """A name that is not in the code as it is would be on no page."""
    assert set(found.unnamed) <= _HANDED_ON


def test_the_page_has_every_event_of_the_daemon() -> None:
    """An operator who meets a line finds what it means, and what else it says."""
    written = log_events.of_daemon().events
    rows = log_events.rows(PAGE, "The daemon")

    assert {name: (set(row.fields), {row.level}) for name, row in rows.items()} == {
        name: (event.fields, event.levels) for name, event in written.items()
    }


def test_the_page_has_every_event_of_an_agent() -> None:
    """The framework's lines stand among what the agent prints, and nobody else explains them."""
    written = log_events.of_agent().events | _of_programs()
    rows = log_events.rows(PAGE, "An agent")

    assert set(rows) == set(written) | LOGGED
    for name, event in written.items():
        assert set(rows[name].fields) == event.fields, name


def _of_programs() -> dict[str, Written]:
    """Return what a backend says of its program's version: printed, for it knows no log."""
    texts = [
        node.value
        for node in ast.walk(ast.parse(PROGRAM_VERSIONS.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    names = [text for text in texts if re.fullmatch(r"program\.[a-z_]+", text)]
    return {name: Written({"program", "version", "tested"}) for name in names}
