"""A whole training, from the data to a published model, in Airflow on a real cluster."""
