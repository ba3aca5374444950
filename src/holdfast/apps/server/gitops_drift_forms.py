"""Writes a drift for whoever asks: with links, and whether it waits for them."""

from __future__ import annotations

from contextlib import suppress

from holdfast.adapters.forge.providers import source_link
from holdfast.adapters.store import TokenScope
from holdfast.apps.server.gitops_routes import require_gitops
from holdfast.apps.server.request import Request
from holdfast.apps.server.services import Services
from holdfast.core.errors import NotFound
from holdfast.core.gitops.drift import DriftState, ObjectDrift
from holdfast.core.page_links import drift_link
from holdfast.reconcile.gitops.application_context import ApplicationContext
from holdfast.reconcile.gitops.drift_index import DriftRow
from holdfast.wire.gitops_http_v1 import DriftLinksForm, ReviewDriftForm
from holdfast.wire.gitops_v1 import ApplicationDriftForm, drift_to_json

_FIELDS = ApplicationDriftForm.__struct_fields__


def review_drift_form(
    services: Services, request: Request, actor: str, row: DriftRow
) -> ReviewDriftForm:
    """Write one drift of a list."""
    form = drift_to_json(row.drift)
    return ReviewDriftForm(
        **{name: getattr(form, name) for name in _FIELDS},
        links=_links_of(services, row.context, row.drift),
        waiting_for_me=is_waiting_for(services, request, actor, row),
    )


def single_drift_form(
    services: Services, request: Request, actor: str, drift: ObjectDrift
) -> ReviewDriftForm:
    """Write one drift, open or ended."""
    review, _ = require_gitops(services)
    context: ApplicationContext | None = None
    with suppress(NotFound):  # it is gone, so nobody knows where its repository is
        context = review.application(drift.project, str(drift.application))
    return review_drift_form(services, request, actor, DriftRow(drift, context))


def is_waiting_for(services: Services, request: Request, actor: str, row: DriftRow) -> bool:
    """True when who asks may approve a drift now."""
    if row.drift.state is not DriftState.AWAITING or row.context is None:
        return False
    if request.token is None or not request.token.allows(TokenScope.APPROVE):
        return False
    review, _ = require_gitops(services)
    return not review.approval_obstacle(row.context, row.drift, actor)


def _links_of(
    services: Services, context: ApplicationContext | None, drift: ObjectDrift
) -> DriftLinksForm:
    source = ""
    if context is not None and drift.where:
        spec = context.application.spec
        pulls = spec.pull_requests
        source = source_link(
            spec.source.url,
            provider=pulls.provider if pulls else None,
            commit=drift.commit,
            where=drift.where,
        )
    return DriftLinksForm(
        page=drift_link(services.config.base_url, drift.project, drift.id) or "",
        source=source,
        pull_request=drift.url if drift.url.startswith(("https://", "http://")) else "",
    )
