"""Runs the benchmarks named on the command line, or all, and prints one table."""

from __future__ import annotations

import argparse
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
    "gitops",
    "node",
    "page",
)


def main(arguments: list[str]) -> int:
    """Print ratios; exit 1 when a goal was missed."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(ALL)}")
    parser.add_argument("--objects", type=int, help="how many objects gitops declares (1000)")
    parser.add_argument("--services", type=int, help="how many operator keeps (300)")
    given = parser.parse_args(arguments)
    sizes = {"gitops": ("objects", given.objects), "operator": ("services", given.services)}
    rows = []
    for name in given.names or ALL:
        print(f"measuring {name} ...", file=sys.stderr, flush=True)
        size, number = sizes.get(name, ("", None))
        sized = {size: number} if number else {}
        rows += importlib.import_module(f"bench.{name}").measure(**sized)
    print(f"{machine()}\n\n{table(rows)}")
    return 1 if any(row.verdict == "MISSED" for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
