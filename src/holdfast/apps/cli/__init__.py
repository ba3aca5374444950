"""The command line: one module per verb, `views/` renders for people and as JSON."""
