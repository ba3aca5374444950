"""A workload as a document: the fields of `WorkloadSpec` under the same names.

Read from YAML, JSON or a request body; `apiVersion` and `kind` may stand in front.
"""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.core.errors import Problem, ValidationError
from holdfast.core.rules import unknown_problem
from holdfast.core.scan import oversize_problem
from holdfast.core.tree import Fields, Tree
from holdfast.core.workload import IDENTITY_FIELDS, SPEC_FIELDS, WorkloadSpec

API_VERSION = "holdfast.dev/v1"
KIND = "Workload"
_KNOWN = sorted(SPEC_FIELDS)
_FIELDS_WITHOUT_IDENTITY = [name for name in _KNOWN if name not in IDENTITY_FIELDS]
_REQUIRED = ("name", "model", "backend")


def spec_from_document(document: object) -> WorkloadSpec:
    """Build a spec from a parsed document. Unknown fields are refused, not dropped."""
    if not isinstance(document, Mapping):
        raise ValidationError(
            f"A workload is a mapping of fields; this is a {type(document).__name__}.",
            hint="Start with name, model and backend.",
        )
    if too_large := oversize_problem((str(name), value) for name, value in document.items()):
        raise ValidationError("The spec is too large.", problems=[too_large])
    fields = {str(name): value for name, value in document.items()}
    problems = [
        Problem(field=name, reason=f"it is not {wanted}.", fix=f"Write {name}: {wanted}.")
        for name, wanted in (("apiVersion", API_VERSION), ("kind", KIND))
        if fields.pop(name, wanted) != wanted
    ]
    problems += [unknown_problem(name, _KNOWN) for name in fields if name not in SPEC_FIELDS]
    given = {name: value for name, value in fields.items() if name in SPEC_FIELDS}
    given |= {name: "" for name in _REQUIRED if given.get(name) is None}
    if given.get("slug") is None:
        given["slug"] = ""
    try:
        spec = WorkloadSpec(**given)  # building it is what checks it
    except ValidationError as error:
        raise ValidationError(error.happened, problems=[*problems, *error.problems]) from None
    if problems:
        raise ValidationError(problems=problems)
    return spec


def spec_from_fields(slug: str, fields: Mapping[str, Tree]) -> WorkloadSpec:
    """Build a spec from stored fields, to check them as a whole.

    Fields are what a workload says, not which one it is: its identity cannot be written.
    """
    foreign = [
        unknown_problem(name, _FIELDS_WITHOUT_IDENTITY)
        for name in fields
        if name not in _FIELDS_WITHOUT_IDENTITY
    ]
    if foreign:
        raise ValidationError(problems=foreign)
    return spec_from_document({**fields, "slug": slug})


def spec_to_document(spec: WorkloadSpec) -> Fields:
    """Write a spec with its kind in front; reading it back gives an equal spec."""
    head: Fields = {"apiVersion": API_VERSION, "kind": KIND, "slug": spec.slug}
    if spec.project:
        head["project"] = spec.project
    return head | spec.fields()
