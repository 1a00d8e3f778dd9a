"""The page "Trainings" in Airflow's user interface."""
