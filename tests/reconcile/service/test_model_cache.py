"""The cache of a service: one claim, one download for each model, and nothing served before."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.support.inference_services import COMMIT, DIGEST
from tests.support.operator_world import DOWNLOADER, NAME, OperatorWorld

from holdfast.core.errors import PermissionDenied

CLAIM = f"{NAME}-models"
CACHED = {"modelRef": "org/chat", "modelRevision": "main", "cache": {"size": "50Gi"}}


# Any: objects of the Kubernetes API, here and below.
def jobs(world: OperatorWorld) -> dict[str, Any]:
    """The downloads by the revision that they are of."""
    from holdfast.reconcile.kube import Scope

    scope = Scope(api_version="batch/v1", kind="Job", namespace=world.namespace)
    found = world.run(world.client.client.list(scope)).items
    return {revision_of(each): each for each in found}


def arguments(job: Any) -> list[str]:
    found: list[str] = job["spec"]["template"]["spec"]["containers"][0]["args"]
    return found


def revision_of(job: Any) -> str:
    return next(each for each in arguments(job) if each.startswith("--revision=")).split("=")[1]


def end(world: OperatorWorld, revision: str, *, how: str = "Complete", **said: str) -> None:
    """Play the Job controller and the kubelet."""
    job = jobs(world)[revision]
    name = job["metadata"]["name"]
    world.apply(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": f"{name}-x",
                "labels": {
                    "holdfast.dev/model-download": NAME,
                    "batch.kubernetes.io/job-name": name,
                },
            },
            "spec": {"containers": [{"name": "download", "image": "x"}]},
        }
    )
    ended = {"finishedAt": "2026-11-16T12:00:00Z", "message": json.dumps(said)}
    statuses = [{"name": "download", "state": {"terminated": ended}}]
    path = {"op": "add", "path": "/status", "value": {"containerStatuses": statuses}}
    world.edit("Pod", f"{name}-x", path, by="kubelet", at="status")
    conditions = {"conditions": [{"type": how, "status": "True"}]}
    done = {"op": "add", "path": "/status", "value": conditions}
    world.edit("Job", name, done, by="kube-controller-manager", at="status")


def started(world: OperatorWorld, change: dict[str, Any] = CACHED) -> None:
    world.declare(change)
    world.reconcile()
    result = world.reconcile()
    assert result.requeue_after is not None and result.requeue_after <= 5


def served(world: OperatorWorld, change: dict[str, Any] = CACHED) -> None:
    started(world, change)
    end(world, str(change.get("modelRevision", "main")), commit=COMMIT, digest=DIGEST)
    world.converge()


def test_nothing_is_served_before_the_model_is_downloaded(world: OperatorWorld) -> None:
    started(world)
    claim = world.get("PersistentVolumeClaim", CLAIM)
    assert claim["spec"]["resources"]["requests"]["storage"] == "50Gi"
    assert claim["metadata"]["ownerReferences"][0]["name"] == NAME
    (job,) = jobs(world).values()
    assert job["spec"]["template"]["spec"]["containers"][0]["image"] == DOWNLOADER
    assert job["metadata"]["ownerReferences"][0]["name"] == NAME
    assert world.find("Deployment", f"{NAME}-primary") is None
    assert world.condition("ModelCached") == ("False", "Downloading")
    assert world.condition("UpToDate") == ("False", "Downloading")
    assert world.condition("Ready")[0] == "False"


def test_it_is_served_once_complete_and_the_status_says_what_it_is(world: OperatorWorld) -> None:
    served(world)
    assert world.condition("Ready") == ("True", "Serving")
    assert world.condition("ModelCached") == ("True", "Complete")
    status = world.service().status
    assert status is not None and status.model is not None
    assert (status.model.ref, status.model.revision) == ("org/chat", "main")
    assert (status.model.commit, status.model.digest) == (COMMIT, DIGEST)
    pod = world.primary()["spec"]["template"]["spec"]
    to = next(each for each in arguments(*jobs(world).values()) if each.startswith("--to="))
    assert to.removeprefix("--to=") in pod["containers"][0]["command"]
    assert all(
        mount["readOnly"]
        for each in (*pod["containers"], *pod["initContainers"])
        for mount in each["volumeMounts"]
        if mount["name"] == "model-cache"
    )
    result = world.reconcile()
    assert (world.client.writes, result.requeue_after) == ([], None)


def test_a_model_is_unknown_until_it_is_downloaded_and_where_no_download_says_what_it_got(
    world: OperatorWorld,
) -> None:
    def unknown() -> str | None:
        status = world.service().status
        assert status is not None and status.model is not None
        assert (status.model.commit, status.model.digest) == (None, None)
        return status.model.unknown

    started(world)
    assert unknown() == "It is not downloaded yet."
    end(world, "main")
    world.converge()
    assert unknown() == "It was downloaded, and no pod of the download says what it got."


def test_another_revision_is_downloaded_beside_while_the_old_one_serves(
    world: OperatorWorld,
) -> None:
    served(world)
    old = world.primary()["spec"]
    world.declare({**CACHED, "modelRevision": "v2"})
    world.reconcile()
    world.reconcile()
    assert list(jobs(world)) == ["v2"]
    assert world.primary()["spec"] == old
    assert world.condition("UpToDate") == ("False", "Downloading")
    assert world.condition("DriftDetected") == ("Unknown", "Downloading")
    assert world.condition("Available")[0] == "True"
    end(world, "v2", commit="f" * 40, digest=DIGEST)
    world.converge()
    assert world.condition("Ready") == ("True", "Serving")
    assert world.primary()["spec"] != old
    status = world.service().status
    assert status is not None and status.model is not None and status.model.commit == "f" * 40


def test_a_download_that_failed_is_told_and_changes_nothing_that_runs(
    world: OperatorWorld,
) -> None:
    served(world)
    old = world.primary()["spec"]
    world.declare({**CACHED, "modelRevision": "v2"})
    world.reconcile()
    end(world, "v2", how="Failed", error="The Hub has no org/chat at v2.")
    result = world.reconcile()
    assert world.condition("ModelCached") == ("False", "DownloadFailed")
    assert "The Hub has no org/chat at v2." in world.says("ModelCached")
    (name,) = (each["metadata"]["name"] for each in jobs(world).values())
    assert f"Delete Job {name} to try again." in world.says("ModelCached")
    assert "ModelDownloadFailed" in [note.reason for note in result.notes]
    assert world.primary()["spec"] == old
    world.delete("Job", name)
    world.reconcile()
    assert world.condition("ModelCached") == ("False", "Downloading")


def test_a_canary_has_a_directory_and_a_download_of_its_own_in_the_same_claim(
    world: OperatorWorld,
) -> None:
    served(world)
    world.declare({**CACHED, "canary": {"modelRevision": "next", "weight": 50}})
    world.reconcile()
    assert set(jobs(world)) == {"main", "next"}
    assert world.find("Deployment", f"{NAME}-canary") is None
    assert world.condition("Available")[0] == "True"
    end(world, "next", commit="f" * 40, digest=DIGEST)
    world.converge()
    canary = world.get("Deployment", f"{NAME}-canary")["spec"]["template"]
    primary = world.primary()["spec"]["template"]
    assert canary["spec"]["volumes"] == primary["spec"]["volumes"]
    key = "holdfast.dev/model-cache"
    assert canary["metadata"]["annotations"][key] != primary["metadata"]["annotations"][key]


def test_a_claim_that_was_deleted_is_filled_again(world: OperatorWorld) -> None:
    served(world)
    (old,) = (each["metadata"]["name"] for each in jobs(world).values())
    world.delete("PersistentVolumeClaim", CLAIM)
    for _ in range(3):
        world.reconcile()
    (new,) = (each["metadata"]["name"] for each in jobs(world).values())
    assert world.find("PersistentVolumeClaim", CLAIM) is not None and new != old


def test_a_cache_that_is_no_longer_declared_goes_once_no_pod_needs_it(
    world: OperatorWorld,
) -> None:
    served(world)
    world.declare({"modelRef": "org/chat", "modelRevision": "main"})
    world.reconcile()
    assert world.find("PersistentVolumeClaim", CLAIM) is not None  # the rollout is under way
    world.converge()
    assert world.find("PersistentVolumeClaim", CLAIM) is None and jobs(world) == {}
    assert world.condition("Ready") == ("True", "Serving") and not world.has_condition(
        "ModelCached"
    )


@pytest.mark.parametrize(
    "unread", [("get", "PersistentVolumeClaim"), ("list", "Job")], ids=["claim", "downloads"]
)
def test_a_cache_that_could_not_be_read_when_it_went_is_not_forgotten(
    world: OperatorWorld, unread: tuple[str, str]
) -> None:
    served(world)
    world.declare({"modelRef": "org/chat", "modelRevision": "main"})
    world.client.failing = lambda call: (
        PermissionDenied("No.") if (call.verb, call.kind) == unread else None
    )
    for _ in range(2):
        with pytest.raises(PermissionDenied):
            world.reconcile()
        world.settle()
    assert world.find("PersistentVolumeClaim", CLAIM) is not None
    world.client.failing = lambda call: None
    world.converge()
    assert world.find("PersistentVolumeClaim", CLAIM) is None and jobs(world) == {}


def test_without_an_image_to_download_with_it_says_so(world: OperatorWorld) -> None:
    world.reconciler._downloader = None
    world.declare(CACHED)
    world.reconcile()
    world.reconcile()
    assert world.condition("ModelCached") == ("False", "NoDownloader")
    assert world.find("Deployment", f"{NAME}-primary") is None and jobs(world) == {}


def test_a_job_that_may_not_be_made_is_an_error_and_no_guess(world: OperatorWorld) -> None:
    world.declare(CACHED)
    world.reconcile()
    world.client.failing = lambda call: (
        PermissionDenied("No.") if (call.kind, call.verb) == ("Job", "apply") else None
    )
    with pytest.raises(PermissionDenied):
        world.reconcile()
    assert world.find("Deployment", f"{NAME}-primary") is None
