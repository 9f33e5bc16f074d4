"""One HTTP request to a provider: no retries, no redirects, bounded in time and size.

The only module that knows the HTTP library. A connection lives for one request:
each turn may have an event loop of its own. What goes wrong on the way is raised
as one exception that says whether trying again may help.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from urllib.request import getproxies_environment

from genagent_backends.endpoints import Endpoint
from genagent_backends.import_path import without_working_directory
from genagent_backends.timeouts import timeout_at

try:
    with without_working_directory():
        # The first one would otherwise be imported with the first request, and with it
        # whatever is called like a library that it can do without.
        import httpcore2  # noqa: F401
        import httpx2
except ModuleNotFoundError:
    raise ModuleNotFoundError(
        "this backend needs httpx2: pip install 'genagentd[http]'", name="httpx2"
    ) from None

#: The longest body that is read when it is no stream, and the most that is held of one.
MAX_BODY_BYTES = 16 * 1024 * 1024
#: How much of the answer is still taken when the clock has run out in the hands of a slow
#: consumer, how long it may take to be there, and how long all of it together.
LATE_BYTES = 1024 * 1024
LAST_LOOK_MS = 50
LATE_MS = 500
USER_AGENT = "genagent-backends"


@dataclass(frozen=True, slots=True)
class Request:
    """What is sent. Printing it shows the address only."""

    url: str
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)
    #: The key that is in the headers.
    key: str | None = field(default=None, repr=False)


def is_address(url: str) -> bool:
    """Return whether a request can be sent to *url* at all, whether anybody is there or not."""
    try:
        # The name must be one that can be looked up, too; that is not the library's concern.
        httpx2.URL(url).raw_host.decode().encode("idna")
    except (httpx2.InvalidURL, UnicodeError):
        return False
    return True


class TransportProblem(Exception):
    """The answer did not come, or not to its end. Its text never has anything of the request."""

    def __init__(self, kind: str, message: str, *, retryable: bool) -> None:
        self.kind = kind
        self.retryable = retryable
        super().__init__(message)


def too_long() -> TransportProblem:
    """Return the problem of an answer that is longer than anybody wants to hold."""
    return TransportProblem(
        "invalid_response", f"the answer is longer than {MAX_BODY_BYTES} bytes", retryable=False
    )


class Answer:
    """A provider's answer, whose head has arrived."""

    def __init__(self, response: httpx2.Response, endpoint: Endpoint, until: float | None) -> None:
        self._response = response
        self._endpoint = endpoint
        self._until = until
        self._late_bytes = 0
        self._late_s = 0.0
        self.status = response.status_code
        self.retry_after: str | None = response.headers.get("retry-after")
        content_type: str = response.headers.get("content-type", "")
        self.streamed = content_type.partition(";")[0].strip().lower() == "text/event-stream"

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """Yield the body as it arrives.

        Raises:
            TransportProblem: it did not come to its end.
        """
        incoming = self._response.aiter_bytes()
        assert isinstance(incoming, AsyncGenerator)
        async with aclosing(incoming):
            while (chunk := await self._next(incoming)) is not None:
                yield chunk

    async def _next(self, incoming: AsyncIterator[bytes]) -> bytes | None:
        # The clock runs only while we wait: a slow consumer is not cancelled by it, and gets
        # what had arrived by then.
        asked_at = asyncio.get_running_loop().time()
        late = self._until is not None and asked_at >= self._until
        with _problems(self._endpoint):
            async with timeout_at(self._last_look(asked_at) if late else self._until):
                chunk = await anext(incoming, None)
        if late:
            self._late_s += asyncio.get_running_loop().time() - asked_at
            self._late_bytes += len(chunk or b"")
        return chunk

    def _last_look(self, now: float) -> float:
        left_s = LATE_MS / 1000 - self._late_s
        if self._late_bytes >= LATE_BYTES or left_s <= 0:
            raise TimeoutError
        return now + min(LAST_LOOK_MS / 1000, left_s)

    async def body(self) -> bytes:
        """Return the whole body.

        Raises:
            TransportProblem: it did not come to its end, or is larger than any answer.
        """
        body = bytearray()
        async for chunk in self.chunks():
            body += chunk
            if len(body) > MAX_BODY_BYTES:
                raise too_long()
        return bytes(body)


class _problems:  # noqa: N801  # used like a keyword
    """Turns what the HTTP library raises into `TransportProblem`."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        match error:
            case httpx2.ReadTimeout():
                limit = self._endpoint.receive_timeout_ms
                raise TransportProblem(
                    "idle_timeout", f"nothing was received for {limit} ms", retryable=True
                ) from None
            case TimeoutError():
                limit = self._endpoint.timeout_ms
                raise TransportProblem(
                    "timeout", f"the answer was not complete within {limit} ms", retryable=False
                ) from None
            case httpx2.WriteTimeout():
                limit = self._endpoint.receive_timeout_ms
                raise TransportProblem(
                    "idle_timeout",
                    f"nothing was taken of the request for {limit} ms",
                    retryable=True,
                ) from None
            case httpx2.TimeoutException():
                limit = self._endpoint.connect_timeout_ms
                raise TransportProblem(
                    "transport", f"no connection within {limit} ms", retryable=True
                ) from None
            case httpx2.ConnectError():
                raise TransportProblem(
                    "transport", _no_connection(error, self._endpoint), retryable=False
                ) from None
            case httpx2.ReadError() | httpx2.WriteError() | httpx2.RemoteProtocolError():
                raise TransportProblem(
                    "transport", "the connection was closed before the answer", retryable=True
                ) from None
            case httpx2.HTTPError() | httpx2.InvalidURL() | httpx2.StreamError():
                raise TransportProblem(
                    "transport", f"the request failed: {type(error).__name__}", retryable=False
                ) from None


def _no_connection(error: BaseException, endpoint: Endpoint) -> str:
    """Say why there is none, as far as that is about us and not about the network."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            why = cause.verify_message
            return f"the certificate of {endpoint.base_url} is not trusted: {why}"
        if isinstance(cause, ssl.SSLError):
            return f"no TLS with {endpoint.base_url}: {cause.reason or 'the handshake failed'}"
        cause = cause.__cause__ or cause.__context__
    return f"no connection to {endpoint.base_url}"


def _no_client(error: Exception, endpoint: Endpoint) -> str:
    if not endpoint.local and getproxies_environment():
        return "the environment names a proxy that cannot be used"
    return f"the HTTP library cannot be used here: {type(error).__name__}"


class Connections:
    """What requests of one session share: the trusted certificates, loaded once."""

    def __init__(self) -> None:
        self._certificates: ssl.SSLContext | None = None

    def __repr__(self) -> str:
        return "Connections()"

    def _verified(self, endpoint: Endpoint) -> ssl.SSLContext | bool:
        if endpoint.in_the_clear:
            return False  # there is nothing to verify, and loading certificates is slow
        if self._certificates is None:
            try:
                self._certificates = httpx2.create_ssl_context()
            except OSError as error:
                why = error.strerror or type(error).__name__
                raise TransportProblem(
                    "transport",
                    f"the certificates to trust, of SSL_CERT_FILE or SSL_CERT_DIR: {why}",
                    retryable=False,
                ) from None
        return self._certificates

    def _client(self, endpoint: Endpoint, timeout: httpx2.Timeout) -> httpx2.AsyncClient:
        verified = self._verified(endpoint)
        try:
            return httpx2.AsyncClient(
                verify=verified,
                timeout=timeout,
                follow_redirects=False,
                # No proxy between us and this machine.
                trust_env=not endpoint.local,
            )
        except (ValueError, ImportError, httpx2.InvalidURL) as error:
            # What it says has the address in it, and that may have a password in it.
            raise TransportProblem(
                "transport", _no_client(error, endpoint), retryable=False
            ) from None

    @asynccontextmanager
    async def post(self, endpoint: Endpoint, request: Request) -> AsyncIterator[Answer]:
        """Send *request* and yield the answer, whose head has arrived.

        Raises:
            TransportProblem: no answer came, or not to its end.
        """
        timeout = httpx2.Timeout(
            connect=_seconds(endpoint.connect_timeout_ms),
            read=_seconds(endpoint.receive_timeout_ms),
            write=_seconds(endpoint.receive_timeout_ms),
            pool=None,
        )
        limit = _seconds(endpoint.timeout_ms)
        until = None if limit is None else asyncio.get_running_loop().time() + limit
        async with self._client(endpoint, timeout) as client:
            with _problems(endpoint):
                message = client.build_request(
                    "POST", request.url, headers=dict(request.headers), content=request.body
                )
                async with timeout_at(until):
                    response = await client.send(message, stream=True)
            try:
                yield Answer(response, endpoint, until)
            finally:
                await response.aclose()


def _seconds(duration_ms: int | None) -> float | None:
    return None if duration_ms is None else duration_ms / 1000
