"""The Airflow of `make demo` and `make ui`: the example DAGs, on the local cluster or KUBECONFIG's.

Its home is kept, so that the user interface still shows what the demo has run.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from dev.airflow.access import Admin, build_connection
from dev.airflow.server import Airflow
from dev.airflow.settings import AirflowError

HOME = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / (
    "airflow-learner-provider/airflow"
)
DAGS = Path(__file__).parents[2] / "dags"
NAMESPACE = "airflow-learner-demo"
IMAGE_VARIABLE = "LEARNER_DIGITS_IMAGE"
IMAGE_FOLDER = "dev/images/digits"


@contextmanager
def run_airflow(*, port: int | None = None) -> Iterator[tuple[Airflow, Admin]]:
    """Start Airflow with the example DAGs and its rights in a cluster; end it at the end.

    :return: the Airflow, and all rights in its cluster.
    :raises AirflowError: it runs already, or there is no cluster; says what to do.
    """
    HOME.mkdir(parents=True, exist_ok=True)
    with (HOME / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise AirflowError("it runs already: end `make ui` or `make demo` first") from None
        with (
            closing(Admin(find_cluster())) as admin,
            Airflow(HOME, dags=DAGS, port=port, paused=True) as airflow,
        ):
            admin.prepare_namespace(NAMESPACE)
            kubeconfig = admin.create_role_kubeconfig(NAMESPACE, hours=24)
            airflow.api.set_connection(build_connection("kubernetes_default", kubeconfig))
            yield airflow, admin


def find_cluster() -> Path:
    """Return the kubeconfig of the cluster to use; without KUBECONFIG the local one is started."""
    if path := os.environ.get("KUBECONFIG"):
        if IMAGE_VARIABLE not in os.environ:
            raise AirflowError(
                f"KUBECONFIG is set, so its cluster has to pull the learners' image: build one with"
                f" Python, JAX and scikit-learn, and the files of {IMAGE_FOLDER} in /opt/digits;"
                f" push it and name it in {IMAGE_VARIABLE}. Without KUBECONFIG, everything is made"
                " on this machine."
            )
        return Path(path).resolve()
    started = subprocess.run(
        [sys.executable, "-m", "dev.cluster", "up", "--images", "digits"],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if started.returncode != 0:
        raise AirflowError("the local cluster did not start")
    return Path(started.stdout.strip().splitlines()[-1])
