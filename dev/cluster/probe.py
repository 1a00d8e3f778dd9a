"""Ask the cluster's parts how they are."""

import http.client
import json
import socket
import ssl
import urllib.request
from typing import Any

from dev.cluster import settings

_TIMEOUT_SECONDS = 2


def is_healthy(url: str) -> bool:
    """Return whether a health endpoint answers, and with yes."""
    return _read(url) is not None


def is_listening(path: str) -> bool:
    """Return whether a server accepts connections on a Unix socket."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_TIMEOUT_SECONDS)
        return connection.connect_ex(path) == 0


def is_port_free(address: str, port: int) -> bool:
    """Return whether nothing has the port yet."""
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            server.bind((address, port))
        except OSError:
            return False
        return True


def is_node_ready() -> bool:
    """Return whether pods can be started: the node is ready and their account exists."""
    node = read_api(f"/api/v1/nodes/{settings.NODE}")
    if node is None or read_api("/api/v1/namespaces/default/serviceaccounts/default") is None:
        return False
    conditions = {item["type"]: item["status"] for item in node["status"].get("conditions", [])}
    # A taint outlives the condition that it stands for by a moment.
    return conditions.get("Ready") == "True" and not node["spec"].get("taints")


def read_api(path: str) -> dict[str, Any] | None:
    """Read an object of the API as the administrator; None when that fails."""
    body = _read(f"{settings.API_URL}{path}")
    return None if body is None else json.loads(body)


def _read(url: str) -> bytes | None:
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        if url.startswith("https:"):
            context.load_verify_locations(settings.PKI / "ca.crt")
            context.load_cert_chain(settings.PKI / "admin.crt", settings.PKI / "admin.key")
        direct = urllib.request.ProxyHandler({})  # a proxy in the environment is for other hosts
        opener = urllib.request.build_opener(direct, urllib.request.HTTPSHandler(context=context))
        with opener.open(url, timeout=_TIMEOUT_SECONDS) as response:
            return bytes(response.read())
    except (OSError, http.client.HTTPException):  # refused, timed out, not 200, no certificates
        return None
