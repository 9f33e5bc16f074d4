"""The exceptions are the tree that is drawn, and survive the way between processes."""

from __future__ import annotations

import copy
import inspect
import pickle
import re

import pytest

from genagent_protocol import errors
from genagent_protocol.errors import (
    CallTimeout,
    DaemonLost,
    GenAgentError,
    InvalidTransition,
    NotReachable,
    ProcessDown,
    Refused,
    SendBufferFull,
    StartFailed,
    TooLarge,
    TurnFailed,
    UsageError,
)
from genagent_protocol.reasons import ExitReason, PayloadTooLarge, Reason, StartError


def drawn() -> dict[str, str]:
    """Return each class of the drawing with the class it hangs under."""
    parents: dict[str, str] = {}
    above = {-1: ""}
    for line in str(errors.__doc__).splitlines():
        found = re.match(r"^((?:[│ ]   )*)(?:[├└]── )?([A-Z][A-Za-z]+)(?:$| {2,})", line)
        if found is None:
            continue
        branch = "── " in line
        level = len(found[1]) // 4 + (1 if branch else 0)
        above[level] = found[2]
        parents[found[2]] = above[level - 1]
    return parents


def ours() -> list[type]:
    """Return the classes of the module."""
    classes = [kind for _, kind in inspect.getmembers(errors, inspect.isclass)]
    return [kind for kind in classes if kind.__module__ == errors.__name__]


def real() -> dict[str, str]:
    """Return each class of the module with its base."""
    classes = [
        kind
        for _, kind in inspect.getmembers(errors, inspect.isclass)
        if kind.__module__ == errors.__name__
    ]
    return {
        kind.__name__: "" if kind is GenAgentError else kind.__bases__[0].__name__
        for kind in classes
    }


def test_the_drawing_is_the_tree() -> None:
    """People catch by the drawing, so it must not grow old."""
    assert drawn() == real()
    assert len(real()) > 10


def test_every_error_of_ours_is_one_family() -> None:
    """One `except` catches whatever this product raises on purpose."""
    for kind in ours():
        assert issubclass(kind, GenAgentError)
        assert kind.__doc__


ERRORS = [
    UsageError("a prompt is text, not int"),
    SendBufferFull("64 MiB are unsent"),
    TooLarge("the prompt has 9 bytes", PayloadTooLarge(9, 8)),
    Refused("no such agent", Reason("not_found")),
    StartFailed("it did not start", StartError(kind="exited", message="exit:1")),
    TurnFailed("the turn failed", Reason("timeout")),
    CallTimeout("cancel_request", 5_000),
    ProcessDown("poll", ExitReason("signal:9")),
    DaemonLost("status"),
    InvalidTransition("born twice"),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_survives_pickle_and_copy(error: GenAgentError) -> None:
    """A worker process that raises one must not break the pool that carries it home."""
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(again) is type(error)
        assert str(again) == str(error)
        assert vars(again) == vars(error)


def test_an_error_keeps_what_happened_apart_from_what_to_do() -> None:
    """Also behind the way between processes."""
    found = pickle.loads(pickle.dumps(NotReachable("nobody is there", hint="start one")))

    assert (str(found), found.fact) == ("nobody is there; start one", "nobody is there")
    assert found.hint == "start one"
    assert (GenAgentError("it is over").fact, GenAgentError("it is over").hint) == (
        "it is over",
        "",
    )


def test_an_error_says_one_whole_thought_with_its_facts() -> None:
    """Whoever reads only the message knows what is certain and what is not."""
    error = CallTimeout("cancel_request", 5_000)

    assert str(error) == "cancel_request got no answer within 5000 ms; its effect is unknown"
    look = CallTimeout("status a", 5_000, fate="nothing was changed")
    assert str(look) == "status a got no answer within 5000 ms; nothing was changed"
    assert (error.call, error.timeout_ms) == ("cancel_request", 5_000)
    assert "signal:9" in str(ProcessDown("poll", ExitReason("signal:9")))
    assert "connection to the daemon" in str(DaemonLost("status"))
