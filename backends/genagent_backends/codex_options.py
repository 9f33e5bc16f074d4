"""The options of the `codex` backend and the command lines they make.

A first turn and a resumed one are different subcommands with different flags, so
each option is spelt twice; what `exec resume` has no flag for is passed to `exec`, or
as a configuration override, last, so that it wins over the user's own overrides.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from genagent_backends.base import Failed
from genagent_backends.options import (
    BadValue,
    Chosen,
    Declared,
    Option,
    Unsupported,
    choice,
    duration_ms,
    flag,
    mapping,
    read_options,
    refuse,
    text,
    texts,
)
from genagent_backends.program_options import (
    MODEL,
    SHARED,
    Setting,
    file_path,
    file_paths,
    read_setting,
)
from genagent_backends.programs import CODEX
from genagent_protocol.plain import FrozenDict, Plain

IDLE_TIMEOUT_MS_DEFAULT = 300_000
SANDBOXES = {
    "read_only": "read-only",
    "workspace_write": "workspace-write",
    "danger_full_access": "danger-full-access",
}
#: Not `untrusted`: the program ended every turn for it in every version that we tried.
APPROVALS = {"on_request": "on-request", "never": "never"}
CONFIG_KEY = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")


def _overrides(value: Plain) -> Mapping[str, str]:
    """Accept a mapping from configuration keys to values, and write these as TOML."""
    written: dict[str, str] = {}
    for key, item in mapping(value).items():
        if not CONFIG_KEY.fullmatch(key):
            raise BadValue("has a key that is no dotted configuration key")
        written[key] = _toml(item)
    return written


def _images(value: Plain) -> tuple[str, ...]:
    """Accept one path of a file or a list of them; the program cuts each at its commas."""
    paths = file_paths(value)
    if any("," in path for path in paths):
        raise BadValue("has a path with a comma, which the program takes for two")
    return paths


def _toml(value: Plain) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float():
            return str(value)
        case str():
            return json.dumps(value, ensure_ascii=False)
        case tuple():
            return f"[{', '.join(_toml(item) for item in value)}]"
        case _:
            raise BadValue("has a value that is no text, number, truth value or list of them")


IDLE_TIMEOUT_MS: Option[int | None] = Option(
    "idle_timeout_ms", duration_ms, IDLE_TIMEOUT_MS_DEFAULT
)
SANDBOX: Option[str | None] = Option("sandbox", choice(*SANDBOXES), None)
APPROVAL: Option[str | None] = Option("approval_policy", choice(*APPROVALS), None)
FULL_AUTO: Option[bool] = Option("full_auto", flag, False)
BYPASS: Option[bool] = Option("bypass", flag, False)
SKIP_GIT_CHECK: Option[bool] = Option("skip_git_repo_check", flag, False)
IGNORE_USER_CONFIG: Option[bool] = Option("ignore_user_config", flag, False)
PROFILE: Option[str | None] = Option("profile", text, None)
OVERRIDES: Option[Mapping[str, str]] = Option("config_overrides", _overrides, {})
ENABLED: Option[tuple[str, ...]] = Option("enabled_features", texts, ())
DISABLED: Option[tuple[str, ...]] = Option("disabled_features", texts, ())
IMAGES: Option[tuple[str, ...]] = Option("images", _images, ())
OUTPUT_SCHEMA: Option[str | None] = Option("output_schema", file_path, None)
RESPONSE_TEXT: Option[str] = Option(
    "response_text", choice("all_messages", "final_message"), "all_messages"
)
_LOST = "cannot be kept when the thread is resumed"
_NOT_HERE = "is not an option of the program; write it into AGENTS.md"
UNSUPPORTED = (
    Unsupported("cd", f"{_LOST}; use working_dir"),
    Unsupported("add_dirs", _LOST),
    Unsupported("search", _LOST),
    Unsupported("ephemeral", "would lose the thread: later turns resume it"),
    Unsupported("verbose", "is not an option of the program"),
    Unsupported("system_prompt", _NOT_HERE),
    Unsupported("max_output_tokens", _NOT_HERE),
    Unsupported("resume", "is not the backend's; start the agent with a session id"),
)
DECLARED: tuple[Declared, ...] = (
    *SHARED,
    IDLE_TIMEOUT_MS,
    SANDBOX,
    APPROVAL,
    FULL_AUTO,
    BYPASS,
    SKIP_GIT_CHECK,
    IGNORE_USER_CONFIG,
    PROFILE,
    OVERRIDES,
    ENABLED,
    DISABLED,
    IMAGES,
    OUTPUT_SCHEMA,
    RESPONSE_TEXT,
    *UNSUPPORTED,
)


@dataclass(frozen=True, slots=True, repr=False)
class CodexSettings:
    """What the options came to. Printing it shows no values."""

    setting: Setting
    #: Flags of `exec` itself, which both turns have.
    exec_flags: tuple[str, ...]
    flags: tuple[str, ...]
    #: Flags that `exec resume` does not have.
    first_flags: tuple[str, ...]
    #: What stands for them there.
    resumed_flags: tuple[str, ...]
    final_message_only: bool

    def __repr__(self) -> str:
        return f"CodexSettings({self.setting.program})"

    def argv(self, thread_id: str | None) -> tuple[str, ...]:
        """Return the command line of a thread's first turn, or of one that resumes it.

        The prompt is read from standard input; the thread's id follows `--`, since
        it comes from outside.
        """
        begun = (self.setting.program, "exec", *self.exec_flags)
        if thread_id is None:
            return (*begun, *self.flags, *self.first_flags, "--json", "-")
        resumed = (*self.flags, *self.resumed_flags, "--json", "--", thread_id, "-")
        return (*begun, "resume", *resumed)


def read_codex_options(options: FrozenDict) -> CodexSettings | Failed:
    """Return the settings that *options* mean, or the first refusal."""
    chosen = read_options(DECLARED, options)
    if isinstance(chosen, Failed):
        return chosen
    sandbox = _sandbox(chosen)
    if isinstance(sandbox, Failed):
        return sandbox
    setting = read_setting(CODEX, chosen, idle_ms=IDLE_TIMEOUT_MS.of(chosen), more_env={})
    if isinstance(setting, Failed):
        return setting
    profile = PROFILE.of(chosen)
    approval = _override("approval_policy", APPROVALS.get(APPROVAL.of(chosen) or ""))
    return CodexSettings(
        setting,
        (f"--profile={profile}",) if profile else (),
        _flags(chosen),
        (*((f"--sandbox={sandbox}",) if sandbox else ()), *approval),
        (*_override("sandbox_mode", sandbox), *approval),
        RESPONSE_TEXT.of(chosen) == "final_message",
    )


def _sandbox(chosen: Chosen) -> str | Failed | None:
    """Return the sandbox mode; `full_auto`, whose flag is gone, means one that may write."""
    named = SANDBOX.of(chosen)
    if BYPASS.of(chosen) and (named or FULL_AUTO.of(chosen)):
        return refuse(
            "conflicting_options", "bypass", "option bypass leaves nothing for a sandbox to do"
        )
    if FULL_AUTO.of(chosen):
        if named not in (None, "workspace_write"):
            return refuse(
                "conflicting_options", "full_auto", "option full_auto means another sandbox"
            )
        return SANDBOXES["workspace_write"]
    return SANDBOXES[named] if named else None


def _flags(chosen: Chosen) -> tuple[str, ...]:
    switches = {
        "--skip-git-repo-check": SKIP_GIT_CHECK.of(chosen),
        "--ignore-user-config": IGNORE_USER_CONFIG.of(chosen),
        "--dangerously-bypass-approvals-and-sandbox": BYPASS.of(chosen),
    }
    named = {"--model": MODEL.of(chosen), "--output-schema": OUTPUT_SCHEMA.of(chosen)}
    listed = {
        "--enable": ENABLED.of(chosen),
        "--disable": DISABLED.of(chosen),
        "--image": IMAGES.of(chosen),
    }
    return (
        *(flag for flag, on in switches.items() if on),
        *(f"{flag}={value}" for flag, value in named.items() if value is not None),
        *(f"{flag}={value}" for flag, values in listed.items() for value in values),
        *(f"--config={key}={value}" for key, value in OVERRIDES.of(chosen).items()),
    )


def _override(key: str, value: str | None) -> tuple[str, ...]:
    return () if value is None else (f'--config={key}="{value}"',)
