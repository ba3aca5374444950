"""What the makers of deploy/ have in common: choosing among objects, and writing them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.core.tree import Fields
from holdfast.install.objects import COMPONENT_LABEL
from holdfast.wire.yaml import write_document

MADE = "# Made by tools/deploy.py; do not edit.\n"
EVERYWHERE = ("ClusterRole", "ClusterRoleBinding")
HERE = ("Role", "RoleBinding")
RIGHTS = (*EVERYWHERE, *HERE)
RUNNING = ("PersistentVolumeClaim", "Service", "NetworkPolicy", "Deployment")
MONITORING = ("ServiceMonitor", "PrometheusRule", "ConfigMap")


def select_kinds(found: Sequence[Fields], kinds: Sequence[str]) -> list[Fields]:
    """Choose by kind."""
    return [each for each in found if each["kind"] in kinds]


def split_gitops(found: Sequence[Fields]) -> tuple[list[Fields], list[Fields]]:
    """Part what is there always from the GitOps controller's own."""
    added = [each for each in found if _labels(each).get(COMPONENT_LABEL) == "gitops"]
    return [each for each in found if each not in added], added


def name_of(item: Any) -> str:  # Any: an object of the Kubernetes API
    """Say how an object is called."""
    name: str = item["metadata"]["name"]
    return name


def namespace_of(item: Any) -> str:  # Any: an object of the Kubernetes API
    """Say where an object is; empty for one of the whole cluster."""
    namespace: str = item["metadata"].get("namespace", "")
    return namespace


def join_documents(documents: Sequence[Fields]) -> str:
    """Write objects one after the other."""
    return "---\n".join(write_document(each) for each in documents)


def format_file(documents: Sequence[Fields]) -> str:
    """Write a file of objects."""
    return MADE + join_documents(documents)


def _labels(item: Any) -> Mapping[str, str]:  # Any: an object of the Kubernetes API
    labels: Mapping[str, str] = item["metadata"].get("labels") or {}
    return labels
