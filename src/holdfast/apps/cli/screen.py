"""Where a command writes: results to stdout, everything else to stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import TextIO

from holdfast.apps.cli.caller import Caller
from holdfast.apps.cli.views.colour import painted, wants_ascii, wants_colour
from holdfast.apps.cli.views.text import printable, to_ascii
from holdfast.core.ink import Ink, no_paint
from holdfast.core.tree import Fields, Tree

API_VERSION = "cli.holdfast.dev/v1"
MACHINE = frozenset({"json", "yaml", "jsonl", "name"})


class Screen:
    """One command's output."""

    def __init__(
        self, *, output: str = "table", colour: str = "auto", caller: Caller | None = None
    ) -> None:
        self.output = output
        self._caller = caller or Caller()
        self._out: TextIO = sys.stdout
        self._err: TextIO = sys.stderr
        self._paints_out = wants_colour(colour, self._out)
        self._paints_err = wants_colour(colour, self._err)
        self.ascii_only = wants_ascii(self._out)
        self.interactive = self._err.isatty() and sys.stdin.isatty()
        self.live = self._out.isatty()

    @property
    def for_people(self) -> bool:
        """False when a program reads the result."""
        return self.output not in MACHINE

    def paint(self, text: str, ink: Ink) -> str:
        """Colour a part of a result, where that is wanted."""
        return (painted if self._paints_out else no_paint)(text, ink)

    def line(self, text: str = "") -> None:
        """Write a line of the result."""
        self._write(self._out, text, ascii_only=self.ascii_only)

    def document(self, kind: str, body: Mapping[str, object]) -> None:
        """Write the result as one versioned JSON or YAML document."""
        tree: Fields = {"apiVersion": API_VERSION, "kind": kind}
        tree |= _jsonable(body)  # type: ignore[arg-type]  # a mapping stays a mapping
        if self.output == "yaml":
            from holdfast.wire.yaml import write_document

            self._out.write(write_document(tree))
        else:
            self._out.write(json.dumps(tree, indent=2, ensure_ascii=self.ascii_only) + "\n")
        self._out.flush()

    def record(self, body: Mapping[str, object]) -> None:
        """Write one line of JSON."""
        text = json.dumps(_jsonable(body), ensure_ascii=self.ascii_only, separators=(",", ":"))
        self._out.write(text + "\n")
        self._out.flush()

    def records(self, kind: str, items: Sequence[Mapping[str, object]]) -> None:
        """Write a list: one JSON line each, after a line that says what they are."""
        self.record({"type": "version", "apiVersion": API_VERSION, "kind": kind})
        for item in items:
            self.record(item)

    def note(self, text: str) -> None:
        """Write progress."""
        self._out.flush()
        self._write(self._err, text, ascii_only=wants_ascii(self._err))

    def warn(self, text: str) -> None:
        """Write a warning."""
        mark = painted("warning:", Ink.CHANGE) if self._paints_err else "warning:"
        self.note(f"{mark} {printable(text)}")

    def error(self, code: str, text: str, details: Sequence[str]) -> None:
        """Write what went wrong, then the details below it."""
        mark = f"error[{code}]:"
        mark = painted(mark, Ink.REMOVE) if self._paints_err else mark
        lines = [
            f"{mark} {printable(text)}",
            *(f"  {printable(each)}".rstrip() for each in details),
        ]
        self.note("\n".join(lines))

    def next(self, command: str) -> None:
        """End a screen with the next command."""
        if self.for_people:
            text = f"Next: {printable(self._caller.spoken(command))}"
            self.note(painted(text, Ink.FAINT) if self._paints_err else text)

    def clear(self) -> None:
        """Begin a redrawn screen."""
        self._out.write("\x1b[H\x1b[2J")

    @staticmethod
    def _write(stream: TextIO, text: str, *, ascii_only: bool) -> None:
        stream.write((to_ascii(text) if ascii_only else text) + "\n")
        stream.flush()


def _jsonable(value: object) -> Tree:
    """Turn forms, enums, times and nested values into JSON's own."""
    import msgspec

    return msgspec.to_builtins(value)  # type: ignore[no-any-return]  # builtins are trees
