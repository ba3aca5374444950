"""The alerts of the GitOps controller, as data."""

from __future__ import annotations

from holdfast.install.alerts import Alert
from holdfast.install.settings import GITOPS

_SETTLED = "held|pull-request|rejected|snoozed"
"""States in which a person has decided about a drift for now."""
_GRAVE = "image|resource|secret"
"""What an intruder would change, and what hurts most when it is a mistake."""
_APPLICATION = "{{ $labels.namespace }}/{{ $labels.name }}"


def _ours(figure: str, *matchers: str) -> str:
    every = ",".join((f'job="{GITOPS}"', *matchers))
    return f"{figure}{{{every}}}"


_DRIFT = "holdfast_drift_active"
_PASSES = "holdfast_reconcile_total"
_PAUSED = _ours("holdfast_paused_until_timestamp_seconds")
_SUSPENDED = _ours("holdfast_application_suspended")
_DUE = _ours("holdfast_application_pass_due_timestamp_seconds")
_LATE = f"time() - max by (namespace, name) ({_DUE})"
"""Seconds by which a pass over an application is late; below zero while it is not."""


def gitops_alerts() -> tuple[Alert, ...]:
    """Give them: about drift, then about people, then about the controller itself."""
    return (*_about_drift(), *_about_people(), *_about_itself())


def _about_drift() -> tuple[Alert, ...]:
    left = _ours(_DRIFT, f'state!~"awaiting-approval|{_SETTLED}"')
    grave = _ours(_DRIFT, f'type=~"{_GRAVE}"', f'state!~"{_SETTLED}"')
    fought = _ours(_DRIFT, 'state="fighting"')
    grave_fought = _ours(_DRIFT, f'type=~"{_GRAVE}"', 'state="fighting"')
    loops = _ours("holdfast_selfheal_loop_total")
    return (
        Alert(
            name="HoldfastDriftUnresolved",
            expression=f"sum by (namespace) ({left}) > 0",
            lasts="30m",
            severity="warning",
            summary="There has been open drift in {{ $labels.namespace }} for 30 minutes.",
            description="{{ $value }} drifts of applications in {{ $labels.namespace }}, each "
            "counted once for each of its types, are neither put back nor with anybody who "
            "decides.",
        ),
        Alert(
            name="HoldfastHighSeverityDrift",
            expression=f"sum by (namespace, type) ({grave}) > 0",
            because="open",
            lasts="1h",
            severity="critical",
            summary="There has been open drift of the type {{ $labels.type }} in "
            "{{ $labels.namespace }} for an hour.",
            description="An image, a credential or a whole object differs from what was reviewed, "
            "in {{ $value }} places.",
        ),
        Alert(
            name="HoldfastHighSeverityDrift",
            expression=f"sum by (namespace, type) ({grave_fought}) > 0",
            because="fought",
            lasts="5m",
            severity="critical",
            summary="Drift of the type {{ $labels.type }} in {{ $labels.namespace }} comes back "
            "each time it is healed.",
            description="So it is left as it is. An image, a credential or a whole object differs "
            "from what was reviewed.",
        ),
        Alert(
            name="HoldfastSelfHealLoop",
            expression=f"sum by (namespace) (increase({loops}[1h])) > 0 "
            f"or sum by (namespace) ({fought}) > 0",
            lasts="1m",
            severity="warning",
            summary="What is healed in {{ $labels.namespace }} comes back.",
            description="Another writer holds the same field, or the API server stores it "
            "otherwise than it is declared. It is left alone for half an hour at a time; "
            "holdfast drift list --state fighting names the objects.",
        ),
    )


def _about_people() -> tuple[Alert, ...]:
    pending = _ours("holdfast_approvals_pending")
    return (
        Alert(
            name="HoldfastApprovalOverdue",
            expression=f"sum by (namespace, name) ({pending}) > 0",
            lasts="4h",
            severity="warning",
            summary=f"There has been something to approve in {_APPLICATION} for 4 hours.",
            description="{{ $value }} drifts or plans wait for somebody with the scope approve.",
        ),
        Alert(
            name="HoldfastPauseForgotten",
            expression=f"max by (namespace, name) ({_PAUSED}) > 0",
            because="held",
            lasts="24h",
            severity="warning",
            summary=f"{_APPLICATION} has been held for a day.",
            description="Nothing is written to it. The hold ends at "
            "{{ $value | humanizeTimestamp }}.",
        ),
        Alert(
            name="HoldfastPauseForgotten",
            expression=f"time() - max by (namespace, name) ({_PAUSED}) > 1800 "
            f"unless on (namespace, name) {_SUSPENDED} > 0",
            because="past",
            lasts="5m",
            severity="warning",
            summary=f"A hold on {_APPLICATION} is past its end.",
            description="It should have ended {{ $value | humanizeDuration }} ago: the controller "
            "does not come to it.",
        ),
        Alert(
            name="HoldfastPauseForgotten",
            expression=f"max by (namespace, name) ({_SUSPENDED} or "
            "kube_holdfast_application_suspended) > 0",
            because="suspended",
            lasts="24h",
            severity="warning",
            summary=f"{_APPLICATION} has been suspended for a day.",
            description="Nothing of it is looked at. A suspension has no end of its own.",
        ),
    )


def _about_itself() -> tuple[Alert, ...]:
    apart = "max by (namespace, name, repo)"
    overdue = f"{apart} ({_ours('holdfast_git_fetch_overdue_timestamp_seconds')})"
    leads = _ours("leader_election_master_status")
    info = "holdfast_application_info"
    unread = _ours(info, 'sync_status="unknown"', 'health_status="unknown"')
    passes = _ours(_PASSES)
    failed = _ours(_PASSES, 'result="error"')
    done = _ours(_PASSES, 'result="success"')
    return (
        Alert(
            name="HoldfastGitSourceStale",
            # Where no pass comes to an end, it is not the repository that is to blame.
            expression=f"count by (repo) (time() - {overdue} > 3600 "
            f"unless on (namespace, name) {_LATE} > 600)",
            because="unread",
            lasts="5m",
            severity="warning",
            summary="A repository should have been read an hour ago.",
            description="It cannot be read, or not rendered, for {{ $value }} applications: those "
            "that the board shows with {{ $labels.repo }}. The last good commit still counts.",
        ),
        Alert(
            name="HoldfastGitSourceStale",
            expression=f"max by (namespace, name) ({unread}) > 0 "
            f"unless on (namespace, name) {_SUSPENDED} > 0",
            because="unknown",
            lasts="30m",
            severity="warning",
            summary=f"Nothing is known of {_APPLICATION}.",
            description="Its repository could not be read since the controller started, its "
            "objects may not be read, or another application declares them: the condition Ready "
            "says which.",
        ),
        Alert(
            name="HoldfastReconcileErrors",
            # Over less time than it has to last, so that one failure among few passes is no alarm.
            expression=f"sum(rate({failed}[10m])) / sum(rate({passes}[10m])) > 0.2",
            because="many",
            lasts="15m",
            severity="warning",
            summary="{{ $value | humanizePercentage }} of the GitOps controller's passes fail.",
            description="Its log names the applications and the errors.",
        ),
        Alert(
            name="HoldfastReconcileErrors",
            expression=f"count by (namespace) ({_LATE} > 1800)",
            because="late",
            lasts="5m",
            severity="warning",
            summary="No pass over {{ $value }} applications in {{ $labels.namespace }} has ended "
            "well for half an hour.",
            description="Each pass over them fails, or their spec is wrong. The log of the "
            "controller and the condition Ready of the applications say why.",
        ),
        Alert(
            name="HoldfastReconcileStalled",
            # By what is late as well, as nothing need be due for long after a long --resync.
            expression=f"count({_ours(info)}) > 0 "
            f"and (sum(increase({done}[15m])) or vector(0)) == 0 and min({_LATE}) > 0",
            lasts="15m",
            severity="critical",
            summary="The GitOps controller has finished no pass for half an hour.",
            description="{{ $value }} applications are not looked at. What runs goes on running.",
        ),
        Alert(
            name="HoldfastControllerDown",
            expression=f"absent({_ours('up')} == 1)",
            because="silent",
            lasts="5m",
            severity="critical",
            summary="The GitOps controller does not answer.",
            description="Drift is not seen, commits are not applied, and decisions cannot be "
            "made. What runs goes on running.",
        ),
        Alert(
            name="HoldfastControllerDown",
            expression=f"max({leads}) < 1",
            because="idle",
            lasts="5m",
            severity="critical",
            summary="The GitOps controller answers, and nobody has its lease.",
            description="It waits for a turn that does not come. Drift is not seen, commits are "
            "not applied, and decisions cannot be made. What runs goes on running.",
        ),
    )
