"""A namespace for one benchmark on a cluster that may have others."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from dev.airflow.access import Admin


@contextmanager
def prepared_namespace(kubeconfig: Path) -> Iterator[tuple[str, Path]]:
    """Make a namespace, and a kubeconfig with exactly the Role's rights in it.

    :param kubeconfig: of somebody who may do anything.
    """
    admin = Admin(kubeconfig)
    name = f"bench-{uuid.uuid4().hex[:8]}"
    admin.prepare_namespace(name)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "kubeconfig.json"
        path.write_text(json.dumps(admin.create_role_kubeconfig(name)))
        try:
            yield name, path
        finally:
            admin.delete_namespace(name)
            admin.close()
