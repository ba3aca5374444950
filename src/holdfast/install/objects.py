"""Every object of an installation, in the order in which a cluster can take them.

Pure and stable: the same choices give the same bytes. `holdfast install --export` prints them,
`tools/deploy.py` writes them as a kustomize base and a Helm chart.
"""

from __future__ import annotations

from holdfast.core.tree import Fields
from holdfast.install.monitoring import alerts, monitor
from holdfast.install.operator import deployment, service
from holdfast.install.rights import rights
from holdfast.install.settings import NAME, Installation
from holdfast.version import __version__
from holdfast.wire.definitions import definitions

SELECTOR: Fields = {
    "app.kubernetes.io/name": "holdfast",
    "app.kubernetes.io/component": "operator",
}
LABELS: Fields = {**SELECTOR, "app.kubernetes.io/part-of": "holdfast"}


def objects(installation: Installation) -> tuple[Fields, ...]:
    """Give all of them."""
    found = [namespace(installation), *definitions().values(), account(installation)]
    found += rights(installation, LABELS)
    found += [
        service(installation, LABELS, SELECTOR),
        deployment(installation, _versioned(), SELECTOR),
    ]
    if installation.monitoring:
        found += [monitor(installation, LABELS, SELECTOR), alerts(installation, LABELS)]
    return tuple(found)


def namespace(installation: Installation) -> Fields:
    """The operator's own, in which nothing runs that needs more than the operator does."""
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {
            "name": installation.namespace,
            "labels": {**LABELS, "pod-security.kubernetes.io/enforce": "restricted"},
        },
    }


def account(installation: Installation) -> Fields:
    """Whom the operator is to the API server."""
    metadata: Fields = {"name": NAME, "namespace": installation.namespace, "labels": LABELS}
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}


def _versioned() -> Fields:
    return {**LABELS, "app.kubernetes.io/version": __version__}
