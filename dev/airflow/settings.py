"""How the local Airflow is set up: small, quick to react, and nobody's but its home's."""

import os
from collections.abc import Mapping
from pathlib import Path

# What every process of a home carries in its environment, so that it can be told from all others.
HOME_VARIABLE = "LOCAL_AIRFLOW_HOME"
COMPONENT_VARIABLE = "LOCAL_AIRFLOW_COMPONENT"
OWNER_VARIABLE = "LOCAL_AIRFLOW_OWNER"  # pid of the process with which it is to end, if any

# The commands of the components by their names here. Logs are read from the files, which all
# components share, so none of them is served. What tasks ask has a server of its own: the other one
# notes each request of a user in its event loop, where it can wait for SQLite's lock while the
# request that holds it waits for the loop.
EXECUTION_API = "execution-api"
COMMANDS: Mapping[str, tuple[str, ...]] = {
    "api-server": ("api-server", "--apps", "core"),
    EXECUTION_API: ("api-server", "--apps", "execution"),
    "scheduler": ("scheduler", "--skip-serve-logs"),
    "dag-processor": ("dag-processor",),
    "triggerer": ("triggerer", "--skip-serve-logs"),
    "triggerer-2": ("triggerer", "--skip-serve-logs"),
}
DEFAULT_COMPONENTS = ("api-server", EXECUTION_API, "scheduler", "dag-processor", "triggerer")
JOB_TYPES = {
    "scheduler": "SchedulerJob",
    "dag-processor": "DagProcessorJob",
    "triggerer": "TriggererJob",
    "triggerer-2": "TriggererJob",
}


class AirflowError(Exception):
    """Something the user has to know: what failed, where, and what to do."""


# The user as whom tests ask, where users log in.
ADMIN = "admin"


def build_environment(
    home: Path,
    *,
    dags: Path,
    url: str,
    execution_url: str,
    paused: bool,
    workers: int,
    users: Mapping[str, str],
) -> dict[str, str]:
    """Build the environment that all components share.

    :param url: of the API server.
    :param execution_url: of the server that tasks ask.
    :param paused: whether a new DAG waits until somebody unpauses it.
    :param workers: how many tasks can run at once.
    :param users: roles of Airflow's simple auth manager by the names of those who can log in; with
        none of them everybody is an administrator.
    """
    options: dict[str, dict[str, object]] = {
        "core": {
            "dags_folder": dags,
            "dags_are_paused_at_creation": paused,
            "executor": "LocalExecutor",
            "execution_api_server_url": f"{execution_url}/execution/",
            "hostname_callable": "socket.gethostname",  # the default one asks DNS
            "load_examples": False,
            "min_serialized_dag_update_interval": 0,
            "parallelism": workers,
            "simple_auth_manager_all_admins": not users,
            "simple_auth_manager_passwords_file": home / "passwords.json",
            "simple_auth_manager_users": ",".join(f"{name}:{role}" for name, role in users.items()),
            "test_connection": "Enabled",
        },
        "database": {
            # A process waits for the others' writes instead of failing at once. A pool's bound can
            # make one that writes wait, in vain, for those that wait for its write.
            "sql_alchemy_conn": f"sqlite:///{home}/airflow.db?timeout=60",
            "sql_alchemy_pool_enabled": False,
        },
        "api": {"base_url": url, "host": "127.0.0.1", "workers": 1},
        "dag_processor": {
            "bundle_refresh_check_interval": 1,
            "min_file_process_interval": 5,
            "parsing_processes": 1,
            "refresh_interval": 1,
        },
        "scheduler": {
            "job_heartbeat_sec": 1,
            "orphaned_tasks_check_interval": 10,
            "scheduler_health_check_threshold": 15,
            "scheduler_heartbeat_sec": 1,
            "scheduler_idle_sleep_time": 0.3,
            "task_instance_heartbeat_timeout": 20,
            "task_instance_heartbeat_timeout_detection_interval": 2,
            "trigger_timeout_check_interval": 2,
        },
        "triggerer": {"job_heartbeat_sec": 1, "triggerer_health_check_threshold": 15},
        "workers": {
            # A task fails whose worker has no answer for so long, which on a busy machine is soon.
            "execution_api_timeout": 60,
            # A worker notices the end of a task that deferred this long after it. Airflow fails a
            # task that is queued again in the very loop in which the scheduler hears of that end.
            "min_heartbeat_interval": 1,
        },
    }
    environment = {
        name: value
        for name, value in os.environ.items()
        # Tasks are to use their connections only.
        if not name.startswith("AIRFLOW") and name != "KUBECONFIG"
    }
    environment |= {
        f"AIRFLOW__{section.upper()}__{key.upper()}": str(value)
        for section, values in options.items()
        for key, value in values.items()
    }
    return environment | {
        "AIRFLOW_HOME": str(home),
        HOME_VARIABLE: str(home),
        "SPT_NOENV": "1",  # a process that changes its title keeps its environment readable
        "PYTHONUNBUFFERED": "1",
    }
