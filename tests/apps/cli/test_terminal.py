"""Exit codes, streams, colour and letters, as a shell sees them."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import time
from collections.abc import Mapping
from io import StringIO
from pathlib import Path

import pytest
from tests.apps.cli.conftest import CHAT
from tests.support.processes import HOLDFAST, started

from holdfast.apps.cli.delete import PRICED
from holdfast.apps.cli.exits import Exit
from holdfast.apps.cli.screen import wants_ascii, wants_colour
from holdfast.apps.cli.views.text import format_markdown_table


def holdfast(*args: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*HOLDFAST, *args],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        encoding="utf-8",
        stdin=subprocess.DEVNULL,
        timeout=60,
        check=False,
    )


class Terminal:
    """A command on a terminal of its own."""

    def __init__(self, *args: str, **env: str) -> None:
        self.pid, self._fd = pty.fork()
        if self.pid == 0:
            os.environ.update({"TERM": "xterm", **env})
            os.execvp(HOLDFAST[0], [*HOLDFAST, *args])  # noqa: S606
        self.seen = ""

    def read_until(self, text: str, timeout: float = 30) -> None:
        end = time.monotonic() + timeout
        while text not in self.seen:
            assert time.monotonic() < end, f"{text!r} did not come: {self.seen!r}"
            assert self._read(0.2), f"it ended without {text!r}: {self.seen!r}"

    def type(self, text: str) -> None:
        os.write(self._fd, text.encode())

    def end(self) -> int:
        while self._read(30):
            pass
        os.close(self._fd)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def interrupt(self) -> int:
        """Press Ctrl-C, again when it was lost: Python can miss one just before it reads."""
        again = 0.0
        while True:
            if time.monotonic() >= again:
                self.type("\x03")
                again = time.monotonic() + 5
            if not self._read(0.2):
                return self.end()

    def _read(self, timeout: float) -> bool:
        ready, _, _ = select.select([self._fd], [], [], timeout)
        if not ready:
            return timeout < 1
        try:
            data = os.read(self._fd, 65_536)
        except OSError:  # the other side is closed
            return False
        self.seen += data.decode()
        return bool(data)


@pytest.fixture
def applied(chat: Path) -> Path:
    assert holdfast("ensure", "-f", "chat.yaml").returncode == 0
    chat.write_text(CHAT.replace("8192", "16384"))
    return chat


USAGE = [
    ["nosuch"],
    ["plan"],
    ["plan", "--nosuch"],
    ["status", "-o", "nosuch"],
    ["ensure"],
    ["ensure", "-f", "x", "--plan", "y"],
    ["wait", "x", "--timeout", "soon"],
    ["drift"],
    ["delete"],
    ["token", "create", "--name", "x"],
    ["help", "nosuch"],
]


@pytest.mark.parametrize("args", USAGE, ids=" ".join)
def test_a_command_line_that_is_not_understood_exits_64(args: list[str]) -> None:
    run = holdfast(*args)
    assert run.returncode == Exit.USAGE
    assert run.stdout == ""
    assert run.stderr


def test_an_unknown_verb_is_answered_with_the_likely_one() -> None:
    run = holdfast("plna", "-f", "x")
    assert run.stderr == (
        "error[usage]: There is no command 'plna'. Did you mean plan?\n"
        "  Usage: holdfast [OPTIONS] COMMAND [ARGS]...\n"
        "  Next: holdfast --help\n"
    )


def test_help_is_no_error() -> None:
    for args in ([], ["--help"], ["plan", "-h"], ["--version"]):
        assert holdfast(*args).returncode == 0


def test_results_go_to_stdout_and_the_rest_to_stderr(applied: Path) -> None:
    run = holdfast("plan", "-f", "chat.yaml", "-o", "json", "--exit-code")
    assert run.returncode == Exit.CHANGES
    assert json.loads(run.stdout)["kind"] == "Plan"
    assert run.stderr == ""


def test_a_missing_token_exits_4() -> None:
    run = holdfast("status", "--url", "https://holdfast.invalid")
    assert run.returncode == Exit.AUTH
    assert "HOLDFAST_TOKEN" in run.stderr


def test_an_unreachable_server_is_an_error_and_no_empty_list() -> None:
    run = holdfast("status", "--url", "http://127.0.0.1:9", HOLDFAST_TOKEN="ik_sdk_x")
    assert run.returncode == Exit.ERROR
    assert run.stdout == ""
    assert run.stderr.startswith("error[target-unavailable]: ")


def test_a_reader_that_leaves_early_gets_no_traceback(applied: Path) -> None:
    with started([*HOLDFAST, "watch", "--timeout", "5s"]) as child:
        assert child.stdout and child.stderr
        child.stdout.close()
        assert "Traceback" not in child.stderr.read()
        child.wait(30)


def test_a_locale_without_utf8_gets_ascii(applied: Path) -> None:
    run = holdfast("plan", "-f", "chat.yaml", PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert run.returncode == 0
    assert run.stdout.isascii()
    assert "  ~r default/support-bot" in run.stdout
    assert "8192  ->  16384" in run.stdout


def test_colour_can_be_forced_where_there_is_no_terminal(applied: Path) -> None:
    assert "\x1b[33m~↻\x1b[0m" in holdfast("plan", "-f", "chat.yaml", CLICOLOR_FORCE="1").stdout
    assert "\x1b[" in holdfast("plan", "-f", "chat.yaml", "--color", "always").stdout
    assert "\x1b[" not in holdfast("plan", "-f", "chat.yaml").stdout


COLOUR: list[tuple[str, Mapping[str, str], bool, bool]] = [
    ("auto", {}, True, True),
    ("auto", {}, False, False),
    ("auto", {"NO_COLOR": "1"}, True, False),
    ("auto", {"NO_COLOR": "0"}, True, False),
    ("auto", {"NO_COLOR": ""}, True, True),
    ("auto", {"NO_COLOR": "1", "CLICOLOR_FORCE": "1"}, True, False),
    ("auto", {"CLICOLOR": "0"}, True, False),
    ("auto", {"CLICOLOR": "1"}, True, True),
    ("auto", {"CLICOLOR_FORCE": "1"}, False, True),
    ("auto", {"CLICOLOR_FORCE": "0"}, False, False),
    ("auto", {"FORCE_COLOR": "1"}, False, True),
    ("auto", {"TERM": "dumb"}, True, False),
    ("always", {"NO_COLOR": "1"}, False, True),
    ("never", {"CLICOLOR_FORCE": "1"}, True, False),
]


class Stream(StringIO):
    def __init__(self, terminal: bool, encoding: str = "utf-8") -> None:
        super().__init__()
        self._terminal = terminal
        self._encoding = encoding

    @property
    def encoding(self) -> str:  # type: ignore[override]  # StringIO has none
        return self._encoding

    def isatty(self) -> bool:
        return self._terminal


@pytest.mark.parametrize(("choice", "env", "terminal", "expected"), COLOUR)
def test_colour_follows_the_flag_then_the_environment_then_the_terminal(
    choice: str, env: Mapping[str, str], terminal: bool, expected: bool
) -> None:
    assert wants_colour(choice, Stream(terminal), env) is expected


@pytest.mark.parametrize(
    ("encoding", "expected"), [("utf-8", False), ("ascii", True), ("latin-1", True), ("no", True)]
)
def test_letters_follow_the_encoding(encoding: str, expected: bool) -> None:
    assert wants_ascii(Stream(True, encoding)) is expected


def test_delete_asks_on_a_terminal(applied: Path) -> None:
    terminal = Terminal("delete", "support-bot")
    terminal.read_until("Delete? [y/N]")
    terminal.type("n\r")
    assert terminal.end() == 0
    assert "Nothing was changed." in terminal.seen
    assert "  default/support-bot: cost unknown" in terminal.seen
    assert holdfast("status", "-o", "name").stdout == "default/support-bot\n"
    terminal = Terminal("delete", "support-bot", "absent")
    terminal.read_until("default/absent: it is not there")
    terminal.read_until("Delete? [y/N]")
    terminal.type("y\r")
    assert terminal.end() == 0
    assert holdfast("status", "-o", "name").stdout == ""


def test_delete_of_many_says_of_how_many_the_cost_was_not_asked(applied: Path) -> None:
    terminal = Terminal("delete", *(f"bot-{number}" for number in range(PRICED + 2)))
    terminal.read_until("What 2 more workloads cost was not asked.")
    terminal.read_until("Delete? [y/N]")
    assert f"bot-{PRICED - 1}: it is not there" in terminal.seen
    assert f"bot-{PRICED}: " not in terminal.seen
    assert terminal.interrupt() == Exit.INTERRUPTED


def test_control_c_at_a_question_exits_130_and_deletes_nothing(applied: Path) -> None:
    terminal = Terminal("delete", "support-bot")
    terminal.read_until("Delete? [y/N]")
    assert terminal.interrupt() == Exit.INTERRUPTED
    assert holdfast("status", "-o", "name").stdout == "default/support-bot\n"


def test_watch_redraws_on_a_terminal_and_leaves_with_130(applied: Path) -> None:
    terminal = Terminal("watch")
    terminal.read_until("1 workload · 0 ready · 0 drifted")
    assert "\x1b[H\x1b[2J" in terminal.seen
    holdfast("delete", "support-bot", "-y")
    terminal.read_until("default/support-bot  deleted")
    assert terminal.interrupt() == Exit.INTERRUPTED


def test_an_interrupt_leaves_no_traceback(applied: Path) -> None:
    with started([*HOLDFAST, "watch"]) as child:
        assert child.stdout
        assert child.stdout.readline().startswith('{"type":"version"')
        child.send_signal(signal.SIGINT)
        _, errors = child.communicate(timeout=30)
    assert child.returncode == Exit.INTERRUPTED
    assert "Traceback" not in errors


def test_no_cell_breaks_out_of_a_markdown_table() -> None:
    lines = format_markdown_table(["NAME", "BY"], [["a|b", "one\ntwo\x1b[2J"]])
    assert lines == ["| NAME | BY |", "|---|---|", "| a\\|b | one two\\x1b[2J |"]
