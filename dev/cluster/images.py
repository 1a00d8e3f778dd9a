"""Container images, made here from Debian and Python packages: nothing is pulled."""

import hashlib
import inspect
import json
import re
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType
from typing import Any

from dev.cluster import host, oci, settings
from dev.cluster.build import RCLONE, build, find_binary, publish_folder
from dev.cluster.progress import say, step
from dev.cluster.settings import ClusterError

TRAINING_PACKAGES = ["jax==0.10.2", "jaxlib==0.10.2", "numpy==2.4.6", "scikit-learn==1.9.1"]
# Debian's PyTorch is built for CPUs, which the one on PyPI is not. TensorFlow is not in Debian; it
# comes with the NumPy that Debian's PyTorch was built with.
FRAMEWORK_PACKAGES = ["tensorflow-cpu==2.21.0", "numpy==2.2.4"]
FRAMEWORK_DEBIAN_PACKAGES = ["python3-torch", "python3-mpi4py", "openmpi-bin", "openssh-server"]
_PROGRAMS = Path(__file__).parents[1] / "images"


@dataclass(frozen=True)
class Suite:
    """A release of Debian and the version of its Python."""

    name: str
    python: str


BOOKWORM = Suite("bookworm", "3.11")
TRIXIE = Suite("trixie", "3.13")


@dataclass(frozen=True)
class Image:
    """An image and the function that fills the folder its layer is made of."""

    name: str
    fill: Callable[[Path], None]
    config: oci.ImageConfig
    gib: int = 1
    code: Path | None = None  # a folder whose Python files go to /opt/<name of the image>
    inputs: str = ""  # a hash of what it is made from beside this module

    @property
    def reference(self) -> str:
        """The name pods use."""
        return f"localhost/alp/{self.name}:1"

    @property
    def folder(self) -> Path:
        """Where the image is kept, under a hash of what it is made by."""
        made_by = [self.name, self.inputs, repr(self.config), inspect.getsource(oci)]
        made_by += _list_recipe(self.fill)
        made_by += [f"{path.name}\n{path.read_text()}" for path in self.code_files]
        key = hashlib.sha256("\n".join(made_by).encode()).hexdigest()[:16]
        return settings.CACHE / "images" / f"{self.name}-{key}"

    @property
    def code_files(self) -> list[Path]:
        """The programs of its own, beside what is installed."""
        return sorted(self.code.glob("*.py")) if self.code else []

    @property
    def archive(self) -> Path:
        """The image as a file to import."""
        return self.folder / "image.tar"

    @property
    def digest(self) -> str:
        """What the container runtime knows the image by."""
        return str(json.loads((self.folder / "digest.json").read_text()))


def _list_recipe(fill: Callable[[Path], None]) -> list[str]:
    """List what an image is made by in this module: functions, by their source, and constants."""
    functions: dict[str, Any] = {}
    constants: dict[str, str] = {}
    waiting: list[Any] = [fill, _write]
    while waiting:
        function = waiting.pop()
        functions[function.__name__] = function
        for name in function.__code__.co_names:
            value = globals().get(name)
            if isinstance(value, FunctionType) and value.__module__ == __name__:
                if name not in functions:
                    waiting.append(value)
            elif isinstance(value, str | list | tuple | Suite):
                constants[name] = repr(value)
    sources = {name: inspect.getsource(function) for name, function in functions.items()}
    return [text for named in (sources, constants) for _, text in sorted(named.items())]


def build_image(image: Image) -> None:
    """Make an image unless it is there."""
    if image.folder.exists():
        return
    host.require_disk(settings.CACHE, image.gib, f"making the image {image.reference}")
    started = time.monotonic()
    with (
        host.locked(settings.CACHE / "images.lock", "makes images"),
        step(f"making the image {image.reference}"),
    ):
        if not image.folder.exists():
            publish_folder(image.folder, lambda folder: _write(image, folder))
        for older in image.folder.parent.glob(f"{image.name}-*"):
            if older != image.folder:
                shutil.rmtree(older)
    say(f"made {image.reference} in {time.monotonic() - started:.0f} s")


def _write(image: Image, folder: Path) -> None:
    root = folder / "root"
    root.mkdir()
    image.fill(root)
    for path in image.code_files:
        (root / "opt" / image.name).mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, root / "opt" / image.name)
    layer = folder / "layer.tar"
    host.run_program(
        *("tar", "--create", "--file", layer, "--directory", root),
        *("--sort=name", "--numeric-owner", "--exclude=./dev/*", "--exclude=./proc/*", "."),
    )
    digest = oci.write_image(
        folder / "image.tar", layer, reference=image.reference, config=image.config
    )
    (folder / "digest.json").write_text(json.dumps(digest))
    layer.unlink()
    shutil.rmtree(root)


def _fill_tiny(root: Path) -> None:
    """Fill in two static programs: a shell with the usual commands, and bash."""
    _unpack_static(root, {"busybox-static": "bin/busybox", "bash-static": "bin/bash-static"})
    (root / "bin/bash-static").rename(root / "bin/bash")
    _link_applets(root)
    _write_etc(root)


def _link_applets(root: Path) -> None:
    for applet in host.run_program(root / "bin/busybox", "--list").split():
        if not (root / "bin" / applet).exists():
            (root / "bin" / applet).symlink_to("busybox")


def _fill_pause(root: Path) -> None:
    """Fill in what keeps a pod's namespaces."""
    _unpack_static(root, {"busybox-static": "bin/busybox"})


def _unpack_static(root: Path, files: dict[str, str]) -> None:
    packages = root.parent / "packages"
    host.unpack_packages(list(files), packages)
    (root / "bin").mkdir()
    for file in files.values():
        shutil.copy2(packages / file, root / file)
    shutil.rmtree(packages)


def _write_etc(root: Path) -> None:
    (root / "etc").mkdir()
    (root / "etc/passwd").write_text(
        "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n"
    )
    (root / "etc/group").write_text("root:x:0:\nnogroup:x:65534:\n")
    (root / "root").mkdir(mode=0o700)
    (root / "tmp").mkdir()
    (root / "tmp").chmod(0o1777)


def _fill_rclone(root: Path) -> None:
    """Fill in what copies between buckets and folders, and a shell to run it."""
    _unpack_static(root, {"busybox-static": "bin/busybox"})
    build((RCLONE,))
    shutil.copy2(find_binary("rclone"), root / "bin/rclone")
    _link_applets(root)
    _write_etc(root)


_UNUSED = (
    "usr/share/doc",
    "usr/share/locale",
    "usr/share/man",
    "var/cache/apt",
    "var/lib/apt/lists",
)


def _fill_digits(root: Path) -> None:
    """Fill in Debian's smallest system with Python, JAX and scikit-learn."""
    _fill_debian(root, BOOKWORM, debian=["python3"], python=TRAINING_PACKAGES)


def _fill_frameworks(root: Path) -> None:
    """Fill in PyTorch, TensorFlow, and Open MPI with the ssh that it starts processes by."""
    packages = ["python3", *FRAMEWORK_DEBIAN_PACKAGES]
    _fill_debian(root, TRIXIE, debian=packages, python=FRAMEWORK_PACKAGES)
    host.run_program(
        *("chroot", root, "useradd", "--uid", "1000", "--create-home", "--shell", "/bin/bash"),
        "learner",  # for learners that are not root
    )
    # torchrun wants libuv even when USE_LIBUV says that there is none.
    torch = root / "usr/lib/python3/dist-packages/torch/distributed"
    for file, last in (
        ("elastic/rendezvous/static_tcp_rendezvous.py", "multi_tenant=True,"),
        ("rendezvous.py", "is_master=False,"),
    ):
        text = (torch / file).read_text().replace(last, f"{last} use_libuv=False,")
        (torch / file).write_text(text)
    for key in (root / "etc/ssh").glob("ssh_host_*"):
        key.unlink()  # what is in an image is no secret


def _fill_debian(root: Path, suite: Suite, *, debian: list[str], python: list[str]) -> None:
    host.install_packages({"debootstrap": "debootstrap"})
    include = f"--include={','.join(debian)}"
    mirror = _find_mirror(suite)
    host.run_program("debootstrap", "--variant=minbase", include, suite.name, root, *mirror)
    packages = root / f"usr/local/lib/python{suite.python}/dist-packages"
    host.install_python_packages(
        packages, python, "--python-version", suite.python, "--only-binary", ":all:"
    )
    for unused in (*(root / folder for folder in _UNUSED), *packages.rglob("tests")):
        shutil.rmtree(unused, ignore_errors=True)  # tests may be gone with those around them
    # Without compiled files, every learner would compile its framework again at its start.
    host.run_program("chroot", root, "python3", "-m", "compileall", "-q", "/usr/local/lib")


def _find_mirror(suite: Suite) -> list[str]:
    """Return the mirror that this machine's apt uses for the suite.

    Where it has none, as on Ubuntu, debootstrap knows where Debian is by itself.
    """
    targets = host.run_program("apt-get", "indextargets", "--format", "$(RELEASE) $(REPO_URI)")
    return re.findall(rf"^{suite.name} (\S+)$", targets, re.MULTILINE)[:1]


_SHELL = ["/bin/sh"]
_PAUSE = ["/bin/busybox", "sh", "-c", "trap 'exit 0' TERM INT; busybox sleep infinity & wait"]

PAUSE = Image("pause", _fill_pause, oci.ImageConfig(_PAUSE))
TINY = Image("tiny", _fill_tiny, oci.ImageConfig(_SHELL))
DIGITS = Image(
    "digits",
    _fill_digits,
    oci.ImageConfig(_SHELL),
    gib=4,
    code=_PROGRAMS / "digits",
)
FRAMEWORKS = Image(
    "frameworks",
    _fill_frameworks,
    # Debian builds PyTorch without libuv.
    oci.ImageConfig(_SHELL, env=oci.ImageConfig(_SHELL).env | {"USE_LIBUV": "0"}),
    gib=10,
    code=_PROGRAMS / "frameworks",
)
STAGING = Image("rclone", _fill_rclone, oci.ImageConfig(_SHELL), inputs=RCLONE.key)
ALWAYS = (PAUSE, TINY)
ON_REQUEST = {image.name: image for image in (DIGITS, STAGING, FRAMEWORKS)}


def find_image(name: str) -> Image:
    """Return the image of that name among those made only when asked for."""
    if name not in ON_REQUEST:
        raise ClusterError(f"there is no image {name}; there is: {', '.join(ON_REQUEST)}")
    return ON_REQUEST[name]
