"""One list and watch a kind, cluster and namespace, shared by all trainings followed there.

However many trainings a process follows in a namespace, the API server sees three watches. Each
training folds every change into its own observation at once, so that nothing is missed between two
looks.

The official client's informer was not taken: it runs on threads with blocking reads, and holds on
to full objects, where a triggerer has to follow thousands of trainings.
"""

from __future__ import annotations

import asyncio
import contextvars
import json
import logging
import random
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any

from airflow_learner_provider.cluster.api import Api
from airflow_learner_provider.exceptions import ApiError
from airflow_learner_provider.training.naming import MANAGED_SELECTOR
from airflow_learner_provider.training.observation import Observation
from airflow_learner_provider.training.pruning import prune

log = logging.getLogger(__name__)

# Each watch ends by itself after this time and goes on from where it was. A connection that is
# silent for longer is dead, also when nothing says so.
_WATCH_SECONDS = 60
_SILENCE_SECONDS = _WATCH_SECONDS + 15
_LIST_SECONDS = 180
_KINDS = {"StatefulSet": MANAGED_SELECTOR, "Pod": MANAGED_SELECTOR, "Event": ""}


class Subscription:
    """A training that is followed.

    :param observation: what has been seen of it; every change is in it at once.
    """

    def __init__(self, observation: Observation) -> None:
        self.observation = observation
        self._changed = asyncio.Event()
        self._failure: ApiError | None = None

    def apply(self, kind: str, change: str, obj: Mapping[str, Any]) -> None:
        """Fold a change in, and wake who waits if it is about this training."""
        if self.observation.apply(kind, change, obj):
            self._changed.set()

    def fail(self, failure: ApiError) -> None:
        """Let who waits know that nothing more will come."""
        self._failure = failure
        self._changed.set()

    async def changed(self, *, within: float | None) -> None:
        """Wait for the next change, at most so many seconds.

        :raises ApiError: the namespace can no longer be watched.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(within):
                await self._changed.wait()
        if self._failure is not None:
            raise self._failure
        self._changed.clear()


class Watch:
    """The three watches of a namespace."""

    def __init__(self, api: Api, namespace: str) -> None:
        self._api = api
        self._namespace = namespace
        self._subscriptions: dict[str, set[Subscription]] = {}
        self._objects: dict[str, dict[str, Mapping[str, Any]]] = {kind: {} for kind in _KINDS}
        # The same by the training that they may be about, and by kind and name.
        self._known: dict[str, dict[tuple[str, str], Mapping[str, Any]]] = {}
        self._listed = {kind: asyncio.Event() for kind in _KINDS}
        self.failure: ApiError | None = None
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin to watch."""
        loop = asyncio.get_running_loop()
        # An empty context: what is logged here belongs to no single task of Airflow's.
        self._tasks = [
            loop.create_task(self._follow(kind), context=contextvars.Context()) for kind in _KINDS
        ]

    async def stop(self) -> None:
        """End the watches."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @asynccontextmanager
    async def subscribe(self, observation: Observation) -> AsyncIterator[Subscription]:
        """Follow a training: fold what is there into the observation, then every change.

        :raises ApiError: the namespace cannot be watched.
        """
        subscription = Subscription(observation)
        try:
            async with asyncio.timeout(_LIST_SECONDS):
                for listed in self._listed.values():
                    await listed.wait()
        except TimeoutError:
            raise ApiError(
                f"cannot list statefulsets, pods and events of {self._namespace}: no answer "
                f"for {_LIST_SECONDS} s"
            ) from None
        if self.failure is not None:
            raise self.failure
        known = self._known.get(observation.name, {})
        for kind in _KINDS:  # the StatefulSet first: its uid tells whose the others are
            for (of_kind, _), obj in known.items():
                if of_kind == kind:
                    subscription.apply(kind, "ADDED", obj)
        with self._registered(subscription):
            yield subscription

    @contextmanager
    def _registered(self, subscription: Subscription) -> Iterator[None]:
        name = subscription.observation.name
        self._subscriptions.setdefault(name, set()).add(subscription)
        try:
            yield
        finally:
            self._subscriptions[name].discard(subscription)
            if not self._subscriptions[name]:
                del self._subscriptions[name]

    async def _follow(self, kind: str) -> None:
        position: str | None = None
        failures = 0
        while True:
            try:
                if position is None:
                    position = await self._list(kind)
                    self._listed[kind].set()
                position = await self._watch(kind, position)
                failures = 0
                continue
            except ApiError as e:
                if e.is_final:
                    self._fail(e)
                    return
                failures += 1
                if e.status == 410:  # the position is too old: begin anew
                    position = None
                else:  # once an outage is enough: the pauses are short, and there are three of us
                    level = logging.WARNING if failures == 1 else logging.DEBUG
                    log.log(level, "%s; trying again", e)
            pause = min(0.25 * 2**failures, 8) * random.uniform(0.5, 1.5)  # noqa: S311 - jitter
            await asyncio.sleep(pause)

    def _fail(self, error: ApiError) -> None:
        self.failure = error
        for listed in self._listed.values():
            listed.set()
        for subscriptions in self._subscriptions.values():
            for subscription in subscriptions:
                subscription.fail(error)

    async def _list(self, kind: str) -> str:
        missing = set(self._objects[kind])
        async for page in self._api.list_pages(kind, self._namespace, _KINDS[kind]):
            for item in page["items"]:
                missing.discard(item["metadata"]["name"])
                self._dispatch(kind, "MODIFIED", item)
            position: str = page["metadata"]["resourceVersion"]
        for name in missing:
            self._dispatch(kind, "DELETED", self._objects[kind][name])
        return position

    async def _watch(self, kind: str, position: str) -> str:
        """Dispatch changes until the watch ends; return the last position.

        When it breaks off, the next one begins where this one did and brings some changes a second
        time, which folds into the same observation.
        """
        params = {
            "watch": "1",
            "resourceVersion": position,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(_WATCH_SECONDS),
        }
        if _KINDS[kind]:
            params["labelSelector"] = _KINDS[kind]
        async with self._api.stream(
            kind, self._namespace, params=params, silence=_SILENCE_SECONDS
        ) as lines:
            async for line in lines:
                change = json.loads(line)
                obj = change["object"]
                if change["type"] == "ERROR":
                    raise ApiError(obj.get("message", ""), status=obj.get("code", 0))
                if change["type"] != "BOOKMARK":
                    self._dispatch(kind, change["type"], obj)
                position = obj["metadata"]["resourceVersion"]
        return position

    def _dispatch(self, kind: str, change: str, obj: Mapping[str, Any]) -> None:
        kept = prune(kind, obj)
        if kept is None:
            return
        name = kept["metadata"]["name"]
        if change == "DELETED":
            self._objects[kind].pop(name, None)
        else:
            self._objects[kind][name] = kept
        for training in _trainings_of(kind, kept):
            known = self._known.setdefault(training, {})
            known[kind, name] = kept
            if change == "DELETED":
                del known[kind, name]
                if not known:
                    del self._known[training]
            for subscription in self._subscriptions.get(training, ()):
                subscription.apply(kind, change, kept)


def _trainings_of(kind: str, obj: Mapping[str, Any]) -> tuple[str, ...]:
    """Names of the trainings that an object may be about."""
    name: str = (obj["involvedObject"] if kind == "Event" else obj["metadata"]).get("name", "")
    if kind == "StatefulSet":
        return (name,)
    training = name.rpartition("-")[0]
    return (training,) if kind == "Pod" else (name, training)
