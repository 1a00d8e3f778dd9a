"""The container runtime: a containerd of our own beside any other on the machine."""

import json
import re
from pathlib import Path

from dev.cluster import host, images, probe, settings
from dev.cluster.images import Image
from dev.cluster.progress import step

NAMESPACE = "k8s.io"  # the one that the kubelet's containers and images are in
CNI_CONFIG = settings.CONFIG / "cni"
_CNI_PROGRAMS = "/usr/lib/cni"
_CONFIG = settings.CONFIG / "containerd.toml"
_TASKS = settings.CONTAINERD_STATE / "io.containerd.runtime.v2.task" / NAMESPACE


def build_argv() -> list[str]:
    """Return the command line."""
    return [_program("containerd"), "--config", str(_CONFIG)]


def is_healthy() -> bool:
    """Return whether containerd accepts connections."""
    return probe.is_listening(str(settings.CONTAINERD_SOCKET))


def write_config() -> None:
    """Write a configuration in which every path is our own."""
    settings.CONFIG.mkdir(parents=True, exist_ok=True)
    quoted = {
        "root": settings.CONTAINERD_ROOT,
        "state": settings.CONTAINERD_STATE,
        "socket": settings.CONTAINERD_SOCKET,
        "opt": settings.CONTAINERD_ROOT / "opt",
        "pause": images.PAUSE.reference,
        "cni_programs": _CNI_PROGRAMS,
        "cni_config": CNI_CONFIG,
        "snapshotter": _choose_snapshotter(),
        "runc": _program("runc"),
        "runc_root": settings.RUN / "runc",
    }
    # A JSON string is a TOML string too.
    _CONFIG.write_text(_TEMPLATE.format(**{k: json.dumps(str(v)) for k, v in quoted.items()}))


_TEMPLATE = """\
version = 2
root = {root}
state = {state}

[grpc]
address = {socket}

[plugins."io.containerd.internal.v1.opt"]
path = {opt}

[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = {pause}
netns_mounts_under_state_dir = true
# To protect a process more than its parent takes a capability that root in a container lacks.
restrict_oom_score_adj = true

[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = {cni_programs}
conf_dir = {cni_config}

[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = {snapshotter}

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
BinaryName = {runc}
Root = {runc_root}
SystemdCgroup = false
"""


def forget_containers() -> bool:
    """Delete what is recorded of containers of an earlier run; return whether there was any."""
    containers = ctr("containers", "list", "--quiet").split()
    if containers:
        ctr("containers", "delete", *containers)
    return bool(containers)


def import_image(image: Image) -> None:
    """Import an image unless this very one is there."""
    listed = ctr("images", "list", f"name=={image.reference}")
    if image.digest not in listed:
        with step(f"importing {image.reference}"):
            ctr("images", "import", "--all-platforms", str(image.archive))


def list_images() -> list[str]:
    """Return the names of the images that pods can use."""
    names = ctr("images", "list", "--quiet").split()
    return [name for name in names if not name.startswith("sha256:")]


def ctr(*arguments: str) -> str:
    """Run containerd's own client."""
    socket = str(settings.CONTAINERD_SOCKET)
    return host.run_program("ctr", "--address", socket, "--namespace", NAMESPACE, *arguments)


def remove_shim_sockets() -> None:
    """Remove the sockets of killed shims, which lie in a folder that all containerds share."""
    for file in _TASKS.glob("*/address"):
        if match := re.fullmatch(r"unix://(/run/containerd/s/\w+)\s*", file.read_text()):
            Path(match[1]).unlink(missing_ok=True)


def _choose_snapshotter() -> str:
    """Return how layers are stacked: overlayfs does not go on top of an overlayfs."""
    settings.CONTAINERD_ROOT.mkdir(parents=True, exist_ok=True)
    kind = host.run_program("stat", "--file-system", "--format=%T", settings.CONTAINERD_ROOT)
    return "native" if kind.strip() == "overlayfs" else "overlayfs"


def _program(name: str) -> str:
    return host.find_program(name) or name
