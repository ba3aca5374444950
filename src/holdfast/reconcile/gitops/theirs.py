"""Reads what Argo CD and Flux were told to ignore, for the objects that they apply.

Asked only where such an object was met, and then for all of them at once and rarely.
"""

from __future__ import annotations

from holdfast.core.errors import AuthError, PermissionDenied, TargetUnavailable
from holdfast.core.gitops.ignore import Rules
from holdfast.core.gitops.their_rules import TheirRules, their_rules
from holdfast.core.tree import Fields
from holdfast.reconcile.kube import KubeClient, Scope
from holdfast.reconcile.ports import Clock

FRESH = 60.0
"""Seconds for which their settings are not read again."""
_KINDS = (
    ("argoproj.io/v1alpha1", "Application"),
    ("kustomize.toolkit.fluxcd.io/v1", "Kustomization"),
    ("helm.toolkit.fluxcd.io/v2", "HelmRelease"),
)


class Theirs:
    """The ignore rules of other tools in one cluster."""

    def __init__(self, client: KubeClient, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._read_at = float("-inf")
        self._known: dict[str, tuple[TheirRules, ...]] = {}

    async def rules(self, live: Fields, declared: Fields) -> Rules:
        """Return the rules for one object that another tool applies, and that is declared here."""
        if self._clock.monotonic() - self._read_at > FRESH:
            await self._read()
        every = [each for known in self._known.values() for each in known if each.concern(live)]
        return Rules(
            rules=tuple(rule for each in every for rule in each.rules_for(declared)),
            not_understood=tuple(told for each in every for told in each.found.not_understood),
        )

    async def _read(self) -> None:
        self._read_at = self._clock.monotonic()
        for api_version, kind in _KINDS:
            try:
                items = (await self._client.list(Scope(api_version=api_version, kind=kind))).items
            except (TargetUnavailable, PermissionDenied, AuthError):
                continue  # the tool is not there, or keeps its settings to itself
            found = (their_rules(item) for item in items)
            self._known[kind] = tuple(each for each in found if each is not None)
