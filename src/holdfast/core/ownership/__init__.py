"""Whether any Kubernetes object is as declared, told from its values and its field owners."""
