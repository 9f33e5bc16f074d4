"""The backend whose every turn is written down: what people test their own agents with.

Two ways to use it, with the same steps (`scripts.py` lists them):

- in one process: `ScriptedBackend(says("hi"), fails("no"), lambda prompt: says(prompt))`;
- through a real agent process, as plain data in the options:
  `{"script": [[{"kind": "text", "text": "hi"}, {"kind": "result"}], {"error": "no"}]}`.

One script is used per prompt, in order, whatever becomes of the turn; a prompt
past the last one cannot be dispatched (`no_script`) and is recorded all the same.
"""

from __future__ import annotations

import json
from collections import deque
from dataclasses import dataclass, replace

from genagent_backends.base import Failed, Streaming, Turn
from genagent_backends.foreign import plain
from genagent_backends.gates import Gates
from genagent_backends.options import BadValue, Option, flag, read_options, refuse, text
from genagent_backends.performance import perform
from genagent_backends.scripts import Fail, Step, Stream, TurnScript, script, turn_script
from genagent_protocol.events import Event
from genagent_protocol.plain import FrozenDict, Plain


def _anything(value: Plain) -> Plain:
    return value


SCRIPT: Option[tuple[TurnScript, ...]] = Option("script", script, ())
SCRIPT_FILE: Option[str | None] = Option("script_file", text, None)
REPEATED: Option[bool] = Option("repeat", flag, False)
SESSION_ID: Option[str | None] = Option("session_id", text, None)
START_ERROR: Option[Plain] = Option("start_error", _anything, None)
GATE_DIR: Option[str | None] = Option("gate_dir", text, None)
HISTORY_FILE: Option[str | None] = Option("history_file", text, None)
OPTIONS = (SCRIPT, SCRIPT_FILE, REPEATED, SESSION_ID, START_ERROR, GATE_DIR, HISTORY_FILE)


@dataclass(frozen=True, slots=True)
class ScriptedSession:
    """What is threaded from turn to turn: the session id, if there is one."""

    session_id: str | None = None


class ScriptedBackend:
    """Plays its scripts, one per prompt, and remembers the prompts.

    Options, all of plain data: `script` (a list of turns), `script_file` (the path
    of a JSON file that holds one), `repeat` (begin again after the last turn),
    `session_id` (put on every `result` that names none), `start_error` (refuse the
    start for this reason), `gate_dir` (the directory of the gates) and
    `history_file` (append each prompt as a line of JSON, for tests that cannot
    reach into this process).

    Scripts given to the constructor come before those of the options.
    """

    def __init__(
        self, *scripts: object, gates: Gates | None = None, start_error: Plain = None
    ) -> None:
        """Make the backend of one agent.

        Raises:
            BadValue: one of *scripts* is no turn.
        """
        self._written = tuple(turn_script(given) for given in scripts)
        self._left: deque[TurnScript] = deque(self._written)
        self._repeated: tuple[TurnScript, ...] = ()
        self._gate_dir = gates.directory if gates else None
        self._start_error = start_error
        self._history_file: str | None = None
        self._history: list[str] = []

    @property
    def history(self) -> tuple[str, ...]:
        """Every prompt that was attempted, in order, those past the last script included."""
        return tuple(self._history)

    @property
    def remaining(self) -> int:
        """How many scripts are left."""
        return len(self._left)

    def start_session(self, options: FrozenDict) -> ScriptedSession | Failed:
        """Read the script; a malformed one refuses the start, as `start_error` does."""
        chosen = read_options(OPTIONS, options)
        if isinstance(chosen, Failed):
            return chosen
        turns = self._written + SCRIPT.of(chosen)
        if (path := SCRIPT_FILE.of(chosen)) is not None:
            read = _script_in(path)
            if isinstance(read, Failed):
                return read
            turns += read
        reason = self._start_error if self._start_error is not None else START_ERROR.of(chosen)
        if reason is not None:
            return Failed(reason)
        self._left = deque(turns)
        self._repeated = turns if REPEATED.of(chosen) else ()
        self._gate_dir = GATE_DIR.of(chosen) or self._gate_dir
        self._history_file = HISTORY_FILE.of(chosen)
        return ScriptedSession(SESSION_ID.of(chosen))

    def resume_session(self, session_id: str, options: FrozenDict) -> ScriptedSession | Failed:
        """Start as usual, under the id of an earlier session."""
        session = self.start_session(options)
        return session if isinstance(session, Failed) else replace(session, session_id=session_id)

    def prompt(self, session: ScriptedSession, prompt: str, turn: Turn) -> Streaming | Failed:
        """Play the next script."""
        self._remember(prompt)
        if not self._left:
            self._left.extend(self._repeated)
        if not self._left:
            return Failed("no_script")
        match self._left.popleft():
            case (Fail(reason=reason),):
                return Failed(reason)
            case tuple() as steps:
                return Streaming(self._stream(steps, session, prompt, turn), session)
            case function:
                return Streaming(function(prompt), session)

    def _stream(
        self, steps: tuple[Step, ...], session: ScriptedSession, prompt: str, turn: Turn
    ) -> Stream:
        named = tuple(_with_session_id(step, session) for step in steps)
        events = tuple(step for step in named if isinstance(step, Event))
        # A turn that only talks is handed over whole: nothing is cheaper to stream.
        return events if len(events) == len(named) else perform(named, prompt, turn, self._gate_dir)

    def _remember(self, prompt: str) -> None:
        self._history.append(prompt)
        if self._history_file is not None:
            with open(self._history_file, "a", encoding="utf-8") as file:
                file.write(json.dumps(prompt) + "\n")

    def update_session(self, session: ScriptedSession, data: FrozenDict) -> ScriptedSession:
        """Take the session id of the `result`, if it names one."""
        session_id = data.get("session_id")
        return replace(session, session_id=session_id) if isinstance(session_id, str) else session

    def checkpoint_session(self, session: ScriptedSession, session_id: str) -> ScriptedSession:
        """Go on under *session_id*."""
        return replace(session, session_id=session_id)

    def reset_session(self, _session: ScriptedSession) -> ScriptedSession:
        """Forget the session id; scripts and history stay as they are."""
        return ScriptedSession()

    def terminate_session(self, _session: ScriptedSession) -> None:
        """Do nothing: scripts hold nothing open."""


def _with_session_id(step: Step, session: ScriptedSession) -> Step:
    if not isinstance(step, Event) or step.kind != "result" or session.session_id is None:
        return step
    return replace(step, data=FrozenDict({"session_id": session.session_id, **step.data}))


def _script_in(path: str) -> tuple[TurnScript, ...] | Failed:
    try:
        with open(path, encoding="utf-8") as file:
            return script(plain(json.load(file)))
    except BadValue as error:
        return refuse("invalid_option", "script_file", f"the file of option script_file {error}")
    except (OSError, ValueError) as error:
        return refuse(
            "invalid_option",
            "script_file",
            f"the script file cannot be read: {type(error).__name__}",
        )
