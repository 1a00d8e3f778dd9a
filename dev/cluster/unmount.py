"""Unmount what lies below a folder."""

import re
import time
from pathlib import Path

from dev.cluster import host
from dev.cluster.settings import ClusterError


def find_mounts_below(folder: Path) -> list[Path]:
    """Return the mount points below a folder, the last mounted first."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    # The fifth field is the mount point, with blanks and the like as octal escapes.
    paths = [_unescape(line.split()[4]) for line in lines]
    return [path for path in reversed(paths) if folder.resolve() in path.parents]


def unmount_below(folder: Path) -> None:
    """Unmount all mounts below a folder.

    What is left mounted would be deleted together with the folder, a user's data included: then
    it is an error, and nothing is deleted.
    """
    for mount in find_mounts_below(folder):
        for attempt in ([], [], ["--lazy"]):
            host.run_program("umount", *attempt, mount, check=False)
            if mount not in find_mounts_below(folder):
                break
            time.sleep(0.1)
    if left := find_mounts_below(folder):
        raise ClusterError(f"cannot unmount {', '.join(map(str, left))}")


def _unescape(path: str) -> Path:
    return Path(re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), path))
