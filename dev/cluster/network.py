"""The pods' network: one bridge of our own, on which pods and the host reach one another."""

import json
import shlex
from pathlib import Path

from dev.cluster import host, settings

# Rules that Docker or a firewall brings may drop what crosses a bridge. Pods reach each other and
# the host (the cluster's DNS is there), and nothing else: not the machine's own network either.
_MARK = ("-m", "comment", "--comment", settings.NAME)
_RULES = (
    ("INPUT", "-i", settings.BRIDGE, *_MARK, "-j", "ACCEPT"),
    ("FORWARD", "-i", settings.BRIDGE, *_MARK, "-j", "REJECT"),
    ("FORWARD", "-i", settings.BRIDGE, "-o", settings.BRIDGE, *_MARK, "-j", "ACCEPT"),
)
# Without one that is set a bridge takes the lowest of its ports' hardware addresses: whenever pods
# come or go the others may send to one that is not there any more, for twenty seconds or so.
_HARDWARE_ADDRESS = "02:00:c6:12:00:01"
_CNI_STATE = settings.RUN / "cni"
_CNI_RESULTS = Path("/var/lib/cni/results")  # fixed in the library that containerd uses


def create() -> None:
    """Make the bridge: the DNS server binds its address before the first pod is there."""
    link = ("link", "add", settings.BRIDGE, "address", _HARDWARE_ADDRESS, "type", "bridge")
    host.run_program("ip", *link)
    host.run_program("ip", "addr", "add", f"{settings.BRIDGE_ADDRESS}/24", "dev", settings.BRIDGE)
    host.run_program("ip", "link", "set", settings.BRIDGE, "up")
    for rule in _RULES:  # each goes before the last
        host.run_program("iptables", "--wait", "-I", *rule)


def remove() -> None:
    """Remove the bridge, what pods left on it, and its rules, as far as they are there."""
    for line in host.run_program("iptables", "--wait", "-S", check=False).splitlines():
        if settings.NAME in line:
            host.run_program("iptables", "--wait", "-D", *shlex.split(line)[1:])
    bridge = Path("/sys/class/net") / settings.BRIDGE
    if bridge.exists():
        # A pod's end of a pair goes with its namespace, but not at once.
        for device in [*[port.name for port in (bridge / "brif").iterdir()], settings.BRIDGE]:
            host.run_program("ip", "link", "delete", device, check=False)
    for result in _CNI_RESULTS.glob("*"):
        if str(settings.RUN) in result.read_text():  # as the path of the pod's namespace
            result.unlink()


def write_cni_config(folder: Path) -> None:
    """Write how a pod's network is set up."""
    bridge = {
        "type": "bridge",
        "bridge": settings.BRIDGE,
        "ipMasq": False,
        "ipam": {
            "type": "host-local",
            "dataDir": str(_CNI_STATE),
            "ranges": [[{"subnet": settings.POD_SUBNET, "gateway": settings.BRIDGE_ADDRESS}]],
            # Programs find their own address by looking where packets would leave.
            "routes": [{"dst": "0.0.0.0/0"}],
        },
    }
    config = {"cniVersion": "1.0.0", "name": settings.NAME, "plugins": [bridge]}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "10-bridge.conflist").write_text(json.dumps(config, indent=2))
