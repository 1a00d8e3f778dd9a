"""The plugin by which Airflow finds the page.

Every process of Airflow loads plugins, task runners too, so this imports nothing that they have not
loaded already. Only the API server asks for `fastapi_apps`.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

from airflow.sdk.plugins_manager import AirflowPlugin

PREFIX = "/learners"
ROUTE = "trainings"


class LearnerPlugin(AirflowPlugin):
    """Adds the page "Trainings" to Airflow's menu, and serves it.

    There is an entry point, and no `plugins` in the provider's description: Airflow reads that only
    with `[core] lazy_discover_providers` off, and then would have the plugin twice.
    """

    name = "learners"
    # The address is relative to Airflow's own, which may have a path.
    external_views = [  # noqa: RUF012 - so Airflow has it
        {
            "name": "Trainings",
            "href": f"{PREFIX[1:]}/",
            "url_route": ROUTE,
            "destination": "nav",
            "category": "browse",
        }
    ]

    @cached_property
    def fastapi_apps(self) -> list[dict[str, Any]]:  # type: ignore[override]
        """The application that serves the page."""
        from airflow_learner_provider.ui.app import build_app

        return [{"app": build_app(), "url_prefix": PREFIX, "name": "Trainings"}]
