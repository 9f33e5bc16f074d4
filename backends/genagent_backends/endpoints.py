"""Where an HTTP provider is, who we are there, and the options that all of them share.

A key is named, by an environment variable or a file, and read when a request is
made: it is in no option, no session and no printed value. Requests go to https, or
to http on this very machine, and to nowhere else. A server of this machine, which may
be anybody's, gets no key that was not named for it.
"""

from __future__ import annotations

import ipaddress
import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from genagent_backends.base import Failed
from genagent_backends.options import (
    BadValue,
    Chosen,
    Declared,
    Option,
    Unsupported,
    duration_ms,
    flag,
    mapping,
    read_options,
    refuse,
    text,
    whole,
)
from genagent_backends.secret_files import read_secret
from genagent_protocol.plain import FrozenDict, Plain

RECEIVE_TIMEOUT_MS = 60_000
CONNECT_TIMEOUT_MS = 15_000
NO_PROGRAM = "is not taken: this backend runs no program; start the agent with {}"
TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
#: What a user may not set: it names us, or it frames the message.
RESERVED_HEADERS = frozenset(
    {
        "authorization",
        "x-api-key",
        "anthropic-version",
        "content-type",
        "content-length",
        "content-encoding",
        "transfer-encoding",
        "accept",
        "accept-encoding",
        "connection",
        "keep-alive",
        "proxy-connection",
        "proxy-authorization",
        "upgrade",
        "expect",
        "te",
        "trailer",
        "host",
        "cookie",
    }
)


def base_url(value: Plain) -> str:
    """Accept an https URL, or an http one of this machine, without user, query and fragment.

    What is returned has scheme and host in lower case, whatever was given.
    """
    url = text(value)
    try:
        parts = urlsplit(url)
        host, _port = parts.hostname or "", parts.port
    except ValueError:
        raise BadValue("is no URL") from None
    if not host or not url.isprintable() or re.search(r"[\s\\]", url):
        raise BadValue("is no URL")
    if parts.username is not None or parts.password is not None:
        raise BadValue("must not have a user in it")
    if "?" in url or "#" in url:
        raise BadValue("must have neither query nor fragment")
    if parts.scheme == "https" or (parts.scheme == "http" and is_loopback(host)):
        return f"{parts.scheme}://{parts.netloc.lower()}{parts.path}".rstrip("/")
    raise BadValue("must be https, or http to this machine")


def is_loopback(host: str) -> bool:
    """Return whether *host* names this machine for certain."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_local(url: str) -> bool:
    """Return whether *url* leads to this machine for certain."""
    return is_loopback(urlsplit(url).hostname or "")


def header_fields(value: Plain) -> Mapping[str, str]:
    """Accept a mapping of header fields that neither name us nor frame the message.

    The names come back in lower case, in which there is one of each.
    """
    checked: dict[str, str] = {}
    for given, content in mapping(value).items():
        name = given.lower()
        if not TOKEN.fullmatch(given):
            raise BadValue("has a name that no header field can have")
        if name in RESERVED_HEADERS:
            raise BadValue(f"must not set {name}")
        if name in checked:
            raise BadValue(f"has {name} twice")
        if not isinstance(content, str) or not _header_safe(content):
            raise BadValue(f"must give {name} printable ASCII text")
        checked[name] = content
    return checked


def _header_safe(content: str) -> bool:
    return content.isascii() and content.isprintable() and content.strip() == content != ""


def request_fields(*reserved: str) -> Callable[[Plain], FrozenDict]:
    """Accept a mapping of further fields of the request, but for the *reserved* ones."""

    def check(value: Plain) -> FrozenDict:
        fields = mapping(value)
        for name in fields:
            if name in reserved:
                raise BadValue(f"must not set {name}")
        try:
            json.dumps(fields, allow_nan=False)
        except (TypeError, ValueError):
            raise BadValue("must be a mapping that JSON can express") from None
        return fields

    return check


def set_twice(fields: FrozenDict, options: Mapping[str, Option[Any]]) -> Failed | None:
    """Return the refusal of one of *fields* that an option sets, too; *options* are by field."""
    for name, option in options.items():
        if name in fields:
            said = f"option request_fields sets {name}, which option {option.name} sets, too"
            return refuse("conflicting_options", "request_fields", said)
    return None


def _variable_name(value: Plain) -> str:
    name = text(value)
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise BadValue("must be the name of an environment variable, not a key")
    return name


API_KEY_ENV: Option[str | None] = Option("api_key_env", _variable_name, None)
API_KEY_FILE: Option[str | None] = Option("api_key_file", text, None)
BASE_URL: Option[str | None] = Option("base_url", base_url, None)
HEADERS: Option[Mapping[str, str]] = Option("headers", header_fields, {})
MODEL: Option[str | None] = Option("model", text, None)
MAX_OUTPUT_TOKENS: Option[int | None] = Option(
    "max_output_tokens", whole(1), None, aliases=("max_tokens",)
)
SYSTEM_PROMPT: Option[str | None] = Option(
    "system_prompt", text, None, aliases=("system", "instructions")
)
MAX_HISTORY_TURNS: Option[int | None] = Option("max_history_turns", whole(0), None)
STREAM: Option[bool] = Option("stream", flag, True)
TIMEOUT_MS: Option[int | None] = Option("timeout_ms", duration_ms, None, aliases=("timeout",))
RECEIVE_MS: Option[int | None] = Option(
    "receive_timeout_ms", duration_ms, RECEIVE_TIMEOUT_MS, aliases=("receive_timeout",)
)
CONNECT_MS: Option[int | None] = Option(
    "connect_timeout_ms", duration_ms, CONNECT_TIMEOUT_MS, aliases=("connect_timeout",)
)
SHARED: tuple[Declared, ...] = (
    API_KEY_ENV,
    API_KEY_FILE,
    BASE_URL,
    HEADERS,
    MODEL,
    MAX_OUTPUT_TOKENS,
    SYSTEM_PROMPT,
    MAX_HISTORY_TURNS,
    STREAM,
    TIMEOUT_MS,
    RECEIVE_MS,
    CONNECT_MS,
    Unsupported("api_key", "is not taken: name it by api_key_env or api_key_file"),
    Unsupported("tools", "is not supported: nobody would run them"),
    # What the backends of programs take, where it may be meant for the agent.
    Unsupported("binary", "is not taken: this backend runs no program"),
    Unsupported("working_dir", NO_PROGRAM.format("--cwd")),
    Unsupported("cwd", NO_PROGRAM.format("--cwd")),
    Unsupported("env", NO_PROGRAM.format("--env")),
    Unsupported("env_files", "is not taken: a key is named by api_key_env or api_key_file"),
)


@dataclass(frozen=True, slots=True)
class KeySource:
    """Where the key is. `read` looks it up anew each time, so that it can be changed.

    `named` says whether an option named the place; a key that is `needed` must be sent.
    """

    variable: str | None = None
    file: str | None = None
    named: bool = False
    needed: bool = False

    def read(self) -> str | None:
        """Return the key, or None if there is none; a blank one is none."""
        try:
            key = self._stored().strip()
        except (OSError, UnicodeDecodeError):
            return None
        return key if key and _header_safe(key) else None

    def _stored(self) -> str:
        if self.file is None:
            return os.environ.get(self.variable or "", "")
        return read_secret(os.path.expanduser(self.file)).decode("utf-8")

    def why_missing(self) -> str:
        """Return why there is no key. The value of an option is not in it: it may be the key."""
        if self.file is None:
            which = "that option api_key_env names" if self.named else self.variable
            return f"the environment variable {which} holds no key that can be sent"
        try:
            self._stored()
        except OSError as error:
            return f"the file named by option api_key_file cannot be read: {error.strerror}"
        except UnicodeDecodeError:
            pass
        return "the file named by option api_key_file holds no key that can be sent"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One provider as it was chosen. Printing it shows names of headers only."""

    base_url: str
    key: KeySource
    model: str
    stream: bool
    system_prompt: str | None = field(repr=False)
    max_output_tokens: int | None
    max_history_turns: int | None
    headers: Mapping[str, str] = field(repr=False)
    request_fields: FrozenDict = field(repr=False)
    timeout_ms: int | None
    receive_timeout_ms: int | None
    connect_timeout_ms: int | None

    @property
    def local(self) -> bool:
        """Whether the provider is on this machine, where a key is not needed."""
        return is_local(self.base_url)

    @property
    def in_the_clear(self) -> bool:
        """Whether nothing proves who the provider is: for http to this machine, and only there."""
        return self.local and urlsplit(self.base_url).scheme == "http"


def read_endpoint(
    declared: tuple[Declared, ...],
    more_fields: Option[FrozenDict],
    options: FrozenDict,
    *,
    key_variable: str,
    url: str,
    is_address: Callable[[str], bool],
    check: Callable[[Chosen], Failed | None] = lambda _chosen: None,
) -> tuple[Endpoint, Chosen] | Failed:
    """Return the endpoint that *options* choose, or the first refusal.

    *declared* are the provider's own options, *more_fields* its `request_fields`;
    *is_address* knows to which URL a request can be sent, and *check* refuses what does
    not go together. The key is looked for last: where an
    option names the place, else in *key_variable*, which is for no server of this machine.
    """
    chosen = read_options((*SHARED, *declared, more_fields), options)
    if isinstance(chosen, Failed):
        return chosen
    if API_KEY_ENV.of(chosen) and API_KEY_FILE.of(chosen):
        return refuse(
            "conflicting_options",
            "api_key_file",
            "options api_key_env and api_key_file cannot both be given",
        )
    model = MODEL.of(chosen)
    if model is None:
        return refuse("invalid_option", "model", "option model must be given: model='NAME'")
    refused = check(chosen)
    if refused is not None:
        return refused
    where, variable, file = (
        BASE_URL.of(chosen) or url,
        API_KEY_ENV.of(chosen),
        API_KEY_FILE.of(chosen),
    )
    if not is_address(where):
        return refuse(
            "invalid_option", "base_url", "option base_url has no host that can be looked up"
        )
    named = variable is not None or file is not None
    # A server of this machine needs no key; but one that is named is meant to be sent.
    needed = named or not is_local(where)
    if needed and not named:
        variable = key_variable
    endpoint = Endpoint(
        where,
        KeySource(variable, file, named, needed),
        model,
        STREAM.of(chosen),
        SYSTEM_PROMPT.of(chosen),
        MAX_OUTPUT_TOKENS.of(chosen),
        MAX_HISTORY_TURNS.of(chosen),
        HEADERS.of(chosen),
        more_fields.of(chosen),
        TIMEOUT_MS.of(chosen),
        RECEIVE_MS.of(chosen),
        CONNECT_MS.of(chosen),
    )
    if endpoint.key.needed and endpoint.key.read() is None:
        return Failed(FrozenDict({"code": "missing_key", "message": endpoint.key.why_missing()}))
    return endpoint, chosen
