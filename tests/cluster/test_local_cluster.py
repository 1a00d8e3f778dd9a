"""The local cluster."""

from pathlib import Path

from dev.cluster import settings


def test_the_bridge_keeps_its_hardware_address_whichever_pods_come_and_go() -> None:
    kind = Path("/sys/class/net", settings.BRIDGE, "addr_assign_type").read_text()
    assert kind.strip() == "3"  # NET_ADDR_SET of linux/netdevice.h
