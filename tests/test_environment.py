"""What an agent gets of its surroundings: what was allowed or added, and never what is ours."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genagentd.environment import ALLOWED, STRIPPED, STRIPPED_PREFIXES, agent_environment


def environment(
    environ: Mapping[str, str], passed: Collection[str] = (), **added: str
) -> dict[str, str]:
    return agent_environment(passed, added, environ)


def test_an_agent_gets_the_allow_list_and_nothing_else() -> None:
    """A secret in the daemon's environment is not every agent's."""
    allowed = dict.fromkeys(ALLOWED, "x") | {"LC_ALL": "C", "SSL_CERT_FILE": "/c"}

    found = environment({**allowed, "AWS_SECRET_ACCESS_KEY": "secret", "EDITOR": "vi"})

    assert found == allowed


def test_more_variables_are_passed_by_name() -> None:
    """The configuration says which, the environment what."""
    passed = ("MY_TOKEN", "NOT_SET")

    assert environment({"MY_TOKEN": "t", "OTHER": "o"}, passed) == {"MY_TOKEN": "t"}


def test_what_a_start_adds_wins() -> None:
    """It is the caller's word about this one agent."""
    assert environment({"LANG": "C"}, LANG="de", EXTRA="1") == {"LANG": "de", "EXTRA": "1"}


@pytest.mark.parametrize(
    "name", [*STRIPPED, *(prefix + "X" for prefix in STRIPPED_PREFIXES), "LISTEN_FDS"]
)
def test_ours_and_the_service_managers_never_reach_an_agent(name: str) -> None:
    """An agent must not notify systemd, or talk to a daemon it was not given, by accident."""
    assert environment({name: "x"}, (name,)) == {}
    assert environment({}, (name,), **{name: "x"}) == {}


names = st.sampled_from(
    [*ALLOWED, *STRIPPED, "GENAGENT_RUN_DIR", "LC_TIME", "SECRET", "PASSED", "ADDED"]
)


@given(st.dictionaries(names, st.just("here")), st.dictionaries(names, st.just("added")))
def test_an_agents_environment_agrees_with_its_rule(
    environ: dict[str, str], added: dict[str, str]
) -> None:
    """For each variable by itself."""
    found = agent_environment(("PASSED",), added, environ)

    for name in {*environ, *added}:
        ours = name in STRIPPED or name.startswith(STRIPPED_PREFIXES)
        allowed = name in ALLOWED or name.startswith("LC_") or name == "PASSED"
        wanted = added.get(name) or (environ.get(name) if allowed else None)
        assert found.get(name) == (None if ours else wanted)
    assert set(found) <= {*environ, *added}
