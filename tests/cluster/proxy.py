"""A proxy in front of the API server, or a registry, that fails as networks and servers do."""

from __future__ import annotations

import asyncio
import copy
import json
import ssl
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Self, TypeVar

import aiohttp
from aiohttp import web

Json = dict[str, Any]
T = TypeVar("T")

# Headers that are about one connection, or that the proxy's own server writes.
_OWN_HEADERS = {"connection", "content-length", "host", "keep-alive", "transfer-encoding"}


@dataclass
class Request:
    """What a client asks for; a test may change it on its way."""

    method: str
    path: str
    query: dict[str, str]
    body: bytes

    @property
    def is_write(self) -> bool:
        """Whether it changes something in the cluster."""
        return self.method != "GET" and "dryRun" not in self.query


class Proxy:
    """Passes requests on to the API server, until it is told to fail.

    It speaks plain HTTP with its clients, and runs in a thread of its own.

    :param kubeconfig: how the API server is reached; tokens are the clients' own.
    """

    def __init__(self, kubeconfig: Json) -> None:
        # Called with each request in a thread: before it is passed on, when the answer may be
        # given instead as a status; and when the API server has answered, but no client knows.
        self.before: Callable[[Request], int | None] = lambda _: None
        self.after: Callable[[Request], None] = lambda _: None
        self._upstream: Json = kubeconfig["clusters"][0]["cluster"]
        self._kubeconfig = kubeconfig
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thawed = asyncio.Condition()
        self._port = 0
        self._site: web.TCPSite | None = None
        self._connections: set[asyncio.BaseTransport] = set()
        self._frozen: set[asyncio.BaseTransport] = set()
        self._is_frozen = False

    def __enter__(self) -> Self:
        self._thread.start()
        self._call(self._start())
        return self

    def __exit__(self, *_: object) -> None:
        self._call(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @property
    def address(self) -> str:
        """Where it listens: host and port."""
        return f"127.0.0.1:{self._port}"

    @property
    def kubeconfig(self) -> Json:
        """A kubeconfig that leads through this proxy."""
        changed = copy.deepcopy(self._kubeconfig)
        changed["clusters"][0]["cluster"] = {"server": f"http://{self.address}"}
        return changed

    def refuse(self) -> None:
        """Break all connections off and refuse new ones, as a host does whose server is down."""
        self._call(self._refuse())

    def accept(self) -> None:
        """Take connections again."""
        self._call(self._listen())

    def freeze(self, *, new_too: bool) -> None:
        """Let nothing through, without a word, on the connections that there are.

        :param new_too: until `thaw` on new ones as well; else those work, as after a router has
            forgotten its connections.
        """
        self._call(self._freeze(new_too=new_too))

    def thaw(self) -> None:
        """Let through what has waited."""
        self._call(self._thaw())

    def _call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(timeout=30)

    async def _start(self) -> None:
        authority = self._upstream.get("certificate-authority-data")
        tls = ssl.create_default_context()
        if authority is not None:
            tls.load_verify_locations(cadata=_decode(authority))
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=tls, limit=0),
            timeout=aiohttp.ClientTimeout(total=None),
            auto_decompress=False,
        )
        server = web.Server(self._handle)
        self._runner = web.ServerRunner(server, handler_cancellation=True, shutdown_timeout=0.1)
        await self._runner.setup()
        await self._listen()

    async def _stop(self) -> None:
        await self._runner.cleanup()
        await self._session.close()
        # Those whose connection was broken off or frozen are not the server's any more.
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    async def _listen(self) -> None:
        self._site = web.TCPSite(self._runner, "127.0.0.1", self._port)
        await self._site.start()
        self._port = self._runner.addresses[0][1]

    async def _refuse(self) -> None:
        if self._site is not None:
            await self._site.stop()
            self._site = None
        for transport in list(self._connections):
            transport.close()

    async def _freeze(self, *, new_too: bool) -> None:
        self._is_frozen = new_too
        self._frozen = set(self._connections)

    async def _thaw(self) -> None:
        self._is_frozen = False
        self._frozen.clear()
        async with self._thawed:
            self._thawed.notify_all()

    async def _handle(self, asked: web.BaseRequest) -> web.StreamResponse:
        transport = asked.transport
        if transport is None:
            raise ConnectionResetError
        self._connections.add(transport)
        try:
            request = Request(asked.method, asked.path, dict(asked.query), await asked.read())
            return await self._pass_on(asked, request, transport)
        finally:
            if transport.is_closing():
                self._connections.discard(transport)

    async def _pass_on(
        self, asked: web.BaseRequest, request: Request, transport: asyncio.BaseTransport
    ) -> web.StreamResponse:
        await self._wait_while_frozen(transport)
        status = await asyncio.to_thread(self.before, request)
        if status is not None:
            said = {"kind": "Status", "code": status, "message": f"the proxy says {status}"}
            return web.json_response(said, status=status)
        headers = {k: v for k, v in asked.headers.items() if k.lower() not in _OWN_HEADERS}
        async with self._session.request(
            request.method,
            f"{self._upstream['server']}{request.path}",
            params=request.query,
            data=request.body or None,
            headers=headers,
        ) as answer:
            await asyncio.to_thread(self.after, request)
            await self._wait_while_frozen(transport)
            kept = {k: v for k, v in answer.headers.items() if k.lower() not in _OWN_HEADERS}
            response = web.StreamResponse(status=answer.status, headers=kept)
            await response.prepare(asked)
            async for chunk in answer.content.iter_any():
                await self._wait_while_frozen(transport)
                await response.write(chunk)
            await self._wait_while_frozen(transport)
            await response.write_eof()
            return response

    async def _wait_while_frozen(self, transport: asyncio.BaseTransport) -> None:
        async with self._thawed:
            await self._thawed.wait_for(
                lambda: not self._is_frozen and transport not in self._frozen
            )


def _decode(authority: str) -> str:
    import base64

    return base64.b64decode(authority).decode()


def name_in(request: Request) -> str:
    """Name of the object that a request creates or changes."""
    if request.method == "POST":
        name: str = json.loads(request.body)["metadata"].get("name", "")
        return name
    return request.path.rpartition("/")[2]
