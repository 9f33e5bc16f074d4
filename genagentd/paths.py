"""Where things are: the runtime directory, its sockets, lock and logs.

The runtime directory is private (0700) and ours, or it is refused: whoever could
write there, or in a directory above, could plant a socket. What we did not create is
never changed.
`GENAGENT_RUN_DIR` chooses it; then the logs live in it too, unless
`GENAGENT_STATE_DIR` says otherwise.
"""

from __future__ import annotations

import contextlib
import functools
import grp
import hashlib
import os
import pwd
import re
import shlex
import socket
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from genagent_protocol.plain import FrozenDict, Plain
from genagent_protocol.refs import Incarnation
from genagentd import kernel, socket_path
from genagentd.leftovers import own_directory, remove_socket
from genagentd.private_files import DAEMON_LOG, Planted, open_appending
from genagentd.socket_path import UnusablePlace, check_path, check_text
from genagentd.unusable import OTHER, NoRoom, unusable

#: The largest pid that Linux gives, and a tick in thirty years without a restart.
_LAST_PID, _LAST_TICK = 4_194_304, 10**11


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
        return self.logs / DAEMON_LOG

    @property
    def place(self) -> str:
        """What handles say about where their process lives: host and runtime directory."""
        return f"{socket.gethostname()}:{self.run}"

    def agent_socket(self, pid: int, started_ticks: int) -> str:
        """Where one life of an agent is found by the daemon; no other life uses that path."""
        return socket_path.of_agent(str(self.agents), pid, started_ticks)

    def forget_agent(self, pid: int, started_ticks: int) -> None:
        """Remove the file at which that process was to be found, if it is still there."""
        name = os.path.basename(self.agent_socket(pid, started_ticks))
        # One that cannot be removed is no reason to keep anything else from going on.
        with (
            contextlib.suppress(OSError),
            own_directory(self.run) as run,
            own_directory(Path(self.agents.name), run) as agents,
        ):
            remove_socket(name, agents)

    @property
    def longest_socket(self) -> str:
        """A path as long as any that `agent_socket` returns in the life of one daemon."""
        return self.agent_socket(_LAST_PID, _LAST_TICK)

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
    if safe == text and safe and not safe.startswith((".", DAEMON_LOG)):
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
        UnusablePlace: a directory from the environment is not absolute, is a file, is where
            we may not look, or is no text, or too long to hold the sockets of a daemon; or
            none is named, and no home is known.
    """
    found = _chosen(environ)
    check_path(found.longest_socket)
    check_text(str(found.state))
    for directory, variable in (
        (found.run, "GENAGENT_RUN_DIR"),
        (found.state, "GENAGENT_STATE_DIR"),
    ):
        try:
            found_there = directory.stat()
        except PermissionError as error:
            raise UnusablePlace(
                f"{directory} cannot be used: {error.strerror}; choose another one with "
                f"{variable}{_or_set_what_leads_to(directory, environ)}"
            ) from None
        except OSError:
            continue  # It is to be made, or that is tried and says why not.
        if not stat.S_ISDIR(found_there.st_mode):
            raise UnusablePlace(
                f"{directory} is not a directory; choose another one with {variable}"
            )
    return found


def _or_set_what_leads_to(directory: Path, environ: Mapping[str, str]) -> str:
    """Return a word on the variable that may be left over from another user, if it is one."""
    for name in ("XDG_RUNTIME_DIR", "XDG_STATE_HOME", "HOME"):
        if environ.get(name) and directory.is_relative_to(environ[name]):
            return f", or set {name}, which leads there"
    return ""


def home(environ: Mapping[str, str] = os.environ) -> Path | None:
    """Return the home directory of this user; None if none is known.

    Raises:
        UnusablePlace: `HOME` is not absolute.
    """
    named = environ.get("HOME")
    if named:
        return _absolute(named, "HOME")
    with contextlib.suppress(KeyError):
        listed = Path(pwd.getpwuid(os.getuid()).pw_dir)
        return listed if listed.is_absolute() else None
    return None


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
    with contextlib.suppress(OSError):
        if mine.is_dir() and mine.stat().st_uid == os.getuid():
            return mine / "genagentd"
    return _default_state(environ) / "run"


def _default_state(environ: Mapping[str, str]) -> Path:
    base = environ.get("XDG_STATE_HOME")
    if base:
        return _absolute(base, "XDG_STATE_HOME") / "genagentd"
    found = home(environ)
    if found is None:
        raise UnusablePlace(
            f"no home directory is known for uid {os.getuid()}; set HOME, or choose a directory "
            "with GENAGENT_RUN_DIR"
        )
    return found / ".local/state/genagentd"


def make_private(directory: Path) -> None:
    """Create *directory* with mode 0700, or make sure that it is ours and private.

    This does not change a directory that is there already, not even its mode.

    Raises:
        UnusablePlace: it is a link, not a directory, someone else's, open to others, below a
            directory in which others could replace it, or cannot be made.
        NoRoom: it cannot be made for want of room on the disk.
    """
    try:
        # Nothing is made below what is refused; and whoever was faster than us is seen, too.
        _check_way(next(level for level in directory.parents if level.exists()))
        make_all(directory.parent)
        _check_way(directory.parent)
        _make(directory)
        found = directory.lstat()
    except OSError as error:
        raise _unusable(directory, error) from None
    _check_ours(directory, found)


def check_private(directory: Path) -> None:
    """Refuse *directory* as `make_private` does, if it is there. Touches nothing.

    Raises:
        UnusablePlace: as there.
    """
    try:
        found = directory.lstat()
        _check_way(directory.parent)
    except FileNotFoundError:
        return
    except OSError as error:
        raise _unusable(directory, error) from None
    _check_ours(directory, found)


def _unusable(directory: Path, error: OSError) -> UnusablePlace | NoRoom:
    return unusable(f"the directory {directory} cannot be used", error, OTHER)


def _check_ours(directory: Path, found: os.stat_result) -> None:
    """Refuse what is no directory, not ours, or not private."""
    if not stat.S_ISDIR(found.st_mode):
        raise UnusablePlace(f"{directory} is not a plain directory (a link or a file); {OTHER}")
    if found.st_uid != os.getuid():
        raise UnusablePlace(
            f"{directory} belongs to uid {found.st_uid}, not to us (uid {os.getuid()}); {OTHER}"
        )
    if found.st_mode & 0o777 != 0o700:
        # What others share is not ours to close, whoever runs us.
        shared = found.st_mode & (stat.S_ISVTX | stat.S_IWOTH)
        mend = f", or, if it is there for genagentd only: chmod 700 {shlex.quote(str(directory))}"
        raise UnusablePlace(
            f"the mode of {directory} is {stat.S_IMODE(found.st_mode):04o} and must be 0700: for "
            f"its owner alone; {OTHER}{'' if shared else mend}"
        )


def _make(directory: Path) -> None:
    try:
        directory.mkdir(mode=0o700)
    except FileExistsError:
        return
    # A strange umask could have taken more away than was asked for.
    directory.chmod(0o700)


def make_all(directory: Path) -> None:
    """Create *directory* and whatever is missing above it, each with mode 0700 for any umask.

    This does not look at what is there already.

    Raises:
        OSError: one of them cannot be made.
    """
    missing = [level for level in (directory, *directory.parents) if not level.exists()]
    for level in reversed(missing):
        _make(level)


def _check_way(directory: Path) -> None:
    """Refuse a way to *directory* on which others could put something else in our place.

    That is every level from the root, and from there again where a link leads. Raises OSError
    if it leads nowhere.
    """
    directory.stat()  # Once it leads somewhere, no link on it turns in a circle.
    trusted = _trusted()
    for level in [*reversed(directory.parents), directory]:
        found = level.lstat()
        if found.st_uid not in trusted:
            raise UnusablePlace(
                f"{level} belongs to uid {found.st_uid}, who could replace what is ours below it; "
                f"{OTHER}"
            )
        if stat.S_ISLNK(found.st_mode):
            _check_way(level.parent / level.readlink())
        elif _is_open(found):
            raise UnusablePlace(
                f"others may write in {level} and could replace what is ours there; take that "
                f"away from them (chmod o-w,g-w), or {OTHER}"
            )


def _trusted() -> set[int | None]:
    """Return the users that may own what is above ours: who could replace it in any case."""
    found: set[int | None] = {0, os.getuid(), os.stat("/").st_uid, kernel.outside_user()}
    with contextlib.suppress(OSError):
        # What our shell and other programs read there is as good as ours: in a container,
        # root's home is often a directory of the user outside.
        found.add(os.stat(os.environ.get("HOME") or "/").st_uid)
    return found


def _is_open(found: os.stat_result) -> bool:
    """Whether others may rename or remove what is not theirs in that directory."""
    if found.st_mode & stat.S_ISVTX:
        return False
    if found.st_mode & stat.S_IWOTH:
        return True
    return bool(found.st_mode & stat.S_IWGRP) and not _is_ours_alone(found.st_gid)


@functools.cache
def _is_ours_alone(group: int) -> bool:
    """Whether nobody but us and root is in that group, when that was first asked.

    It is asked once: a daemon looks at its directories again at each start of an agent, and would
    do nothing else while it waits for a directory service that hangs.

    Many systems give every user a group of the same name, and nobody else has it as a first
    one. Of any other group only a list of all users could say that, which can be long, or not
    to be had. Who has no name, as in a container, has a number for it.
    """
    if group == 0:
        return True
    if group != os.getgid():
        return False
    name, group_name, members = str(os.getuid()), str(group), set[str]()
    with contextlib.suppress(KeyError):
        name = pwd.getpwuid(os.getuid()).pw_name
    with contextlib.suppress(KeyError):
        entry = grp.getgrgid(group)
        group_name, members = entry.gr_name, set(entry.gr_mem)
    return group_name == name and members <= {name}


def open_log(path: Path) -> int:
    """Return a descriptor that appends to the log *path*, which is made if it is not there.

    Raises:
        UnusablePlace: the file, its directory or the one above is a link or somebody else's, or
            it is no plain file: what somebody planted there must not choose which file is
            written, nor who reads it.
        NoRoom: the disk is full, or this process may open no more.
    """
    try:
        return open_appending(path)
    except Planted as error:
        raise UnusablePlace(f"{path} {error}") from None
    except OSError as error:
        raise unusable(f"{path} cannot be used as a log", error, "remove what is there") from None
