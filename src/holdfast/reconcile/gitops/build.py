"""Puts a reconciler of applications together: the one wiring, for the controller and for tests."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from holdfast.core.gitops.application import AnnotationHolds
from holdfast.core.gitops.facts import CONTROLLER
from holdfast.reconcile.gitops.application_observer import ApplicationObserver, OrphanFinder
from holdfast.reconcile.gitops.apply import PlanApplier
from holdfast.reconcile.gitops.codify import make_codifier
from holdfast.reconcile.gitops.heal import DriftHealer, IsStillAllowed
from holdfast.reconcile.gitops.object_observer import (
    AutoscalersOf,
    ExternalRulesReader,
    ObjectObserver,
    PodsOf,
    list_pods_with,
    no_autoscalers,
)
from holdfast.reconcile.gitops.pull_requests import Codify, PullRequestFollower, YieldWorker
from holdfast.reconcile.gitops.reconciler import (
    ApplicationReconciler,
    ClaimObjects,
    PollSource,
    ReconcilerComponents,
    claim_everything,
    poll_and_wait,
)
from holdfast.reconcile.gitops.reporting import SendNotice
from holdfast.reconcile.gitops.source_poller import Sources
from holdfast.reconcile.gitops.sync import Syncer
from holdfast.reconcile.kube import KubeClient
from holdfast.reconcile.objects.cost import CostEstimator
from holdfast.reconcile.objects.resource_manager import ResourceManager
from holdfast.reconcile.ports import Clock


def build_reconciler(
    client: KubeClient,
    sources: Sources,
    clock: Clock,
    *,
    key: bytes,
    send: SendNotice,
    cluster: str = "",
    base_url: str = "",
    autoscalers: AutoscalersOf = no_autoscalers,
    pods: PodsOf | None = None,
    codify: Codify | None = None,
    claim: ClaimObjects = claim_everything,
    poll: PollSource = poll_and_wait,
    yield_worker: YieldWorker = nullcontext,
    still_allowed: IsStillAllowed = lambda decided_by: True,
    annotation_holds: AnnotationHolds = AnnotationHolds.LIMITED,
    measure: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> ApplicationReconciler:
    """Return a reconciler that works on a cluster through `client` and on Git through `sources`.

    The defaults suit one application alone. `pods` lists them each time unless given, `codify`
    edits the files of the repository, and `measure` is entered for each full observation.
    """
    resource_manager = ResourceManager(client, manager=CONTROLLER, key=key, clock=clock)
    object_observer = ObjectObserver(
        client,
        resource_manager,
        autoscalers=autoscalers,
        pods=pods or list_pods_with(client),
        external_rules=ExternalRulesReader(client, clock),
        costs=CostEstimator(client, clock),
        key=key,
    )
    observer = ApplicationObserver(object_observer, OrphanFinder(client), clock, measure=measure)
    applier = PlanApplier(resource_manager, clock)
    return ApplicationReconciler(
        ReconcilerComponents(
            observer=observer,
            healer=DriftHealer(observer, applier, clock, still_allowed),
            sync=Syncer(observer, applier, clock, still_allowed),
            remediators=(
                PullRequestFollower(sources, codify or make_codifier(sources), yield_worker),
            ),
            clock=clock,
            tell=send,
            key=key,
            cluster=cluster,
            base_url=base_url,
            claim=claim,
            poll=poll,
            annotation_holds=annotation_holds,
        )
    )
