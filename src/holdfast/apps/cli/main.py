"""The `holdfast` command: only wires the verbs together."""

from __future__ import annotations

import click

from holdfast.apps.cli import options
from holdfast.apps.cli.group import RootGroup
from holdfast.version import __version__

APPLICATIONS = "Decide about applications"
SECTIONS = {
    "Declare and compare": {
        "validate": ("validate", "Check specs and Applications, offline."),
        "plan": ("plan", "Show what ensure would change."),
        "ensure": ("ensure", "Make live match what is declared."),
        "diff": ("diff", "Show the fields in which live differs from declared."),
        "render": ("render", "Print specs as documents or Kubernetes objects, offline."),
        "import": ("import_spec", "Write the spec of what runs in a cluster already."),
    },
    "Look": {
        "status": (
            "status",
            "Show how workloads are doing, or the applications that a GitOps controller follows.",
        ),
        "watch": ("watch", "Follow workloads, or applications, as they change."),
        "wait": ("wait", "Wait until workloads or applications are ready, or as declared."),
        "logs": ("logs", "Show the log of a workload, each line with the name of its replica."),
        "drift": ("drift", "Show drift: what moved, what kind it is, and who moved it."),
        "history": ("history", "Show who did what, newest first."),
        "ui": ("ui", "Open the page in a browser, signed in."),
    },
    APPLICATIONS: {
        "sync": ("sync", "Have an application brought to what Git declares now."),
        "approve": (
            "review:approve",
            "Approve the plans of drifts, and plans that a guard blocked.",
        ),
        "reject": (
            "review:reject",
            "Reject plans of drifts, and blocked ones: nothing is changed.",
        ),
        "snooze": (
            "review:snooze",
            "Put off the decision about a drift. Nothing is written meanwhile.",
        ),
        "codify": (
            "review:codify",
            "Propose the live value of a drift to Git, by one pull request.",
        ),
        "revert": ("review:revert", "Put Git's value back, through the policy."),
        "ignore": ("review:ignore", "Hide a drift, or one field of it, for a limited time."),
        "pause": (
            "review:pause",
            "Hold an application, or one object of it: nothing is written to it meanwhile.",
        ),
        "resume": (
            "review:resume",
            "End the holds of an application, or those of one object, before their time.",
        ),
    },
    "End": {
        "delete": (
            "delete",
            "Delete workloads: their processes are stopped, their record goes, their history "
            "stays.",
        ),
    },
    "Run a control plane": {
        "serve": ("daemon:serve", "Run the control plane, and the workloads, on this machine."),
        "operator": ("daemon:operator", "Run the Kubernetes operator."),
        "gitops": ("daemon:gitops", "Run the GitOps controller."),
        "project": ("store:project", "Create and list projects."),
        "token": ("token", "Create, list and revoke tokens."),
        "backup": ("store:backup", "Copy the store, also while a server writes to it."),
    },
    "Set up": {
        "install": (
            "install",
            "Print what the operator, and the GitOps controller, need in a cluster, offline.",
        ),
        "models": ("models", "Download models and name what is in them."),
        "doctor": ("doctor", "Check this machine, the store and the connection."),
        "config": ("config", "Show and change settings."),
        "completion": ("help:completion", "Print the completion script of a shell."),
        "help": ("help", "Explain a topic (exit-codes, environment) or a command."),
        "version": ("version", "Show the version."),
    },
}


@click.group(
    "holdfast",
    cls=RootGroup,
    lazy={name: verb for verbs in SECTIONS.values() for name, verb in verbs.items()},
    sections={title: list(verbs) for title, verbs in SECTIONS.items()},
    aliases={"apply": "ensure", "get": "status"},
    examples=[
        "holdfast plan -f deploy/            what would change",
        "holdfast ensure -f deploy/ --wait   make it so, and wait until it serves",
        "holdfast status                     how workloads are doing",
        "holdfast drift list                 what moved, and who moved it",
    ],
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, message="holdfast %(version)s")
@options.connection
@options.colour
def cli() -> None:
    """Keeps ML inference workloads where their owners declared them to be."""


def main() -> None:
    """Run the command line; the console script calls this."""
    cli.main(prog_name="holdfast")
