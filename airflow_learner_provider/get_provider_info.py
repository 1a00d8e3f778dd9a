"""What this provider tells Airflow about itself."""

from typing import Any

from airflow_learner_provider import __version__

INTEGRATION = "Kubernetes learners"


def get_provider_info() -> dict[str, Any]:
    """Describe the provider; every Airflow process calls this at its start, so it imports nothing.

    There is no connection type of its own: `kubernetes`, of the cncf.kubernetes provider, serves.
    """
    return {
        "package-name": "airflow-learner-provider",
        "name": "Learner",
        "description": (
            "Distributed trainings as StatefulSets of learners in "
            "`Kubernetes <https://kubernetes.io/>`__."
        ),
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
        "task-decorators": [
            {
                "name": "learner",
                "class-name": "airflow_learner_provider.decorators.learner_task",
            }
        ],
        "extra-links": [
            "airflow_learner_provider.links.TrainingLink",
            "airflow_learner_provider.links.UserLink",
        ],
        "config": {
            "learner": {
                "description": "Defaults of the operators' arguments, and the page *Trainings*.",
                "options": {
                    "staging_image": _option(
                        "Image with rclone and a shell, which copies for stores of type "
                        "s3_datastore; rclone's own when it is not set.",
                        "registry.example.com/rclone/rclone:1.76.0",
                    ),
                    "holder_image": _option(
                        "Small image with a shell, which keeps the pods of learners that have "
                        "ended; the learners' own when it is not set.",
                        "registry.example.com/busybox:1.37",
                    ),
                    "kubernetes_conn_id": _option(
                        "Connection through which the page reads the cluster.",
                        "kubernetes_ml",
                        "kubernetes_default",
                    ),
                    "namespaces": _option(
                        "Namespaces whose trainings the page shows, separated by commas; if "
                        "empty, the connection's.",
                        "ml,research",
                        "",
                    ),
                },
            }
        },
    }


def _option(description: str, example: str, default: str | None = None) -> dict[str, Any]:
    return {
        "description": description,
        "version_added": __version__,
        "type": "string",
        "example": example,
        "default": default,
    }


def _modules(name: str) -> dict[str, Any]:
    return {"integration-name": INTEGRATION, "python-modules": [f"airflow_learner_provider.{name}"]}
