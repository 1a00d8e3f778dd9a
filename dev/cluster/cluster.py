"""Bring the cluster up, take it down, and repair what lies between."""

import hashlib
import inspect
import json
import shutil
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from dev.cluster import (
    build,
    certs,
    cgroups,
    components,
    containerd,
    host,
    images,
    network,
    probe,
    processes,
    settings,
    sysctls,
)
from dev.cluster.components import Component, build_components, write_configs
from dev.cluster.images import Image
from dev.cluster.progress import say, step
from dev.cluster.settings import ClusterError
from dev.cluster.unmount import unmount_below

START_SECONDS = 120  # generous: the machine may be busy with other things
_LOCK = settings.STATE / "cluster.lock"
_MARK = settings.RUN / "up.json"  # written when all is well, with what it was made from
# Places that are fixed in the kubelet.
_CONTAINER_LOG_LINKS = Path("/var/log/containers")
_DEVICE_SOCKET = Path("/var/lib/kubelet/device-plugins/kubelet.sock")


def up(*, restart_rules: bool, extra_images: Iterable[Image] = ()) -> None:
    """Make sure that the cluster runs as asked, with the images asked for."""
    host.require_linux_root()
    wanted_images = (*images.ALWAYS, *extra_images)
    build.build()
    for image in wanted_images:
        images.build_image(image)
    with host.locked(_LOCK, "starts or stops the cluster"):
        if not is_up(restart_rules=restart_rules):
            start(restart_rules=restart_rules)
        for image in wanted_images:
            containerd.import_image(image)


def start(*, restart_rules: bool) -> None:
    """Start all parts anew, whatever an earlier run left; take all back when that fails."""
    host.install_packages(host.RUNTIME_PACKAGES)
    host.require_disk(settings.STATE, 2, "the cluster")
    try:
        clear()
        shutil.rmtree(settings.LOGS, ignore_errors=True)
        start_components(build_components(restart_rules=restart_rules))
        _MARK.write_text(json.dumps(_build_mark(restart_rules=restart_rules)))
    except BaseException:
        clear()
        raise
    say("the cluster is up")


def start_components(parts: dict[str, Component]) -> None:
    """Start all parts: those that wait for nothing first, and the runtime beside the others."""
    certs.write_certificates()
    write_configs()
    cgroups.create()
    network.create()
    sysctls.record()
    check_ports(parts.values())
    with step("starting the control plane and containerd"), ThreadPoolExecutor() as executor:
        runtime = executor.submit(start_runtime, parts["containerd"])
        start_component(parts["etcd"])
        start_component(parts["kube-apiserver"])
        runtime.result()
    rest = ("kube-controller-manager", "kube-scheduler", "kubelet", "coredns")
    with step("starting the controllers, the kubelet and the DNS server"):
        for name in rest:
            launch(parts[name])
        for name in rest:
            wait_until_healthy(parts[name])
    with step("waiting for the node"):
        wait(probe.is_node_ready, "the node is not ready", log="kubelet")
    certs.write_kubeconfig(settings.KUBECONFIG, "admin")


def start_runtime(component: Component) -> None:
    """Start containerd and give it what every pod needs."""
    start_component(component)
    if containerd.forget_containers():
        # Its Kubernetes part has read the records already.
        stop(component.name)
        start_component(component)
    for image in images.ALWAYS:
        containerd.import_image(image)


def start_component(component: Component) -> None:
    """Start one part and wait until it works."""
    launch(component)
    wait_until_healthy(component)


def launch(component: Component) -> None:
    """Start one part's process."""
    processes.start(component.name, component.argv, folder=component.folder)


def stop(name: str) -> None:
    """Stop one part; nothing happens to the pods."""
    if process := processes.find(name):
        process.stop(grace=3)  # the API server would wait longer for those who watch it


def wait_until_healthy(component: Component) -> None:
    """Wait until a part works, and fail at once when its process has ended."""

    def is_healthy() -> bool:
        process = processes.find(component.name)
        if process is None or not process.is_running:
            raise ClusterError(f"{component.name} has ended\n{read_log_end(component.name)}")
        return component.is_healthy()

    wait(is_healthy, f"{component.name} does not work", log=component.name)


def wait(condition: Callable[[], bool], failure: str, *, log: str) -> None:
    """Wait until a condition holds, for a limited time."""
    deadline = time.monotonic() + START_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise ClusterError(f"{failure} after {START_SECONDS} s\n{read_log_end(log)}")
        time.sleep(0.05)


def read_log_end(name: str) -> str:
    """Return the last lines of a part's log, and where the others are."""
    path = settings.LOGS / f"{name}.log"
    lines = path.read_text(errors="replace").splitlines()[-15:] if path.exists() else []
    return "\n".join([f"last lines of {path}:", *lines])


def check_ports(parts: Iterable[Component]) -> None:
    """Name what is in the way, instead of a failure much later."""
    for component in parts:
        if component.port and not probe.is_port_free(*component.port):
            address = ":".join(map(str, component.port))
            raise ClusterError(f"{component.name} needs {address}, which another process has")


def is_up(*, restart_rules: bool) -> bool:
    """Return whether the cluster runs as asked, and all its parts work."""
    if not _MARK.exists() or not settings.KUBECONFIG.exists():
        return False
    mark = json.loads(_MARK.read_text())
    return mark == _build_mark(restart_rules=restart_rules) and all(
        is_working(component)
        for component in build_components(restart_rules=restart_rules).values()
    )


def is_working(component: Component) -> bool:
    """Return whether a part's process runs and answers."""
    process = processes.find(component.name)
    return process is not None and process.is_running and component.is_healthy()


def _build_mark(*, restart_rules: bool) -> dict[str, object]:
    """Return what a running cluster must have been made from to count as the one asked for."""
    sources = [inspect.getsource(module) for module in (components, containerd, network)]
    return {
        "restart_rules": restart_rules,
        "modules": [module.key for module in build.MODULES],
        "settings": hashlib.sha256("".join(sources).encode()).hexdigest(),
    }


def down(*, purge: bool = False) -> None:
    """End the cluster; with `purge`, delete its imported images and logs too."""
    host.require_linux_root()
    with host.locked(_LOCK, "starts or stops the cluster"):
        with step("taking the cluster down"):
            clear()
        if purge:
            for folder in (settings.CONTAINERD_ROOT, settings.LOGS):
                shutil.rmtree(folder, ignore_errors=True)


def clear() -> None:
    """Remove all that a run made, whether it ended well, was killed, or never was."""
    kill_pods_and_parts()
    sysctls.restore()
    network.remove()
    cgroups.remove()
    unmount_below(settings.RUN)
    remove_files()


def kill_pods_and_parts() -> None:
    """End what would react first: the kubelet restarts what ends, containerd tidies up after it.

    Containers and their shims outlive containerd by design, and are killed when it is gone.
    """
    for name in ("kubelet", "kube-controller-manager", "kube-scheduler", "coredns"):
        kill(name)
    if process := processes.find("containerd"):
        process.stop(grace=5)  # it completes its records, which outlive the run
    processes.kill(cgroups.find_pids())
    processes.kill(processes.find_by_argument(str(settings.CONTAINERD_SOCKET)))
    for name in ("kube-apiserver", "etcd"):
        kill(name)


def kill(name: str) -> None:
    """End a part whose data nobody needs any more."""
    if process := processes.find(name):
        process.stop(grace=0)


def remove_files() -> None:
    """Remove a run's files: those in its folder, and those that programs put elsewhere."""
    containerd.remove_shim_sockets()
    for link in _CONTAINER_LOG_LINKS.glob("*.log"):
        if link.is_symlink() and settings.RUN in link.readlink().parents:
            link.unlink()
    _DEVICE_SOCKET.unlink(missing_ok=True)
    for folder in list(_DEVICE_SOCKET.parents)[:2]:
        if folder.exists() and not any(folder.iterdir()):
            folder.rmdir()
    settings.KUBECONFIG.unlink(missing_ok=True)
    if settings.RUN.exists():
        shutil.rmtree(settings.RUN)
