"""Where requests go, who we are there, and that a key is seen by nobody else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genagent_backends.anthropic import AnthropicBackend
from genagent_backends.base import Backend, Failed
from genagent_backends.chat import ChatBackend
from genagent_backends.endpoints import (
    KeySource,
    base_url,
    header_fields,
    is_loopback,
    read_endpoint,
    request_fields,
)
from genagent_backends.openai import OpenAIBackend
from genagent_backends.options import BadValue, Option
from genagent_backends.programs import Environment
from genagent_backends.rehearsal import rehearse, settled
from genagent_backends.secret_files import MAX_SECRET_BYTES
from genagent_backends.transport import Connections, is_address
from genagent_protocol.plain import FrozenDict, freeze
from support.fake_provider import FakeProvider, Says

BACKENDS: list[type[Backend]] = [AnthropicBackend, OpenAIBackend, ChatBackend]
VARIABLES = {
    AnthropicBackend: "ANTHROPIC_API_KEY",
    OpenAIBackend: "OPENAI_API_KEY",
    ChatBackend: "OPENAI_API_KEY",
}
NO_FIELDS = Option("request_fields", request_fields(), FrozenDict())


def _spelt(data: st.DataObject, word: str) -> str:
    upper = data.draw(st.lists(st.booleans(), min_size=len(word), max_size=len(word)))
    return "".join(c.upper() if up else c for c, up in zip(word, upper, strict=True))


async def start(backend: type[Backend], **options: object) -> object:
    frozen = freeze({"model": "m", **options})
    assert isinstance(frozen, FrozenDict)
    return await settled(backend().start_session(frozen))


def code(answer: object) -> tuple[object, object]:
    assert isinstance(answer, Failed), answer
    assert isinstance(answer.reason, FrozenDict)
    return answer.reason["code"], answer.reason.get("option")


@pytest.mark.parametrize(
    ("url", "kept"),
    [
        ("https://api.example.com/v1/", "https://api.example.com/v1"),
        ("https://api.example.com:8443", "https://api.example.com:8443"),
        ("http://127.0.0.1:8080/v1", "http://127.0.0.1:8080/v1"),
        ("http://127.9.9.9", "http://127.9.9.9"),
        ("http://localhost:1", "http://localhost:1"),
        ("http://[::1]:8080", "http://[::1]:8080"),
        ("HTTPS://API.Example.com/V1", "https://api.example.com/V1"),
        ("Http://LocalHost:1/", "http://localhost:1"),
    ],
)
def test_https_is_taken_and_http_on_this_machine(url: str, kept: str) -> None:
    """A model of one's own has no certificate."""
    assert base_url(url) == kept


@pytest.mark.parametrize(
    "url",
    [
        "http://api.example.com",
        "http://127.0.0.1.example.com",
        "http://localhost.example.com",
        "http://0.0.0.0",
        "http://10.0.0.1",
        "https://user@api.example.com",
        "https://user:pass@api.example.com",
        "https://@api.example.com",
        "https://api.example.com?key=x",
        "https://api.example.com#x",
        "https://api.example.com\n",
        "https://api.example.com\\@evil",
        "\x01https://api.example.com",
        "ftp://api.example.com",
        "file:///etc/passwd",
        "api.example.com",
        "https://",
        "https://[::1",
        "https://host:port",
        "",
        7,
    ],
)
def test_everything_else_is_refused(url: str | int) -> None:
    """The key and the conversation would go there."""
    with pytest.raises(BadValue):
        base_url(url)


@given(data=st.data())
def test_only_http_to_this_machine_goes_unproved(data: st.DataObject) -> None:
    """However an address is spelt: a server that nobody proved would get the key."""
    scheme = _spelt(data, data.draw(st.sampled_from(["http", "https", "ftp"])))
    names = ["localhost", "127.0.0.1", "[::1]", "localhost.", "api.example.com", "[::2]"]
    host = _spelt(data, data.draw(st.sampled_from(names)))
    rest = data.draw(st.sampled_from(["", "/", ":8080/v1", "/V1/", "/http://localhost"]))
    options = FrozenDict({"model": "m", "base_url": f"{scheme}://{host}{rest}"})
    # Any variable that has a value is a key for this.
    read = read_endpoint((), NO_FIELDS, options, key_variable="PATH", url="", is_address=is_address)
    if isinstance(read, Failed):
        return
    endpoint, _ = read

    assert endpoint.base_url.startswith(("http://", "https://"))
    unproved = Connections()._verified(endpoint) is False
    assert unproved == (scheme.lower() == "http")
    assert not unproved or host.lower() in ("localhost", "127.0.0.1", "[::1]")


def test_only_certain_names_are_this_machine() -> None:
    """A name that merely looks so may be anywhere."""
    assert all(map(is_loopback, ("localhost", "127.0.0.1", "::1")))
    assert not any(map(is_loopback, ("localhost.", "", "127.1.example", "example.com", "::2")))


@pytest.mark.parametrize(
    "name",
    [
        "Authorization",
        "x-API-key",
        "anthropic-version",
        "Content-Type",
        "Host",
        "Content-Length",
        "Expect",
        "Upgrade",
        "TE",
        "Proxy-Authorization",
    ],
)
def test_headers_that_name_us_or_frame_the_message_cannot_be_set(name: str) -> None:
    """Another key, or another length, would be sent in silence."""
    with pytest.raises(BadValue, match=name.lower()):
        header_fields(FrozenDict({name: "x"}))


@pytest.mark.parametrize(
    "fields",
    [
        {"bad name": "x"},
        {"": "x"},
        {"x:y": "x"},
        {"x": "a\r\nb: c"},
        {"x": "ä"},
        {"x": ""},
        {"x": " padded"},
        {"x": 1},
        {"X-One": "a", "x-one": "b"},
    ],
)
def test_malformed_headers_are_refused(fields: dict[str, str | int]) -> None:
    """A line break in one would be a header of its own."""
    with pytest.raises(BadValue):
        header_fields(FrozenDict(fields))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("key", [None, "", "   ", "two\nlines", "schlüssel"])
async def test_without_a_key_the_start_fails(
    backend: type[Backend], key: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not the first prompt, hours later."""
    monkeypatch.delenv(VARIABLES[backend], raising=False)
    if key is not None:
        monkeypatch.setenv(VARIABLES[backend], key)

    assert code(await start(backend)) == ("missing_key", None)


@pytest.mark.parametrize("backend", BACKENDS)
async def test_options_are_judged_before_the_key_is_looked_for(
    backend: type[Backend], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A typing error is a typing error, with a key or without."""
    monkeypatch.delenv(VARIABLES[backend], raising=False)

    assert code(await start(backend, modle="x")) == ("unknown_option", "modle")


ANYWHERE: list[dict[str, object]] = [
    {"modle": "x"},
    {"model": None},
    {"base_url": "http://example.com"},
    {"headers": {"host": "x"}},
    {"request_fields": {"model": "x"}},
    {"receive_timeout_ms": -1},
    {"tools": ["x"]},
    {"api_key_env": "A", "api_key_file": "/b"},
]
BAD: list[tuple[type[Backend], dict[str, object]]] = [
    *((backend, options) for backend in BACKENDS for options in ANYWHERE),
    (OpenAIBackend, {"max_history_turns": 2}),
    (OpenAIBackend, {"reasoning_effort": "low", "request_fields": {"reasoning": {}}}),
    (OpenAIBackend, {"store": False, "request_fields": {"include": []}}),
    (ChatBackend, {"max_output_tokens": 5, "request_fields": {"max_tokens": 6}}),
    (ChatBackend, {"max_output_tokens": 5, "request_fields": {"max_completion_tokens": 6}}),
    (AnthropicBackend, {"api_version": "now"}),
]


@pytest.mark.parametrize(("backend", "options"), BAD)
async def test_what_is_wrong_with_an_option_does_not_depend_on_a_key(
    backend: type[Backend], options: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of them are judged before any key is looked for."""
    monkeypatch.setenv(VARIABLES[backend], "a-key")
    with_key = await start(backend, **options)
    monkeypatch.delenv(VARIABLES[backend])

    assert code(with_key)[0] != "missing_key"
    assert await start(backend, **options) == with_key


EVERYTHING: dict[type[Backend], list[dict[str, object]]] = {
    AnthropicBackend: [{"cache": True}],
    OpenAIBackend: [
        {"reasoning_effort": "low", "truncation": "auto", "store": False, "max_history_turns": 2}
    ],
    ChatBackend: [{"max_tokens_field": name} for name in ("max_tokens", "max_completion_tokens")],
}


@pytest.mark.parametrize("backend", BACKENDS)
async def test_no_field_of_a_request_can_be_set_twice(backend: type[Backend]) -> None:
    """One of the two values would be dropped without a word."""
    for own in EVERYTHING[backend]:
        async with FakeProvider(Says()) as provider:
            options = {**own, "base_url": provider.base_url}
            options |= {"system_prompt": "be brief", "max_output_tokens": 9}
            session = await start(backend, **options)
            for prompt in ("one", "two"):
                session = (await rehearse(backend(), session, prompt)).session
            fields = {name for asked in provider.requests for name in asked.body}
            assert len(fields) >= 5
            for name in fields:
                answer = await start(backend, **options, request_fields={name: "mine"})
                assert code(answer)[1] == "request_fields", name


@pytest.mark.parametrize("backend", BACKENDS)
async def test_a_server_on_this_machine_needs_no_key(
    backend: type[Backend], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Local models rarely have one."""
    monkeypatch.delenv(VARIABLES[backend], raising=False)
    answer = await start(backend, base_url="http://127.0.0.1:9/v1")

    assert not isinstance(answer, Failed)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("named", [False, True])
async def test_a_server_of_this_machine_gets_a_key_only_if_one_is_named(
    backend: type[Backend], named: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever listens there may be anybody; the usual variable was meant for somebody else."""
    variable = VARIABLES[backend]
    monkeypatch.setenv(variable, "canary-key-1")
    async with FakeProvider(Says()) as provider:
        options = {"api_key_env": variable} if named else {}
        session = await start(backend, base_url=provider.base_url, **options)
        assert not isinstance(session, Failed)
        await rehearse(backend(), session, "hi")

    assert ("canary-key-1" in repr(provider.requests[0].headers)) == named


@given(local=st.booleans(), named=st.booleans(), there=st.booleans())
def test_a_key_goes_nowhere_but_where_it_is_meant_to_go(
    local: bool, named: bool, there: bool
) -> None:
    """The usual variable is for the provider; one that an option names, for any server."""
    url = "http://127.0.0.1:9" if local else "https://api.example.com"
    place = {"api_key_env": "MY_KEY"} if named else {}
    options = FrozenDict({"model": "m", "base_url": url, **place})
    variables = {"THE_KEY": "key-1", "MY_KEY": "key-2"} if there else {}

    with mock.patch.dict(os.environ, variables):
        answer = read_endpoint(
            (), NO_FIELDS, options, key_variable="THE_KEY", url="", is_address=is_address
        )
        sent = None if isinstance(answer, Failed) else answer[0].key.read()

    meant = "key-2" if named else None if local else "key-1"
    assert sent == (meant if there else None)
    assert isinstance(answer, Failed) == (meant is not None and not there)


@pytest.mark.parametrize("backend", BACKENDS)
async def test_e094_the_key_is_in_no_session(
    backend: type[Backend], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Sessions are printed; what they do not hold they cannot show."""
    monkeypatch.setenv("MY_KEY", "canary-env")
    file = tmp_path / "key"
    file.write_text("canary-file\n")
    by_name = await start(
        backend,
        api_key_env="MY_KEY",
        headers={"x-team": "canary-header"},
        system_prompt="canary-system",
        request_fields={"user": "canary-field"},
    )
    by_file = await start(backend, api_key_file=str(file))

    assert not isinstance(by_name, Failed)
    assert not isinstance(by_file, Failed)
    assert "canary" not in repr(by_name) + repr(by_file)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"api_key": "sk-canary"}, ("unsupported_option", "api_key")),
        ({"api_key_env": "sk-canary"}, ("invalid_option", "api_key_env")),
        ({"api_key_env": "A", "api_key_file": "/b"}, ("conflicting_options", "api_key_file")),
        ({"api_key_file": "/no/such/file"}, ("missing_key", None)),
        ({"model": None}, ("invalid_option", "model")),
        ({"base_url": "http://example.com"}, ("invalid_option", "base_url")),
        ({"base_url": "https://münchen..de/v1"}, ("invalid_option", "base_url")),
        ({"base_url": f"https://{'ü' * 70}.de"}, ("invalid_option", "base_url")),
        ({"base_url": f"https://{'a' * 64}.example"}, ("invalid_option", "base_url")),
        ({"base_url": "https://a..b"}, ("invalid_option", "base_url")),
        ({"base_url": "https://exam_ple\u3002com"}, ("invalid_option", "base_url")),
        ({"headers": {"host": "x"}}, ("invalid_option", "headers")),
        ({"request_fields": {"model": "x"}}, ("invalid_option", "request_fields")),
        ({"request_fields": {"stream": True}}, ("invalid_option", "request_fields")),
        ({"request_fields": {"x": b"bytes"}}, ("invalid_option", "request_fields")),
        ({"request_fields": {"x": float("nan")}}, ("invalid_option", "request_fields")),
        ({"max_output_tokens": 0}, ("invalid_option", "max_output_tokens")),
        ({"receive_timeout_ms": -1}, ("invalid_option", "receive_timeout_ms")),
        ({"tools": ["x"]}, ("unsupported_option", "tools")),
        ({"working_dir": "/tmp"}, ("unsupported_option", "working_dir")),
        ({"cwd": "/tmp"}, ("unsupported_option", "cwd")),
        ({"env": {"A": "sk-canary"}}, ("unsupported_option", "env")),
        ({"env_files": {"A": "/tmp/a"}}, ("unsupported_option", "env_files")),
        ({"binary": "claude"}, ("unsupported_option", "binary")),
    ],
)
async def test_a_bad_option_refuses_the_start(
    backend: type[Backend], options: dict[str, object], expected: tuple[object, object]
) -> None:
    """And a key in the wrong place is not repeated."""
    answer = await start(backend, **options)

    assert code(answer) == expected
    assert "canary" not in repr(answer)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("host", ["m\u00fcnchen..de", "a..b", "a" * 64, "1.2.3.999"])
async def test_a_url_whose_host_nobody_can_look_up_is_told_as_that(
    backend: type[Backend], host: str
) -> None:
    """Spelt as a URL it is, and whoever wrote it would look for the fault elsewhere."""
    answer = await start(backend, base_url=f"https://{host}/v1")

    assert isinstance(answer, Failed)
    assert isinstance(answer.reason, FrozenDict)
    assert answer.reason["message"] == "option base_url has no host that can be looked up"


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("url", ["https://api.example.com", "http://127.0.0.1:9/v1"])
@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"api_key_file": "/no/such/file"}, "cannot be read: No such file or directory"),
        ({"api_key_file": "/"}, "cannot be read: Is a directory"),
        ({"api_key_file": "/dev/null"}, "cannot be read: it is no regular file"),
        ({"api_key_env": "NO_SUCH_KEY"}, "variable that option api_key_env names holds no key"),
    ],
)
async def test_a_key_that_was_named_is_meant(
    backend: type[Backend], url: str, options: dict[str, object], why: str
) -> None:
    """A mistyped path was ignored where no key was needed, and looked like an empty file."""
    answer = await start(backend, base_url=url, **options)

    assert code(answer) == ("missing_key", None)
    assert why in repr(answer)


def test_a_key_can_be_changed_while_the_agent_lives(tmp_path: Path) -> None:
    """It is looked up for every request."""
    file = tmp_path / "key"
    file.write_text("first\n")
    source = KeySource(file=str(file))
    before = source.read()
    file.write_text("second")

    assert (before, source.read()) == ("first", "second")


@pytest.mark.parametrize("backend", BACKENDS)
async def test_a_key_in_the_place_of_its_name_is_not_repeated(backend: type[Backend]) -> None:
    """It looks like the name of a variable, and refusals are logged."""
    answer = await start(backend, base_url="https://api.example.com", api_key_env="gsk_CANARY7")

    assert code(answer) == ("missing_key", None)
    assert "CANARY" not in repr(answer)


def test_a_key_is_read_from_a_modest_regular_file_only(tmp_path: Path) -> None:
    """A pipe without a writer, or a device without an end, would hold up the agent for ever."""
    pipe, large = tmp_path / "pipe", tmp_path / "large"
    os.mkfifo(pipe)
    large.write_bytes(b"x" * (MAX_SECRET_BYTES + 1))

    for path, why in (
        (str(pipe), "it is no regular file"),
        ("/dev/zero", "it is no regular file"),
        (str(large), f"it is longer than {MAX_SECRET_BYTES} bytes"),
    ):
        source = KeySource(file=path)
        assert source.read() is None
        assert source.why_missing().endswith(why)
        with pytest.raises(OSError, match=why):
            Environment({}, {"KEY": path}).build({})


@pytest.mark.parametrize("module", ["anthropic", "openai", "chat"])
def test_without_the_library_the_import_says_what_to_install(module: str) -> None:
    """The extra is optional, and its absence must explain itself."""
    code = f"import sys; sys.modules['httpx2'] = None\nimport genagent_backends.{module}"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)

    assert "pip install 'genagentd[http]'" in ended.stderr
    assert ended.returncode == 1
