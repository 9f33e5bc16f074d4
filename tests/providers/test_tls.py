"""The HTTP backends over https: who is trusted, and what is told when nobody is.

The authorities are made here. A provider's certificate is proved before anything is
sent: neither a key nor a prompt reaches one that is not trusted.
"""

from __future__ import annotations

import datetime
import shutil
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme

from genagentd.client.client import Client
from support.daemons import PrivateDaemon
from support.fake_provider import Says
from support.provider_thread import Loopback, loopback
from support.provider_turns import start, turn

pytestmark = pytest.mark.process

KEY = "canary-key-91c0de"
PROMPT = "canary-prompt-44ab07"
LONG_AGO = datetime.datetime(2001, 1, 1, tzinfo=datetime.UTC)
OPENSSL = shutil.which("openssl") or ""
each_backend = pytest.mark.parametrize("backend", ["anthropic", "openai", "chat"])


class Authorities:
    """One that the daemon's environment names, and one that nobody does."""

    def __init__(self, folder: Path) -> None:
        self.ours, self.others = trustme.CA(), trustme.CA()
        self.file, self.other_file = folder / "ours.pem", folder / "others.pem"
        self.ours.cert_pem.write_to_path(self.file)
        self.others.cert_pem.write_to_path(self.other_file)

    def server(self, *, host: str = "127.0.0.1", trusted: bool = True, **terms: Any) -> Any:
        """Return what a server of *host* needs to speak TLS."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        (self.ours if trusted else self.others).issue_cert(host, **terms).configure_cert(context)
        return context


@pytest.fixture(scope="module")
def authorities(tmp_path_factory: pytest.TempPathFactory) -> Authorities:
    return Authorities(tmp_path_factory.mktemp("authorities"))


@pytest.fixture(scope="module")
def house(authorities: Authorities) -> Iterator[PrivateDaemon]:
    """A daemon whose environment names our authority, as an administrator would."""
    private = PrivateDaemon(environment={"SSL_CERT_FILE": str(authorities.file)}).start()
    try:
        yield private
    finally:
        private.stop()
        private.cleanup()


def options(provider: Loopback, **more: Any) -> dict[str, Any]:
    return {"model": "m", "base_url": provider.base_url, "api_key_env": "MY_KEY", **more}


@each_backend
@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
def test_a_provider_is_spoken_to_over_tls(
    client: Client, authorities: Authorities, backend: str, stream: bool
) -> None:
    """The daemon's `SSL_CERT_FILE` reaches an agent; the second turn connects anew."""
    with loopback(Says(pieces=("Grüß", "e"), cut=1), tls=authorities.server()) as provider:
        assert provider.base_url.startswith("https://")
        handle = start(client, backend, options(provider, stream=stream), env={"MY_KEY": KEY})

        done = [turn(client, handle, PROMPT) for _ in range(2)]

        assert [each.response.text for each in done] == ["Grüße", "Grüße"]
        assert len(done[0].texts) == (2 if stream else 1)
        assert [KEY in repr(asked.headers) for asked in provider.requests] == [True, True]


def test_one_agent_may_trust_somebody_else(client: Client, authorities: Authorities) -> None:
    """What its own start says wins over what the daemon was given."""
    with loopback(Says(), tls=authorities.server(trusted=False)) as provider:
        env = {"MY_KEY": KEY, "SSL_CERT_FILE": str(authorities.other_file)}
        handle = start(client, "chat", options(provider), env=env)

        assert turn(client, handle).response.text == "Hello there"


@pytest.mark.skipif(OPENSSL == "", reason="the openssl command is not here to hash a name")
def test_a_folder_of_authorities_is_trusted(
    client: Client, authorities: Authorities, tmp_path: Path
) -> None:
    """`SSL_CERT_DIR` is asked where no `SSL_CERT_FILE` is given; its files are named by hash."""
    name = subprocess.run(
        [OPENSSL, "x509", "-noout", "-hash", "-in", authorities.other_file],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    (tmp_path / f"{name}.0").write_bytes(authorities.other_file.read_bytes())
    with loopback(Says(), tls=authorities.server(trusted=False)) as provider:
        env = {"MY_KEY": KEY, "SSL_CERT_FILE": "", "SSL_CERT_DIR": str(tmp_path)}
        handle = start(client, "chat", options(provider), env=env)

        assert turn(client, handle).response.text == "Hello there"


def untold(house: PrivateDaemon, client: Client, told: str) -> None:
    """Fail if a key, a prompt or a trace is where none belongs."""
    written = [path.read_bytes() for path in house.run.rglob("*") if path.is_file()]
    assert len(written) > 1
    seen = b"\n".join([*written, told.encode(), repr(client.runtime_snapshot("a")).encode()])
    for hidden in (KEY, PROMPT, "Traceback"):
        assert hidden.encode() not in seen


@each_backend
@pytest.mark.parametrize("scheme", ["https", "HTTPS", "Https"])
def test_a_provider_that_is_not_trusted_hears_nothing(
    house: PrivateDaemon, client: Client, authorities: Authorities, backend: str, scheme: str
) -> None:
    """A failure in normal form, no trace, no key in anything; the agent lives."""
    with loopback(Says(), tls=authorities.server(trusted=False)) as provider:
        given = options(provider)
        given["base_url"] = given["base_url"].replace("https", scheme)
        handle = start(client, backend, given, env={"MY_KEY": KEY})

        done = turn(client, handle, PROMPT)

        failed = done.failure
        assert (failed.provider, failed.kind, failed.retryable) == (backend, "transport", False)
        assert f"certificate of {provider.base_url} is not trusted" in failed.message
        assert done.kinds == ["error"]
        assert provider.requests == []
        untold(house, client, repr(done.messages))
        assert client.status("a").state == "idle"


@pytest.mark.parametrize(
    ("terms", "why"),
    [
        ({"host": "example.org"}, "not valid for '127.0.0.1'"),
        ({"not_before": LONG_AGO, "not_after": LONG_AGO}, "expired"),
    ],
    ids=["another-host", "expired"],
)
def test_a_certificate_that_proves_nothing_is_refused(
    house: PrivateDaemon, client: Client, authorities: Authorities, terms: Any, why: str
) -> None:
    """The authority is trusted, and still this is not who was to be asked."""
    with loopback(Says(), tls=authorities.server(**terms)) as provider:
        handle = start(client, "chat", options(provider), env={"MY_KEY": KEY})

        done = turn(client, handle, PROMPT)

        assert (done.failure.kind, done.failure.retryable) == ("transport", False)
        assert why in done.failure.message
        assert provider.requests == []
        untold(house, client, repr(done.messages))


def test_a_server_that_speaks_no_tls_is_told_as_that(house: PrivateDaemon, client: Client) -> None:
    """The wrong scheme in `base_url` is an everyday mistake."""
    with loopback(Says()) as provider:
        url = provider.base_url.replace("http:", "https:")
        given = {**options(provider), "base_url": url}
        handle = start(client, "chat", given, env={"MY_KEY": KEY})

        done = turn(client, handle, PROMPT)

        assert (done.failure.kind, done.failure.retryable) == ("transport", False)
        assert f"no TLS with {url}" in done.failure.message
        assert provider.requests == []
        untold(house, client, repr(done.messages))


@pytest.mark.parametrize("what", ["missing", "nonsense"])
def test_authorities_that_cannot_be_read_fail_the_turn_and_not_the_agent(
    house: PrivateDaemon, client: Client, authorities: Authorities, tmp_path: Path, what: str
) -> None:
    """The message names the variables; once the file is there, the same agent works."""
    file = tmp_path / "authorities.pem"
    if what == "nonsense":
        file.write_text("no certificate")
    with loopback(Says(), tls=authorities.server()) as provider:
        env = {"MY_KEY": KEY, "SSL_CERT_FILE": str(file)}
        handle = start(client, "chat", options(provider), env=env)

        done = turn(client, handle, PROMPT)
        untold(house, client, repr(done.messages))
        file.write_bytes(authorities.file.read_bytes())

        assert (done.failure.kind, done.failure.retryable) == ("transport", False)
        assert "SSL_CERT_FILE" in done.failure.message
        assert turn(client, handle).response.text == "Hello there"


def test_a_proxy_that_cannot_be_used_does_not_show_its_password(
    house: PrivateDaemon, client: Client
) -> None:
    """What the HTTP library says about it has the address in it, password and all."""
    given = {"model": "m", "base_url": "https://provider.invalid", "api_key_env": "MY_KEY"}
    env = {"MY_KEY": KEY, "HTTPS_PROXY": f"gopher://me:{KEY}@127.0.0.1:1"}
    handle = start(client, "chat", given, env=env)

    done = turn(client, handle, PROMPT)

    assert (done.failure.kind, done.failure.retryable) == ("transport", False)
    assert "proxy" in done.failure.message
    untold(house, client, repr(done.messages))
