"""The HTTP control plane and data plane."""
