"""What people type, and what they get shown."""

from __future__ import annotations

import errno
import io
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from genagent_protocol.answers import Status
from genagent_protocol.codec import MAX_PAYLOAD_BYTES
from genagent_protocol.errors import TooLarge
from genagentd.cli import exits, values
from genagentd.cli.exits import Failure
from genagentd.cli.output import duration, harmless, shortened, table


@pytest.mark.parametrize(
    ("typed", "name"),
    [("a", "a"), ('json:["a",1]', ["a", 1]), ("json:1.0", 1.0), ("[1]", "[1]"), ("json", "json")],
)
def test_a_name_is_text_unless_it_says_json(typed: str, name: object) -> None:
    """D29."""
    assert values.name_of(typed) == name


def test_a_name_that_says_json_must_be_json() -> None:
    """A typo is told."""
    with pytest.raises(click.BadParameter):
        values.name_of("json:[")


@pytest.mark.parametrize(
    ("typed", "problem"),
    [
        ("[" * 100_000 + "]" * 100_000, "nested too deeply"),
        ("[" * 100_000, "nested too deeply"),
        ("[" * 500 + "]" * 500, "nested deeper than 64 levels"),
        ("9" * 5_000, "an integer of more than 64 bits"),
        ("9" * 30, "an integer of more than 64 bits"),
        ('{"a": "\\ud800"}', "lone surrogate"),
    ],
    ids=["deep", "open", "less deep", "digits", "large", "surrogate"],
)
@pytest.mark.parametrize(
    "read",
    [
        lambda text: values.name_of(f"json:{text}"),
        values.json_or_text,
        lambda text: values.option_of(f"key={text}"),
    ],
    ids=["name", "argument", "option"],
)
def test_json_that_no_message_holds_is_told_in_one_line(
    read: Callable[[str], object], typed: str, problem: str
) -> None:
    """Wherever people type JSON; it is neither text nor a fault of the program."""
    with pytest.raises(click.BadParameter, match=problem) as refused:
        read(typed)

    assert len(refused.value.message) < 300
    assert "\n" not in refused.value.message


@pytest.mark.parametrize("read", [values.name_of, values.option_of, values.seconds])
def test_what_was_typed_wrongly_is_told_in_part(read: Callable[[str], object]) -> None:
    """A screen of it would hide what is wrong with it."""
    with pytest.raises(click.BadParameter) as refused:
        read("json:" + "x" * 100_000)

    assert len(refused.value.message) < 300


@pytest.mark.parametrize(
    ("name", "shown"),
    [("a", "a"), ("a\x1b[31m\n", "a\\x1b[31m\\n"), (("a", 1), 'json:["a", 1]'), (1, "json:1")],
)
def test_a_name_is_shown_as_it_is_typed_and_harmless(name: object, shown: str) -> None:
    """What is shown can be copied; control characters are escaped (D29)."""
    assert values.shown(name) == shown


@pytest.mark.parametrize(
    ("typed", "option"),
    [
        ("a=1", ("a", 1)),
        ("a=true", ("a", True)),
        ("a=text", ("a", "text")),
        ('a="1"', ("a", "1")),
        ("a=b=c", ("a", "b=c")),
        ("a=", ("a", "")),
        ('a={"x": [1]}', ("a", {"x": [1]})),
    ],
)
def test_an_option_is_json_or_else_text(typed: str, option: tuple[str, object]) -> None:
    """Numbers need no quotes, and text needs none either."""
    assert values.option_of(typed) == option


@pytest.mark.parametrize("typed", ["novalue", "=1", ""])
def test_an_option_has_a_key_and_a_value(typed: str) -> None:
    """Exit 2, not an agent that ignores it."""
    with pytest.raises(click.BadParameter):
        values.option_of(typed)


def test_a_variable_is_always_text() -> None:
    """The environment knows nothing else."""
    assert values.variable_of("A=1") == ("A", "1")


def from_stdin(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))


def test_a_prompt_comes_from_exactly_one_place(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """An argument, standard input, or a file, byte for byte."""
    file = tmp_path / "prompt"
    file.write_bytes("line\r\nä\n".encode())
    from_stdin(monkeypatch, "line\r\nü\n".encode())

    assert values.payload_text("words", None, "prompt") == "words"
    assert values.payload_text("-", None, "prompt") == "line\r\nü\n"
    assert values.payload_text(None, str(file), "prompt") == "line\r\nä\n"


@pytest.mark.parametrize(("argument", "file"), [(None, None), ("a", "b"), (None, "/no/such/file")])
def test_two_prompts_or_none_are_refused(argument: str | None, file: str | None) -> None:
    """Neither is guessed."""
    with pytest.raises(Failure) as failure:
        values.payload_text(argument, file, "prompt")
    assert failure.value.exit_code == 2


def test_a_prompt_that_is_not_utf8_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rather than sent as something else."""
    from_stdin(monkeypatch, b"\xff")

    with pytest.raises(Failure, match="UTF-8"):
        values.payload_text("-", None, "prompt")


def test_a_terminal_is_not_asked_for_a_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing ever waits for somebody to type."""

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stdin", Terminal())

    with pytest.raises(Failure, match="terminal"):
        values.payload_text("-", None, "prompt")


def test_every_field_of_an_answer_has_its_key() -> None:
    """Defaults included: keys of the JSON are stable."""
    status = Status(
        state="idle",
        name="a",
        queued=0,
        current_request=None,
        halted=False,
        halt_pending=False,
        draining=False,
        agent_state=None,
    )

    assert set(values.fields_of(status)) == {
        *("state", "name", "queued", "current_request"),
        *("halted", "halt_pending", "draining", "agent_state"),
    }


def test_control_characters_are_shown_on_a_terminal() -> None:
    """Text of a provider must not move the cursor or rename the window."""
    assert harmless("a\tb\n\x1b]0;x\x07\r\u009bä") == "a\tb\n\\x1b]0;x\\x07\\r\\x9bä"


@pytest.mark.parametrize(
    ("ms", "shown"),
    [(0, "0s"), (59_999, "59s"), (61_000, "1m01s"), (3_660_000, "1h01m"), (90_000_000, "1d01h")],
)
def test_durations_are_two_units_long_at_most(ms: int, shown: str) -> None:
    """Precise enough to act on."""
    assert duration(ms) == shown


def test_tables_are_aligned_and_carry_no_spaces_at_the_end() -> None:
    """They are read by people and cut by scripts."""
    assert table(("A", "LONG"), [("xyz", "1"), ("x", "")]) == "A    LONG\nxyz  1\nx"


def test_long_text_is_cut_visibly() -> None:
    """A transcript does not fill the terminal."""
    assert shortened("ab", 2) == "ab"
    assert shortened("abc", 2) == "ab…"


class _Unreadable(io.RawIOBase):
    """What is open for writing only."""

    def readable(self) -> bool:
        return True

    def readinto(self, _buffer: object) -> int:
        raise OSError(errno.EBADF, "Bad file descriptor")


@pytest.mark.parametrize(
    ("stdin", "told"),
    [
        (None, "the prompt is to come from stdin, which is closed"),
        (io.TextIOWrapper(io.BufferedReader(_Unreadable())), "stdin: Bad file descriptor"),
    ],
    ids=["closed", "not for reading"],
)
def test_stdin_that_cannot_be_read_is_told(
    monkeypatch: pytest.MonkeyPatch, stdin: object, told: str
) -> None:
    """It is no fault of the program."""
    monkeypatch.setattr(sys, "stdin", stdin)

    with pytest.raises(Failure) as failed:
        values.payload_text("-", None, "prompt")

    assert (failed.value.exit_code, failed.value.message) == (exits.USAGE, told)


@pytest.mark.parametrize(("argument", "file"), [("-", None), (None, "/dev/zero")])
def test_what_has_no_end_is_read_as_far_as_a_message_goes(
    monkeypatch: pytest.MonkeyPatch, argument: str | None, file: str | None
) -> None:
    """A device that was named by mistake took all memory there was."""
    with open("/dev/zero", encoding="utf-8") as endless:
        monkeypatch.setattr(sys, "stdin", endless)

        with pytest.raises(TooLarge, match="prompt: more than 8388608 bytes"):
            values.payload_text(argument, file, "prompt")


def test_the_longest_prompt_is_read_whole(tmp_path: Path) -> None:
    """The limit itself is judged where the message is made."""
    file = tmp_path / "long"
    file.write_text("a" * MAX_PAYLOAD_BYTES)

    assert len(values.payload_text(None, str(file), "prompt")) == MAX_PAYLOAD_BYTES
