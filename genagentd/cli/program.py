"""Running one program: arguments in, one exit code out, and never a traceback.

Whatever goes wrong becomes one line on standard error, or one JSON object, and an
exit code of `exits`. `--debug` asks for the traceback instead.
"""

from __future__ import annotations

import errno
import functools
from collections.abc import Callable
from typing import Any

import click

from genagent_protocol.errors import GenAgentError
from genagentd.cli import exits, streams
from genagentd.cli.exits import Failure, failure_of
from genagentd.cli.output import Output, Unwritable
from genagentd.unusable import NoRoom


class Interrupted(Exception):
    """Ctrl-C, where there is nothing to say about it."""


#: What every command takes.
CONTEXT = {"max_content_width": 100}


def output() -> Output:
    """Return the output of the command that runs."""
    found = click.get_current_context().find_object(Output)
    assert found is not None
    return found


def flags(made: click.Command) -> None:
    """Let a command or a whole program take `--json`, `--debug` and `--help`.

    The first two are read before the command is, so that usage errors obey them too.
    """
    for flag, text in (
        ("--json", "Print JSON with stable keys."),
        ("--debug", "Show the traceback of an error."),
    ):
        made.params.append(click.Option([flag], is_flag=True, expose_value=False, help=text))
    # Not click's own, or the help would be the one answer that is printed past `Output`.
    made.add_help_option = False
    made.params.append(
        click.Option(
            ["-h", "--help"],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=_show_help,
            help="Show this message and exit.",
        )
    )


def _show_help(context: click.Context, _option: click.Parameter, wanted: bool) -> None:
    if wanted and not context.resilient_parsing:
        output().text(f"{context.get_help()}\n")
        context.exit()


def command(app: click.Group, name: str, **more: Any) -> Callable[[Callable[..., Any]], Any]:
    """Add a command to *app* that takes the flags and returns an exit code, or None for 0."""

    def add(function: Callable[..., Any]) -> Any:
        made = app.command(name, context_settings=CONTEXT, **more)(_quietly_interrupted(function))
        flags(made)
        return made

    return add


def _quietly_interrupted(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return *function* with an end by Ctrl-C that click does not announce by an empty line."""

    @functools.wraps(function)
    def run_it(*given: Any, **named: Any) -> Any:
        try:
            return function(*given, **named)
        except KeyboardInterrupt:
            raise Interrupted from None

    return run_it


def run(app: click.Group, prog: str, arguments: list[str]) -> int:
    """Run *app* and return its exit code."""
    try:
        return _run(app, prog, arguments)
    finally:
        streams.settle()


def _run(app: click.Group, prog: str, arguments: list[str]) -> int:
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    out = Output(as_json="--json" in own)
    try:
        return app.main(arguments, prog_name=prog, standalone_mode=False, obj=out) or exits.OK
    except BrokenPipeError:
        # Whoever read our output has enough.
        return exits.FAILED
    except (click.Abort, KeyboardInterrupt, Interrupted):
        return exits.INTERRUPTED
    except Exception as error:
        if "--debug" in own:
            raise
        failure = _failure(error, out)
        out.failure(prog, failure)
        return failure.exit_code


def _failure(error: Exception, out: Output) -> Failure:
    match error:
        case Failure():
            return error
        case click.ClickException():
            context = getattr(error, "ctx", None)
            hint = f"see: {context.command_path} --help" if context is not None else ""
            return Failure(exits.USAGE, "usage", error.format_message(), hint)
        case GenAgentError():
            return failure_of(error, out.command, out.agent)
        case Unwritable():
            return Failure(exits.FAILED, "not_written", str(error))
        case NoRoom():
            return Failure(exits.FAILED, "resource_exhausted", str(error))
        case OSError(errno=errno.EMFILE | errno.ENFILE):
            message = f"this command needs more open files than it may have: {error.strerror}"
            return Failure(exits.FAILED, "resource_exhausted", message, "see: ulimit -n")
        case OSError(errno=errno.EAGAIN):
            message = f"the system starts no more processes for you now: {error.strerror}"
            return Failure(exits.FAILED, "resource_exhausted", message, "see: ulimit -u")
        case MemoryError():
            message = "this command needs more memory than it may have"
            return Failure(exits.FAILED, "resource_exhausted", message, "see: ulimit -v")
        case _:
            message = f"{type(error).__name__}: {error}"
            return Failure(exits.FAILED, "internal", message, "run it again with --debug")
