"""Runs the benchmarks named on the command line, or all, and prints one table."""

from __future__ import annotations

import importlib
import sys

from bench.report import machine, table

ALL = (
    "ensure",
    "requests",
    "creates",
    "streams",
    "commands",
    "start",
    "verdicts",
    "detect",
    "operator",
)


def main(names: list[str]) -> int:
    """Print ratios; exit 1 when a goal was missed."""
    rows = []
    for name in names or ALL:
        print(f"measuring {name} ...", file=sys.stderr, flush=True)
        rows += importlib.import_module(f"bench.{name}").measure()
    print(f"{machine()}\n\n{table(rows)}")
    return 1 if any(row.verdict == "MISSED" for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
