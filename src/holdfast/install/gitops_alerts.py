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
            summary="Drift in {{ $labels.namespace }} has been open for 30 minutes.",
            description="{{ $value }} drifts of applications in {{ $labels.namespace }} are "
            "neither put back nor with anybody who decides.",
        ),
        Alert(
            name="HoldfastHighSeverityDrift",
            expression=f"sum by (namespace, type) ({grave}) > 0",
            because="open",
            lasts="1h",
            severity="critical",
            summary="Drift of the kind {{ $labels.type }} in {{ $labels.namespace }} has been "
            "open for an hour.",
            description="An image, a credential or a whole object differs from what was reviewed, "
            "in {{ $value }} places.",
        ),
        Alert(
            name="HoldfastHighSeverityDrift",
            expression=f"sum by (namespace, type) ({grave_fought}) > 0",
            because="fought",
            lasts="5m",
            severity="critical",
            summary="Somebody keeps putting back {{ $labels.type }} drift in "
            "{{ $labels.namespace }}.",
            description="It was healed and came again, so it is left as it is. An image, a "
            "credential or a whole object differs from what was reviewed.",
        ),
        Alert(
            name="HoldfastSelfHealLoop",
            expression=f"sum by (namespace) (increase({loops}[1h])) > 0 "
            f"or sum by (namespace) ({fought}) > 0",
            lasts="1m",
            severity="warning",
            summary="Somebody puts back what is healed in {{ $labels.namespace }}.",
            description="Two parties hold the same field. It is left alone until somebody "
            "decides; holdfast drift list --state fighting names them.",
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
            summary=f"{_APPLICATION} has waited for an approval for 4 hours.",
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
            expression=f"time() - max by (namespace, name) ({_PAUSED}) > 1800",
            because="past",
            lasts="5m",
            severity="warning",
            summary=f"A hold on {_APPLICATION} is past its end.",
            description="It should have ended {{ $value | humanizeDuration }} ago: the controller "
            "does not come to it.",
        ),
        Alert(
            name="HoldfastPauseForgotten",
            expression="max by (namespace, name) (kube_holdfast_application_suspended) > 0",
            because="suspended",
            lasts="24h",
            severity="warning",
            summary=f"{_APPLICATION} has been suspended for a day.",
            description="Nothing of it is looked at. A suspension has no end of its own.",
        ),
    )


def _about_itself() -> tuple[Alert, ...]:
    fetched = f"max by (repo) ({_ours('holdfast_git_last_fetch_timestamp_seconds')})"
    info = "holdfast_application_info"
    unread = _ours(info, 'sync_status="unknown"', 'health_status="unknown"')
    passes = _ours(_PASSES)
    failed = _ours(_PASSES, 'result="error"')
    done = _ours(_PASSES, 'result="success"')
    return (
        Alert(
            name="HoldfastGitSourceStale",
            expression=f"time() - {fetched} > 3600",
            because="unread",
            lasts="5m",
            severity="warning",
            summary="{{ $labels.repo }} has not been read for an hour.",
            description="The last good commit still counts. It was read "
            "{{ $value | humanizeDuration }} ago.",
        ),
        Alert(
            name="HoldfastGitSourceStale",
            expression=f"max by (namespace, name) ({unread}) > 0",
            because="unknown",
            lasts="30m",
            severity="warning",
            summary=f"Nothing is known of {_APPLICATION}.",
            description="Its repository could not be read since the controller started, or it is "
            "suspended.",
        ),
        Alert(
            name="HoldfastReconcileErrors",
            expression=f"sum(rate({failed}[15m])) / sum(rate({passes}[15m])) > 0.2",
            lasts="15m",
            severity="warning",
            summary="{{ $value | humanizePercentage }} of the GitOps controller's passes fail.",
            description="Its log names the applications and the errors.",
        ),
        Alert(
            name="HoldfastReconcileStalled",
            expression=f"count({_ours(info)}) > 0 "
            f"and (sum(increase({done}[15m])) or vector(0)) == 0",
            lasts="15m",
            severity="critical",
            summary="The GitOps controller has finished no pass for half an hour.",
            description="{{ $value }} applications are not looked at. What runs goes on running.",
        ),
        Alert(
            name="HoldfastControllerDown",
            expression=f"absent({_ours('up')} == 1)",
            lasts="5m",
            severity="critical",
            summary="The GitOps controller does not answer.",
            description="Drift is not seen, commits are not applied, and decisions cannot be "
            "made. What runs goes on running.",
        ),
    )
