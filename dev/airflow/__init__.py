"""A real Airflow on this machine, for the demo, the tests and for trying DAGs out."""
