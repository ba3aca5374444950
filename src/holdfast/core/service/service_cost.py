"""What a change of an InferenceService costs: it is rendered before and after, and compared.

So the answer is that of the operator itself, whatever field was changed. Pure.
"""

from __future__ import annotations

from holdfast.core.cost import NO_COST, Cost, join_costs
from holdfast.core.errors import InvalidSpec
from holdfast.core.object_cost import (
    CostBasis,
    pod_spec_of,
    replica_count,
    rollout_cost,
    scale_cost,
)
from holdfast.core.ownership.canonical import value_at
from holdfast.core.service.children import Facts, manifests
from holdfast.core.service.spec import InferenceService
from holdfast.core.tree import Fields, identical

_TEMPLATE = ("spec", "template")


def service_cost(
    before: InferenceService | None, after: InferenceService | None, basis: CostBasis
) -> Cost | None:
    """What it costs to have `after` in place of `before`; None is no service at all.

    None in answer is a cost that nobody can tell: of a spec that cannot be served, and of pods
    that are run by something else than a Deployment.
    """
    try:
        old, new = _workloads(before), _workloads(after)
    except InvalidSpec:
        return None
    parts: list[Cost | None] = []
    for name in sorted({*old, *new}):
        was, will = old.get(name), new.get(name)
        if was is not None and will is not None and identical(was["spec"], will["spec"]):
            continue
        if any(each and each["kind"] != "Deployment" for each in (was, will)):
            return None
        parts += _deployment_costs(was, will, basis)
    return join_costs(parts) if parts else NO_COST


def _deployment_costs(was: Fields | None, will: Fields | None, basis: CostBasis) -> list[Cost]:
    if was is None:
        assert will is not None  # noqa: S101  # one of the two is there
        return [scale_cost(pod_spec_of(will), 0, replica_count(will), basis)]
    if will is None:
        return [scale_cost(pod_spec_of(was), replica_count(was), 0, basis)]
    costs = []
    if not identical(value_at(was, _TEMPLATE), value_at(will, _TEMPLATE)):
        costs.append(rollout_cost("Deployment", was, will, basis))
    counts = replica_count(was), replica_count(will)
    if counts[0] != counts[1]:
        costs.append(scale_cost(pod_spec_of(will), *counts, basis))
    return costs


def _workloads(service: InferenceService | None) -> dict[str, Fields]:
    """The children that run pods, by name; one that others scale has as many as it had."""
    if service is None:
        return {}
    service.validate()
    seen = (service.status.replicas if service.status else None) or service.spec.min_replicas or 1
    found: dict[str, Fields] = {}
    for item in manifests(service, Facts(primary_replicas=seen)):
        spec = item["spec"]
        if not isinstance(spec, dict) or not any("emplate" in name for name in spec):
            continue
        counted = {"replicas": seen, **spec} if item["kind"] == "Deployment" else spec
        found[str(value_at(item, ("metadata", "name")))] = {**item, "spec": counted}
    return found
