"""Start with 100,000 workloads and a million history rows, and whether lookups stay flat."""

from __future__ import annotations

import tempfile
from pathlib import Path

import apsw

from bench.control_plane import PROJECT, fill, serving
from bench.report import Row, median_ms
from holdfast import ManagementClient

WORKLOADS = 100_000
HISTORY = 1_000_000


def measure() -> list[Row]:
    """The limit for a start is two seconds; a lookup is compared with one in a small store."""
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-", dir=Path.cwd()) as scratch:
        small, large = Path(scratch) / "small.db", Path(scratch) / "large.db"
        fill(small, 10)
        fill(large, WORKLOADS)
        _age(large)
        with serving(small) as server:
            quick = _lookup(server.url, server.token)
        with serving(large) as server:
            seconds = server.start_seconds
            slow = _lookup(server.url, server.token)
    return [
        Row(
            what=f"start with {WORKLOADS:,} workloads and {HISTORY:,} history rows, limit 2 s",
            ours=f"{seconds:.2f} s",
            peer="2 s",
            ratio=2 / seconds,
            goal=1.0,
        ),
        Row(
            what=f"lookup by slug: {WORKLOADS:,} workloads against 10 (flat is 1)",
            ours=f"{slow:.2f} ms",
            peer=f"{quick:.2f} ms",
            ratio=quick / slow,
            goal=0.7,
        ),
    ]


def _lookup(url: str, token: str) -> float:
    client = ManagementClient(url, project=PROJECT, token=token)
    try:
        return median_ms(lambda: client.get("w-000007"), rounds=300)
    finally:
        client.close()


def _age(db: Path) -> None:
    """Copy the history rows until there are a million, as years of use would."""
    connection = apsw.Connection(str(db))
    columns = [row[1] for row in connection.execute("PRAGMA table_info(history)")]
    names = ", ".join(name for name in columns if name != "seq")
    while True:
        (count,) = next(iter(connection.execute("SELECT count(*) FROM history")))
        if count >= HISTORY:
            break
        missing = HISTORY - count
        connection.execute(
            f"INSERT INTO history ({names}) SELECT {names} FROM history LIMIT {missing}"  # noqa: S608
        )
    connection.close()
