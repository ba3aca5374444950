"""The CustomResourceDefinition of Application, made from its types and its rules.

`tools/crd.py` writes it to deploy/crds/.
"""

from __future__ import annotations

from holdfast.core.gitops.application import KIND, PLURAL, ApplicationSpec, ApplicationStatus
from holdfast.core.gitops.application_validation import MAX_NAME, NAME, NAME_PROBLEM, RULES
from holdfast.core.tree import Fields
from holdfast.wire.crd_schema import ResourceDefinition, make_crd

RESOURCE = ResourceDefinition(
    kind=KIND,
    plural=PLURAL,
    short="holdapp",
    columns=(
        ("Project", "string", ".spec.project", 0),
        ("Sync", "string", ".status.sync", 0),
        ("Health", "string", ".status.health", 0),
        ("Revision", "string", ".status.shortRevision", 0),
        ("Drift", "integer", ".status.drifted", 0),
        ("Ahead", "integer", ".status.ahead", 1),
        ("Held", "integer", ".status.held", 1),
        ("Orphans", "integer", ".status.orphans", 1),
        ("Objects", "integer", ".status.objects", 1),
        ("Repository", "string", ".spec.source.url", 1),
        ("Path", "string", ".spec.source.path", 1),
        ("Message", "string", ".status.message", 1),
        ("Age", "date", ".metadata.creationTimestamp", 0),
    ),
    subresources={"status": {}},
    name_rule=f"size(self.metadata.name) <= {MAX_NAME} && self.metadata.name.matches('{NAME}')",
    name_problem=NAME_PROBLEM,
    description="Compares a part of a repository with what runs, and handles what differs.",
)


def application_crd() -> Fields:
    """Make the definition, ready to be applied."""
    return make_crd(RESOURCE, spec=ApplicationSpec, status=ApplicationStatus, rules=RULES)
