"""The cluster's parts: their settings, their command lines, and how to see that each works."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from dev.cluster import cgroups, containerd, network, probe, settings
from dev.cluster.build import find_binary
from dev.cluster.settings import LOOPBACK, PKI

_ETCD_FOLDER = settings.RUN / "etcd"
_KUBELET_CONFIG = settings.CONFIG / "kubelet.yaml"
_COREFILE = settings.CONFIG / "Corefile"
_RESOLV_CONF = settings.CONFIG / "resolv.conf"
# Tests create and delete a lot in a short time; the defaults of 20 and 50 requests a second would
# hold the controllers back.
_CLIENT_LIMITS = ("--kube-api-qps=500", "--kube-api-burst=1000")
# An unreachable node shows after 20 s, and its pods are evicted 10 s later, not after 6 minutes.
_NODE_GRACE_SECONDS = 20
_EVICTION_SECONDS = 10


@dataclass(frozen=True)
class Component:
    """One process of the cluster."""

    name: str
    argv: list[str]
    is_healthy: Callable[[], bool]
    folder: Path = settings.RUN
    port: tuple[str, int] | None = None  # what must be free before it starts


def build_components(*, restart_rules: bool) -> dict[str, Component]:
    """Return all parts by name, in the order in which they start."""
    gates = f"--feature-gates=ContainerRestartRules={str(restart_rules).lower()}"
    components = (
        Component("containerd", containerd.build_argv(), containerd.is_healthy),
        _build_etcd(),
        _build_apiserver(gates),
        _build_controller_manager(),
        _build_scheduler(),
        _build_kubelet(gates),
        _build_coredns(),
    )
    return {component.name: component for component in components}


def write_configs() -> None:
    """Write the parts' configuration files."""
    settings.CONFIG.mkdir(parents=True, exist_ok=True)
    for folder in (_ETCD_FOLDER, settings.KUBELET_ROOT):
        folder.mkdir(parents=True, mode=0o700)
    containerd.write_config()
    network.write_cni_config(containerd.CNI_CONFIG)
    _KUBELET_CONFIG.write_text(yaml.safe_dump(_build_kubelet_config()))
    # A pod does not see the machine's own search domains: they would add queries that go nowhere.
    _RESOLV_CONF.write_text(f"nameserver {settings.BRIDGE_ADDRESS}\n")
    _COREFILE.write_text(
        _COREFILE_TEMPLATE.format(
            address=settings.BRIDGE_ADDRESS,
            ready=f"{LOOPBACK}:{settings.DNS_READY_PORT}",
            zones=f"{settings.CLUSTER_DOMAIN} in-addr.arpa",
            kubeconfig=PKI / "coredns.kubeconfig",
        )
    )


_COREFILE_TEMPLATE = """\
. {{
    bind {address}
    ready {ready}
    errors
    kubernetes {zones} {{
        kubeconfig {kubeconfig}
        ttl 1
    }}
    template ANY ANY {{
        rcode NXDOMAIN
    }}
}}
"""


def _build_etcd() -> Component:
    # Sockets instead of ports, so that nobody else on the machine reaches the data. The names have
    # the form HOST:PORT that etcd insists on, and lie in its working folder.
    client, peer = "unix://client:0", "unix://peer:0"
    argv = [
        str(find_binary("etcd")),
        f"--data-dir={_ETCD_FOLDER / 'data'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        "--unsafe-no-fsync",  # the data need not outlive a power cut
    ]
    socket = str(_ETCD_FOLDER / "client:0")
    return Component("etcd", argv, partial(probe.is_listening, socket), folder=_ETCD_FOLDER)


def _build_apiserver(gates: str) -> Component:
    service_account_key = PKI / "service-accounts.key"
    argv = [
        str(find_binary("kube-apiserver")),
        gates,
        f"--etcd-servers=unix://{_ETCD_FOLDER / 'client:0'}",
        f"--bind-address={LOOPBACK}",
        f"--secure-port={settings.API_PORT}",
        "--endpoint-reconciler-type=none",  # a loopback address is no endpoint
        f"--service-cluster-ip-range={settings.SERVICE_SUBNET}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--allow-privileged=true",
        f"--client-ca-file={PKI / 'ca.crt'}",
        *_build_serving_flags("apiserver"),
        f"--kubelet-certificate-authority={PKI / 'ca.crt'}",
        f"--kubelet-client-certificate={PKI / 'apiserver-kubelet-client.crt'}",
        f"--kubelet-client-key={PKI / 'apiserver-kubelet-client.key'}",
        "--kubelet-preferred-address-types=Hostname",
        f"--service-account-issuer=https://kubernetes.default.svc.{settings.CLUSTER_DOMAIN}",
        f"--service-account-signing-key-file={service_account_key}",
        f"--service-account-key-file={service_account_key}",
        f"--default-not-ready-toleration-seconds={_EVICTION_SECONDS}",
        f"--default-unreachable-toleration-seconds={_EVICTION_SECONDS}",
    ]
    health = partial(probe.is_healthy, f"{settings.API_URL}/readyz")
    return Component("kube-apiserver", argv, health, port=(LOOPBACK, settings.API_PORT))


def _build_controller_manager() -> Component:
    name, port = "kube-controller-manager", settings.CONTROLLER_MANAGER_PORT
    argv = [
        *_build_controller_argv(name, port),
        f"--root-ca-file={PKI / 'ca.crt'}",
        f"--service-account-private-key-file={PKI / 'service-accounts.key'}",
        "--use-service-account-credentials=true",
        f"--node-monitor-grace-period={_NODE_GRACE_SECONDS}s",
        "--node-monitor-period=1s",
        "--node-eviction-rate=100",
        "--concurrent-statefulset-syncs=20",
        "--concurrent-service-endpoint-syncs=20",
        "--concurrent-namespace-syncs=20",
    ]
    health = partial(probe.is_healthy, f"https://{LOOPBACK}:{port}/healthz")
    return Component(name, argv, health, port=(LOOPBACK, port))


def _build_scheduler() -> Component:
    name, port = "kube-scheduler", settings.SCHEDULER_PORT
    health = partial(probe.is_healthy, f"https://{LOOPBACK}:{port}/healthz")
    return Component(name, _build_controller_argv(name, port), health, port=(LOOPBACK, port))


def _build_controller_argv(name: str, port: int) -> list[str]:
    kubeconfig = PKI / f"{name}.kubeconfig"
    return [
        str(find_binary(name)),
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        f"--bind-address={LOOPBACK}",
        f"--secure-port={port}",
        *_build_serving_flags(name),
        "--leader-elect=false",  # there is only one, and a restarted one would wait for the lease
        *_CLIENT_LIMITS,
    ]


def _build_serving_flags(name: str) -> list[str]:
    return [
        f"--tls-cert-file={PKI / f'{name}.crt'}",
        f"--tls-private-key-file={PKI / f'{name}.key'}",
    ]


def _build_kubelet(gates: str) -> Component:
    argv = [
        str(find_binary("kubelet")),
        gates,
        f"--config={_KUBELET_CONFIG}",
        f"--kubeconfig={PKI / 'kubelet.kubeconfig'}",
        f"--root-dir={settings.KUBELET_ROOT}",
        f"--cert-dir={settings.KUBELET_ROOT / 'pki'}",
        f"--hostname-override={settings.NODE}",
        # Not a loopback address, which the node may not have, and there on every machine.
        f"--node-ip={settings.BRIDGE_ADDRESS}",
    ]
    health = partial(probe.is_healthy, f"http://{LOOPBACK}:{settings.KUBELET_HEALTH_PORT}/healthz")
    return Component("kubelet", argv, health, port=(LOOPBACK, settings.KUBELET_PORT))


def _build_kubelet_config() -> dict[str, Any]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": LOOPBACK,
        "port": settings.KUBELET_PORT,
        "healthzBindAddress": LOOPBACK,
        "healthzPort": settings.KUBELET_HEALTH_PORT,
        "readOnlyPort": 0,
        "authentication": {
            "anonymous": {"enabled": False},
            "x509": {"clientCAFile": str(PKI / "ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": str(PKI / "kubelet-server.crt"),
        "tlsPrivateKeyFile": str(PKI / "kubelet-server.key"),
        "containerRuntimeEndpoint": f"unix://{settings.CONTAINERD_SOCKET}",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": cgroups.PATH,
        "failCgroupV1": False,
        "failSwapOn": False,
        "makeIPTablesUtilChains": False,  # no trace in the machine's own rules
        "volumePluginDir": str(settings.KUBELET_ROOT / "volume-plugins"),
        "podLogsDir": str(settings.RUN / "pod-logs"),
        "clusterDomain": settings.CLUSTER_DOMAIN,
        "clusterDNS": [settings.BRIDGE_ADDRESS],
        "resolvConf": str(_RESOLV_CONF),
        "maxPods": 200,
        # A nearly full disk is no reason to evict learners here, nor to delete images: they are
        # not to be had again from a registry.
        "evictionHard": {
            "memory.available": "50Mi",
            "nodefs.available": "50Mi",
            "nodefs.inodesFree": "0%",
            "imagefs.available": "50Mi",
            "imagefs.inodesFree": "0%",
        },
        "imageGCHighThresholdPercent": 100,
        "serializeImagePulls": False,
        "registryPullQPS": 0,
        "eventRecordQPS": 0,
        "kubeAPIQPS": 500,
        "kubeAPIBurst": 1000,
        "syncFrequency": "10s",
        "nodeStatusUpdateFrequency": "2s",
        "nodeLeaseDurationSeconds": 8,  # renewed every quarter of it
    }


def _build_coredns() -> Component:
    argv = [str(find_binary("coredns")), "-conf", str(_COREFILE)]
    health = partial(probe.is_healthy, f"http://{LOOPBACK}:{settings.DNS_READY_PORT}/ready")
    return Component("coredns", argv, health, port=(LOOPBACK, settings.DNS_READY_PORT))
