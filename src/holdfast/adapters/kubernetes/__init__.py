"""A cluster: how to reach it, ask it, follow it, and be the only one who acts on it."""
