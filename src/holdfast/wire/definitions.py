"""The definitions of all custom resources of ours, by the names of their files."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.core.tree import Fields
from holdfast.wire import application_crd, crd
from holdfast.wire.crd import GROUP


def definitions() -> Mapping[str, Fields]:
    """Return file name to definition, in the order in which they are installed."""
    return {
        f"{GROUP}_{crd.PLURAL}.yaml": crd.crd(),
        f"{GROUP}_{application_crd.RESOURCE.plural}.yaml": application_crd.application_crd(),
    }
