"""A CSI driver, whose buckets are folders of the node, in a thread of the tests.

The kubelet finds it by a socket in its registry of plugins. What they say to each other is little
enough to be read and written here: messages of strings, and of maps from strings to strings.
https://github.com/container-storage-interface/spec/blob/master/spec.md
https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import grpc  # type: ignore[import-untyped]

from dev.cluster import settings

DRIVER = "s3.csi.test"
Answer = Callable[[bytes, Any], bytes]

# Fields of the requests.
_PUBLISH_TARGET, _SECRETS, _CONTEXT = 4, 7, 8
_UNPUBLISH_TARGET = 2


@contextmanager
def serve_csi() -> Iterator[None]:
    """Run the driver, and offer it to the kubelet."""
    folder = settings.KUBELET_ROOT / "plugins" / DRIVER
    folder.mkdir(exist_ok=True)
    endpoint = folder / "csi.sock"
    node: dict[str, Answer] = {
        "NodeGetInfo": lambda *_: _write(1, settings.NODE),
        "NodeGetCapabilities": lambda *_: b"",
        "NodePublishVolume": _publish,
        "NodeUnpublishVolume": _unpublish,
    }
    info = (
        _write(1, "CSIPlugin") + _write(2, DRIVER) + _write(3, str(endpoint)) + _write(4, "1.0.0")
    )
    registration: dict[str, Answer] = {
        "GetInfo": lambda *_: info,
        "NotifyRegistrationStatus": lambda *_: b"",
    }
    registry = settings.KUBELET_ROOT / "plugins_registry" / f"{DRIVER}-reg.sock"
    with ExitStack() as stack:
        stack.enter_context(_serve(endpoint, "csi.v1.Node", node))
        stack.enter_context(_serve(registry, "pluginregistration.Registration", registration))
        yield


@contextmanager
def _serve(path: Path, service: str, methods: dict[str, Answer]) -> Iterator[None]:
    path.unlink(missing_ok=True)
    server = grpc.server(ThreadPoolExecutor(max_workers=2))
    handlers = {name: grpc.unary_unary_rpc_method_handler(call) for name, call in methods.items()}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
    server.add_insecure_port(f"unix:{path}")
    server.start()
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        server.stop(grace=None).wait()


def _publish(request: bytes, context: Any) -> bytes:
    """Mount the bucket, and note in FOLDER/BUCKET.json what was asked for as FlexVolume does."""
    fields = _read(request)
    options, secrets = _read_map(fields.get(_CONTEXT, [])), _read_map(fields.get(_SECRETS, []))
    bucket = Path(options["endpoint"].removeprefix("file://")) / options["bucket"]
    for key, text in secrets.items():
        options[f"kubernetes.io/secret/{key}"] = base64.b64encode(text.encode()).decode()
    bucket.with_suffix(".json").write_text(json.dumps(options))
    if not bucket.is_dir():
        context.abort(grpc.StatusCode.NOT_FOUND, f"there is no bucket {bucket.name}")
    target = Path(fields[_PUBLISH_TARGET][0].decode())
    target.mkdir()
    subprocess.run(["mount", "--bind", bucket, target], check=True)
    return b""


def _unpublish(request: bytes, _: Any) -> bytes:
    target = Path(_read(request)[_UNPUBLISH_TARGET][0].decode())
    if target.exists():
        subprocess.run(["umount", target], check=True)
        target.rmdir()
    return b""


def _write(number: int, text: str) -> bytes:
    """Encode a short string."""
    data = text.encode()
    return bytes([number << 3 | 2, len(data)]) + data


def _read(message: bytes) -> dict[int, list[bytes]]:
    """Decode the strings and messages of a message by their number; numbers are passed over."""
    fields: dict[int, list[bytes]] = {}
    while message:
        key, message = _read_number(message)
        size, message = _read_number(message)
        if key & 7 == 2:
            fields.setdefault(key >> 3, []).append(message[:size])
            message = message[size:]
    return fields


def _read_number(message: bytes) -> tuple[int, bytes]:
    number = 0
    for place, byte in enumerate(message):
        number |= (byte & 127) << 7 * place
        if byte < 128:
            return number, message[place + 1 :]
    raise ValueError("a number without an end")


def _read_map(entries: list[bytes]) -> dict[str, str]:
    pairs = [_read(entry) for entry in entries]
    return {pair[1][0].decode(): pair.get(2, [b""])[0].decode() for pair in pairs}
