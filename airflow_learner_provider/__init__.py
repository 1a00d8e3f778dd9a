"""Distributed trainings as Kubernetes StatefulSets of learners, for Apache Airflow."""

__all__ = ["__version__"]

__version__ = "0.1.0"
