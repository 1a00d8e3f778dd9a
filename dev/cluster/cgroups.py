"""One control group for all pods: whatever is in it is the cluster's own."""

import errno
import time
from pathlib import Path

from dev.cluster import settings
from dev.cluster.settings import ClusterError

PATH = f"/{settings.NAME}"
_CONTROLLERS = ("cpu", "cpuset", "memory", "pids", "hugetlb")  # those that the kubelet uses


def create() -> None:
    """Make the group, in every hierarchy where there are several (version 1)."""
    hierarchies = _find_hierarchies()
    if not hierarchies:
        raise ClusterError("no cgroup file system is mounted on this machine")
    if unified := _find_unified():
        _delegate_controllers(unified)
    for hierarchy in hierarchies:
        (hierarchy / settings.NAME).mkdir(exist_ok=True)


def find_pids() -> list[int]:
    """Return the processes in the group: those of all containers."""
    pids: set[int] = set()
    for group in _find_groups():
        pids.update(map(int, (group / "cgroup.procs").read_text().split()))
    return sorted(pids)


def remove() -> None:
    """Remove the group and all below it; its processes have ended."""
    for group in _find_groups():
        deadline = time.monotonic() + 5
        while not _remove_group(group):
            if time.monotonic() > deadline:
                raise ClusterError(f"cannot remove {group}: processes are left in it")
            time.sleep(0.05)


def _remove_group(group: Path) -> bool:
    """Return whether the group is gone; the kernel may need a moment after its last process."""
    try:
        group.rmdir()
    except FileNotFoundError:
        return True
    except OSError as e:
        if e.errno != errno.EBUSY:
            raise
        return False
    return True


def _find_groups() -> list[Path]:
    """Return all groups that are the cluster's, each after those below it."""
    tops = [hierarchy / settings.NAME for hierarchy in _find_hierarchies()]
    groups = [group for top in tops if top.exists() for group in (top, *top.rglob("*/"))]
    return sorted(groups, key=lambda group: len(group.parts), reverse=True)


def _find_hierarchies() -> list[Path]:
    lines = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    return sorted({Path(line[1]) for line in lines if line[2] in {"cgroup", "cgroup2"}})


def _find_unified() -> Path | None:
    """Return where version 2 is mounted, if its controllers are not held by version 1."""
    for hierarchy in _find_hierarchies():
        controllers = hierarchy / "cgroup.controllers"
        if controllers.exists() and "memory" in controllers.read_text().split():
            return hierarchy
    return None


def _delegate_controllers(root: Path) -> None:
    """Let groups below the root of version 2 have controllers.

    In a container the root is a group like any other, and one with processes of its own may not
    hand controllers on: the processes move into a group beside ours, as kind and k3s do it.
    """
    available = (root / "cgroup.controllers").read_text().split()
    wanted = " ".join(f"+{name}" for name in _CONTROLLERS if name in available)
    control = root / "cgroup.subtree_control"
    try:
        control.write_text(wanted)
    except OSError as e:
        if e.errno != errno.EBUSY:
            raise
        leaf = root / f"{settings.NAME}-others"
        leaf.mkdir(exist_ok=True)
        for pid in (root / "cgroup.procs").read_text().split():
            (leaf / "cgroup.procs").write_text(pid)
        control.write_text(wanted)
