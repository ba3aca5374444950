"""The pin of a model that its branch moved on from: bumped by a pull request, where asked for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.support.gitops_world import NAMESPACE, GitopsWorld, configmap, route

from holdfast.core.drift import DriftKind
from holdfast.core.gitops.application import DriftSpec, MatchSpec, PullRequestKind, Remediation
from holdfast.core.gitops.drift import DriftReason, DriftState, Resolution
from holdfast.core.object_ref import ObjectRef
from holdfast.reconcile.gitops.codify import make_codifier
from holdfast.reconcile.gitops.ports import PullRequestState, RecordKind

PIN, NEXT, LAST = "a" * 40, "b" * 40, "c" * 40
OLD_DIGEST, NEW_DIGEST = (f"sha256:{letter * 64}" for letter in "de")
CHAT = ObjectRef(
    api_version="holdfast.dev/v1alpha1",
    kind="InferenceService",
    namespace=NAMESPACE,
    name="chat",
)
PROPOSE = route(Remediation.PULL_REQUEST, match=MatchSpec(drift=(DriftKind.MODEL,)))
BUMPED = DriftSpec(model_heads=True)


def declared(pin: str = PIN, digest: str = "") -> str:
    """A file as people write them: a comment, an order of their own, quotes."""
    more = f'  modelDigest: "{digest}"  # of the GGUF\n  cache: {{size: 5Gi}}\n' if digest else ""
    return f"""\
# The support bot.
apiVersion: holdfast.dev/v1alpha1
kind: InferenceService
metadata:
  name: chat
spec:
  replicas: 2
  modelRevision: "{pin}"  # reviewed by maria
{more}  modelRef: org/chat
"""


class PinWorld(GitopsWorld):
    """An InferenceService in Git, applied, whose operator a test plays."""

    def __init__(self, *routes: Any, drift: DriftSpec = BUMPED) -> None:
        super().__init__(*routes, drift=drift)
        self.codify = make_codifier(self.sources)  # type: ignore[method-assign]

    def say(self, head: str, *, pin: str = PIN, digest: str = "", moved: str = "True") -> None:
        """Play the operator: where the branch is, and whether that is another commit."""
        model = {"ref": "org/chat", "revision": pin, "commit": pin, "branch": "main", "head": head}
        if digest:
            model["headDigest"] = digest
        status = {
            "ready": True,
            "replicas": 2,
            "message": "",
            "model": model,
            "conditions": [
                {"type": "Ready", "status": "True", "reason": "Serving", "message": ""},
                {"type": "ModelMoved", "status": moved, "reason": "HeadMoved", "message": ""},
            ],
        }
        self.kube.edit(CHAT, lambda item: item.update(status=status), subresource="status")

    @property
    def proposed(self) -> str:
        (push,) = self.git.branches.values()
        (text,) = push.files.values()
        assert text is not None
        return text.decode()

    async def revision(self) -> str:
        live: Any = await self.kube.get(CHAT)
        return str(live["spec"]["modelRevision"])

    def merge(self) -> None:
        assert self.forge is not None
        (number,) = self.forge.pulls
        pull = self.forge.pulls[number]
        self.forge.pulls[number] = replace(pull, state=PullRequestState.MERGED, closed_by="maria")
        self.git.merge(pull.branch)


async def applied(*routes: Any, drift: DriftSpec = BUMPED, digest: str = "") -> PinWorld:
    world = PinWorld(*routes, drift=drift)
    world.git.commit({"chat.yaml": declared(digest=digest), "b.yaml": configmap("b", x="1")})
    await world.reconcile()
    world.say(PIN, moved="False")
    await world.reconcile()
    assert world.drifts == []
    return world


async def test_a_pull_request_bumps_the_pin_and_no_other_byte() -> None:
    world = await applied(PROPOSE)
    world.say(NEXT)
    await world.reconcile()
    (drift,) = world.drifts
    assert drift.state is DriftState.PULL_REQUEST and not drift.healable
    assert drift.kinds == (DriftKind.MODEL,)
    assert world.proposed == declared(NEXT)
    assert await world.revision() == PIN
    assert world.forge is not None
    body = world.forge.pulls[1].body
    assert "has moved on. What runs is as Git says." in body
    assert "the pods of the service are replaced" in body
    assert "what runs now" not in body and "left no trace" not in body
    (notice,) = [each for each in world.notices if "drift.detected" in each.type]
    assert notice.title == "InferenceService chat/chat: the branch of its model moved on"
    assert "was changed" not in notice.text and "Putting it back" not in notice.text


async def test_a_merged_bump_ends_as_codified_and_is_served_then() -> None:
    world = await applied(PROPOSE)
    world.say(NEXT)
    await world.reconcile()
    world.merge()
    await world.fetch_and_reconcile()
    assert await world.revision() == NEXT
    await world.reconcile()
    assert world.drifts == []
    (record,) = await world.ledger_store.records(RecordKind.DRIFT, state="closed")
    assert record.body["resolution"] == Resolution.CODIFIED


async def test_a_branch_that_moves_again_updates_the_same_pull_request() -> None:
    world = await applied(PROPOSE)
    world.say(NEXT)
    await world.reconcile()
    world.say(LAST)
    await world.reconcile()
    assert world.proposed == declared(LAST)
    assert world.forge is not None and list(world.forge.pulls) == [1]


async def test_a_branch_that_goes_back_closes_it() -> None:
    world = await applied(PROPOSE)
    world.say(NEXT)
    await world.reconcile()
    world.say(PIN, moved="False")
    await world.reconcile()
    assert world.drifts == [] and world.git.branches == {}


async def test_without_asking_for_it_a_moved_branch_is_no_drift() -> None:
    """What runs is what Git declares: calling that drift would not be so."""
    world = await applied(route(Remediation.PULL_REQUEST), drift=DriftSpec())
    world.say(NEXT)
    result = await world.reconcile()
    assert world.drifts == [] and world.git.branches == {}
    assert result.status is not None and result.status.sync == "synced"


@pytest.mark.parametrize("remediation", [Remediation.SELF_HEAL, Remediation.REVIEW])
async def test_it_is_never_healed_and_says_why(remediation: Remediation) -> None:
    world = await applied(route(remediation))
    world.say(NEXT)
    await world.reconcile()
    (drift,) = world.drifts
    assert drift.state is DriftState.BLOCKED
    assert drift.note == (
        "No apply can change this: what runs is as Git says, and the branch of its model moved on."
        " A pull request can bump the pin."
    )
    assert await world.revision() == PIN


async def test_a_person_may_ask_for_the_bump_of_what_is_only_reported() -> None:
    """What `holdfast codify` does."""
    world = await applied()
    world.say(NEXT)
    await world.reconcile()
    (drift,) = world.drifts
    assert drift.state is DriftState.DETECTED and world.git.branches == {}
    await world.review().codify("ml-platform", drift.id, actor="maria")
    await world.reconcile()
    (drift,) = world.drifts
    assert (drift.state, drift.pull) == (DriftState.PULL_REQUEST, PullRequestKind.CODIFY)
    assert world.proposed == declared(NEXT)


async def test_a_digest_is_bumped_with_the_commit_where_the_hub_tells_it() -> None:
    world = await applied(PROPOSE, digest=OLD_DIGEST)
    world.say(NEXT, digest=NEW_DIGEST)
    await world.reconcile()
    assert world.proposed == declared(NEXT, NEW_DIGEST)
    world.merge()
    await world.fetch_and_reconcile()
    await world.reconcile()
    (record,) = await world.ledger_store.records(RecordKind.DRIFT, state="closed")
    assert record.body["resolution"] == Resolution.CODIFIED


async def test_files_that_stay_the_same_keep_their_digest() -> None:
    world = await applied(PROPOSE, digest=OLD_DIGEST)
    world.say(NEXT, digest=OLD_DIGEST)
    await world.reconcile()
    assert world.proposed == declared(NEXT, OLD_DIGEST)


async def test_a_digest_that_nobody_knows_is_not_left_wrong_and_not_taken_away() -> None:
    world = await applied(PROPOSE, digest=OLD_DIGEST)
    world.say(NEXT)
    await world.reconcile()
    (drift,) = world.drifts
    assert (drift.state, drift.reason) == (DriftState.BLOCKED, DriftReason.NOT_CODIFIABLE)
    assert "the digest of the new files is not known before they are downloaded" in drift.note
    assert f"holdfast models download org/chat --revision {NEXT}" in drift.note
    assert world.git.branches == {}


@pytest.mark.parametrize(
    "change",
    [{"head": "main"}, {"head": PIN}, {"pin": LAST}, {"moved": "Unknown"}],
    ids=["no commit", "the pin itself", "of another pin", "unknown"],
)
async def test_a_status_that_does_not_fit_proposes_nothing(change: dict[str, str]) -> None:
    world = await applied(PROPOSE)
    world.say(**{"head": NEXT, **change})
    await world.reconcile()
    assert world.drifts == [] and world.git.branches == {}


async def test_a_branch_that_is_declared_is_no_pin_to_bump() -> None:
    world = PinWorld(PROPOSE)
    world.git.commit({"chat.yaml": declared("main")})
    await world.reconcile()
    world.say(NEXT, pin="main")
    await world.reconcile()
    assert world.drifts == []
