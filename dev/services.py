"""What trainings talk to beside the cluster: an S3 server and a private registry, on this machine.

Pods of the local cluster reach this machine at the bridge's address, its node at the loopback.
"""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from dev.cluster import build, containerd, host, settings
from dev.cluster.settings import LOOPBACK, ClusterError

_START_SECONDS = 90
_REGISTRY = "docker-registry"  # a Debian package


@dataclass(frozen=True)
class S3:
    """An S3 server.

    :param url: as pods reach it.
    :param buckets: a folder in which every folder is a bucket.
    """

    url: str
    buckets: Path
    access_key: str
    secret_key: str = field(repr=False)


@dataclass(frozen=True)
class Registry:
    """A registry that knows one user.

    :param host: as in the names of its images.
    """

    host: str
    username: str
    token: str = field(repr=False)

    def push(self, source: str, name: str) -> str:
        """Push an image that the node has, and return its name here."""
        target = f"{self.host}/{name}"
        account = f"{self.username}:{self.token}"
        containerd.ctr("images", "push", "--plain-http", "--user", account, target, source)
        return target


@contextmanager
def serve_s3(buckets: Path) -> Iterator[S3]:
    """Serve a folder's folders as buckets, with keys that nobody else has."""
    build.build((build.RCLONE,))
    server = S3(
        url=f"http://{settings.BRIDGE_ADDRESS}:{_find_free_port(settings.BRIDGE_ADDRESS)}",
        buckets=buckets,
        access_key=f"AK{secrets.token_hex(8)}",
        secret_key=secrets.token_hex(16),
    )
    address = server.url.removeprefix("http://")
    # By variables, for everybody on the machine can read command lines.
    variables = {"RCLONE_AUTH_KEY": f'"{server.access_key},{server.secret_key}"'}  # a line of CSV
    program = str(build.find_binary("rclone"))
    argv = [program, "serve", "s3", "--config", "", "--addr", address, str(buckets)]
    argv += ["--dir-cache-time", "100ms"]  # a new folder is a bucket soon
    with _run(argv, buckets.with_name(f"{buckets.name}.log"), address, variables):
        yield server


@contextmanager
def serve_registry(folder: Path, *, htpasswd: str, token: str) -> Iterator[Registry]:
    """Run a registry from which only its user may pull.

    :param folder: for its data.
    :param htpasswd: its user's line: name and bcrypt hash of the token.
    """
    program = folder / "package/usr/bin" / _REGISTRY
    host.unpack_packages([_REGISTRY], folder / "package")
    (folder / "htpasswd").write_text(f"{htpasswd}\n")
    address = f"{LOOPBACK}:{_find_free_port(LOOPBACK)}"
    configuration = folder / "registry.yaml"
    configuration.write_text(
        _REGISTRY_CONFIG.format(address=address, data=folder / "data", users=folder / "htpasswd")
    )
    with _run([str(program), "serve", str(configuration)], folder / "registry.log", address, {}):
        yield Registry(address, htpasswd.partition(":")[0], token)


_REGISTRY_CONFIG = """\
version: 0.1
http: {{addr: "{address}"}}
storage: {{filesystem: {{rootdirectory: "{data}"}}}}
auth: {{htpasswd: {{realm: registry, path: "{users}"}}}}
"""


@contextmanager
def _run(
    argv: list[str], output: Path, address: str, variables: Mapping[str, str]
) -> Iterator[None]:
    with output.open("wb") as log:
        process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=os.environ | variables
        )
    try:
        _wait_until_up(process, output, address)
        yield
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=5)
        process.kill()
        process.wait()


def _wait_until_up(process: subprocess.Popen[bytes], output: Path, address: str) -> None:
    name, _, port = address.rpartition(":")
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        with suppress(OSError), socket.create_connection((name, int(port)), timeout=1):
            return
        time.sleep(0.05)
    raise ClusterError(f"nothing answers at {address}:\n{output.read_text(errors='replace')}")


def _find_free_port(address: str) -> int:
    with socket.create_server((address, 0)) as server:
        port: int = server.getsockname()[1]
    return port
