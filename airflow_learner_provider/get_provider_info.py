"""What this provider tells Airflow about itself."""

from typing import Any

from airflow_learner_provider import __version__

INTEGRATION = "Kubernetes learners"


def get_provider_info() -> dict[str, Any]:
    """Describe the provider; every Airflow process calls this when it starts, so it imports nothing else.

    There is no connection type here: the one named `kubernetes`, of the cncf.kubernetes provider, serves.
    """
    return {
        "package-name": "airflow-learner-provider",
        "name": "Learner",
        "description": "Distributed trainings as `Kubernetes <https://kubernetes.io/>`__ StatefulSets of learners.",
        "versions": [__version__],
        "integrations": [
            {
                "integration-name": INTEGRATION,
                "external-doc-url": "https://kubernetes.io/docs/concepts/workloads/controllers/statefulset/",
                "tags": ["software"],
            }
        ],
        "operators": [_modules("operators")],
        "sensors": [_modules("sensors")],
        "hooks": [_modules("hooks")],
        "triggers": [_modules("triggers")],
    }


def _modules(name: str) -> dict[str, Any]:
    return {"integration-name": INTEGRATION, "python-modules": [f"airflow_learner_provider.{name}"]}
