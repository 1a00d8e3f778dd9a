"""Where the local cluster keeps what it has, and the names and numbers its parts share."""

import os
from pathlib import Path

NAME = "airflow-learner-provider"

_cache_home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
CACHE = Path(_cache_home) / NAME  # what took long to make: binaries, images
STATE = Path(os.environ.get("AIRFLOW_LEARNER_CLUSTER_DIR") or f"/var/lib/{NAME}")

RUN = STATE / "run"  # all that one run needs; gone after `down`
LOGS = STATE / "logs"  # of the last run; they outlive `down`
CONTAINERD_ROOT = STATE / "containerd"  # imported images; they outlive `down`
KUBECONFIG = STATE / "admin.kubeconfig"

PKI = RUN / "pki"
CONFIG = RUN / "config"
PROCESSES = RUN / "processes"
CONTAINERD_STATE = RUN / "containerd"
CONTAINERD_SOCKET = CONTAINERD_STATE / "containerd.sock"
KUBELET_ROOT = RUN / "kubelet"

NODE = "localhost"  # a name that resolves everywhere: the API server reaches the kubelet by it
LOOPBACK = "127.0.0.1"
_PORTS = int(os.environ.get("AIRFLOW_LEARNER_CLUSTER_PORTS") or 18000)
API_PORT = _PORTS + 443
KUBELET_PORT = _PORTS + 250
KUBELET_HEALTH_PORT = _PORTS + 248
CONTROLLER_MANAGER_PORT = _PORTS + 257
SCHEDULER_PORT = _PORTS + 259
DNS_READY_PORT = _PORTS + 281
API_URL = f"https://{LOOPBACK}:{API_PORT}"

# The range that RFC 2544 sets apart for benchmarks: no real network has it.
BRIDGE = "alp-cluster0"
POD_SUBNET = "198.18.0.0/24"
BRIDGE_ADDRESS = "198.18.0.1"
SERVICE_SUBNET = "198.18.1.0/24"
API_SERVICE_ADDRESS = "198.18.1.1"  # the first of the range: the `kubernetes` Service gets it
CLUSTER_DOMAIN = "cluster.local"

RESTART_RULES_VARIABLE = "AIRFLOW_LEARNER_RESTART_RULES"


class ClusterError(Exception):
    """Something the user has to know: what failed, where, and what to do."""
