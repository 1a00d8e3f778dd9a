"""HTTP requests to the Kubernetes API: JSON in, JSON out, with limits in time and retries.

A thin layer over aiohttp instead of the official asynchronous client: that one would load a second
set of a thousand model classes beside those the builders need, and objects travel as JSON here.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
import socket
import time
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from airflow_learner_provider.cluster.credentials import (
    ClusterSettings,
    Credentials,
    load_credentials,
)
from airflow_learner_provider.exceptions import ApiError

log = logging.getLogger(__name__)

Json = dict[str, Any]
ReadAgain = Callable[[], Awaitable[ClusterSettings]]

_CALL_SECONDS = 30
_RETRY_SECONDS = 120
_RESOURCES = {
    "StatefulSet": ("apis/apps/v1", "statefulsets"),
    "Pod": ("api/v1", "pods"),
    "Service": ("api/v1", "services"),
    "ConfigMap": ("api/v1", "configmaps"),
    "Secret": ("api/v1", "secrets"),
    "Event": ("api/v1", "events"),
    "Namespace": ("api/v1", "namespaces"),
    "PodMetrics": ("apis/metrics.k8s.io/v1beta1", "pods"),
    "SelfSubjectRulesReview": ("apis/authorization.k8s.io/v1", "selfsubjectrulesreviews"),
}
_VERBS = {"POST": "create", "GET": "get", "PATCH": "patch", "DELETE": "delete"}
# In seconds: silence before the first question, between questions; and how many go unanswered.
_KEEPALIVE = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 20, "TCP_KEEPCNT": 3}
_PAGE = 250  # objects in one part of a list
# So that a storm of new trainings does not run into the API server's own limits.
_CONCURRENT_CALLS = 16


class Api:
    """A connection to one cluster's API server, shared by all that use the same settings.

    :param read_again: reads the settings anew when their credentials are refused.
    """

    def __init__(self, settings: ClusterSettings, read_again: ReadAgain | None = None) -> None:
        self._settings = settings
        self._read_again = read_again
        self._credentials: Credentials | None = None
        # One for all credentials: to close it would leave those that read from a stream waiting.
        self._session: aiohttp.ClientSession | None = None
        self._loading = asyncio.Lock()
        self._calls = asyncio.Semaphore(_CONCURRENT_CALLS)

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None
            await asyncio.sleep(0)  # transports close in the loop's next round, perhaps its last

    async def credentials(self, *, refused: Credentials | None = None) -> Credentials:
        """Return the credentials, loaded once; anew when those that were refused are still in use.

        :param refused: the credentials with which a request got the answer 401.
        """
        async with self._loading:
            if self._credentials is None or self._credentials is refused:
                if refused is not None and self._read_again is not None:
                    self._settings = await self._read_again()
                self._credentials = await load_credentials(self._settings)
            if self._session is None:
                connector = aiohttp.TCPConnector(limit=0, socket_factory=_open_socket)
                self._session = aiohttp.ClientSession(connector=connector)
            return self._credentials

    async def create(self, manifest: Json, *, dry_run: bool = False) -> Json:
        """Create an object and return it as stored, or with a dry run as it would be."""
        params = {"dryRun": "All"} if dry_run else None
        namespace = _namespace_of(manifest)
        return await self._call("POST", manifest["kind"], namespace, params=params, body=manifest)

    async def read(self, kind: str, namespace: str, name: str) -> Json | None:
        """Return an object, or None when there is none."""
        try:
            return await self._call("GET", kind, namespace, name)
        except ApiError as e:
            if e.status == 404:
                return None
            raise

    async def list(self, kind: str, namespace: str, selector: str = "") -> Json:
        """Return the list of a kind's objects, as the API server gives it."""
        params = {"labelSelector": selector} if selector else {}
        return await self._call("GET", kind, namespace, params=params)

    async def list_pages(
        self, kind: str, namespace: str, selector: str = ""
    ) -> AsyncIterator[Json]:
        """Return the list of a kind's objects page by page: a long one is a burden at once.

        All pages show the same moment, and bear its position.
        """
        params = {"limit": str(_PAGE)} | ({"labelSelector": selector} if selector else {})
        while True:
            page = await self._call("GET", kind, namespace, params=params)
            yield page
            if not (token := page["metadata"].get("continue")):
                return
            params["continue"] = token

    async def patch(self, kind: str, namespace: str, name: str, patch: Json) -> Json:
        """Merge into an object and return it."""
        return await self._call("PATCH", kind, namespace, name, body=patch)

    async def delete(self, kind: str, namespace: str, name: str, options: Json) -> bool:
        """Delete an object; False when there was none."""
        try:
            await self._call("DELETE", kind, namespace, name, body=options)
        except ApiError as e:
            if e.status == 404:
                return False
            raise
        return True

    @asynccontextmanager
    async def stream(
        self,
        kind: str,
        namespace: str,
        name: str | None = None,
        subresource: str | None = None,
        *,
        params: Mapping[str, str],
        silence: float,
        longest: int | None = None,
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open a request that is answered bit by bit, and give its lines.

        :param silence: seconds without a byte after which the connection counts as dead.
        :param longest: bytes after which a line is cut; None takes every line whole.
        :raises ApiError: also in the middle of the stream.
        """
        target = _describe("watch" if name is None else "get", kind, namespace, name, subresource)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CALL_SECONDS, sock_read=silence)
        path = _path(kind, namespace, name, subresource)
        try:
            async with self._request("GET", path, params=params, limits=timeout) as answer:
                if answer.status >= 400:
                    raise await _read_error(answer, target)
                try:
                    yield split_lines(answer.content.iter_any(), longest=longest)
                finally:
                    # TLS ends when the server has answered, for which nobody waits here.
                    if answer.connection is not None and answer.connection.transport is not None:
                        answer.connection.transport.abort()
        except (aiohttp.ClientError, OSError) as e:  # TimeoutError is an OSError
            raise _no_answer(e, target) from e

    async def _call(
        self,
        method: str,
        kind: str,
        namespace: str,
        name: str | None = None,
        *,
        params: Mapping[str, str] | None = None,
        body: Json | None = None,
    ) -> Json:
        """Make one request; passing errors are tried again within a budget."""
        verb = "list" if method == "GET" and name is None else _VERBS[method]
        target = _describe(verb, kind, namespace, name or _name_of(body))
        path = _path(kind, namespace, name)
        deadline = time.monotonic() + _RETRY_SECONDS
        pause = 0.25
        while True:
            try:
                async with self._calls:
                    return await self._call_once(method, path, target, params=params, body=body)
            except ApiError as e:
                if not e.is_passing or time.monotonic() + pause > deadline:
                    raise
                log.warning("%s; trying again", e)
            await asyncio.sleep(pause * random.uniform(0.5, 1.5))  # noqa: S311 - jitter
            pause = min(pause * 2, 8)

    async def _call_once(
        self,
        method: str,
        path: str,
        target: str,
        *,
        params: Mapping[str, str] | None,
        body: Json | None,
    ) -> Json:
        timeout = aiohttp.ClientTimeout(total=_CALL_SECONDS)
        try:
            async with self._request(
                method, path, params=params, body=body, limits=timeout
            ) as answer:
                if answer.status >= 400:
                    raise await _read_error(answer, target)
                return json.loads(await answer.read())  # type: ignore[no-any-return]
        except (aiohttp.ClientError, OSError) as e:
            raise _no_answer(e, target) from e

    @asynccontextmanager
    async def _request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None,
        limits: aiohttp.ClientTimeout,
        body: Json | None = None,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send a request; when the credentials are refused once more, with new ones."""
        refused: Credentials | None = None
        while True:
            credentials = await self.credentials(refused=refused)
            try:
                async with self._send(
                    credentials, method, path, params=params, limits=limits, body=body
                ) as answer:
                    if answer.status != 401 or refused is not None:
                        yield answer
                        return
            except aiohttp.ClientConnectorCertificateError:
                if refused is not None:
                    raise
            refused = credentials

    def _send(
        self,
        credentials: Credentials,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None,
        limits: aiohttp.ClientTimeout,
        body: Json | None,
    ) -> aiohttp.client._RequestContextManager:
        if self._session is None:  # nobody uses it any more
            raise aiohttp.ClientConnectionError("the connection was closed")
        headers = {"Content-Type": _content_type(method)}
        if credentials.authorization:
            headers["Authorization"] = credentials.authorization
        return self._session.request(
            method,
            f"{credentials.host}/{path}",
            params=params,
            json=body,
            headers=headers,
            timeout=limits,
            ssl=credentials.tls,
            proxy=credentials.proxy,
            server_hostname=credentials.server_hostname,
        )


def _open_socket(address: aiohttp.AddrInfoType) -> socket.socket:
    """Open a socket that asks by itself whether the other end is still there, and costs nobody."""
    family, kind, protocol, *_ = address
    opened = socket.socket(family, kind, protocol)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEPALIVE.items():
        if hasattr(socket, option):  # not every system has it
            opened.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    return opened


def _content_type(method: str) -> str:
    return "application/merge-patch+json" if method == "PATCH" else "application/json"


def resource_of(kind: str) -> tuple[str, str]:
    """API group and resource of a kind, as a Role names them."""
    path, resource = _RESOURCES[kind]
    return (path.split("/")[1] if path.startswith("apis/") else ""), resource


def _path(
    kind: str, namespace: str, name: str | None = None, subresource: str | None = None
) -> str:
    group, resource = _RESOURCES[kind]
    where = f"namespaces/{namespace}" if namespace else ""
    return "/".join(part for part in (group, where, resource, name, subresource) if part)


def _describe(
    verb: str, kind: str, namespace: str, name: str | None, subresource: str | None = None
) -> str:
    resource = _RESOURCES[kind][1] + (f"/{subresource}" if subresource else "")
    return f"cannot {verb} {resource} {namespace}/{name or '*'}"


def _namespace_of(manifest: Json) -> str:
    namespace: str = manifest["metadata"].get("namespace", "")
    return namespace


def _name_of(body: Json | None) -> str | None:
    name: str | None = (body or {}).get("metadata", {}).get("name")
    return name


def _no_answer(error: Exception, target: str) -> ApiError:
    untrusted = isinstance(error, aiohttp.ClientConnectorCertificateError)
    message = f"{target}: {str(error) or type(error).__name__}"
    return ApiError(message, status=495 if untrusted else 0)


async def _read_error(answer: aiohttp.ClientResponse, target: str) -> ApiError:
    text = await answer.text()
    try:
        status = json.loads(text)
        said, reason = status["message"], status.get("reason", "")
    except (ValueError, KeyError, TypeError):
        # A proxy's page; only the API server's own Status is fit to be shown.
        said, reason = answer.reason or "", ""
    hint = ""
    if answer.status == 403 and "exceeded quota" not in said:
        hint = " (see deploy/rbac.yaml for the rights that are needed)"
    return ApiError(f"{target}: {answer.status} {said}{hint}", status=answer.status, reason=reason)


async def split_lines(chunks: AsyncIterable[bytes], *, longest: int | None) -> AsyncIterator[bytes]:
    """Split a stream into lines; of a longer one only the beginning is kept, and says so.

    aiohttp's own readline() gives up on lines longer than its buffer, which objects can be.
    """
    rest = b""
    is_cut = False
    async for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            if not is_cut:
                yield _cut(line, longest)
            is_cut = False
        if longest is not None and len(rest) > longest:
            if not is_cut:
                yield _cut(rest, longest)
            rest, is_cut = b"", True
    if rest and not is_cut:
        yield _cut(rest, longest)


def _cut(line: bytes, longest: int | None) -> bytes:
    if longest is None or len(line) <= longest:
        return line
    return line[:longest] + f" ... [cut after {longest} bytes]".encode()
