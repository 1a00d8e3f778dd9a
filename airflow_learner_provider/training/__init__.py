"""One training as a whole.

From what the user asked for to objects, and from what the cluster says to a verdict. Pure
functions; nothing here talks to Kubernetes or knows Airflow.
"""
