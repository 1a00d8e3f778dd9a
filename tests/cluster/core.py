"""Trainings on the cluster without an Airflow around them: what a worker and a triggerer run."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_learner_provider.cluster.connection import Connection, connect
from airflow_learner_provider.cluster.credentials import ClusterSettings
from airflow_learner_provider.cluster.follow import run_training
from airflow_learner_provider.training.accounts import Accounts
from airflow_learner_provider.training.naming import Owner
from airflow_learner_provider.training.request import TrainingRequest
from airflow_learner_provider.training.spec import parse_training_spec

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from airflow_learner_provider.training.outcome import Outcome


@dataclass
class TaskLog:
    """A task's log: what was written to it, line by line."""

    lines: list[str] = field(default_factory=list)

    def info(self, message: str, /, *args: Any) -> None:
        """Keep something that goes as it should."""
        self.lines += (message % args if args else message).splitlines()

    warning = info

    @property
    def text(self) -> str:
        """All of it."""
        return "\n".join(self.lines)

    def of_learner(self, ordinal: int) -> list[str]:
        """What a learner wrote."""
        mark = f"[{ordinal}] "
        return [line.removeprefix(mark) for line in self.lines if line.startswith(mark)]


@dataclass(frozen=True)
class Gate:
    """Holds learners up until a test lets them go on, however long what it waits for takes.

    :param folder: of the node, which learners have as their data.
    """

    folder: Path
    wait: ClassVar[str] = 'until [ -e "$DATA_DIR/open" ]; do sleep 0.1; done'

    @property
    def store(self) -> dict[str, str]:
        """`training_data` of those who wait."""
        return {"type": "host_mount", "host_path": str(self.folder)}

    def open(self) -> None:
        """Let them go on."""
        (self.folder / "open").touch()


# Lets learners go on together; their `results` is a folder of the node.
MEET = (
    'mkdir -p "$RESULT_DIR"; touch "$RESULT_DIR/met-$LEARNER_ORDINAL"; '
    'until [ "$(ls "$RESULT_DIR" | grep -c met-)" = "$NUM_LEARNERS" ]; do sleep 0.1; done; '
)


@dataclass
class Core:
    """Runs trainings in a namespace with exactly the Role's rights.

    :param log: of all trainings that are run here.
    :param accounts: what connections say that the trainings name.
    """

    namespace: str
    kubeconfig: Path
    image: str
    log: TaskLog = field(default_factory=TaskLog)
    accounts: Accounts = field(default_factory=dict)

    def request(
        self, *, owner: Owner | None = None, deadline: float | None = None, **spec: Any
    ) -> TrainingRequest:
        """Ask for a training: by default two small learners, in a new task's first try."""
        values = {
            "learners": 2,
            "image": self.image,
            "cpus": "20m",
            "memory": "64Mi",
            "ready_timeout": 300,
            "namespace": self.namespace,
        }
        return TrainingRequest(
            parse_training_spec(values | spec), owner or new_owner(), deadline, "0"
        )

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[Connection]:
        """Give a connection to the cluster."""
        async with connect(ClusterSettings(kube_config_path=str(self.kubeconfig))) as connection:
            yield connection

    async def run(self, request: TrainingRequest | None = None, /, **spec: Any) -> Outcome:
        """Run a training to its end."""
        request = request or self.request(**spec)
        async with self.connect() as connection:
            return await run_training(connection, request, self.log, accounts=self.accounts)

    def build_somebodys(self, **container: Any) -> dict[str, Any]:
        """Build a StatefulSet of three pods that this provider did not make."""
        labels = {"app": "somebodys"}
        main = {"name": "main", "image": self.image, "command": ["sleep", "600"]} | container
        return {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "metadata": {"name": "somebodys", "namespace": self.namespace},
            "spec": {
                "replicas": 3,
                "serviceName": "somebodys",
                "podManagementPolicy": "Parallel",
                "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {"containers": [main], "terminationGracePeriodSeconds": 0},
                },
            },
        }

    def start(self, request: TrainingRequest) -> asyncio.Task[Outcome]:
        """Begin to run a training."""
        return asyncio.create_task(self.run(request))

    def beside(self, kubeconfig: Path) -> Core:
        """As another process: with a connection and a log of its own.

        :param kubeconfig: a file of its own.
        """
        return replace(self, kubeconfig=kubeconfig, log=TaskLog())


async def abandon(training: asyncio.Task[Outcome]) -> None:
    """End a try as a triggerer that stops does: nothing is deleted."""
    training.cancel()
    await asyncio.wait([training])


def next_try(request: TrainingRequest) -> TrainingRequest:
    """The same training asked for by the task's next try."""
    number = request.owner.try_number + 1
    owner = replace(request.owner, try_number=number, task_instance_id=uuid.uuid4().hex)
    return replace(request, owner=owner)


def new_owner(**more: Any) -> Owner:
    """The first try of a task of its own, in a triggerer."""
    owner = Owner(
        dag_id="core",
        task_id="train",
        run_id=uuid.uuid4().hex,
        map_index=-1,
        try_number=1,
        task_instance_id=uuid.uuid4().hex,
        durable=False,
    )
    return replace(owner, **more)


async def until(look: Callable[[], Any], *, seconds: float = 120, pause: float = 0.1) -> Any:
    """Look, in a thread, until there is something, and return it."""
    deadline = time.monotonic() + seconds
    while not (found := await asyncio.to_thread(look)):
        assert time.monotonic() < deadline, f"not so after {seconds} s"
        await asyncio.sleep(pause)
    return found


@asynccontextmanager
async def meanwhile(coroutine: Coroutine[Any, Any, Any]) -> AsyncIterator[asyncio.Task[Any]]:
    """Run something beside the block; it is cancelled when the block fails."""
    task = asyncio.create_task(coroutine)
    try:
        yield task
    finally:
        if not task.done():
            task.cancel()
        await asyncio.wait([task])
