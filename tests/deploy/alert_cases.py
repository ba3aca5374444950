"""What Prometheus sees over time, and which alerts fire about it and when.

Each alert has at least one case in which it fires, and one in which it never does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

DAY = 24 * 60
WEB = {"namespace": "shop", "name": "web"}
REPO = {"repo": "3f0c9a17be"}


@dataclass(frozen=True, kw_only=True)
class AlertCase:
    """Figures over time, a minute apart, and which alerts fire about them, and when."""

    says: str
    part: str
    alert: str
    because: str = ""
    figures: Mapping[str, str] = field(default_factory=dict)
    quiet: Sequence[int] = ()
    """Minutes at which it does not fire."""
    fires: int | None = None
    labels: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.part}: {self.alert}: {self.says}"


def of_gitops(name: str, /, **labels: str) -> str:
    return series_name(name, {"job": "holdfast-gitops", **labels})


def of_operator(name: str, /, **labels: str) -> str:
    return series_name(name, {"job": "holdfast-operator", **labels})


def series_name(name: str, labels: Mapping[str, str]) -> str:
    return name + "{" + ",".join(f'{key}="{value}"' for key, value in labels.items()) + "}"


def drift(state: str, type: str = "configuration", name: str = "web") -> str:
    return of_gitops("holdfast_drift_active", namespace="shop", name=name, type=type, state=state)


def constant(value: float, minutes: int = 100) -> str:
    return f"{value:g}+0x{minutes}"


def gitops_cases() -> Iterator[AlertCase]:
    part, name = "gitops", "HoldfastDriftUnresolved"
    yield AlertCase(
        says="drift that nobody decides about, once for a namespace", part=part, alert=name,
        figures={drift("detected"): constant(1), drift("parked", name="api"): constant(2)},
        quiet=[29], fires=31, labels={"namespace": "shop"},
    )  # fmt: skip
    for state in ("awaiting-approval", "held", "pull-request", "rejected", "snoozed"):
        yield AlertCase(
            says=f"not what is {state}", part=part, alert=name,
            figures={drift(state): constant(1)}, quiet=[31, 99],
        )  # fmt: skip
    yield AlertCase(
        says="not what was put back in time", part=part, alert=name,
        figures={drift("healing"): "1+0x20 stale"}, quiet=[19, 31, 60],
    )  # fmt: skip
    yield from grave_cases(part, "HoldfastHighSeverityDrift")
    yield from loop_cases(part, "HoldfastSelfHealLoop")
    yield from people_cases(part)
    yield from source_cases(part)
    yield from own_cases(part)


def grave_cases(part: str, name: str) -> Iterator[AlertCase]:
    for type in ("image", "secret", "resource"):
        yield AlertCase(
            says=f"{type} drift for an hour", part=part, alert=name, because="open",
            figures={drift("awaiting-approval", type): constant(1)},
            quiet=[59], fires=61, labels={"namespace": "shop", "type": type},
        )  # fmt: skip
    yield AlertCase(
        says="not a field", part=part, alert=name, because="open",
        figures={drift("detected"): constant(3)}, quiet=[61, 99],
    )  # fmt: skip
    yield AlertCase(
        says="not what somebody let be", part=part, alert=name, because="open",
        figures={drift("snoozed", "image"): constant(3), drift("held", "image"): constant(1)},
        quiet=[61, 99],
    )  # fmt: skip
    yield AlertCase(
        says="a Secret that is fought over", part=part, alert=name, because="fought",
        figures={drift("fighting", "secret"): constant(1)},
        quiet=[4], fires=6, labels={"namespace": "shop", "type": "secret"},
    )  # fmt: skip
    yield AlertCase(
        says="not a field that is fought over", part=part, alert=name, because="fought",
        figures={drift("fighting"): constant(1)}, quiet=[6, 99],
    )  # fmt: skip


def loop_cases(part: str, name: str) -> Iterator[AlertCase]:
    loops = of_gitops("holdfast_selfheal_loop_total", namespace="shop")
    shop = {"namespace": "shop"}
    yield AlertCase(
        says="a drift that is fought over", part=part, alert=name,
        figures={drift("fighting"): constant(1)}, fires=2, labels=shop,
    )  # fmt: skip
    yield AlertCase(
        says="a fight that was counted", part=part, alert=name,
        figures={loops: "0+0x10 1+0x100"}, quiet=[9], fires=15, labels=shop,
    )  # fmt: skip
    yield AlertCase(
        says="not a fight of long ago", part=part, alert=name,
        figures={loops: constant(3), drift("detected"): constant(1)}, quiet=[15, 70],
    )  # fmt: skip


def people_cases(part: str) -> Iterator[AlertCase]:
    pending = of_gitops("holdfast_approvals_pending", **WEB)
    name = "HoldfastApprovalOverdue"
    yield AlertCase(
        says="a decision that waits", part=part, alert=name,
        figures={pending: constant(2, 300)}, quiet=[239], fires=241, labels=WEB,
    )  # fmt: skip
    yield AlertCase(
        says="not when nothing waits", part=part, alert=name,
        figures={pending: constant(0, 300)}, quiet=[241, 299],
    )  # fmt: skip
    paused = of_gitops("holdfast_paused_until_timestamp_seconds", **WEB)
    off = of_gitops("holdfast_application_suspended", **WEB)
    name = "HoldfastPauseForgotten"
    later = 7 * DAY * 60
    yield AlertCase(
        says="a hold that lasts a day", part=part, alert=name, because="held",
        figures={paused: constant(later, 1500)}, quiet=[DAY - 1], fires=DAY + 1, labels=WEB,
    )  # fmt: skip
    yield AlertCase(
        says="not a hold of an afternoon", part=part, alert=name, because="held",
        figures={paused: f"{later}+0x240 stale"}, quiet=[60, DAY + 1],
    )  # fmt: skip
    yield AlertCase(
        says="a hold past its end", part=part, alert=name, because="past",
        figures={paused: constant(600)}, quiet=[39, 44], fires=47, labels=WEB,
    )  # fmt: skip
    yield AlertCase(
        says="not a hold that goes on", part=part, alert=name, because="past",
        figures={paused: constant(later)}, quiet=[47, 99],
    )  # fmt: skip
    yield AlertCase(
        says="not of one that is suspended", part=part, alert=name, because="past",
        figures={paused: constant(600), off: constant(1)}, quiet=[47, 99],
    )  # fmt: skip
    suspended = series_name("kube_holdfast_application_suspended", WEB)
    for by, figure in (("the controller", off), ("kube-state-metrics", suspended)):
        yield AlertCase(
            says=f"a suspension that lasts a day, as {by} knows", part=part, alert=name,
            because="suspended", figures={figure: constant(1, 1500)}, quiet=[DAY - 1],
            fires=DAY + 1, labels=WEB,
        )  # fmt: skip
    yield AlertCase(
        says="not an application that runs", part=part, alert=name, because="suspended",
        figures={suspended: constant(0, 1500), off: constant(0, 1500)}, quiet=[DAY + 1],
    )  # fmt: skip


def info(sync: str, health: str) -> str:
    return of_gitops(
        "holdfast_application_info", **WEB, project="acme", sync_status=sync, health_status=health
    )


def due(name: str) -> str:
    return of_gitops("holdfast_application_pass_due_timestamp_seconds", namespace="shop", name=name)


def passes(result: str) -> str:
    return of_gitops("holdfast_reconcile_total", controller="application", result=result)


def overdue(name: str, **labels: str) -> str:
    return of_gitops(
        "holdfast_git_fetch_overdue_timestamp_seconds", namespace="shop", name=name, **REPO,
        **labels,
    )  # fmt: skip


def source_cases(part: str) -> Iterator[AlertCase]:
    name = "HoldfastGitSourceStale"
    yield AlertCase(
        says="a repository that does not answer", part=part, alert=name, because="unread",
        figures={overdue("web"): constant(120)}, quiet=[62, 66], fires=68, labels=REPO,
    )  # fmt: skip
    yield AlertCase(
        says="once for several applications that follow it", part=part, alert=name,
        because="unread", figures={overdue("web"): constant(120), overdue("api"): constant(180)},
        quiet=[66], fires=69, labels=REPO,
    )  # fmt: skip
    yield AlertCase(
        says="not one that is read", part=part, alert=name, because="unread",
        figures={overdue("web"): "66+60x200"}, quiet=[67, 199],
    )  # fmt: skip
    yield AlertCase(
        says="not one that is asked once a day, and not before an hour after that", part=part,
        alert=name, because="unread",
        figures={overdue("web"): constant(DAY * 60, 1600)},
        quiet=[67, DAY, DAY + 64], fires=DAY + 67,
        labels=REPO,
    )  # fmt: skip
    yield AlertCase(
        says="not while each of several applications keeps to its own interval", part=part,
        alert=name, because="unread",
        figures={overdue("web"): "66+60x200", overdue("api"): constant(DAY * 60, 200)},
        quiet=[67, 199],
    )  # fmt: skip
    yield AlertCase(
        says="one of several applications that cannot read it", part=part, alert=name,
        because="unread", figures={overdue("web"): "66+60x200", overdue("api"): constant(120)},
        quiet=[66], fires=68, labels=REPO,
    )  # fmt: skip
    yield AlertCase(
        says="not by a webhook-fed interval that began anew", part=part, alert=name,
        because="unread", figures={overdue("web"): "3600+0x50 86400+0x100"}, quiet=[67, 149],
    )  # fmt: skip
    yield AlertCase(
        says="not once it is suspended", part=part, alert=name, because="unread",
        figures={overdue("web"): "120+0x60 stale"}, quiet=[60, 68, 99],
    )  # fmt: skip
    yield AlertCase(
        says="not of the pod that was before", part=part, alert=name, because="unread",
        figures={overdue("web", pod="a"): constant(120), overdue("web", pod="b"): "66+60x200"},
        quiet=[68, 99],
    )  # fmt: skip
    yield AlertCase(
        says="not where passes fail before it is asked", part=part, alert=name, because="unread",
        figures={overdue("web"): constant(120), due("web"): constant(120)}, quiet=[68, 99],
    )  # fmt: skip
    yield AlertCase(
        says="an application of which nothing is known", part=part, alert=name, because="unknown",
        figures={info("unknown", "unknown"): constant(1)}, quiet=[29], fires=31, labels=WEB,
    )  # fmt: skip
    yield AlertCase(
        says="not a suspended application", part=part, alert=name, because="unknown",
        figures={
            info("unknown", "unknown"): constant(1),
            of_gitops("holdfast_application_suspended", **WEB): constant(1),
        },
        quiet=[31, 99],
    )  # fmt: skip
    yield AlertCase(
        says="not one that was read before", part=part, alert=name, because="unknown",
        figures={info("unknown", "healthy"): constant(1)}, quiet=[31, 99],
    )  # fmt: skip


def own_cases(part: str) -> Iterator[AlertCase]:
    name = "HoldfastReconcileErrors"
    yield AlertCase(
        says="half of the passes fail", part=part, alert=name, because="many",
        figures={passes("error"): "0+1x100", passes("success"): "0+1x100"}, quiet=[10], fires=40,
    )  # fmt: skip
    yield AlertCase(
        says="not one failure among few passes", part=part, alert=name, because="many",
        figures={passes("error"): "0+0x5 1+0x100", passes("success"): "0+0x8 1+0x10 2+0x90"},
        quiet=[15, 20, 25, 40],
    )  # fmt: skip
    yield AlertCase(
        says="not one of a hundred", part=part, alert=name, because="many",
        figures={passes("error"): "0+1x100", passes("success"): "0+99x100"}, quiet=[40, 99],
    )  # fmt: skip
    yield AlertCase(
        says="one application among many that work", part=part, alert=name, because="late",
        figures={due("web"): constant(60), due("api"): "60+60x100"}, quiet=[31, 35], fires=37,
        labels={"namespace": "shop"},
    )  # fmt: skip
    yield AlertCase(
        says="not one whose next pass is far off", part=part, alert=name, because="late",
        figures={due("web"): constant(DAY * 60)}, quiet=[37, 99],
    )  # fmt: skip
    name = "HoldfastReconcileStalled"
    yield AlertCase(
        says="not where nothing is due for long", part=part, alert=name,
        figures={
            info("synced", "healthy"): constant(1),
            passes("success"): constant(5),
            due("web"): constant(90 * 60),
        },
        quiet=[31, 89],
    )  # fmt: skip
    yield AlertCase(
        says="applications, and no pass ends well", part=part, alert=name,
        figures={
            info("synced", "healthy"): constant(1),
            due("web"): constant(60),
            passes("success"): constant(5),
            passes("error"): "0+1x100",
        },
        quiet=[10], fires=31,
    )  # fmt: skip
    yield AlertCase(
        says="not while passes end", part=part, alert=name,
        figures={info("synced", "healthy"): constant(1), passes("success"): "0+1x100"},
        quiet=[31, 99],
    )  # fmt: skip
    yield AlertCase(
        says="not without applications", part=part, alert=name,
        figures={passes("success"): constant(0)}, quiet=[31, 99],
    )  # fmt: skip
    up, name = of_gitops("up"), "HoldfastControllerDown"
    yield AlertCase(
        says="it does not answer", part=part, alert=name, because="silent",
        figures={up: "1+0x10 0+0x50"}, quiet=[10, 14], fires=17,
    )  # fmt: skip
    yield AlertCase(
        says="it is gone", part=part, alert=name, because="silent", quiet=[4], fires=6
    )  # fmt: skip
    yield AlertCase(
        says="not while it answers", part=part, alert=name, because="silent",
        figures={up: constant(1)}, quiet=[6, 99],
    )  # fmt: skip
    leads = "leader_election_master_status"
    yield AlertCase(
        says="it waits for a lease that nobody has", part=part, alert=name, because="idle",
        figures={up: constant(1), of_gitops(leads, name="holdfast-gitops"): constant(0)},
        quiet=[4], fires=6,
    )  # fmt: skip
    yield AlertCase(
        says="not while another leads", part=part, alert=name, because="idle",
        figures={
            of_gitops(leads, name="holdfast-gitops", pod="a"): constant(0),
            of_gitops(leads, name="holdfast-gitops", pod="b"): constant(1),
        },
        quiet=[6, 99],
    )  # fmt: skip


def operator_cases() -> Iterator[AlertCase]:
    part = "operator"
    active, name = of_operator("holdfast_drift_active"), "HoldfastDriftUnresolved"
    yield AlertCase(
        says="services differ", part=part, alert=name,
        figures={active: constant(2)}, quiet=[29], fires=31,
    )  # fmt: skip
    yield AlertCase(
        says="not when none does", part=part, alert=name, figures={active: constant(0)}, quiet=[31]
    )
    errors = of_operator("controller_runtime_reconcile_errors_total", controller="inferenceservice")
    looks = of_operator(
        "controller_runtime_reconcile_total", controller="inferenceservice", result="success"
    )
    name = "HoldfastReconcileErrors"
    yield AlertCase(
        says="looks fail all the time", part=part, alert=name,
        figures={errors: "0+6x100"}, quiet=[10], fires=30,
    )  # fmt: skip
    yield AlertCase(
        says="not once in a while", part=part, alert=name,
        figures={errors: "0+1x100", looks: "0+20x100"}, quiet=[30, 99],
    )  # fmt: skip
    yield AlertCase(
        says="the only service there is", part=part, alert=name,
        figures={
            errors: "0+0x4 1+0x4 2+0x4 3+0x4 4+0x4 5+0x4 6+0x4 7+0x4",
            looks: "5+0x4 6+0x4 7+0x4 8+0x4 9+0x4 10+0x4 11+0x4 12+0x4",
        },
        fires=35,
    )  # fmt: skip
    yield AlertCase(
        says="not one failure of an idle operator", part=part, alert=name,
        figures={errors: "0+0x5 1+0x60", looks: "5+0x5 6+0x60"}, quiet=[10, 20, 25, 40],
    )  # fmt: skip
    depth = of_operator("workqueue_depth", name="inferenceservice")
    name = "HoldfastReconcileStalled"
    yield AlertCase(
        says="work, and none is done", part=part, alert=name,
        figures={depth: constant(3), looks: constant(9)}, quiet=[5], fires=12,
    )  # fmt: skip
    yield AlertCase(
        says="not while work is done", part=part, alert=name,
        figures={depth: constant(3), looks: "0+1x100"}, quiet=[20, 99],
    )  # fmt: skip
    yield AlertCase(
        says="not without work", part=part, alert=name,
        figures={depth: constant(0), looks: constant(9)}, quiet=[20, 99],
    )  # fmt: skip
    name = "HoldfastQueueGrowing"
    yield AlertCase(
        says="a line that gets longer", part=part, alert=name,
        figures={depth: "11+1x100"}, quiet=[20], fires=45,
    )  # fmt: skip
    yield AlertCase(
        says="not a long line that is worked off", part=part, alert=name,
        figures={depth: "200-1x100"}, quiet=[45, 99],
    )  # fmt: skip
    leader, name = of_operator("leader_election_master_status"), "HoldfastControllerDown"
    yield AlertCase(
        says="nobody leads", part=part, alert=name,
        figures={leader: constant(0)}, quiet=[4], fires=6,
    )  # fmt: skip
    yield AlertCase(says="nobody is there", part=part, alert=name, fires=6)
    yield AlertCase(
        says="not while one of two leads", part=part, alert=name,
        figures={
            of_operator("leader_election_master_status", pod="a"): constant(1),
            of_operator("leader_election_master_status", pod="b"): constant(0),
        },
        quiet=[6, 99],
    )  # fmt: skip


CASES = [*gitops_cases(), *operator_cases()]
