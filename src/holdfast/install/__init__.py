"""What an installation of the operator is made of, as plain Kubernetes objects."""
