"""The generated pages of the reference: made of the code's own words, so that they cannot drift.

Run by `scripts/reference`; with `--check` it says which pages are stale.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
import typing
from collections.abc import Iterator
from pathlib import Path

import click

from genagent_protocol import reasons
from genagent_protocol.bounds import MAX_FRAME_BYTES, Limits
from genagent_protocol.codec import MAX_PAYLOAD_BYTES
from genagentd import RestartPolicy, config, environment
from genagentd.cli import agents, daemon_commands, exits
from genagentd.cli.main import load_commands
from genagentd.daemon.allowance import PER_AGENT, RESERVED
from genagentd.daemon.birth import MAX_ORDER_BYTES
from genagentd.sendable import MAX_ENVIRONMENT_BYTES
from support.reference_markdown import filled, first_sentences, table, words
from support.reference_python import python_page

DIRECTORY = Path(__file__).parents[2] / "docs/reference"


def pages() -> dict[str, str]:
    """Return the text of every generated page, by file name."""
    return {
        "cli.md": cli_page(),
        "python.md": python_page(),
        "reasons.md": reasons_page(),
        "configuration.md": configuration_page(),
    }


# --- command line


def cli_page() -> str:
    """Return every command with every option."""
    load_commands()
    parts = []
    for program, app in (("genagentd", daemon_commands.app), ("genagent", agents.app)):
        parts += [f"## {program}", _help(app)]
        for name in sorted(app.commands):
            parts += _command(program, name, app.commands[name])
    return filled("cli.md", commands="\n\n".join(parts))


def _command(program: str, name: str, command: click.Command) -> Iterator[str]:
    context = click.Context(command, info_name=f"{program} {name}")
    yield f"### {program} {name}"
    yield f"`{program} {name} {' '.join(command.collect_usage_pieces(context))}`"
    yield _help(command)
    rows = [
        (_spelled(option), _said(option, context))
        for option in command.params
        if isinstance(option, click.Option) and _told(option)
    ]
    if rows:
        yield table(("option", "what it does"), rows)
    yield from _keys(f"{program} {name}")


def _keys(command: str) -> Iterator[str]:
    """Yield what stands in the object that *command* prints with `--json`."""
    keys = words("keys")[command]
    if keys:
        yield f"With `--json`: `ok`, {', '.join(f'`{key}`' for key in keys.split())}." + (
            f" {words('key_notes')[command]}" if command in words("key_notes") else ""
        )
    elif command in words("key_notes"):
        yield f"With `--json`: {words('key_notes')[command]}"


def _told(option: click.Option) -> bool:
    return not option.hidden and not {"--json", "--debug", "--help"} & set(option.opts)


def _help(command: click.Command) -> str:
    blocks = inspect.cleandoc(command.help or "").split("\n\n")
    return "\n\n".join(
        "```text\n" + block.removeprefix("\b").strip("\n") + "\n```"
        if block.startswith("\b")
        else " ".join(block.split())
        for block in blocks
    )


def _spelled(option: click.Option) -> str:
    names = ", ".join([*option.opts, *option.secondary_opts])
    if option.is_flag:
        return f"`{names}`"
    if option.metavar is None and isinstance(option.type, click.Choice):
        return f"`{names}` " + " or ".join(f"`{choice}`" for choice in option.type.choices)
    # As `--help` spells it.
    return f"`{names} {option.metavar or option.type.name.upper()}`"


def _said(option: click.Option, context: click.Context) -> str:
    default = option.get_help_extra(context).get("default")
    return (option.help or "") + (f" Default: `{default}`." if default else "")


# --- reasons and exit codes


def reasons_page() -> str:
    """Return what is said when the answer is no, when a turn fails, and when a life ends."""
    structured = [kind for kind in typing.get_args(reasons.Failure) if kind is not reasons.Reason]
    numbers = {name: value for name, value in vars(exits).items() if type(value) is int}
    said = words("exits")
    assert set(numbers) == set(said), f"exit codes without words: {set(numbers) ^ set(said)}"
    return filled(
        "reasons.md",
        codes=_explained("codes", typing.get_args(reasons.Code)),
        structured=table(
            ("code", "fields", "what it means"),
            [(f"`{kind.code}`", _fields(kind), first_sentences(kind)) for kind in structured],
        ),
        starts=", ".join(f"`{kind}`" for kind in _start_kinds()) + ".",
        ends=_explained("ends", _documented_ends()),
        exits=table(
            ("code", "what it means"),
            [(f"{numbers[name]}", said[name]) for name in sorted(numbers, key=numbers.__getitem__)],
        ),
    )


def _start_kinds() -> tuple[str, ...]:
    field = next(f for f in dataclasses.fields(reasons.StartError) if f.name == "kind")
    return tuple(re.findall(r'[\'"](\w+)[\'"]', str(field.type)))


def _documented_ends() -> tuple[str, ...]:
    """Return the texts that `ExitReason` names itself."""
    paragraph = (reasons.ExitReason.__doc__ or "").split("\n\n")[1]
    return tuple(re.findall(r"`([a-z_]+(?::N)?)`", paragraph.split("one of")[1].split(". ")[0]))


def _explained(section: str, names: tuple[str, ...]) -> str:
    said = words(section)
    assert set(names) == set(said), f"{section}: {set(names) ^ set(said)}"
    return table(("code", "what it means"), [(f"`{name}`", said[name]) for name in names])


def _fields(kind: type) -> str:
    assert dataclasses.is_dataclass(kind)
    return ", ".join(f"`{field.name}`" for field in dataclasses.fields(kind))


# --- configuration


def configuration_page() -> str:
    """Return the daemon's configuration, its directories, and the limits of an agent."""
    settings, limits, restarts = words("config"), words("limits"), words("restarts")
    return filled(
        "configuration.md",
        settings=table(
            ("key", "variable", "default", "what it is"),
            [
                (f"`{name}`", f"`GENAGENT_{name.upper()}`", default, settings[name])
                for name, default in _defaults(config.Config)
            ],
        ),
        allowed=", ".join(
            [
                *(f"`{name}`" for name in environment.ALLOWED),
                *(f"`{name}*`" for name in environment.ALLOWED_PREFIXES),
            ]
        ),
        stripped=", ".join(
            [
                *(f"`{name}*`" for name in environment.STRIPPED_PREFIXES),
                *(f"`{name}`" for name in environment.STRIPPED),
            ]
        ),
        limits=table(
            ("limit", "default", "what it bounds"),
            [(f"`{name}`", default, limits[name]) for name, default in _defaults(Limits)],
        ),
        added=f"{MAX_ENVIRONMENT_BYTES:,}",
        order=f"{MAX_ORDER_BYTES:,}",
        frame=f"{MAX_FRAME_BYTES:,}",
        payload=f"{MAX_PAYLOAD_BYTES:,}",
        reserved=str(RESERVED),
        per_agent=str(PER_AGENT),
        restarts=table(
            ("field", "default", "what it says"),
            [(f"`{name}`", default, restarts[name]) for name, default in _defaults(RestartPolicy)],
        ),
    )


def _defaults(kind: type) -> Iterator[tuple[str, str]]:
    assert dataclasses.is_dataclass(kind)
    for field in dataclasses.fields(kind):
        yield field.name, _shown(field.default)


def _shown(value: object) -> str:
    if value is None or value == ():
        return "none"
    return f"{value:,}" if type(value) is int else f"`{value}`"


# --- writing


def stale() -> list[str]:
    """Return the generated pages that are not what the code says."""
    found = []
    for name, text in pages().items():
        path = DIRECTORY / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            found.append(name)
    return found


def main() -> None:
    """Write the pages, or with `--check` say which are stale."""
    if sys.argv[1:] == ["--check"]:
        if found := stale():
            sys.exit(f"docs/reference: {', '.join(found)}: run scripts/reference")
        return
    for name, text in pages().items():
        (DIRECTORY / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
