"""What the page reads of the cluster, through the Airflow connection."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow.configuration import conf

from airflow_learner_provider.cluster.connection import connect
from airflow_learner_provider.cluster.logs import read_log_end
from airflow_learner_provider.exceptions import ApiError
from airflow_learner_provider.hooks import DEFAULT_CONN_ID, LearnerHook
from airflow_learner_provider.training.naming import MANAGED_SELECTOR, TRAINING_ID
from airflow_learner_provider.training.observation import Json, Observation
from airflow_learner_provider.training.view import group_observations, read_task, read_usage

if TYPE_CHECKING:
    from airflow_learner_provider.cluster.api import Api
    from airflow_learner_provider.cluster.credentials import ClusterSettings

SECTION = "learner"
# A snapshot is fresh for so long, but for ten times as long as it took: however many look, and
# however much there is, the API server is busy with us a tenth of its time at most.
_FRESH_SECONDS = 2.0
_SHARE = 10
_SETTINGS_SECONDS = 5
_USAGE_SECONDS = 3
_KINDS = {"StatefulSet": MANAGED_SELECTOR, "Pod": MANAGED_SELECTOR, "Event": ""}


@dataclass(frozen=True)
class Snapshot:
    """The trainings of a namespace at one moment.

    :param stale: time by the monotonic clock, in seconds, from which on it is not shown any more.
    """

    namespace: str
    trainings: dict[str, Observation]
    events: list[Json]
    stale: float


class Reader:
    """Reads trainings; whoever looks shares one connection and one list a kind and namespace."""

    def __init__(self) -> None:
        self.conn_id = conf.get(SECTION, "kubernetes_conn_id", fallback="") or DEFAULT_CONN_ID
        self.namespaces: list[str] = conf.getlist(SECTION, "namespaces", fallback=[]) or []
        self._stack = AsyncExitStack()
        self._api: Api | None = None
        self._settings: ClusterSettings | None = None
        self._settings_until = 0.0
        self._connecting = asyncio.Lock()
        self._snapshots: dict[str, Snapshot] = {}
        self._reading: dict[str, asyncio.Lock] = {}

    async def close(self) -> None:
        """Close the connection."""
        await self._stack.aclose()

    async def read_all(self) -> list[Snapshot]:
        """Read all trainings of the namespaces that are shown."""
        api = await self._connect()
        namespaces = self.namespaces or [(await api.credentials()).namespace]
        return list(await asyncio.gather(*(self._read(api, name) for name in namespaces)))

    async def find(self, task: dict[str, str]) -> tuple[Snapshot, Observation] | None:
        """Find the training of a task instance.

        :param task: its dag_id, run_id, task_id and map_index.
        """
        for snapshot in await self.read_all():
            for observation in snapshot.trainings.values():
                if read_task(observation) == task:
                    return snapshot, observation
        return None

    async def read_log(
        self, namespace: str, observation: Observation, ordinal: int, *, lines: int
    ) -> list[str]:
        """Read the last lines of a learner's log."""
        pod = observation.pods.get(ordinal)
        if pod is None:
            return []
        return await read_log_end(await self._connect(), namespace, pod, lines=lines)

    async def read_usage(self, namespace: str, name: str) -> dict[int, dict[str, str]]:
        """Read what the learners use; empty where nobody measures it, or we may not know."""
        api = await self._connect()
        try:
            async with asyncio.timeout(_USAGE_SECONDS):  # a passing error would be tried again
                found = await api.list("PodMetrics", namespace, f"{TRAINING_ID}={name}")
        except (ApiError, TimeoutError):
            return {}
        return read_usage(found["items"])

    async def _read(self, api: Api, namespace: str) -> Snapshot:
        async with self._reading.setdefault(namespace, asyncio.Lock()):
            known = self._snapshots.get(namespace)
            begun = time.monotonic()
            if known is not None and begun < known.stale:
                return known
            lists: list[dict[str, Any]] = await asyncio.gather(
                *(api.list(kind, namespace, selector) for kind, selector in _KINDS.items())
            )
            items = [found["items"] for found in lists]
            trainings = await asyncio.to_thread(group_observations, *items)
            now = time.monotonic()
            stale = now + max(_FRESH_SECONDS, _SHARE * (now - begun))
            snapshot = Snapshot(namespace, trainings, items[2], stale)
            self._snapshots[namespace] = snapshot
            return snapshot

    async def _connect(self) -> Api:
        """Return the connection's API; now and then it is asked whether it is still the same."""
        async with self._connecting:
            if self._api is None or time.monotonic() > self._settings_until:
                settings = await self._read_settings()
                if self._api is None or settings != self._settings:
                    await self._stack.aclose()
                    self._api = None
                    connection = await self._stack.enter_async_context(
                        connect(settings, self._read_settings)
                    )
                    self._api, self._settings = connection.api, settings
                    self._snapshots.clear()
                self._settings_until = time.monotonic() + _SETTINGS_SECONDS
            return self._api

    async def _read_settings(self) -> ClusterSettings:
        return await asyncio.to_thread(LearnerHook(self.conn_id).get_conn)
