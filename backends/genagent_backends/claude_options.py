"""The options of the `claude` backend and the command line they make.

Every option is passed on every turn, resumed ones included, but for those that
choose the conversation of the first. The prompt is never on the command line.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from genagent_backends.base import Failed
from genagent_backends.options import (
    BadValue,
    Chosen,
    Declared,
    Option,
    Unsupported,
    amount,
    choice,
    duration_ms,
    flag,
    read_options,
    refuse,
    text,
    texts,
    whole,
)
from genagent_backends.program_options import (
    MODEL,
    SHARED,
    Setting,
    directory,
    file_path,
    file_paths,
    json_mapping,
    read_setting,
)
from genagent_backends.programs import CLAUDE
from genagent_protocol.plain import FrozenDict, Plain

PERMISSION_MODES = {
    "default": "default",
    "manual": "manual",
    "accept_edits": "acceptEdits",
    "bypass_permissions": "bypassPermissions",
    "plan": "plan",
    "dont_ask": "dontAsk",
    "auto": "auto",
}


def _directories(value: Plain) -> tuple[str, ...]:
    return tuple(directory(item) for item in texts(value))


def _uuid(value: Plain) -> str:
    if not re.fullmatch(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", text(value)):
        raise BadValue("must be a UUID")
    return text(value)


def _flag_option(name: str) -> Option[bool]:
    return Option(name, flag, False)


def _text_option(name: str, check: Callable[[Plain], str] = text) -> Option[str | None]:
    return Option(name, check, None)


def _list_option(name: str) -> Option[tuple[str, ...]]:
    return Option(name, texts, ())


IDLE_TIMEOUT_MS: Option[int | None] = Option("idle_timeout_ms", duration_ms, None)
MODE: Option[str] = Option("mode", choice("process", "duplex"), "process")
PARTIAL: Option[bool] = Option("include_partial_messages", flag, True)
HERMETIC = _flag_option("hermetic")
SETTING_SOURCES: Option[tuple[str, ...] | None] = Option("setting_sources", texts, None)
PERMISSION_MODE = _text_option("permission_mode", choice(*PERMISSION_MODES))
STRICT_MCP = _flag_option("strict_mcp_config")
STATIC_PROMPT = _flag_option("exclude_dynamic_system_prompt_sections")
MAX_OUTPUT_TOKENS: Option[int | None] = Option(
    "max_output_tokens", whole(1), None, aliases=("max_tokens",)
)
MAX_BUDGET_USD: Option[float | None] = Option("max_budget_usd", amount, None)
MAX_RETRIES: Option[int | None] = Option("max_retries", whole(0), None)
#: None is every tool, and an empty list no tool at all.
TOOLS: Option[tuple[str, ...] | None] = Option("tools", texts, None)
SYSTEM_PROMPT = _text_option("system_prompt")
SYSTEM_PROMPT_FILE = _text_option("system_prompt_file", file_path)
APPEND_PROMPT = _text_option("append_system_prompt")
APPEND_PROMPT_FILE = _text_option("append_system_prompt_file", file_path)
SESSION_ID = _text_option("session_id", _uuid)
CONTINUE = _flag_option("continue_session")
FORK = _flag_option("fork_session")

#: Options that become the flag of the same name, the same on every turn.
FLAGS: tuple[Option[Any], ...] = (
    MODEL,
    _text_option("fallback_model"),
    SYSTEM_PROMPT,
    SYSTEM_PROMPT_FILE,
    APPEND_PROMPT,
    APPEND_PROMPT_FILE,
    Option("max_turns", whole(1), None),
    MAX_BUDGET_USD,
    Option("max_thinking_tokens", whole(0), None),
    _text_option("effort", choice("low", "medium", "high", "xhigh", "max")),
    Option("json_schema", json_mapping, None),
    TOOLS,
    _list_option("allowed_tools"),
    _list_option("disallowed_tools"),
    Option("mcp_config", file_paths, ()),
    STRICT_MCP,
    _text_option("settings", file_path),
    Option("add_dir", _directories, ()),
    Option("plugin_dir", _directories, ()),
    _text_option("agent"),
    Option("agents", json_mapping, None),
    _list_option("betas"),
    _flag_option("bare"),
    _flag_option("safe_mode"),
    _flag_option("restricted"),
    _flag_option("disable_slash_commands"),
    STATIC_PROMPT,
    _flag_option("forward_subagent_text"),
    _flag_option("include_hook_events"),
    PARTIAL,
)
SPELT_OTHERWISE = {"allowed_tools": "allowedTools", "disallowed_tools": "disallowedTools"}

UNSUPPORTED = (
    Unsupported("no_session_persistence", "would lose the conversation: later turns resume it"),
    Unsupported("worktree", "would be made anew for every turn; make one and set working_dir"),
    Unsupported("resume", "is not the backend's; start the agent with a session id"),
    Unsupported("verbose", "is set by the backend"),
    Unsupported("output_format", "is set by the backend"),
    Unsupported("input_format", "is set by the backend; use mode"),
    Unsupported("dangerously_skip_permissions", "is spelt permission_mode=bypass_permissions"),
)
DECLARED: tuple[Declared, ...] = (
    *SHARED,
    *(option for option in FLAGS if option is not MODEL),
    IDLE_TIMEOUT_MS,
    MODE,
    HERMETIC,
    SETTING_SOURCES,
    PERMISSION_MODE,
    MAX_OUTPUT_TOKENS,
    MAX_RETRIES,
    SESSION_ID,
    CONTINUE,
    FORK,
    *UNSUPPORTED,
)
#: Two that cannot both be meant.
EXCLUSIVE = (
    (SYSTEM_PROMPT, SYSTEM_PROMPT_FILE),
    (APPEND_PROMPT, APPEND_PROMPT_FILE),
    (HERMETIC, SETTING_SOURCES),
    (SESSION_ID, CONTINUE),
)


@dataclass(frozen=True, slots=True, repr=False)
class ClaudeSettings:
    """What the options came to. Printing it shows no values."""

    setting: Setting
    flags: tuple[str, ...]
    #: Flags of a conversation's first turn only: together with --resume they are an error.
    first_flags: tuple[str, ...]
    fork: bool
    duplex: bool
    #: Whether a turn may cost so much and no more.
    budgeted: bool

    def __repr__(self) -> str:
        return f"ClaudeSettings({self.setting.program})"

    def argv(self, resumed: str | None, *, forked: bool) -> tuple[str, ...]:
        """Return the command line that begins a conversation, or goes on with *resumed*."""
        conversation = self.first_flags if resumed is None else (f"--resume={resumed}",)
        fork = ("--fork-session",) if forked else ()
        duplex = ("--input-format=stream-json", "--replay-user-messages") if self.duplex else ()
        base = ("--print", "--output-format=stream-json", "--verbose")
        return (self.setting.program, *base, *duplex, *self.flags, *conversation, *fork)

    def chooses_another(self, session_id: str) -> Failed | None:
        """Return the refusal of options that choose another conversation than *session_id*."""
        if self.first_flags in ((), _flag(SESSION_ID.name, session_id)):
            return None
        option = CONTINUE if "--continue" in self.first_flags else SESSION_ID
        said = f"option {option.name} chooses a conversation, and the start resumes another one"
        return refuse("conflicting_options", option.name, said)


def read_claude_options(options: FrozenDict) -> ClaudeSettings | Failed:
    """Return the settings that *options* mean, or the first refusal."""
    chosen = read_options(DECLARED, options)
    if isinstance(chosen, Failed):
        return chosen
    for one, other in EXCLUSIVE:
        if one.of(chosen) and other.of(chosen):
            return refuse(
                "conflicting_options",
                other.name,
                f"options {one.name} and {other.name} cannot both be given",
            )
    setting = read_setting(
        CLAUDE, chosen, idle_ms=IDLE_TIMEOUT_MS.of(chosen), more_env=_variables(chosen)
    )
    if isinstance(setting, Failed):
        return setting
    return ClaudeSettings(
        setting,
        _flags(chosen),
        _first_flags(chosen),
        FORK.of(chosen),
        MODE.of(chosen) == "duplex",
        MAX_BUDGET_USD.of(chosen) is not None,
    )


def _variables(chosen: Chosen) -> dict[str, str]:
    """Return the environment variables that stand for options without a flag."""
    named = {
        "CLAUDE_CODE_MAX_OUTPUT_TOKENS": MAX_OUTPUT_TOKENS.of(chosen),
        "CLAUDE_CODE_MAX_RETRIES": MAX_RETRIES.of(chosen),
    }
    return {name: str(value) for name, value in named.items() if value is not None}


def _flags(chosen: Chosen) -> tuple[str, ...]:
    flags = [part for option in FLAGS for part in _flag(option.name, option.of(chosen))]
    if TOOLS.of(chosen) == ():
        flags.append("--tools=")
    if (mode := PERMISSION_MODE.of(chosen)) is not None:
        flags.append(f"--permission-mode={PERMISSION_MODES[mode]}")
    if (sources := SETTING_SOURCES.of(chosen)) is not None:
        flags.append(f"--setting-sources={','.join(sources)}")
    if HERMETIC.of(chosen):
        flags.append("--setting-sources=")
        flags += [
            part
            for option in (STRICT_MCP, STATIC_PROMPT)
            if not option.of(chosen)
            for part in _flag(option.name, True)
        ]
    return tuple(flags)


def _first_flags(chosen: Chosen) -> tuple[str, ...]:
    return (*_flag(SESSION_ID.name, SESSION_ID.of(chosen)), *_flag("continue", CONTINUE.of(chosen)))


def _flag(name: str, value: object) -> tuple[str, ...]:
    # One word per flag: a value that begins with a dash cannot become a flag of its own.
    spelt = "--" + SPELT_OTHERWISE.get(name, name.replace("_", "-"))
    match value:
        case None | False:
            return ()
        case True:
            return (spelt,)
        case tuple():
            return tuple(f"{spelt}={item}" for item in value)
        case _:
            return (f"{spelt}={value}",)
