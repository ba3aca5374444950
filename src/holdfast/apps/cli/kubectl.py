"""`kubectl holdfast`: the same program as a plugin of kubectl, on the cluster that kubectl uses.

kubectl finds `kubectl-holdfast` on the PATH, and asks `kubectl_complete-holdfast` for completions.
Only the default target differs: the context and namespace of the kubeconfig, or those given with
kubectl's own flags.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from urllib.parse import quote

import click

from holdfast.apps.cli.main import APPLICATIONS, SECTIONS, cli
from holdfast.apps.cli.screen import Caller
from holdfast.apps.cli.session import Session

PROGRAM = "kubectl holdfast"
_FLAGS = {
    "--context": "context",
    "--namespace": "namespace",
    "-n": "namespace",
    "--kubeconfig": "kubeconfig",
}
_CONTROLLER_VERBS = frozenset(SECTIONS[APPLICATIONS])
_COMPLETE_FILES, _COMPLETE_NOTHING_ELSE = ":0", ":4"
"""How kubectl's shell goes on after our completions."""


@dataclass(slots=True)
class _CommandLine:
    """A command line, parted into kubectl's flags and the rest."""

    rest: list[str] = field(default_factory=list)
    flags: dict[str, str] = field(default_factory=dict)

    @property
    def session(self) -> Session:
        """The run of `holdfast` that is meant. A --url of the user's comes later, and wins."""
        caller = Caller(PROGRAM, {f"--{name}": value for name, value in self.flags.items()})
        # A cluster cannot decide about applications: those verbs ask the controller, whose
        # address is set as for `holdfast` itself.
        if next((word for word in self.rest if not word.startswith("-")), "") in _CONTROLLER_VERBS:
            return Session(caller)
        context = quote(self.flags.get("context", ""), safe=":@")
        url = f"kubernetes://{context}/{self.flags.get('namespace', '')}"
        return Session(caller, flags={"url": url})


def main() -> None:
    """Run the command line; kubectl calls this."""
    line = _split_flags(sys.argv[1:])
    _choose_kubeconfig(line)
    cli.main(args=line.rest, prog_name=PROGRAM, obj=line.session)


def complete() -> None:
    """Print completions for the words after `kubectl holdfast`, as kubectl wants them."""
    words = sys.argv[1:] or [""]
    found, files = _completions(words[:-1], words[-1])
    for each in found:
        click.echo(each)
    click.echo(_COMPLETE_FILES if files else _COMPLETE_NOTHING_ELSE)


def _completions(before: Sequence[str], incomplete: str) -> tuple[list[str], bool]:
    from click.shell_completion import ShellComplete

    if before and before[-1] == "--context":
        return [name for name in _kubeconfig_contexts() if name.startswith(incomplete)], False
    line = _split_flags(before)
    _choose_kubeconfig(line)
    asked = ShellComplete(cli, {"obj": line.session}, PROGRAM, "_HOLDFAST_COMPLETE")
    found = asked.get_completions(line.rest, incomplete)
    texts = [f"{each.value}\t{each.help}" if each.help else each.value for each in found]
    if incomplete.startswith("-"):
        texts += [flag for flag in _FLAGS if flag.startswith(incomplete) and flag not in texts]
    files = any(each.type in ("file", "dir") for each in found)
    return ([] if files else texts), files


def _kubeconfig_contexts() -> list[str]:
    from pathlib import Path

    from holdfast.adapters.kubernetes.kubeconfig import Kubeconfig
    from holdfast.core.errors import HoldfastError

    given = os.environ.get("KUBECONFIG") or str(Path.home() / ".kube" / "config")
    try:
        return Kubeconfig([Path(part) for part in given.split(os.pathsep) if part]).contexts
    except HoldfastError:
        return []


def _choose_kubeconfig(line: _CommandLine) -> None:
    if "kubeconfig" in line.flags:
        os.environ["KUBECONFIG"] = line.flags["kubeconfig"]


def _split_flags(arguments: Sequence[str]) -> _CommandLine:
    """Take kubectl's flags out, but for those that the command has itself."""
    own = _options_of(arguments)
    line = _CommandLine()
    words: Iterator[str] = iter(arguments)
    for word in words:
        flag, equals, value = word.partition("=")
        if word == "--":
            line.rest += [word, *words]
        elif flag in _FLAGS and flag not in own:
            line.flags[_FLAGS[flag]] = value if equals else next(words, "")
        elif word.startswith("-n") and not word.startswith("--") and "-n" not in own:
            line.flags["namespace"] = word[2:]
        else:
            line.rest.append(word)
    return line


def _options_of(arguments: Sequence[str]) -> set[str]:
    """The options of the command that is called."""
    command: click.Command = cli
    context = click.Context(cli, info_name=PROGRAM)
    for word in arguments:
        if isinstance(command, click.Group):
            known = [*command.list_commands(context), *getattr(command, "aliases", ())]
            found = command.get_command(context, word) if word in known else None
            command = found or command
    return {name for param in command.params for name in param.opts}
