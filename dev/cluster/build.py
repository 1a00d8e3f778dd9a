"""Build the cluster's programs from Go modules, once for each state of their inputs."""

import hashlib
import platform
import re
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from dev.cluster import host, settings
from dev.cluster.progress import say, step
from dev.cluster.settings import ClusterError
from dev.cluster.unmount import unmount_below

KUBERNETES_VERSION = "v1.34.4"
_GO_SOURCES = Path(__file__).resolve().parent.parent / "go"
_COMMANDS = "k8s.io/kubernetes/cmd"


@dataclass(frozen=True)
class Module:
    """A Go module of `dev/go`, and the programs built from it."""

    name: str
    packages: dict[str, str]  # program -> package
    version_variables: tuple[str, ...] = ()
    gib: int = 2  # what a build from nothing takes on the disk, Go's own cache included
    minutes: int = 3  # what it takes on two cores

    @property
    def folder(self) -> Path:
        """The folder with go.mod."""
        return _GO_SOURCES / self.name

    @property
    def flags(self) -> tuple[str, ...]:
        """Flags of `go build`: the same input gives the same program on every machine."""
        linker = ["-s", "-w", *(f"-X {variable}" for variable in self.version_variables)]
        return ("-mod=readonly", "-trimpath", "-buildvcs=false", "-ldflags", " ".join(linker))

    @property
    def key(self) -> str:
        """A hash of all that the programs are made of."""
        digest = hashlib.sha256(repr((self.packages, self.flags, platform.machine())).encode())
        for file in sorted(self.folder.rglob("*")):
            if file.suffix in {".mod", ".sum", ".go"}:
                digest.update(file.read_bytes())
        return digest.hexdigest()[:16]

    @property
    def output(self) -> Path:
        """The folder the programs are in, once built."""
        return settings.CACHE / "bin" / f"{self.name}-{self.key}"

    @property
    def go_minimum(self) -> tuple[int, ...]:
        """The Go version that go.mod asks for."""
        match = re.search(r"^go (\S+)$", (self.folder / "go.mod").read_text(), re.MULTILINE)
        return tuple(int(part) for part in match[1].split(".")) if match else (0,)


KUBERNETES = Module(
    "kubernetes",
    packages={
        "coredns": "./coredns",
        "kube-apiserver": f"{_COMMANDS}/kube-apiserver",
        "kube-controller-manager": f"{_COMMANDS}/kube-controller-manager",
        "kube-scheduler": f"{_COMMANDS}/kube-scheduler",
        "kubectl": f"{_COMMANDS}/kubectl",
        "kubelet": f"{_COMMANDS}/kubelet",
    },
    version_variables=(  # built as a dependency, Kubernetes would not know its own version
        f"k8s.io/component-base/version.gitVersion={KUBERNETES_VERSION}",
        "k8s.io/component-base/version.gitMajor=1",
        "k8s.io/component-base/version.gitMinor=34",
        "k8s.io/component-base/version.gitTreeState=clean",
        f"k8s.io/client-go/pkg/version.gitVersion={KUBERNETES_VERSION}",
    ),
    gib=7,
    minutes=10,
)
ETCD = Module("etcd", packages={"etcd": "go.etcd.io/etcd/server/v3"})
KWOK = Module("kwok", packages={"kwok": "sigs.k8s.io/kwok/cmd/kwok"})
MODULES = (KUBERNETES, ETCD)  # what `up` needs
RCLONE = Module("rclone", packages={"rclone": "."})
EXTRA_MODULES = (KWOK, RCLONE)  # what `build --with` names


def find_binary(program: str) -> Path:
    """Return the path of a built program."""
    for module in (*MODULES, *EXTRA_MODULES):
        if program in module.packages:
            path = module.output / program
            if path.exists():
                return path
            extra = f" --with {module.name}" if module in EXTRA_MODULES else ""
            raise ClusterError(f"{program} is not built: python -m dev.cluster build{extra}")
    raise ClusterError(f"no module builds {program}")


def build(modules: tuple[Module, ...] = MODULES) -> None:
    """Build what is not built yet."""
    if all(module.output.exists() for module in modules):
        return
    with host.locked(settings.CACHE / "build.lock", "builds"):
        for module in modules:
            if not module.output.exists():
                build_module(module)


def build_module(module: Module) -> None:
    """Build one module's programs."""
    host.require_disk(settings.CACHE, module.gib, f"building {module.name}")
    go = host.find_go(module.go_minimum)
    variables = {
        "CGO_ENABLED": "0",  # no C compiler needed, and programs that run on every Linux
        "GOFLAGS": "",
        "GOTOOLCHAIN": "local",
        "GOWORK": "off",
    }
    packages = list(module.packages.values())

    def fill(folder: Path) -> None:
        # Named after its last path element, etcd would be called `v3` or `server`.
        output = folder / next(iter(module.packages)) if len(packages) == 1 else f"{folder}/"
        command = (go, "build", *module.flags, "-o", output, *packages)
        host.run_program(*command, cwd=module.folder, variables=variables)

    started = time.monotonic()
    with step(f"building {', '.join(module.packages)} (once, up to {module.minutes} minutes)"):
        publish_folder(module.output, fill)
    say(f"built {module.name} in {time.monotonic() - started:.0f} s")


def publish_folder(target: Path, fill: Callable[[Path], None]) -> None:
    """Fill a folder and only then give it its name: what bears the name is whole.

    The caller holds the lock of the parent folder, so parts found there are of a killed run.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    for part in target.parent.glob(".part-*"):
        _delete_folder(part)
    folder = Path(tempfile.mkdtemp(prefix=".part-", dir=target.parent))
    try:
        fill(folder)
        folder.chmod(0o755)
        folder.rename(target)
    finally:
        if folder.exists():
            _delete_folder(folder)


def _delete_folder(folder: Path) -> None:
    unmount_below(folder)  # a debootstrap that was cut off leaves mounts
    shutil.rmtree(folder)
