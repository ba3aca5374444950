"""Figures over the history of drifts: how many, how long, by whose hand, and who decided."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from datetime import datetime, timedelta

from holdfast.apps.server.errors import HttpError
from holdfast.apps.server.gitops_routes import (
    find_application_names,
    parse_time,
    require_gitops,
)
from holdfast.apps.server.request import HttpResponse, Request, json_response
from holdfast.apps.server.services import Services
from holdfast.core.gitops.facts import CONTROLLER
from holdfast.core.gitops.statistics import DECISIONS, Counts, DriftStatistics, largest_first
from holdfast.reconcile.gitops.drift_facts import DriftFacts
from holdfast.reconcile.gitops.ledger_store import iter_entries
from holdfast.wire.gitops_http_v1 import (
    DecisionCountForm,
    DriftCountForm,
    StatisticsForm,
    TimeToResolveForm,
)

DEFAULT_TIME = timedelta(days=30)
COUNT_SLICE = 500
"""Drifts that are counted at one go, which takes a few milliseconds."""
MAX_COUNTS = 100
"""Keys of one table, the most frequent first: writers are named by whoever writes."""


async def get_statistics(services: Services, request: Request) -> HttpResponse:
    """Count the drifts that there were between `since` and `until`: the last 30 days, unless given.

    What the ledger does not keep any more is not counted.
    """
    require_gitops(services)
    query = request.known_query("since", "until", "application")
    now = services.clock.now()
    until = min(parse_time(query.get("until"), "until") or now, now)
    since = parse_time(query.get("since"), "since") or until - DEFAULT_TIME
    if since >= until:
        raise HttpError(400, "invalid", "The time since has to be before until, and in the past.")
    project = request.params["project"]
    async with services.listing:
        ledger_store, names = await find_application_names(
            services, project, query.get("application", "")
        )
        facts = services.drift_facts
        if facts is None or facts.ledger_store is not ledger_store:
            facts = services.drift_facts = DriftFacts(ledger_store)
        found = await count_drifts_and_decisions(facts, project, names, since, until)
    return json_response(_statistics_form(found))


async def count_drifts_and_decisions(
    facts: DriftFacts, project: str, names: Sequence[str], since: datetime, until: datetime
) -> DriftStatistics:
    """Count what a project had between two times, in these applications."""
    found = DriftStatistics(since=since, until=until)
    for name in names:
        for number, drift in enumerate(await facts.of(name), 1):
            if drift.project == project:
                found.add(drift)
            if number % COUNT_SLICE == 0:
                await asyncio.sleep(0)  # others are to be answered too
        lines = iter_entries(
            facts.ledger_store, application=name, project=project, actions=DECISIONS, since=since
        )
        async with aclosing(lines) as some:
            async for line in some:
                if line.at < until and line.actor != CONTROLLER:
                    found.add_decision(line.actor, line.action)
    return found


def _statistics_form(found: DriftStatistics) -> StatisticsForm:
    decided = sorted(found.decisions.items(), key=lambda each: (-each[1].total, each[0]))
    return StatisticsForm(
        since=found.since,
        until=found.until,
        drifts=found.whole.count,
        open=found.open,
        drift_seconds=found.whole.seconds,
        drift_minutes=_minutes(found.whole.seconds),
        time_to_resolve=TimeToResolveForm(
            p50=found.time_to_resolve(0.5), p90=found.time_to_resolve(0.9), count=found.resolved
        ),
        by_cause=_count_forms(found.by_cause),
        by_writer=_count_forms(found.by_writer),
        by_kind=_count_forms(found.by_kind),
        by_resolution=_count_forms(found.by_resolution),
        by_application=_count_forms(found.by_application),
        decisions=[
            DecisionCountForm(
                actor=actor,
                approved=made.approved,
                rejected=made.rejected,
                codified=made.codified,
                reverted=made.reverted,
                snoozed=made.snoozed,
            )
            for actor, made in decided[:MAX_COUNTS]
        ],
    )


def _count_forms(counts: Counts) -> list[DriftCountForm]:
    return [
        DriftCountForm(
            key=key, count=each.count, seconds=each.seconds, minutes=_minutes(each.seconds)
        )
        for key, each in list(largest_first(counts))[:MAX_COUNTS]
    ]


def _minutes(seconds: float) -> float:
    return round(seconds / 60, 1)
