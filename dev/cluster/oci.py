"""Write a container image: one layer, in the layout that the OCI image specification fixes."""

import hashlib
import json
import platform
import tarfile
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_MEDIA_TYPE = "application/vnd.oci.image"


@dataclass(frozen=True)
class ImageConfig:
    """What a container of the image does unless the pod says otherwise."""

    command: list[str]
    env: dict[str, str] = field(
        default_factory=lambda: {"PATH": "/usr/local/bin:/usr/local/sbin:/usr/bin:/usr/sbin:/bin"}
    )


def write_image(archive: Path, layer: Path, *, reference: str, config: ImageConfig) -> str:
    """Write an image with one uncompressed layer, and return the digest that names it."""
    layer_digest = _digest_file(layer)
    image = {
        "architecture": _ARCHITECTURES.get(platform.machine(), platform.machine()),
        "os": "linux",
        "config": {
            "Cmd": config.command,
            "Env": [f"{name}={value}" for name, value in config.env.items()],
        },
        "rootfs": {"type": "layers", "diff_ids": [layer_digest]},
    }
    with tarfile.open(archive, "w") as tar:
        _add(tar, "oci-layout", _encode({"imageLayoutVersion": "1.0.0"}))
        tar.add(layer, _blob_name(layer_digest))
        manifest = {
            "schemaVersion": 2,
            "mediaType": f"{_MEDIA_TYPE}.manifest.v1+json",
            "config": _add_blob(tar, image, f"{_MEDIA_TYPE}.config.v1+json"),
            "layers": [
                {
                    "mediaType": f"{_MEDIA_TYPE}.layer.v1.tar",
                    "digest": layer_digest,
                    "size": layer.stat().st_size,
                }
            ],
        }
        descriptor = _add_blob(tar, manifest, f"{_MEDIA_TYPE}.manifest.v1+json")
        # containerd takes the image's full name from this annotation of its own.
        named = descriptor | {"annotations": {"io.containerd.image.name": reference}}
        _add(tar, "index.json", _encode({"schemaVersion": 2, "manifests": [named]}))
    return str(descriptor["digest"])


def _add_blob(tar: tarfile.TarFile, content: dict[str, Any], media_type: str) -> dict[str, Any]:
    data = _encode(content)
    digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
    _add(tar, _blob_name(digest), data)
    return {"mediaType": media_type, "digest": digest, "size": len(data)}


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(data)
    tar.addfile(member, BytesIO(data))


def _encode(content: dict[str, Any]) -> bytes:
    return json.dumps(content, sort_keys=True).encode()


def _blob_name(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"


def _digest_file(path: Path) -> str:
    with path.open("rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"
