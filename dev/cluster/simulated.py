"""A control plane with one simulated node: KWOK says of each pod that it runs, and none does.

It bears thousands of learners. Beside another cluster it needs a folder and ports of its own:
AIRFLOW_LEARNER_CLUSTER_DIR and AIRFLOW_LEARNER_CLUSTER_PORTS.
"""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dev.cluster import build, certs, cluster, host, probe, settings
from dev.cluster.build import find_binary
from dev.cluster.components import Component, build_components
from dev.cluster.progress import step
from dev.cluster.settings import ClusterError

LABEL = "airflow-learner-provider/simulated"  # of its nodes, and the key of their taint
KUBELET_PORT = "airflow-learner-provider/kubelet-port"  # an annotation that the stages read
_STAGES = Path(__file__).parent / "stages.yaml"
_PARTS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")


@contextmanager
def control_plane() -> Iterator[None]:
    """Start the parts; end them, and delete all that they wrote, at the end."""
    if settings.RUN.exists():
        raise ClusterError(f"{settings.RUN} is in use: set AIRFLOW_LEARNER_CLUSTER_DIR")
    build.build((*build.MODULES, build.KWOK))
    components = build_components(restart_rules=True)
    parts = [components[name] for name in _PARTS]
    cluster.check_ports(parts)
    try:
        with step("starting the simulated cluster"):
            components["etcd"].folder.mkdir(parents=True, mode=0o700)
            certs.write_certificates()
            for part in parts:
                cluster.start_component(part)
            certs.write_kubeconfig(settings.KUBECONFIG, "admin")
            cluster.start_component(build_kwok(settings.KUBECONFIG))
            node = settings.RUN / "node.json"
            node.write_text(json.dumps(build_node("simulated")))
            kubectl = find_binary("kubectl")
            host.run_program(kubectl, "--kubeconfig", settings.KUBECONFIG, "create", "-f", node)
            cluster.wait(_has_account, "the namespaces have no account", log="kube-apiserver")
        yield
    finally:
        for name in ("kwok", *reversed(_PARTS)):
            cluster.kill(name)
        shutil.rmtree(settings.RUN, ignore_errors=True)


def build_kwok(kubeconfig: Path) -> Component:
    """Return KWOK for the nodes that have the label."""
    argv = [
        str(find_binary("kwok")),
        f"--kubeconfig={kubeconfig}",
        f"--config={_STAGES}",
        f"--manage-nodes-with-label-selector={LABEL}",
        f"--node-ip={settings.LOOPBACK}",
        "--node-lease-duration-seconds=40",
    ]
    return Component("kwok", argv, lambda: True)


def build_node(name: str, *, tainted: bool = False) -> dict[str, Any]:
    """Return a simulated node.

    Its learners' logs are asked for at the port that a kubelet would have here, where somebody may
    answer.

    :param tainted: whether only pods that tolerate it come there, as beside real nodes.
    """
    port = str(settings.KUBELET_PORT)
    taints = [{"key": LABEL, "effect": "NoSchedule"}] if tainted else []
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {LABEL: "true"}, "annotations": {KUBELET_PORT: port}},
        "spec": {"taints": taints},
    }


def _has_account() -> bool:
    path = "/api/v1/namespaces/default/serviceaccounts/default"
    return probe.read_api(path) is not None
