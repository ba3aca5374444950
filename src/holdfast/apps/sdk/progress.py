"""Shows a wait: one redrawn line on a terminal, one plain line per phase elsewhere.

On stderr, so that results stay alone on stdout. Also used by the command line.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from types import TracebackType
from typing import Self, TextIO

from holdfast.core.live import Phase, Progress
from holdfast.core.redact import redact

PHASES = (Phase.SCHEDULING, Phase.PROVISIONING, Phase.BOOTSTRAPPING, Phase.READY)
_GREEN, _CYAN, _RED, _GREY, _OFF = "\x1b[32m", "\x1b[36m", "\x1b[31m", "\x1b[90m", "\x1b[0m"


class ProgressView:
    """Call it with each progress; use it as a context manager around the wait."""

    def __init__(self, name: str, *, out: TextIO | None = None, live: bool | None = None) -> None:
        self._name = name
        self._out = sys.stderr if out is None else out
        self._live = is_terminal(self._out) if live is None else live
        self._colour = self._live and not os.environ.get("NO_COLOR")
        self._began = time.monotonic()
        self._last: Progress | None = None
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._ticker: threading.Thread | None = None

    def __enter__(self) -> Self:
        if self._live:
            # The wait blocks in a read, so the clock on screen needs a thread of its own.
            self._ticker = threading.Thread(target=self._tick, name="holdfast-view", daemon=True)
            self._ticker.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        if self._ticker is not None:
            self._ticker.join(timeout=2.0)
            with self._lock:
                if self._last is not None:
                    self._out.write("\n")
                    self._out.flush()

    def __call__(self, progress: Progress) -> None:
        """Take in one update."""
        with self._lock:
            before, self._last = self._last, progress
            if self._live:
                self._draw()
            elif before is None or (before.phase, before.message, before.step) != (
                progress.phase,
                progress.message,
                progress.step,
            ):
                step = f" [{progress.step}]" if progress.step else ""
                self._out.write(
                    f"{self._name}: {progress.phase}{step}: {_plain(progress.message)} "
                    f"({self._elapsed()})\n"
                )
                self._out.flush()

    def _tick(self) -> None:
        while not self._stop.wait(1.0):
            with self._lock:
                if self._last is not None:
                    self._draw()

    def _draw(self) -> None:
        progress = self._last
        if progress is None:
            return
        reached = PHASES.index(progress.phase) if progress.phase in PHASES else len(PHASES)
        dots = " ".join(self._dot(place, reached) for place in range(len(PHASES)))
        if progress.phase is Phase.ERROR:
            dots = self._paint("✗", _RED)
        words = f"{self._name}  {progress.phase}  {_plain(progress.message)}"
        room = max(20, _columns(self._out) - 20)
        shown = words if len(words) <= room else words[: room - 1] + "…"
        self._out.write(f"\r\x1b[K{dots}  {shown}  {self._elapsed()}")
        self._out.flush()

    def _dot(self, place: int, reached: int) -> str:
        if place < reached or reached == len(PHASES) - 1:
            return self._paint("●", _GREEN)
        return self._paint("◐", _CYAN) if place == reached else self._paint("○", _GREY)

    def _paint(self, text: str, colour: str) -> str:
        return f"{colour}{text}{_OFF}" if self._colour else text

    def _elapsed(self) -> str:
        seconds = int(time.monotonic() - self._began)
        return f"{seconds}s" if seconds < 60 else f"{seconds // 60}m{seconds % 60:02d}s"


def is_terminal(out: TextIO) -> bool:
    """True when a line on this stream can be redrawn."""
    try:
        return out.isatty() and os.environ.get("TERM") != "dumb"
    except ValueError:  # a closed stream
        return False


def _plain(text: str) -> str:
    return "".join(char if char.isprintable() else " " for char in redact(text))


def _columns(out: TextIO) -> int:
    try:
        return os.get_terminal_size(out.fileno()).columns or 80  # 0 where nobody has said
    except (OSError, ValueError):
        return 80
