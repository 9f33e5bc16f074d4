"""The `codex` program as a backend: one process per turn, resumed by thread id.

The program keeps threads in its own home; resuming needs the same one. A thread
counts its tokens from its beginning, so the session remembers where it was.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from genagent_backends.base import Failed, Streaming, Turn
from genagent_backends.codex_lines import NOTHING_USED, PROVIDER, CodexLines, used_by
from genagent_backends.codex_options import CodexSettings, read_codex_options
from genagent_backends.failures import error_event
from genagent_backends.program_options import refused_session_id
from genagent_backends.program_versions import VersionNote
from genagent_backends.programs import CODEX
from genagent_backends.redaction import redacting
from genagent_backends.subprocesses import Command, not_started, run
from genagent_protocol.plain import FrozenDict


@dataclass(frozen=True, slots=True)
class CodexSession:
    """One thread: how the program is run, the thread's id once known, and its tokens so far.

    `used` is None when the running total is not known: then the next turn's usage is
    not either.
    """

    settings: CodexSettings
    thread_id: str | None = None
    used: Mapping[str, int] | None = field(default=None, repr=False)


class CodexBackend:
    """Turns prompts into turns of `codex exec`. `codex_options.py` lists the options.

    The prompt goes in on standard input. Failures have the provider `codex`.

    This does not log the program in: it uses the credentials it finds.
    """

    def __init__(self) -> None:
        self._version = VersionNote(CODEX)

    def start_session(self, options: FrozenDict) -> CodexSession | Failed:
        """Check every option and find the program; nothing is started yet."""
        settings = read_codex_options(options)
        if isinstance(settings, Failed):
            return settings
        return CodexSession(settings, used=NOTHING_USED)

    def resume_session(self, session_id: str, options: FrozenDict) -> CodexSession | Failed:
        """Go on with the thread *session_id*; its first turn reports no usage."""
        session = refused_session_id(session_id) or self.start_session(options)
        if isinstance(session, Failed):
            return session
        return replace(session, thread_id=session_id, used=None)

    def prompt(self, session: CodexSession, prompt: str, turn: Turn) -> Streaming:
        """Run one turn."""
        settings = session.settings
        try:
            env = settings.setting.environment.build(os.environ)
        except OSError as error:
            return Streaming((error_event(not_started(PROVIDER, error)),), session)
        command = Command(
            settings.argv(session.thread_id), prompt.encode(), env, settings.setting.working_dir
        )
        lines = CodexLines(
            used_before=session.used,
            requested_model=settings.setting.model,
            final_message_only=settings.final_message_only,
            asked=session.thread_id,
        )
        events = run(turn, command, lines, settings.setting.clocks)
        events = redacting(events, settings.setting.environment.secrets(env))
        return Streaming(self._version.beside(turn, command, events), session)

    def update_session(self, session: CodexSession, data: FrozenDict) -> CodexSession:
        """Keep the thread's id and its running total of the turn that succeeded."""
        thread_id = data.get("session_id")
        return replace(
            session,
            thread_id=thread_id if isinstance(thread_id, str) else session.thread_id,
            used=used_by(data),
        )

    def checkpoint_session(self, session: CodexSession, session_id: str) -> CodexSession:
        """Keep a thread's id that became known in mid-turn."""
        return replace(session, thread_id=session_id)

    def reset_session(self, session: CodexSession) -> CodexSession:
        """Begin a new thread with the next prompt."""
        return replace(session, thread_id=None, used=NOTHING_USED)

    def terminate_session(self, _session: CodexSession) -> None:
        """Do nothing: no process outlives its turn."""
