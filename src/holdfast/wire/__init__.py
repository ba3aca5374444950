"""JSON and YAML forms of core values, one module per API version."""
