"""A simulated cluster for a benchmark: its API server is real, its learners are not.

Beside KWOK, which says that pods run, something has to answer for their logs: a server here keeps
each log open, as a kubelet does while a learner writes nothing, until the learner has ended.
"""

from __future__ import annotations

import asyncio
import os
import re
import ssl
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from aiohttp import web

from dev.airflow.access import Admin

Json = dict[str, Any]

_PORTS = 28000
_PODS_SECONDS = 600
_KUBELET_PORT = _PORTS + 250
_METRIC = re.compile(r"(\w+)\{(.*)\} (\S+)")
_LABEL = re.compile(r'(\w+)="([^"]*)"')
# What trainings are made of, and what their trigger asks for besides. Nobody else does in a quiet
# cluster, but for the controllers' lists and watches, which are of all namespaces at once.
_OURS = {"statefulsets", "pods", "events", "services", "secrets", "namespaces", "jobs"}
_OURS |= {"selfsubjectrulesreviews"}


class Simulated:
    """A running simulated cluster.

    :param folder: all that it keeps.
    """

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self.admin = Admin(folder / "admin.kubeconfig")
        self.open_logs: dict[str, asyncio.Event] = {}
        self._folder = folder
        self._environment = environment

    async def request(self, method: str, path: str, **more: Any) -> Json:
        """Send a request with all rights."""
        return await asyncio.to_thread(self.admin.request, method, path, **more)

    async def patch(self, path: str, body: Json) -> None:
        """Merge into an object, or its status."""
        await self.request("PATCH", path, body=body, content_type="application/merge-patch+json")

    async def wait_for_pods(self, namespace: str, many: int) -> None:
        """Wait until so many pods of a namespace run, and none is still to run."""
        path = f"/api/v1/namespaces/{namespace}/pods"
        waiting = {"fieldSelector": "status.phase!=Running", "limit": "1"}
        async with asyncio.timeout(_PODS_SECONDS):
            while True:
                found = await self.request("GET", path, query={"limit": "1"})
                left = int(found["metadata"].get("remainingItemCount", 0))
                there = len(found["items"]) + left >= many
                if there and not (await self.request("GET", path, query=waiting))["items"]:
                    return
                await asyncio.sleep(0.5)

    async def read_metrics(self) -> list[tuple[str, dict[str, str], float]]:
        """Return the API server's own counters: name, labels, value."""

        def read() -> str:
            kubectl = [sys.executable, "-m", "dev.cluster", "kubectl", "get", "--raw", "/metrics"]
            return subprocess.run(
                kubectl, env=self._environment, stdout=subprocess.PIPE, text=True, check=True
            ).stdout

        lines = (_METRIC.fullmatch(line) for line in (await asyncio.to_thread(read)).splitlines())
        return [(m[1], dict(_LABEL.findall(m[2])), float(m[3])) for m in lines if m]

    async def count_requests(self) -> Counter[str]:
        """Count the requests so far about what trainings are made of, by verb and resource."""
        counted: Counter[str] = Counter()
        for name, labels, value in await self.read_metrics():
            if name != "apiserver_request_total" or labels["resource"] not in _OURS:
                continue
            if labels["scope"] == "cluster" and labels["verb"] in {"LIST", "WATCH"}:
                continue
            resource = "/".join(filter(None, (labels["resource"], labels["subresource"])))
            counted[f"{labels['verb']} {resource}"] += int(value)
        return counted

    async def count_refusals(self) -> int:
        """Count the requests that the API server has refused for being too many."""
        return sum(
            int(value)
            for name, labels, value in await self.read_metrics()
            if (name == "apiserver_request_total" and labels["code"] == "429")
            or name == "apiserver_flowcontrol_rejected_requests_total"
        )

    async def stop_api_server(self) -> None:
        """Stop the API server."""
        await self._run("stop-component", "kube-apiserver")

    async def start_api_server(self) -> None:
        """Start the API server again, and wait until it answers."""
        await self._run("start-component", "kube-apiserver")

    async def _run(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "dev.cluster", *arguments]
        process = await asyncio.create_subprocess_exec(*command, env=self._environment)
        if await process.wait():
            raise RuntimeError(f"{' '.join(arguments)} failed")

    @asynccontextmanager
    async def serve_logs(self) -> AsyncIterator[None]:
        """Answer for the learners' logs, as the node's kubelet."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        pki = self._folder / "run" / "pki"
        context.load_cert_chain(pki / "kubelet-server.crt", pki / "kubelet-server.key")
        runner = web.ServerRunner(web.Server(self._answer), shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", _KUBELET_PORT, ssl_context=context).start()
        try:
            yield
        finally:
            await runner.cleanup()

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        pod = request.path.split("/")[3]  # /containerLogs/NAMESPACE/POD/CONTAINER
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"2026-01-01T00:00:00.000000000Z begun\n")
        if "follow" in request.query:
            await self.open_logs.setdefault(pod, asyncio.Event()).wait()
        with suppress(ConnectionResetError):  # who followed it is gone
            await response.write_eof()
        return response

    def end_log(self, pod: str) -> None:
        """End a learner's log, as the end of its container does."""
        self.open_logs.setdefault(pod, asyncio.Event()).set()


@asynccontextmanager
async def simulated_cluster() -> AsyncIterator[Simulated]:
    """Run a simulated cluster beside any other."""
    with TemporaryDirectory(prefix="simulated-") as folder:
        environment = os.environ | {
            "AIRFLOW_LEARNER_CLUSTER_DIR": folder,
            "AIRFLOW_LEARNER_CLUSTER_PORTS": str(_PORTS),
        }
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "dev.cluster",
            "simulate",
            env=environment,
            stdin=pipe,
            stdout=pipe,
            start_new_session=True,
        )  # fmt: skip - its own session: it ends with its input, after us
        if process.stdin is None or process.stdout is None:
            raise RuntimeError("no pipe to the simulated cluster")
        try:
            if not await process.stdout.readline():
                raise RuntimeError("the simulated cluster did not start")
            cluster = Simulated(Path(folder), environment)
            try:
                async with cluster.serve_logs():
                    yield cluster
            finally:
                cluster.admin.close()
        finally:
            process.stdin.close()
            await process.wait()
