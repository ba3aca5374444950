"""Every object of an installation, in the order in which a cluster can take them.

Pure and stable: the same choices give the same bytes. `holdfast install --export` prints them,
`tools/deploy.py` writes them as a kustomize base and a Helm chart.
"""

from __future__ import annotations

from holdfast.core.tree import Fields
from holdfast.install import gitops, gitops_rights, operator, rights
from holdfast.install.alerts import operator_alerts
from holdfast.install.gitops_alerts import gitops_alerts
from holdfast.install.monitoring import board_map, monitor, rules
from holdfast.install.pod import metadata, service
from holdfast.install.settings import GITOPS, NAME, Gitops, Installation
from holdfast.version import __version__
from holdfast.wire.definitions import definitions

COMPONENT = "app.kubernetes.io/component"
OPERATOR: Fields = {"app.kubernetes.io/name": "holdfast", COMPONENT: "operator"}
CONTROLLER: Fields = {"app.kubernetes.io/name": "holdfast", COMPONENT: "gitops"}
"""What selects the pods of each."""


def objects(installation: Installation) -> tuple[Fields, ...]:
    """Give all of them."""
    labels = _labels(OPERATOR)
    found = [namespace(installation), *definitions().values()]
    found += [account(NAME, installation, labels), *rights.rights(installation, labels)]
    found += [
        service(NAME, "metrics", installation, labels, OPERATOR),
        operator.deployment(installation, _versioned(OPERATOR), OPERATOR),
    ]
    if installation.gitops is not None:
        found += controller(installation, installation.gitops)
    if installation.monitoring:
        found += [
            monitor(NAME, "metrics", installation, labels, OPERATOR),
            rules(NAME, operator_alerts(), installation, labels),
            board_map(installation, labels),
        ]
    if installation.monitoring and installation.gitops is not None:
        labels = _labels(CONTROLLER)
        found += [
            monitor(GITOPS, "http", installation, labels, CONTROLLER),
            rules(GITOPS, gitops_alerts(), installation, labels),
        ]
    return tuple(found)


def controller(installation: Installation, chosen: Gitops) -> list[Fields]:
    """Give those of the GitOps controller."""
    labels = _labels(CONTROLLER)
    return [
        account(GITOPS, installation, labels),
        *gitops_rights.rights(installation, chosen, labels),
        gitops.volume(installation, chosen, labels),
        service(GITOPS, "http", installation, labels, CONTROLLER),
        gitops.policy(installation, labels, CONTROLLER),
        gitops.deployment(installation, chosen, _versioned(CONTROLLER), CONTROLLER),
    ]


def namespace(installation: Installation) -> Fields:
    """The installation's own, in which nothing runs that needs more than the controllers do."""
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {
            "name": installation.namespace,
            "labels": {**_labels(OPERATOR), "pod-security.kubernetes.io/enforce": "restricted"},
        },
    }


def account(name: str, installation: Installation, labels: Fields) -> Fields:
    """Whom a controller is to the API server."""
    named = metadata(name, installation, labels)
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": named}


def _labels(selector: Fields) -> Fields:
    return {**selector, "app.kubernetes.io/part-of": "holdfast"}


def _versioned(selector: Fields) -> Fields:
    return {**_labels(selector), "app.kubernetes.io/version": __version__}
