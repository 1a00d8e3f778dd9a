"""The tests of this tier run on a real cluster, many of them in a real Airflow."""

from __future__ import annotations

from pathlib import Path

import pytest

TEST_SECONDS = 900


def pytest_configure(config: pytest.Config) -> None:
    """Load the fixtures, which another tier may have loaded before."""
    config.pluginmanager.import_plugin("tests.cluster.fixtures")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give a test on a cluster its own time limit, which starting the cluster does not use up."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.timeout(TEST_SECONDS, func_only=True), append=False)
