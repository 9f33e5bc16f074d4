"""Where things are: the runtime directory, its sockets, lock and logs.

The runtime directory is private (0700) and ours, or it is refused: whoever could
write there could plant a socket. What we did not create is never changed.
`GENAGENT_RUN_DIR` chooses it; then the logs live in it too, unless
`GENAGENT_STATE_DIR` says otherwise.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import socket
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from genagent_protocol.plain import FrozenDict, Plain
from genagent_protocol.refs import BootId, Incarnation
from genagentd.socket_path import UnusablePlace, check_path

_DAEMON_LOG = "genagentd.log"


@dataclass(frozen=True, slots=True)
class Places:
    """The files of one daemon."""

    run: Path
    state: Path

    @property
    def socket(self) -> str:
        """Where clients reach the daemon."""
        return str(self.run / "genagentd.sock")

    @property
    def lock(self) -> Path:
        """The lock that makes the daemon the only one; holds its pid. Never removed."""
        return self.run / "genagentd.lock"

    @property
    def agents(self) -> Path:
        """The directory of the agents' sockets."""
        return self.run / "a"

    @property
    def logs(self) -> Path:
        """The directory of all logs."""
        return self.state / "logs"

    @property
    def daemon_log(self) -> Path:
        """What a detached daemon writes."""
        return self.logs / _DAEMON_LOG

    @property
    def place(self) -> str:
        """What handles say about where their process lives: host and runtime directory."""
        return f"{socket.gethostname()}:{self.run}"

    def agent_socket(self, incarnation: Incarnation, attempt: int = 0) -> str:
        """Where one life of an agent is reached; no other life, or launch of it, uses that path."""
        again = f".{attempt}" if attempt else ""
        return str(self.agents / f"{incarnation}{again}.sock")

    @property
    def longest_socket(self) -> str:
        """A path as long as any that `agent_socket` returns in the life of one daemon."""
        return self.agent_socket(Incarnation(BootId("0" * 16), 10**9), attempt=9)

    def agent_log(self, name: Plain, incarnation: Incarnation) -> Path:
        """Where standard output and error of one life of an agent go."""
        return self.logs / directory_name(name) / f"{incarnation}.log"


def directory_name(name: Plain) -> str:
    """Return a directory name for an agent's *name*: readable, unique, and harmless.

    Short text of safe characters stands for itself. Anything else, and what would be
    hidden or in the way of the daemon's own log, is escaped and ends with a tilde and
    a digest of the name; a tilde is no safe character, so that nobody can be called so.
    """
    spelled = _spelled(name)
    text = name if isinstance(name, str) else f"={spelled}"
    safe = re.sub(r"[^A-Za-z0-9._-]", "_", text)[:60]
    if safe == text and safe and not safe.startswith((".", _DAEMON_LOG)):
        return safe
    digest = hashlib.sha256(spelled.encode()).hexdigest()[:12]
    return f"{safe.lstrip('.')}~{digest}"


def _spelled(name: Plain) -> str:
    """Return what only equal names have in common: Python's notation, maps in order."""
    match name:
        case FrozenDict():
            return "{" + ",".join(f"{key!r}:{_spelled(name[key])}" for key in sorted(name)) + "}"
        case tuple():
            return "(" + ",".join(map(_spelled, name)) + ")"
        case _:
            return repr(name)


def places(environ: Mapping[str, str] = os.environ) -> Places:
    """Return where the daemon of this user and environment lives. Touches nothing.

    Raises:
        UnusablePlace: a directory from the environment is not absolute, is a file, or
            is too long to hold the sockets of a daemon.
    """
    found = _chosen(environ)
    check_path(found.longest_socket)
    for directory, variable in (
        (found.run, "GENAGENT_RUN_DIR"),
        (found.state, "GENAGENT_STATE_DIR"),
    ):
        if directory.exists() and not directory.is_dir():
            raise UnusablePlace(
                f"{directory} is not a directory; choose another one with {variable}"
            )
    return found


def _chosen(environ: Mapping[str, str]) -> Places:
    chosen = environ.get("GENAGENT_RUN_DIR")
    run = _absolute(chosen, "GENAGENT_RUN_DIR") if chosen else _default_run(environ)
    state_chosen = environ.get("GENAGENT_STATE_DIR")
    if state_chosen:
        return Places(run, _absolute(state_chosen, "GENAGENT_STATE_DIR"))
    return Places(run, run if chosen else _default_state(environ))


def socket_in(run_dir: str | Path | None) -> str:
    """Return where the daemon of *run_dir* is reached, or the one of the environment.

    Raises:
        UnusablePlace: as `places`, when the environment is asked.
    """
    if run_dir is None:
        return places().socket
    run = Path(run_dir).absolute()
    return Places(run, run).socket


def _absolute(text: str, variable: str) -> Path:
    path = Path(text)
    if not path.is_absolute():
        raise UnusablePlace(
            f"{variable}={text} is not an absolute path; give one that starts with /"
        )
    return path


def _default_run(environ: Mapping[str, str]) -> Path:
    base = environ.get("XDG_RUNTIME_DIR")
    if base:
        return _absolute(base, "XDG_RUNTIME_DIR") / "genagentd"
    mine = Path(f"/run/user/{os.getuid()}")
    if mine.is_dir() and mine.stat().st_uid == os.getuid():
        return mine / "genagentd"
    return _default_state(environ) / "run"


def _default_state(environ: Mapping[str, str]) -> Path:
    base = environ.get("XDG_STATE_HOME")
    if base:
        return _absolute(base, "XDG_STATE_HOME") / "genagentd"
    return Path(environ.get("HOME") or Path.home()) / ".local/state/genagentd"


def make_private(directory: Path) -> None:
    """Create *directory* with mode 0700, or make sure that it is ours and private.

    This does not change a directory that is there already, not even its mode.

    Raises:
        UnusablePlace: it is a link, not a directory, someone else's, open to others, in a
            directory where others could replace it, or cannot be made.
    """
    try:
        directory.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        _check_parent(directory.parent)
        _make(directory)
        found = directory.lstat()
    except OSError as error:
        raise UnusablePlace(
            f"the directory {directory} cannot be used: {error.strerror}; {_OTHER}"
        ) from None
    if not stat.S_ISDIR(found.st_mode):
        raise UnusablePlace(f"{directory} is not a plain directory (a link or a file); {_OTHER}")
    if found.st_uid != os.getuid():
        raise UnusablePlace(
            f"{directory} belongs to uid {found.st_uid}, not to us (uid {os.getuid()}); {_OTHER}"
        )
    if found.st_mode & 0o777 != 0o700:
        # What others share is not ours to close, whoever runs us.
        shared = found.st_mode & (stat.S_ISVTX | stat.S_IWOTH)
        mend = f", or, if it is there for genagentd only: chmod 700 {shlex.quote(str(directory))}"
        raise UnusablePlace(
            f"the mode of {directory} is {stat.S_IMODE(found.st_mode):04o} and must be 0700: for "
            f"its owner alone; {_OTHER}{'' if shared else mend}"
        )


#: What to do about a directory that cannot be used.
_OTHER = "choose another one with GENAGENT_RUN_DIR or GENAGENT_STATE_DIR"


def _make(directory: Path) -> None:
    try:
        directory.mkdir(mode=0o700)
    except FileExistsError:
        return
    # A strange umask could have taken more away than was asked for.
    directory.chmod(0o700)


def _check_parent(parent: Path) -> None:
    """Refuse a parent whose writers could put something else in our directory's place."""
    found = parent.stat()
    if found.st_mode & stat.S_ISVTX or not found.st_mode & (stat.S_IWOTH | stat.S_IWGRP):
        return
    # A group that is ours alone, as many systems give to every user, is no stranger.
    if found.st_mode & stat.S_IWOTH or found.st_gid not in (0, os.getgid()):
        raise UnusablePlace(
            f"others may write in {parent} and could replace what is ours there; take that away "
            "from them (chmod o-w,g-w), or choose another directory with GENAGENT_RUN_DIR"
        )


def open_log(path: Path) -> int:
    """Return a descriptor that appends to the log *path*, which is made if it is not there.

    Raises:
        UnusablePlace: the file or its directory is a link, or it is no plain file:
            what somebody planted there must not choose which file is written.
    """
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    if path.parent.is_symlink():
        raise UnusablePlace(f"{path} cannot be used as a log: its directory is a link; remove that")
    try:
        fd = os.open(path, flags, 0o600)
    except OSError as error:
        raise UnusablePlace(
            f"{path} cannot be used as a log: {error.strerror}; remove what is there"
        ) from None
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise UnusablePlace(f"{path} is no plain file and cannot be used as a log; remove it")
    return fd
