"""A real Kubernetes on one Linux machine, without Docker: for the cluster tests and the demo."""
