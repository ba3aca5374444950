"""Makes what a repository declares a declaration of ours: labelled, and marked with its digest.

The survey compares with it, plans write it, and orphans are told by its label.
"""

from __future__ import annotations

from holdfast.core.gitops.application import AppId
from holdfast.core.gitops.source import Declared
from holdfast.core.ownership.signals import Declaration, declare
from holdfast.core.redact import Secret
from holdfast.core.tree import Fields, Tree, digest

MANAGER = "holdfast-gitops"
LABEL = "holdfast.dev/application"


def declaration(declared: Declared, application: AppId, key: bytes) -> Declaration:
    """Return what is applied for one declared object.

    The digest stands in the cluster for all to see, so of a Secret it covers keyed marks instead
    of values.
    """
    item = declared.item
    metadata = item["metadata"]
    assert isinstance(metadata, dict)  # noqa: S101  # every object has them
    labels = metadata.get("labels")
    named = {**(labels if isinstance(labels, dict) else {}), LABEL: application.label}
    item = {**item, "metadata": {**metadata, "labels": named}}
    return declare(item, MANAGER, revision=digest(marked(item, key)))


def marked(item: Fields, key: bytes) -> Fields:
    """Return an object with the values of a Secret replaced by their keyed marks."""
    if item.get("kind") != "Secret":
        return item
    parts = ("data", "stringData")
    return {name: _marks(value, key) if name in parts else value for name, value in item.items()}


def _marks(values: Tree, key: bytes) -> Tree:
    if not isinstance(values, dict):
        return None
    return {name: Secret(str(value)).fingerprint(key) for name, value in values.items()}
