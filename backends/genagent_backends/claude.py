"""The `claude` program as a backend: by default one process per turn, resumed by session id.

Sessions belong to a working directory and a config home of the program; resuming
needs the same ones. With `mode=duplex` one process serves every turn
(`claude_duplex.py`): later turns start at once, and lose their isolation.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

from genagent_backends.base import Failed, Streaming, Turn
from genagent_backends.claude_duplex import Duplex
from genagent_backends.claude_lines import PROVIDER, ClaudeLines
from genagent_backends.claude_options import ClaudeSettings, read_claude_options
from genagent_backends.failures import error_event
from genagent_backends.joining import joined
from genagent_backends.program_options import refused_session_id
from genagent_backends.program_versions import VersionNote
from genagent_backends.programs import CLAUDE
from genagent_backends.redaction import redacting
from genagent_backends.subprocesses import Command, not_started, run
from genagent_protocol.plain import FrozenDict


@dataclass(frozen=True, slots=True)
class ClaudeSession:
    """One conversation: how the program is run, and the id that resumes it, once known."""

    settings: ClaudeSettings
    session_id: str | None = None
    #: Whether the next turn branches off the session that it resumes.
    forks: bool = False
    duplex: Duplex | None = None


class ClaudeBackend:
    """Turns prompts into turns of the `claude` program. `claude_options.py` lists the options.

    The prompt goes in on standard input. Failures have the provider `claude`.

    This does not log the program in: it uses the credentials it finds.
    """

    def __init__(self) -> None:
        self._version = VersionNote(CLAUDE)

    def start_session(self, options: FrozenDict) -> ClaudeSession | Failed:
        """Check every option and find the program; nothing is started yet."""
        settings = read_claude_options(options)
        if isinstance(settings, Failed):
            return settings
        return ClaudeSession(
            settings, forks=settings.fork, duplex=Duplex() if settings.duplex else None
        )

    def resume_session(self, session_id: str, options: FrozenDict) -> ClaudeSession | Failed:
        """Go on with the program's session *session_id*; the program says if there is none."""
        session = refused_session_id(session_id) or self.start_session(options)
        if isinstance(session, Failed):
            return session
        refused = session.settings.chooses_another(session_id)
        return refused or replace(session, session_id=session_id)

    def prompt(self, session: ClaudeSession, prompt: str, turn: Turn) -> Streaming:
        """Run one turn."""
        settings = session.settings
        argv = settings.argv(session.session_id, forked=session.forks)
        try:
            env = settings.setting.environment.build(os.environ)
        except OSError as error:
            return Streaming((error_event(not_started(PROVIDER, error)),), session)
        command = Command(argv, prompt.encode(), env, settings.setting.working_dir)
        surroundings, clocks = settings.setting.environment, settings.setting.clocks
        secrets = surroundings.secrets(env)
        if session.duplex is not None:
            # The process may have been given others, when it was started.
            secrets |= surroundings.secrets(session.duplex.given)
            # The program counts what a process has cost, and not what a turn has.
            events = session.duplex.turn(
                turn, command, clocks, current=surroundings.files, afresh=settings.budgeted
            )
        else:
            events = run(turn, command, ClaudeLines(), clocks)
        events = redacting(joined(events), secrets)
        return Streaming(self._version.beside(turn, command, events), session)

    def update_session(self, session: ClaudeSession, data: FrozenDict) -> ClaudeSession:
        """Keep the session id of the turn that succeeded."""
        session_id = data.get("session_id")
        if not isinstance(session_id, str):
            return session
        return replace(session, session_id=session_id, forks=False)

    def checkpoint_session(self, session: ClaudeSession, session_id: str) -> ClaudeSession:
        """Keep a session id that became known in mid-turn."""
        return replace(session, session_id=session_id, forks=False)

    async def reset_session(self, session: ClaudeSession) -> ClaudeSession:
        """Begin a new conversation with the next prompt, whatever chose the first one."""
        await self.terminate_session(session)
        return replace(
            session,
            settings=replace(session.settings, first_flags=()),
            session_id=None,
            forks=False,
            duplex=Duplex() if session.duplex else None,
        )

    async def terminate_session(self, session: ClaudeSession) -> None:
        """End the session's process, if it has one."""
        if session.duplex is not None:
            await session.duplex.close()
