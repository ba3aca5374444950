"""Values and pure functions: from what was declared and observed to a plan. No I/O."""
