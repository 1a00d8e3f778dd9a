"""Airflow's home in every tier is a new folder: tests read and write nobody's own."""

import os
import tempfile

_home = tempfile.TemporaryDirectory(prefix="airflow-home-")  # kept until the process ends

os.environ["AIRFLOW_HOME"] = _home.name
os.environ["AIRFLOW__CORE__LOAD_EXAMPLES"] = "False"
