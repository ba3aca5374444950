"""How the user calls this program, so that a command we print works when it is typed again.

Every "Next:" line, and what an error says to do, goes through `Caller.spoken`. Connection flags
that the user gave are repeated in it; what comes from the environment or a file counts anyway.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field

from holdfast.apps.cli.views.text import called
from holdfast.core.redact import redact

CONNECTED = frozenset(
    {
        "approve", "backup", "codify", "delete", "diff", "doctor", "drift", "ensure",
        "history", "ignore", "logs", "pause", "plan", "project", "reject", "resume", "revert",
        "snooze", "status", "sync", "token", "wait", "watch",
    }
)  # fmt: skip
"""The verbs that connect to something, `config` apart, which is about files. Named here, for they
are imported only when they are used; a test compares."""
_COMMAND = re.compile(
    rf"(?<![\w./=-])(?<!kubectl )holdfast (?=(?:{'|'.join(sorted(CONNECTED))})\b)"
)
_PROJECT = re.compile(r" (?:-p|--project) ")


@dataclass(slots=True)
class Caller:
    """The program by the name the user knows, and the connection flags of this command line."""

    program: str = "holdfast"
    """`holdfast`, or `kubectl holdfast`."""
    given: dict[str, str] = field(default_factory=dict)
    """As typed: `--url`, `--project`, and kubectl's own."""

    def spoken(self, text: str) -> str:
        """Write the commands in a text as this user would type them."""
        given = self.given
        if _PROJECT.search(text):  # the command says itself which project it means
            given = {name: value for name, value in given.items() if name != "--project"}
        flags = "".join(f"{name} {shlex.quote(redact(value))} " for name, value in given.items())
        if _COMMAND.search(text):
            return _COMMAND.sub(lambda _: f"{self.program} {flags}", text)
        return called(self.program, text)
