"""Airflow's home in every tier is a new folder: tests read and write nobody's own."""

import os
import tempfile

from hypothesis import settings

# How long an example takes says more about the machine than about the code.
settings.register_profile("default", deadline=None)
settings.load_profile("default")

_home = tempfile.TemporaryDirectory(prefix="airflow-home-")  # kept until the process ends

os.environ["AIRFLOW_HOME"] = _home.name
os.environ["AIRFLOW__CORE__LOAD_EXAMPLES"] = "False"
