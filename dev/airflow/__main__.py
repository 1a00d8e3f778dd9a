"""`python -m dev.airflow`: Airflow with the example DAGs, until Ctrl-C."""

from __future__ import annotations

import argparse
import signal
import sys

from dev.airflow.local import DAGS, run_airflow
from dev.airflow.settings import AirflowError


def main() -> int:
    """Start it, say where it is, and end it when asked to."""
    parser = argparse.ArgumentParser(prog="python -m dev.airflow", description=__doc__)
    parser.add_argument("--port", type=int, default=8080)
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        print("starting the cluster and Airflow", flush=True)
        with run_airflow(port=arguments.port) as (airflow, _):
            print(
                f"Airflow is at {airflow.url} with the DAGs of {DAGS}; Ctrl-C ends it", flush=True
            )
            signal.pause()
    except KeyboardInterrupt:
        return 0
    except AirflowError as e:
        print(f"error: {e}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
