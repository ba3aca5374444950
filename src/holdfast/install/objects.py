"""Every object of an installation, in the order in which a cluster can take them.

Pure and stable: the same choices give the same bytes. `holdfast install --export` prints them,
`tools/deploy.py` writes them as a kustomize base and a Helm chart.
"""

from __future__ import annotations

from holdfast.core.tree import Fields
from holdfast.install.deployments import (
    gitops_deployment,
    gitops_network_policy,
    gitops_volume_claim,
    make_service,
    object_metadata,
    operator_deployment,
)
from holdfast.install.monitoring import (
    dashboard_config_map,
    prometheus_rule,
    service_monitor,
)
from holdfast.install.rbac import gitops_rbac, operator_rbac, user_roles
from holdfast.install.settings import (
    GITOPS_NAME,
    OPERATOR_NAME,
    GitopsInstallation,
    Installation,
    PodSettings,
)
from holdfast.version import __version__
from holdfast.wire.crd import crd_files

COMPONENT_LABEL = "app.kubernetes.io/component"
INSTANCE_LABEL = "app.kubernetes.io/instance"
OPERATOR_SELECTOR: Fields = {"app.kubernetes.io/name": "holdfast", COMPONENT_LABEL: "operator"}
GITOPS_SELECTOR: Fields = {"app.kubernetes.io/name": "holdfast", COMPONENT_LABEL: "gitops"}
"""What selects the pods of each."""


def installation_objects(installation: Installation) -> tuple[Fields, ...]:
    """Give all of them."""
    labels = _labels(OPERATOR_SELECTOR, installation)
    found = [namespace_object(installation), *crd_files().values()]
    found += [
        service_account(OPERATOR_NAME, installation, installation.pod, labels),
        *operator_rbac(installation, labels),
        *([] if installation.watched else user_roles(labels)),
    ]
    found += [
        make_service(OPERATOR_NAME, "metrics", installation, labels, OPERATOR_SELECTOR),
        operator_deployment(
            installation, _version_labels(OPERATOR_SELECTOR, installation), OPERATOR_SELECTOR
        ),
    ]
    if installation.gitops is not None:
        found += gitops_objects(installation, installation.gitops)
    if installation.monitoring:
        found += [
            service_monitor(OPERATOR_NAME, "metrics", installation, labels, OPERATOR_SELECTOR),
            prometheus_rule(OPERATOR_NAME, installation, labels),
            dashboard_config_map(installation, labels),
        ]
    if installation.monitoring and installation.gitops is not None:
        labels = _labels(GITOPS_SELECTOR, installation)
        found += [
            service_monitor(
                GITOPS_NAME,
                "http",
                installation,
                labels,
                GITOPS_SELECTOR,
                tls=installation.gitops.tls is not None,
            ),
            prometheus_rule(GITOPS_NAME, installation, labels),
        ]
    return tuple(found)


def gitops_objects(installation: Installation, chosen: GitopsInstallation) -> list[Fields]:
    """Give those of the GitOps controller."""
    labels = _labels(GITOPS_SELECTOR, installation)
    return [
        service_account(GITOPS_NAME, installation, chosen.pod, labels),
        *gitops_rbac(installation, chosen, labels),
        gitops_volume_claim(installation, chosen, labels),
        make_service(
            GITOPS_NAME,
            "http",
            installation,
            labels,
            GITOPS_SELECTOR,
            tls=chosen.tls is not None,
        ),
        gitops_network_policy(installation, labels, GITOPS_SELECTOR),
        gitops_deployment(
            installation, chosen, _version_labels(GITOPS_SELECTOR, installation), GITOPS_SELECTOR
        ),
    ]


def namespace_object(installation: Installation) -> Fields:
    """The installation's own, in which nothing runs that needs more than the controllers do."""
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {
            "name": installation.namespace,
            "labels": {
                **_labels(OPERATOR_SELECTOR, installation),
                "pod-security.kubernetes.io/enforce": "restricted",
            },
        },
    }


def service_account(
    name: str, installation: Installation, pod: PodSettings, labels: Fields
) -> Fields:
    """Whom a controller is to the API server."""
    named = object_metadata(pod.account or name, installation, labels)
    if pod.account_annotations:
        named["annotations"] = pod.account_annotations
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": named}


def _labels(selector: Fields, installation: Installation) -> Fields:
    """What tells an installation's objects from those of others, wherever in the cluster."""
    return {
        **selector,
        INSTANCE_LABEL: installation.namespace,
        "app.kubernetes.io/part-of": "holdfast",
    }


def _version_labels(selector: Fields, installation: Installation) -> Fields:
    return {**_labels(selector, installation), "app.kubernetes.io/version": __version__}
