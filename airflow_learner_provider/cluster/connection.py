"""Connections to clusters, shared by everything in a process that means the same one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from weakref import WeakKeyDictionary

from airflow_learner_provider.cluster.api import Api, ReadAgain
from airflow_learner_provider.cluster.credentials import ClusterSettings
from airflow_learner_provider.cluster.logs import SharedLimits
from airflow_learner_provider.cluster.watch import Watch


class Connection:
    """A cluster's API and the watches of its namespaces."""

    def __init__(self, settings: ClusterSettings, read_again: ReadAgain | None) -> None:
        self.api = Api(settings, read_again)
        self.users = 0
        self.log_limits = SharedLimits()
        self.asking = asyncio.Lock()
        # Whether the cluster keeps a restart policy on a container; None until somebody asked.
        self.keeps_restart_policy: bool | None = None
        self._watches: dict[str, tuple[Watch, int]] = {}

    @asynccontextmanager
    async def watch(self, namespace: str) -> AsyncIterator[Watch]:
        """Give the watch of a namespace; it runs as long as somebody uses it."""
        watch, users = self._watches.get(namespace, (None, 0))
        if watch is None or watch.failure is not None:
            watch, users = Watch(self.api, namespace), 0
            watch.start()
        self._watches[namespace] = watch, users + 1
        try:
            yield watch
        finally:
            current, users = self._watches.get(namespace, (None, 0))
            if current is not watch:  # it failed and another one took its place
                await watch.stop()
            elif users == 1:
                del self._watches[namespace]
                await watch.stop()
            else:
                self._watches[namespace] = watch, users - 1


_connections: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[ClusterSettings, Connection]] = (
    WeakKeyDictionary()
)


@asynccontextmanager
async def connect(
    settings: ClusterSettings, read_again: ReadAgain | None = None
) -> AsyncIterator[Connection]:
    """Give the connection for these settings; it is closed when nobody uses it any more.

    :param read_again: reads the settings anew when their credentials are refused.
    :raises LearnerError: there are no credentials.
    """
    connections = _connections.setdefault(asyncio.get_running_loop(), {})
    connection = connections.setdefault(settings, Connection(settings, read_again))
    connection.users += 1
    try:
        await connection.api.credentials()
        yield connection
    finally:
        connection.users -= 1
        if connection.users == 0:
            del connections[settings]
            await connection.api.close()
