"""Kernel settings that the kubelet changes for the whole machine: put back when it is gone."""

import json
from pathlib import Path

from dev.cluster import settings

_ROOT = Path("/proc/sys")
_RECORD = settings.RUN / "sysctls.json"
_CHANGED_BY_KUBELET = (
    "kernel/keys/root_maxbytes",
    "kernel/keys/root_maxkeys",
    "kernel/panic",
    "kernel/panic_on_oops",
    "vm/overcommit_memory",
    "vm/panic_on_oom",
)


def record() -> None:
    """Write down the values before the kubelet starts."""
    present = [name for name in _CHANGED_BY_KUBELET if (_ROOT / name).exists()]
    _RECORD.write_text(json.dumps({name: (_ROOT / name).read_text() for name in present}))


def restore() -> None:
    """Put the values back that were written down."""
    if _RECORD.exists():
        for name, value in json.loads(_RECORD.read_text()).items():
            if (_ROOT / name).read_text() != value:
                (_ROOT / name).write_text(value)
