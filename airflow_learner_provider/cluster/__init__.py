"""Kubernetes I/O, all of it asynchronous; nothing here knows Airflow."""
