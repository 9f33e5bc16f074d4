"""Starting: what an agent gets, and the one clear line for each way it can fail."""

from __future__ import annotations

import importlib
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from genagent_backends.base import Failed
from genagent_protocol import envelopes
from genagent_protocol.plain import FrozenDict, Plain
from genagent_protocol.reasons import StartError
from genagentd import Agent, NoReply, Run, function
from genagentd.agent.loading import BACKENDS, installed_backends
from support.agent_life import living, newborn, start
from support.recorders import ENDED, Sparse

RECORDER = "support.recorders:Recorder"
HERE = __name__
RESULT = {"kind": "result", "text": "done"}


@pytest.fixture(autouse=True)
def _import_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """A life in this process changes this process's import path."""
    monkeypatch.setattr(sys, "path", list(sys.path))


class Resuming:
    """A backend that says which session it was given."""

    def start_session(self, options: FrozenDict) -> str:
        return f"new {options!r}"

    def resume_session(self, session_id: str, options: FrozenDict) -> str:
        return f"old {session_id} {options!r}"

    def prompt(self, session: str, _prompt: str, _turn: object) -> Failed:
        return Failed(session)

    def terminate_session(self, _session: str) -> None:
        return None


class Patient:
    """A backend that takes its time in every callback."""

    async def start_session(self, _options: FrozenDict) -> str:
        return "session"

    async def prompt(self, session: str, _prompt: str, _turn: object) -> Failed:
        return Failed(session)

    async def terminate_session(self, session: str) -> None:
        ENDED.append(f"terminated {session}")


class Broken(Patient):
    """A backend that raises where it should open a session."""

    async def start_session(self, _options: FrozenDict) -> str:
        raise PermissionError("a secret")


class Nothing:
    """No backend at all."""


class Misspelt(Agent[None]):
    """Has every letter of it but one."""

    def handle_reponse(self, ref: object, response: object, state: None) -> None:
        return None


class Forgetful(Agent[None]):
    """Would die at its first prompt."""

    def handle_response(self, response: object, state: None) -> Any:  # type: ignore[override]  # that is the fault
        return NoReply(state)


class Wordless(Sparse):
    """Takes no options."""

    def init_agent(self) -> Any:  # type: ignore[override]  # that is the fault
        return None


class Unaddressed(Sparse):
    """Wants to know of a message more than there is."""

    def handle_info(self, sender: object, message: object, state: int) -> Any:
        return NoReply(state)


class Unserved(Sparse):
    """Offers a function without a state."""

    @function
    def lookup(self, arguments: object) -> Any:
        return None


class Waited(Sparse):
    """Shows its state later, to whom?"""

    async def show_state(self, state: int) -> int:  # type: ignore[override]  # that is the mistake
        return state


class Needy(Sparse):
    """Cannot be made as every agent is."""

    def __init__(self, _what: str) -> None:
        raise NotImplementedError


class Misspelled(Sparse):
    """Writes callbacks that nobody calls, and methods of its own."""

    def handle_evnt(self, _event: Plain, state: int) -> int:
        return state

    def handle_inf(self, _message: object, state: int) -> int:
        return state

    def handle(self, state: int) -> int:
        return state

    def handle_event_of_kind(self, state: int) -> int:
        return state


class Generous(Sparse):
    """Takes what it is given under names of its own, and more."""

    def handle_error(self, *given: object) -> Any:
        return NoReply(given[-1])

    def pre_turn(self, prompt: str, state: int, extra: int = 3, *, more: int = 4) -> Any:
        return Run(prompt, state)

    async def handle_event(self, what: object, /, s: int) -> Any:
        return NoReply(s)

    @staticmethod
    def copy_state(state: int) -> int:
        return state


class Placed(Sparse):
    """Has something else by a name of ours."""

    @property
    def context(self) -> Any:  # type: ignore[override]  # that is the fault
        return "here"


class Elsewhere(Sparse):
    """Is made into something else."""

    def __new__(cls) -> Any:
        return 5


class Hidden(Sparse):
    """Does not let itself be looked at."""

    def __getattribute__(self, name: str) -> Any:
        if name == "handle_info":
            raise LookupError(name)
        return super().__getattribute__(name)


async def refused(wanted: Any) -> StartError:
    """Start *wanted* and return why that failed; the process then exits with 1."""
    async with newborn(wanted) as agent:
        said = await agent.next(envelopes.StartRefused)
        assert await agent.life == 1
        return said.error


@pytest.mark.parametrize(
    ("wanted", "kind", "said"),
    [
        (start("support.recorders:Nobody"), "unknown_agent", "there is no Nobody in"),
        (start("support.recorders"), "unknown_agent", "is not spelled package.module:Class"),
        (start("support.recorders:not_an_agent"), "unknown_agent", "not a class derived from"),
        (
            start("support.recorders:Unfinished"),
            "unknown_agent",
            "does not define handle_response; "
            "write def handle_response(self, ref, response, state) into the class",
        ),
        (start("support.recorders:Recorderr"), "unknown_agent", "; did you mean Recorder?"),
        (start(None, "scriptd"), "unknown_backend", "'scriptd'; did you mean scripted?"),
        (start(None, f"{HERE}:Patiant"), "unknown_backend", "; did you mean Patient?"),
        (
            start(f"{HERE}:Misspelt"),
            "unknown_agent",
            "does not define handle_response; is handle_reponse meant to be it?",
        ),
        (
            start(f"{HERE}:Forgetful"),
            "init_failed",
            f"{HERE}.Forgetful.handle_response cannot be called with (ref, response, state): "
            "it is defined with (response, state), besides self",
        ),
        (
            start(f"{HERE}:Wordless"),
            "init_failed",
            f"{HERE}.Wordless.init_agent cannot be called with (options)",
        ),
        (
            start(f"{HERE}:Unaddressed"),
            "init_failed",
            f"{HERE}.Unaddressed.handle_info cannot be called with (message, state)",
        ),
        (
            start(f"{HERE}:Unserved"),
            "init_failed",
            f"{HERE}.Unserved.lookup cannot be called with (arguments, state)",
        ),
        (
            start(f"{HERE}:Waited"),
            "init_failed",
            f"{HERE}.Waited.show_state is an async def, and nobody can wait for it",
        ),
        (
            start(f"{HERE}:Needy"),
            "init_failed",
            "raised TypeError: it is made without arguments; what it needs reaches init_agent",
        ),
        (
            start(f"{HERE}:Placed"),
            "init_failed",
            f"{HERE}.Placed.context cannot be set, which raised AttributeError: "
            "that name is the framework's",
        ),
        (start(f"{HERE}:Elsewhere"), "init_failed", f"{HERE}:Elsewhere() made int, and no agent"),
        (start(f"{HERE}:Hidden"), "init_failed", f"{HERE}:Hidden raised LookupError"),
        (start("no_such_module:Agent"), "import_failed", "there is no module no_such_module"),
        (start(None, "no_such_backend"), "unknown_backend", "installed are: "),
        (start(None, f"{HERE}:Nothing"), "unknown_backend", "it lacks start_session, prompt"),
        (start("support.recorders:Explosive"), "init_failed", "raised RuntimeError"),
        (
            start(RECORDER, options={"init_agent": "raise"}),
            "init_failed",
            "Recorder.init_agent raised LookupError",
        ),
        (
            start(RECORDER, options={"init_agent": "stop"}),
            "init_failed",
            "Recorder.init_agent raised StopIteration",
        ),
        (
            start(RECORDER, options={"init_agent": "exit"}),
            "init_failed",
            "Recorder.init_agent raised SystemExit",
        ),
        (
            start(RECORDER, options={"init_agent": "garbage"}),
            "init_agent_failed",
            "returned str, not Started or Failed",
        ),
        (start(RECORDER, options={"init_agent": "fail"}), "init_agent_failed", "told to"),
        (
            start(RECORDER, options={"init_agent": "fail in lines"}),
            "init_agent_failed",
            r"declined: told\nto\x1b[31m",
        ),
        (start("support.recorders:Careless"), "init_agent_failed", "a set: set cannot be sent"),
        (start("support.recorders:Uncopyable"), "state_not_copyable", "a lock raised TypeError"),
        (
            start(options={"start_error": "no key"}),
            "backend_start_failed",
            "scripted declined: no key",
        ),
        (
            start(options={"skript": []}),
            "backend_start_failed",
            "skript",
        ),
        (start(None, f"{HERE}:Broken"), "init_failed", "Broken.start_session raised Permission"),
        (
            start(None, f"{HERE}:Patient", session="s-1"),
            "unsupported_resume",
            "cannot resume a session",
        ),
        (start(options={"watchdog_ms": 0}), "invalid_limits", "watchdog_ms must be"),
    ],
)
async def test_a_start_that_fails_says_what_and_where_in_one_line(
    wanted: Any, kind: str, said: str
) -> None:
    """Whoever starts an agent reads this line first, and often nothing else."""
    error = await refused(wanted)

    assert error.kind == kind
    assert said in error.message
    assert error.message.isprintable()
    assert "secret" not in str(error)


async def test_a_method_that_is_nearly_a_callback_is_named_in_the_log(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It starts: a class may have methods of its own. But nobody would ever find out."""
    async with living(f"{HERE}:Misspelled", options={"script": []}):
        pass

    lines = [line.partition(" ")[2] for line in capsys.readouterr().err.splitlines()]
    assert [line for line in lines if line.startswith("callback.unknown")] == [
        f"callback.unknown method={HERE}.Misspelled.handle_evnt meant=handle_event",
        f"callback.unknown method={HERE}.Misspelled.handle_inf meant=handle_info",
    ]


async def test_a_module_that_is_nowhere_names_directory_and_interpreter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The two things to look at, for the daemon's are not the caller's; the path is in the log."""
    monkeypatch.chdir(tmp_path)
    error = await refused(start("not_there:Agent", cwd=str(tmp_path)))

    assert f"there is no module not_there in {tmp_path}" in error.message
    assert f"install it for {sys.executable}" in error.message
    assert os.pathsep.join(sys.path) not in error.message
    assert os.pathsep.join(sys.path) in capsys.readouterr().err


@pytest.mark.parametrize(
    ("source", "told"),
    [
        (
            "x = 1\nclass X(object)\n    pass\n",
            "SyntaxError in {file}, line 2: expected ':': class X(object);",
        ),
        ("\nraise RuntimeError('two\\nlines')", "RuntimeError: two lines at {file}:2;"),
        ("import json\njson.loads('{{')", "at {file}:2;"),
        ("raise SystemExit", "SystemExit at {file}:1;"),
        ("import not_there_either", "'not_there_either' at {file}:1; install not_there_either"),
        (
            "raise ModuleNotFoundError('this needs x: pip install x', name='x')",
            "bad_module cannot be imported: this needs x: pip install x; do that for ",
        ),
        (
            "from genagent_protocol.errors import UsageError as E\nraise E('the name is taken')",
            "the name is taken at {file}:2; an agent imports this file, too: "
            "what talks to the daemon belongs under if __name__ == '__main__':",
        ),
    ],
)
async def test_a_module_that_cannot_be_imported_is_told_with_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, told: str
) -> None:
    """Its text too: nobody has said anything to an agent that is not there yet."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "bad_module", raising=False)
    importlib.invalidate_caches()
    file = tmp_path / "bad_module.py"
    file.write_text(source)
    error = await refused(start("bad_module:Agent", cwd=str(tmp_path)))

    assert error.kind == "import_failed"
    assert told.format(file=file) in error.message
    assert "\n" not in error.message


@pytest.mark.parametrize(
    ("spelled", "meant"),
    [
        ("mine.py:X", "write mine:X"),
        ("./mine:X", "write mine:X"),
        ("./mine.py:X", "write mine:X"),
        ("app/mine.py:X", "write app.mine:X"),
        ("{here}/mine.py:X", "write mine:X, and start it in {here}"),
    ],
)
async def test_a_module_that_is_spelled_as_a_file_is_respelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spelled: str, meant: str
) -> None:
    """What to write is known, so it is said."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").touch()
    error = await refused(start(spelled.format(here=tmp_path), cwd=str(tmp_path)))

    assert error.kind == "unknown_agent"
    assert error.message.endswith(meant.format(here=tmp_path))


async def test_the_directory_of_the_start_is_the_first_place_to_import_from(
    tmp_path: Path,
) -> None:
    """An agent beside the caller is found without being installed."""
    (tmp_path / "an_agent_beside.py").write_text(
        "from support.recorders import Sparse\nclass Mine(Sparse): pass\n"
    )
    async with living("an_agent_beside:Mine", options={"script": []}, cwd=str(tmp_path)) as agent:
        assert sys.path[0] == str(tmp_path)
        assert await agent.shown() == 0


async def test_limits_stay_with_the_agent_and_everything_else_goes_to_init_agent() -> None:
    """The backend refuses what it does not know, so it must not see them."""
    async with living(options={"script": [], "watchdog_ms": 5, "max_pending_prompts": 3}):
        pass


async def test_a_session_that_is_named_is_resumed_and_not_started() -> None:
    """The conversation goes on where it was."""
    async with living(backend=f"{HERE}:Resuming", session="s-1") as agent:
        outcome = await agent.run("which?")

        assert "old s-1 {}" in str(outcome)


async def test_a_backend_may_be_asynchronous_in_every_callback() -> None:
    """And its session is terminated at the end."""
    async with living(backend=f"{HERE}:Patient") as agent:
        assert await agent.failed("go") == "backend_failed"
        await agent.stop()

    assert ENDED[-1] == "terminated session"


def test_the_backends_of_this_distribution_are_installed() -> None:
    """They are found like anybody else's."""
    assert {"echo", "scripted"} <= set(installed_backends())


async def test_parameters_may_be_called_anything_and_more_of_them_have_defaults() -> None:
    """Only what could not be called is refused."""
    async with living(f"{HERE}:Generous", options={"script": [[RESULT]]}) as agent:
        assert await agent.answered("go") == "done"


class _Package:
    """A distribution that offers the backend `mine`, put into a directory and taken out again."""

    def __init__(self, site: Path) -> None:
        self._site = site

    def install(self, module: str) -> None:
        source = f"from {HERE} import Patient\nclass Mine(Patient): pass\n"
        (self._site / f"{module}.py").write_text(source)
        info = self._site / "mine-1.dist-info"
        info.mkdir(exist_ok=True)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1\n")
        (info / "entry_points.txt").write_text(f"[{BACKENDS}]\nmine = {module}:Mine\n")

    def remove(self, module: str) -> None:
        (self._site / f"{module}.py").unlink()
        shutil.rmtree(self._site / "mine-1.dist-info")


async def test_a_backend_is_found_that_was_installed_moved_or_removed_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is installed was looked up once; what is said of it must be true now."""
    monkeypatch.syspath_prepend(tmp_path)
    package = _Package(tmp_path)
    assert "mine" not in installed_backends()

    package.install("mine_here")
    async with living(backend="mine") as agent:
        assert await agent.failed("go") == "backend_failed"
    package.remove("mine_here")
    sys.modules.pop("mine_here")
    package.install("mine_there")
    async with living(backend="mine") as agent:
        assert await agent.failed("go") == "backend_failed"
    package.remove("mine_there")
    sys.modules.pop("mine_there")

    error = await refused(start(None, "mine"))
    assert error.message.startswith("there is no backend 'mine'; installed are: ")
    assert "mine" not in error.message.partition("installed are: ")[2]
    assert error.kind == "unknown_backend"
