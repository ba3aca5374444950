"""What a benchmark returns, and how the table is printed."""

from __future__ import annotations

import os
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One measured ratio. `goal` is the least ratio that satisfies us; None when there is none."""

    what: str
    ours: str
    peer: str
    ratio: float
    goal: float | None = None

    @property
    def verdict(self) -> str:
        """Say whether the goal was met."""
        if self.goal is None:
            return "-"
        return "met" if self.ratio >= self.goal else "MISSED"


def median_ms(work: Callable[[], object], *, rounds: int, warm: int = 3) -> float:
    """Time a call, many times, and return the median in milliseconds."""
    for _ in range(warm):
        work()
    times = []
    for _ in range(rounds):
        begin = time.perf_counter()
        work()
        times.append(time.perf_counter() - begin)
    return statistics.median(times) * 1000


def interleaved_ms(
    first: Callable[[], object], second: Callable[[], object], *, rounds: int
) -> tuple[float, float]:
    """Time two calls in turn, so that noise hits both alike; return both medians."""
    for _ in range(3):
        first()
        second()
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        for work, out in zip((first, second), times, strict=True):
            begin = time.perf_counter()
            work()
            out.append(time.perf_counter() - begin)
    return statistics.median(times[0]) * 1000, statistics.median(times[1]) * 1000


def table(rows: list[Row]) -> str:
    """Write the rows as a Markdown table."""
    lines = ["| what | Holdfast | peer or limit | ratio | goal | |", "|---|---|---|---|---|---|"]
    for row in rows:
        goal = f"≥ {row.goal:g}" if row.goal is not None else "-"
        lines.append(
            f"| {row.what} | {row.ours} | {row.peer} | {row.ratio:.2f} | {goal} | {row.verdict} |"
        )
    return "\n".join(lines)


def machine() -> str:
    """Describe the machine in one line."""
    model = "unknown processor"
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [line for line in info.read_text().splitlines() if line.startswith("model name")]
        model = names[0].split(":", 1)[1].strip() if names else model
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    python = platform.python_version()
    return f"{os.cpu_count()} × {model}, {memory:.0f} GiB, {platform.system()}, Python {python}"
