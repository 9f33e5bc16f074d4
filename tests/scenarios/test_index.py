"""The page of the scenarios says the truth: each has its tests, and it names them."""

from __future__ import annotations

from support import scenario_index


def test_every_scenario_and_every_guarantee_has_a_test() -> None:
    """None is skipped in silence."""
    wanted = (*scenario_index.SCENARIOS, *scenario_index.GUARANTEES)
    assert scenario_index.missing(scenario_index.shown(), wanted) == []


def test_every_reading_is_of_a_scenario_that_is_shown() -> None:
    """A note about a scenario that is not there would explain nothing."""
    for ids in scenario_index.READINGS:
        for each in ids.replace(" to ", ", ").split(", "):
            assert each in scenario_index.SCENARIOS


def test_the_page_is_current() -> None:
    """It is written by `scripts/scenarios`, and by nobody else."""
    assert scenario_index.PAGE.read_text(encoding="utf-8") == scenario_index.page(
        scenario_index.shown()
    )
