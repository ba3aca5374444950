"""What an installation is made of, as plain Kubernetes objects: the operator, the controller."""
