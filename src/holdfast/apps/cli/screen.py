"""Where a command writes: results to stdout, everything else to stderr.

Every "Next:" line, and what an error says to do, goes through `Caller.as_typed`, so that a command
we print works when it is typed again.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TextIO

from holdfast.apps.cli.views.text import format_table, printable, to_ascii
from holdfast.core.redact import redact
from holdfast.core.text_style import TextStyle
from holdfast.core.tree import Fields, Tree

API_VERSION = "cli.holdfast.dev/v1"
MACHINE_FORMATS = frozenset({"json", "yaml", "jsonl", "name"})


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
        return self.output not in MACHINE_FORMATS

    def paint(self, text: str, style: TextStyle) -> str:
        """Colour a part of a result, where that is wanted."""
        return apply_style(text, style) if self._paints_out else text

    def line(self, text: str = "") -> None:
        """Write a line of the result."""
        self._write(self._out, text, ascii_only=self.ascii_only)

    def lines(self, texts: Iterable[str]) -> None:
        """Write several lines of the result."""
        for text in texts:
            self.line(text)

    def table(self, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Write rows under their heads."""
        self.lines(format_table(heads, rows))

    def document(self, kind: str, body: Mapping[str, object]) -> None:
        """Write the result as one versioned JSON or YAML document."""
        tree: Fields = {"apiVersion": API_VERSION, "kind": kind}
        tree |= _to_builtins(body)  # type: ignore[arg-type]  # a mapping stays a mapping
        if self.output == "yaml":
            from holdfast.wire.yaml import write_document

            self._out.write(write_document(tree))
        else:
            self._out.write(json.dumps(tree, indent=2, ensure_ascii=self.ascii_only) + "\n")
        self._out.flush()

    def record(self, body: Mapping[str, object]) -> None:
        """Write one line of JSON."""
        text = json.dumps(_to_builtins(body), ensure_ascii=self.ascii_only, separators=(",", ":"))
        self._out.write(text + "\n")
        self._out.flush()

    def records(self, kind: str, items: Sequence[Mapping[str, object]]) -> None:
        """Write a list: one JSON line each, after a line that says what they are."""
        self.record({"type": "version", "apiVersion": API_VERSION, "kind": kind})
        for item in items:
            self.record(item)

    def info(self, text: str) -> None:
        """Write what is going on, to stderr."""
        self._out.flush()
        self._write(self._err, text, ascii_only=wants_ascii(self._err))

    def warn(self, text: str) -> None:
        """Write a warning."""
        self.info(f"{self._paint_err('warning:', TextStyle.CHANGE)} {printable(text)}")

    def error(self, code: str, text: str, details: Sequence[str]) -> None:
        """Write what went wrong, then the details below it."""
        prefix = self._paint_err(f"error[{code}]:", TextStyle.REMOVE)
        indented = (f"  {printable(each)}".rstrip() for each in details)
        self.info("\n".join([f"{prefix} {printable(text)}", *indented]))

    def next(self, command: str) -> None:
        """Suggest the next command, last of all."""
        if self.for_people:
            text = f"Next: {printable(self._caller.as_typed(command))}"
            self.info(self._paint_err(text, TextStyle.FAINT))

    def clear(self) -> None:
        """Begin a redrawn screen."""
        self._out.write("\x1b[H\x1b[2J")

    def _paint_err(self, text: str, style: TextStyle) -> str:
        return apply_style(text, style) if self._paints_err else text

    @staticmethod
    def _write(stream: TextIO, text: str, *, ascii_only: bool) -> None:
        stream.write((to_ascii(text) if ascii_only else text) + "\n")
        stream.flush()


def _to_builtins(value: object) -> Tree:
    """Turn forms, enums, times and nested values into JSON's own."""
    import msgspec

    return msgspec.to_builtins(value)  # type: ignore[no-any-return]  # builtins are trees


CONNECTED_VERBS = frozenset(
    "approve backup codify delete diff doctor drift ensure history ignore logs pause plan project "
    "reject resume revert snooze status sync token ui wait watch".split()
)
"""The verbs with a --url, except `config`. Listed here because verbs are imported only when used;
a test compares."""
_COMMAND_PATTERN = re.compile(
    rf"(?<![\w./=-])(?<!kubectl )holdfast (?=(?:{'|'.join(sorted(CONNECTED_VERBS))})\b)"
)
_PROJECT_OPTION = re.compile(r" (?:-p|--project) ")


@dataclass(slots=True)
class Caller:
    """How the user called this program: its name, and the connection flags they typed.

    What comes from the environment or a file applies to the next command anyway.
    """

    program: str = "holdfast"
    """`holdfast`, or `kubectl holdfast`."""
    given: dict[str, str] = field(default_factory=dict)
    """As typed: `--url`, `--project`, and kubectl's own."""

    def as_typed(self, text: str) -> str:
        """Write the commands in a text as this user would type them."""
        given = self.given
        if _PROJECT_OPTION.search(text):  # the command says itself which project it means
            given = {name: value for name, value in given.items() if name != "--project"}
        flags = "".join(f"{name} {shlex.quote(redact(value))} " for name, value in given.items())
        if _COMMAND_PATTERN.search(text):
            return _COMMAND_PATTERN.sub(lambda _: f"{self.program} {flags}", text)
        return self.in_program(text)

    def in_program(self, command: str) -> str:
        """Write one of our commands under the name by which the user calls this program."""
        is_ours = command.startswith("holdfast")
        return self.program + command.removeprefix("holdfast") if is_ours else command


_ANSI_CODES = {
    TextStyle.CREATE: "32",
    TextStyle.CHANGE: "33",
    TextStyle.REMOVE: "31",
    TextStyle.SECRET: "35",
    TextStyle.FAINT: "2",
}


def wants_colour(choice: str, stream: TextIO, environ: Mapping[str, str] = os.environ) -> bool:
    """Say whether to colour what goes to a stream.

    A flag beats NO_COLOR, which beats the variables that force colour; then comes the
    terminal itself.
    """
    if choice in ("always", "never"):
        return choice == "always"
    if environ.get("NO_COLOR"):
        return False
    if any(environ.get(name, "0") not in ("", "0") for name in ("CLICOLOR_FORCE", "FORCE_COLOR")):
        return True
    if environ.get("CLICOLOR") == "0" or environ.get("TERM") == "dumb":
        return False
    return stream.isatty()


def wants_ascii(stream: TextIO) -> bool:
    """True when the stream cannot carry our arrows and dots."""
    try:
        "→…·↻✓".encode(stream.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return True
    return False


def apply_style(text: str, style: TextStyle) -> str:
    """Colour a text for a terminal."""
    code = _ANSI_CODES.get(style)
    return f"\x1b[{code}m{text}\x1b[0m" if code and text else text
