"""Shared peers and helpers of the tests: backends, faults, processes."""
