"""Directories are private and ours or refused, and every agent has a log of its own."""

from __future__ import annotations

import errno
import grp
import os
import pwd
import stat
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import assume, example, given

from genagent_protocol.codec import name_key
from genagent_protocol.errors import UsageError
from genagent_protocol.plain import FrozenDict, Plain, freeze
from genagent_protocol.refs import BootId, Incarnation
from genagentd import kernel, paths
from genagentd.daemon import lock
from genagentd.paths import (
    Places,
    check_private,
    directory_name,
    make_private,
    open_log,
    places,
    socket_in,
)
from genagentd.socket_path import UnusablePlace
from support.plain_values import plain, texts

STRANGER = 65_534
INCARNATION = Incarnation(BootId("0123456789abcdef"), 7)


# --- directories of names


@pytest.mark.parametrize("name", ["reviewer", "a", "1", "A-b_c.d", "x" * 60])
def test_a_simple_name_is_its_own_directory(name: str) -> None:
    """People look for the log of `reviewer` under `reviewer`."""
    assert directory_name(name) == name


@pytest.mark.parametrize(
    "name",
    [
        *("", ".", "..", ".hidden", "a/b", "../../etc", "x" * 61, "two words", "grüße"),
        *("\x00", "a\nb", "genagentd.log", "genagentd.log.1"),
    ],
)
def test_a_name_that_would_be_trouble_is_escaped(name: str) -> None:
    """Whatever an agent is called, its log stays in the directory of logs."""
    found = directory_name(name)

    assert found != name
    assert "/" not in found
    assert not found.startswith(".")
    assert not found.startswith("genagentd.log") or "~" in found
    assert len(found) <= 80


@given(plain)
@example("x" * 5_000)
@example(tuple(range(500)))
def test_a_directory_name_is_always_one_harmless_component(name: Plain) -> None:
    """For any name that can be sent at all."""
    found = directory_name(name)

    assert found == Path(found).name
    assert found.isascii()
    assert found.isprintable()
    assert 0 < len(found) <= 80
    assert not found.startswith(".")


@given(plain, plain)
@example(1, True)
@example(1, 1.0)
@example(1, "1")
@example("=1", 1)
@example((1,), "=(1,)")
@example((), FrozenDict())
@example("a b", "a_b")
@example("a b", "a\tb")
@example("x" * 61, "x" * 62)
@example(b"a", "a")
def test_different_names_have_different_directories(one: Plain, other: Plain) -> None:
    """Two agents never write into one log."""
    assume(name_key(one) != name_key(other))

    assert directory_name(one) != directory_name(other)


@given(texts)
@example("a b")
@example("")
def test_nobody_can_be_called_like_the_directory_of_another(name: str) -> None:
    """The escaped form of a name is not a name that stands for itself."""
    escaped = directory_name(name)
    assume(escaped != name)

    assert directory_name(escaped) != escaped


def test_equal_names_have_one_directory() -> None:
    """The order in which a map was written is no part of the name."""
    one = freeze({"a": 1, "b": [{"c": 2, "d": 3}]})
    other = freeze({"b": [{"d": 3, "c": 2}], "a": 1})

    assert directory_name(one) == directory_name(other)


# --- where things are


def test_the_chosen_directory_holds_everything() -> None:
    """Tests, and people who want it so, have one directory to look at and to remove."""
    found = places({"GENAGENT_RUN_DIR": "/x/run", "XDG_RUNTIME_DIR": "/y", "HOME": "/h"})

    assert found == Places(Path("/x/run"), Path("/x/run"))
    assert found.socket == "/x/run/genagentd.sock"
    assert found.agent_socket(7, 70) == "/x/run/a/7-70.sock"
    assert found.agent_log("reviewer", INCARNATION) == Path(
        "/x/run/logs/reviewer/0123456789abcdef-7.log"
    )
    assert {found.lock.parent, found.agents.parent} == {Path("/x/run")}
    assert found.daemon_log.parent == found.logs


def test_no_two_processes_are_found_at_one_place() -> None:
    """A pid is given again, and the file of who had it before may still be there."""
    found = Places(Path("/x"), Path("/x"))

    assert len({found.agent_socket(7, ticks) for ticks in range(3)}) == 3
    assert len(found.longest_socket) >= len(found.agent_socket(2**22, 2**32))


def test_logs_may_live_elsewhere() -> None:
    """A runtime directory is often in memory."""
    environ = {"GENAGENT_RUN_DIR": "/x/run", "GENAGENT_STATE_DIR": "/big/state"}

    assert places(environ) == Places(Path("/x/run"), Path("/big/state"))


def test_by_default_the_directories_of_the_desktop_are_used() -> None:
    """As every other service does."""
    environ = {"XDG_RUNTIME_DIR": "/run/me", "XDG_STATE_HOME": "/state", "HOME": "/h"}

    assert places(environ) == Places(Path("/run/me/genagentd"), Path("/state/genagentd"))


def test_without_any_the_state_stands_below_home() -> None:
    """A bare environment, as under cron."""
    found = places({"HOME": "/h", "XDG_RUNTIME_DIR": "", "XDG_STATE_HOME": ""})

    assert found.state == Path("/h/.local/state/genagentd")
    mine = Path(f"/run/user/{os.getuid()}")
    run = mine / "genagentd" if mine.is_dir() else found.state / "run"
    assert found.run == run


@pytest.mark.parametrize(
    "variable", ["GENAGENT_RUN_DIR", "GENAGENT_STATE_DIR", "XDG_RUNTIME_DIR", "XDG_STATE_HOME"]
)
def test_a_relative_directory_is_refused_by_its_variable(variable: str) -> None:
    """It would mean another place for each caller."""
    with pytest.raises(UsageError, match=rf"{variable}=some/where.*absolute"):
        places({"HOME": "/h", variable: "some/where"})


@pytest.mark.parametrize("variable", ["GENAGENT_RUN_DIR", "GENAGENT_STATE_DIR", "XDG_STATE_HOME"])
def test_a_directory_that_is_no_text_is_refused(variable: str) -> None:
    """Handles and logs name it."""
    with pytest.raises(UnusablePlace, match=r"x.udcff.* is not UTF-8"):
        places({"HOME": "/h", variable: os.fsdecode(b"/tmp/x\xff")})


def test_a_directory_given_by_hand_may_be_relative(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It is the caller's, now and here."""
    monkeypatch.chdir(tmp_path)

    assert socket_in("run") == str(tmp_path / "run" / "genagentd.sock")
    monkeypatch.setenv("GENAGENT_RUN_DIR", "/x/run")
    assert socket_in(None) == "/x/run/genagentd.sock"


def test_a_home_that_is_no_absolute_path_is_refused_where_it_is_needed() -> None:
    """A detached daemon runs in `/`, and would be there where nobody else looks for it."""
    with pytest.raises(UnusablePlace, match="HOME=some/where is not an absolute path"):
        places({"HOME": "some/where", "XDG_RUNTIME_DIR": "/run/me"})

    assert places({"HOME": "some/where", "GENAGENT_RUN_DIR": "/x"}).state == Path("/x")


def test_whoever_has_no_home_says_where(monkeypatch: pytest.MonkeyPatch) -> None:
    """A container runs any number as its user; then one variable is enough."""

    def unknown(_uid: int) -> None:
        raise KeyError

    monkeypatch.setattr(pwd, "getpwuid", unknown)

    with pytest.raises(UnusablePlace, match=r"no home directory is known .*HOME.*GENAGENT_RUN_DIR"):
        places({"XDG_RUNTIME_DIR": "/run/me"})
    assert places({"GENAGENT_RUN_DIR": "/x"}).state == Path("/x")


@pytest.mark.parametrize(
    ("environ", "told"),
    [
        ({"GENAGENT_RUN_DIR": "/x"}, r"/x .*GENAGENT_RUN_DIR$"),
        ({"XDG_RUNTIME_DIR": "/x", "HOME": "/h"}, "/x/genagentd .*RUN_DIR, or set XDG_RUNTIME_DIR"),
        (
            {"XDG_RUNTIME_DIR": "/r", "HOME": "/x"},
            "/x/.local/state/genagentd .*GENAGENT_STATE_DIR, or set HOME, which leads there",
        ),
    ],
)
def test_a_directory_where_we_may_not_look_is_named_with_what_to_set(
    monkeypatch: pytest.MonkeyPatch, environ: dict[str, str], told: str
) -> None:
    """The variables may be left over from the user who became us."""
    stat_of = Path.stat

    def denied_below(path: Path, **how: bool) -> os.stat_result:
        if path.is_relative_to("/x"):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return stat_of(path, **how)

    monkeypatch.setattr(Path, "stat", denied_below)

    with pytest.raises(UnusablePlace, match=f"^{told}"):
        places(environ)


def test_the_place_names_host_and_directory() -> None:
    """A handle of another host, or of another daemon, is told apart by it."""
    one, other = Places(Path("/a"), Path("/s")), Places(Path("/b"), Path("/s"))

    assert one.place.endswith(":/a")
    assert one.place != other.place


# --- making them private


@pytest.fixture(autouse=True)
def _no_group_is_known() -> Iterator[None]:
    """What one test lets the system say of a group is not what it says."""
    paths._is_ours_alone.cache_clear()
    yield
    paths._is_ours_alone.cache_clear()


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_directory_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    """Whoever could write there could plant a socket. The umask has no say in it."""
    before = os.umask(0)
    try:
        make_private(tmp_path / "new" / "run")
    finally:
        os.umask(before)

    assert mode_of(tmp_path / "new" / "run") == 0o700


@pytest.mark.parametrize("mode", [0o777, 0o755, 0o750, 0o1777, 0o500])
def test_a_directory_that_others_may_enter_is_refused_and_left_as_it_is(
    tmp_path: Path, mode: int
) -> None:
    """It may be anybody's, /tmp even: closing it would lock others out."""
    directory = tmp_path / "run"
    directory.mkdir()
    directory.chmod(mode)

    with pytest.raises(UnusablePlace, match=rf"{mode:04o}.*GENAGENT_RUN_DIR") as refused:
        make_private(directory)

    # Nobody is told to close what everybody may write in.
    assert ("chmod 700" in str(refused.value)) is not bool(mode & 0o1002)
    assert mode_of(directory) == mode
    assert list(directory.iterdir()) == []


@pytest.mark.parametrize("kind", ["private", "shared", "link", "file", "not there", "below a file"])
def test_what_is_there_is_refused_alike_by_whoever_only_looks(tmp_path: Path, kind: str) -> None:
    """A start must not say of a directory that it serves which no daemon of ours would take."""
    looked_at, made = tmp_path / "looked_at", tmp_path / "made"
    for directory in (looked_at, made):
        match kind:
            case "private" | "shared":
                directory.mkdir(0o700 if kind == "private" else 0o750)
            case "link":
                directory.symlink_to(tmp_path)
            case "file" | "below a file":
                directory.touch()
    told = []
    for refuse, directory in ((check_private, looked_at), (make_private, made)):
        try:
            refuse(directory / "x" if kind == "below a file" else directory)
        except UnusablePlace as error:
            told.append(str(error).replace(str(directory), "it"))
        else:
            told.append("")

    assert told[0] == told[1]
    assert bool(told[0]) == (kind not in ("private", "not there"))
    assert looked_at.exists() == (kind != "not there")


def test_a_directory_that_was_made_private_by_hand_is_used(tmp_path: Path) -> None:
    """What is in it stays; a group that it inherits does not matter."""
    directory = tmp_path / "run"
    directory.mkdir()
    (directory / "kept").touch()
    directory.chmod(0o2700)

    make_private(directory)

    assert (directory / "kept").exists()


def test_nothing_is_made_where_others_could_replace_it(tmp_path: Path) -> None:
    """A refusal leaves nothing behind."""
    tmp_path.chmod(0o777)

    with pytest.raises(UnusablePlace, match="others may write"):
        make_private(tmp_path / "run")

    assert list(tmp_path.iterdir()) == []


def _open(level: Path) -> None:
    level.chmod(0o777)


def _shared(level: Path) -> None:
    os.chown(level, -1, STRANGER)
    level.chmod(0o2775)


def _foreign(level: Path) -> None:
    os.chown(level, STRANGER, -1)


def _foreign_link(level: Path) -> None:
    """Everybody may make one in /tmp, and lead it elsewhere later."""
    moved = level.with_name("moved")
    level.rename(moved)
    level.symlink_to(moved)
    os.chown(level, STRANGER, -1, follow_symlinks=False)


def _link_through(level: Path) -> None:
    between = level.with_name("between")
    between.mkdir()
    level.rename(between / "moved")
    level.symlink_to(between / "moved")
    between.chmod(0o777)


@pytest.mark.parametrize("above", range(4))
@pytest.mark.parametrize("kind", [_open, _shared, _foreign, _foreign_link, _link_through])
def test_at_no_level_could_somebody_else_replace_it(
    tmp_path: Path, kind: Callable[[Path], None], above: int
) -> None:
    """Whoever may rename a directory far above puts one of his own in its place."""
    if os.getuid() != 0 and kind is not _open and kind is not _link_through:
        pytest.skip("only root can give directories away")
    tmp_path.chmod(0o755)
    levels = [tmp_path / "/".join("abcd"[: depth + 1]) for depth in range(4)]
    levels[-1].mkdir(parents=True)
    kind(levels[above])

    for run in (levels[-1] / "run", levels[-1] / "new" / "run"):
        with pytest.raises(UnusablePlace, match=r"could replace what is ours.*GENAGENT_RUN_DIR"):
            make_private(run)

    assert list(levels[-1].iterdir()) == []


def _entry(name: str, *members: str) -> Any:
    return SimpleNamespace(gr_name=name, gr_mem=list(members), pw_name=name)


@pytest.mark.parametrize(
    ("user", "group", "alone"),
    [
        (_entry("me"), _entry("me"), True),
        (_entry("me"), _entry("me", "me"), True),
        (_entry("me"), _entry("me", "me", "you"), False),
        # Everybody may have it as a first one: nobody is listed as a member then.
        (_entry("me"), _entry("users"), False),
        (_entry("me"), None, False),
        (None, _entry("users"), False),
        (None, None, True),
    ],
)
def test_a_group_is_trusted_if_it_is_ours_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, user: Any, group: Any, alone: bool
) -> None:
    """Whoever else is in it could replace what is ours."""

    if os.getuid() != 0:
        pytest.skip("only root can give directories away")

    def found(entry: Any) -> Any:
        if entry is None:
            raise KeyError
        return entry

    (tmp_path / "run").mkdir(mode=0o700)
    os.chown(tmp_path / "run", STRANGER, STRANGER)
    os.chown(tmp_path, -1, STRANGER)
    tmp_path.chmod(0o770)
    monkeypatch.setattr(os, "getgid", lambda: STRANGER)
    monkeypatch.setattr(os, "getuid", lambda: STRANGER)
    monkeypatch.setattr(pwd, "getpwuid", lambda _uid: found(user))
    monkeypatch.setattr(grp, "getgrgid", lambda _gid: found(group))

    with nullcontext() if alone else pytest.raises(UnusablePlace, match="others may write"):
        make_private(tmp_path / "run")


def test_a_group_is_looked_up_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A daemon looks at its directories at each start, and a directory service may hang by then."""
    if os.getuid() != 0:
        pytest.skip("only root can give directories away")
    asked = []

    def found(number: int) -> Any:
        asked.append(number)
        return _entry("me")

    os.chown(tmp_path, -1, STRANGER)
    tmp_path.chmod(0o770)
    monkeypatch.setattr(os, "getgid", lambda: STRANGER)
    monkeypatch.setattr(pwd, "getpwuid", found)
    monkeypatch.setattr(grp, "getgrgid", found)

    for _ in range(2):
        make_private(tmp_path / "run")
    make_private(tmp_path / "run" / "a")

    assert asked == [os.getuid(), STRANGER]


def test_where_everybody_may_write_only_what_is_their_own_a_level_is_no_danger(
    tmp_path: Path,
) -> None:
    """`/tmp` is such a one, and so is what a link of ours leads through."""
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    (tmp_path / "link").symlink_to(shared)

    make_private(tmp_path / "link" / "mine" / "run")

    assert mode_of(shared / "mine" / "run") == 0o700


def test_in_a_sandbox_what_the_system_owns_is_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There root is outside, and `/usr` or `/home` seem to be nobody's."""
    if os.getuid() != 0:
        pytest.skip("only root can give directories away")
    os.chown(tmp_path, STRANGER, -1)
    monkeypatch.setattr(kernel, "outside_user", lambda: STRANGER)

    make_private(tmp_path / "run")


def test_a_home_that_somebody_outside_owns_is_a_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root's home in a container often is a directory of whoever runs the container."""
    if os.getuid() != 0:
        pytest.skip("only root can give directories away")
    os.chown(tmp_path, STRANGER, -1)
    monkeypatch.setenv("HOME", str(tmp_path))

    make_private(tmp_path / ".local" / "run")


@pytest.mark.parametrize("umask", [0, 0o022, 0o777])
def test_every_level_that_is_made_is_private_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    """The last one alone would be private, and anybody could move what is above it."""
    tmp_path.chmod(0o755)
    before = os.umask(umask)
    try:
        make_private(tmp_path / "a" / "b" / "run")
    finally:
        os.umask(before)

    made = [tmp_path / "a", tmp_path / "a" / "b", tmp_path / "a" / "b" / "run"]
    assert [mode_of(level) for level in made] == [0o700] * 3


@pytest.mark.parametrize("umask", [0, 0o022, 0o777])
def test_every_file_that_is_made_is_its_owners_whatever_the_umask(
    tmp_path: Path, umask: int
) -> None:
    """Nobody, not even we, could open it at the next start."""
    run = Places(tmp_path, tmp_path)
    before = os.umask(umask)
    try:
        os.close(open_log(tmp_path / "a.log"))
        held = lock.take(run)
        assert held is not None
        held.release()
    finally:
        os.umask(before)

    assert [mode_of(path) for path in (tmp_path / "a.log", run.lock)] == [0o600] * 2


def test_the_mode_of_a_file_that_is_there_is_left_as_it_is(tmp_path: Path) -> None:
    """Somebody may have their log read by others on purpose."""
    (tmp_path / "a.log").touch(0o640)
    (tmp_path / "a.log").chmod(0o640)

    os.close(open_log(tmp_path / "a.log"))

    assert mode_of(tmp_path / "a.log") == 0o640


@pytest.mark.parametrize("variable", ["GENAGENT_RUN_DIR", "GENAGENT_STATE_DIR"])
def test_a_file_is_no_place(tmp_path: Path, variable: str) -> None:
    """Whoever asks hears it, and not that no daemon answers there."""
    (tmp_path / "file").touch()

    with pytest.raises(UnusablePlace, match=f"not a directory.*{variable}"):
        places({"HOME": "/h", variable: str(tmp_path / "file")})


def test_a_runtime_directory_must_hold_the_longest_socket() -> None:
    """Not only the daemon's own: otherwise its agents could not be reached."""
    with pytest.raises(UnusablePlace, match="the limit is 107"):
        places({"GENAGENT_RUN_DIR": "/" + "x" * 80})


def test_a_link_is_refused_and_not_followed(tmp_path: Path) -> None:
    """It leads wherever its owner wants."""
    target = tmp_path / "target"
    target.mkdir(mode=0o755)
    target.chmod(0o755)
    (tmp_path / "run").symlink_to(target)

    with pytest.raises(UsageError, match="not a plain directory"):
        make_private(tmp_path / "run")

    assert mode_of(target) == 0o755


@pytest.mark.parametrize("what", ["file", "dangling link", "file above"])
def test_what_is_no_directory_is_refused(tmp_path: Path, what: str) -> None:
    """And is left as it was."""
    directory = tmp_path / "run"
    match what:
        case "file":
            directory.write_text("mine")
        case "dangling link":
            directory.symlink_to(tmp_path / "nowhere")
        case "file above":
            directory.write_text("mine")
            directory = directory / "below"

    with pytest.raises(UsageError, match="run"):
        make_private(directory)

    assert not (tmp_path / "nowhere").exists()
    assert what == "dangling link" or (tmp_path / "run").read_text() == "mine"


def test_a_directory_of_someone_else_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even made private: it is not ours to change."""
    directory = tmp_path / "run"
    directory.mkdir()
    directory.chmod(0o755)
    owner = directory.stat().st_uid
    if os.getuid() == 0:
        os.chown(directory, 65_534, 65_534)
        owner = 65_534
    else:
        monkeypatch.setattr(os, "getuid", lambda: owner + 1)

    with pytest.raises(UsageError, match=f"belongs to uid {owner}"):
        make_private(directory)

    assert mode_of(directory) == 0o755


@pytest.mark.parametrize("what", ["the directory above", "its directory", "the file"])
def test_a_log_that_somebody_else_chose_is_refused(tmp_path: Path, what: str) -> None:
    """Who owns it, or may put another one there, reads what we write."""
    if os.getuid() != 0:
        pytest.skip("only root can give files away")
    log = tmp_path / "state/logs/a.log"
    log.parent.mkdir(parents=True)
    log.touch()
    level = {"the file": log, "its directory": log.parent}.get(what, log.parent.parent)
    os.chown(level, STRANGER, -1)

    with pytest.raises(UnusablePlace, match=f"{log} .*belongs to uid {STRANGER}"):
        open_log(log)


@pytest.mark.parametrize("above", [0, 1])
def test_a_log_where_others_may_write_is_refused(tmp_path: Path, above: int) -> None:
    log = tmp_path / "state/logs/a.log"
    log.parent.mkdir(parents=True)
    log.parents[above].chmod(0o770)

    with pytest.raises(UnusablePlace, match=f"{log.parents[above]} may be written by others"):
        open_log(log)
