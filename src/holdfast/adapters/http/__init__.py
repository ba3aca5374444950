"""A remote control plane as a target, and its data plane, over HTTP."""
