"""What each decision about a drift would do and cost, and the patch that codify would propose."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.support.gitops_server import PROJECT, ServedApplications, serve_applications
from tests.support.gitops_world import NAMESPACE, GitopsWorld, configmap, route
from tests.support.server import bearer

from holdfast.core.cost import Cost, CostKind
from holdfast.core.gitops.application import DriftSpec, Remediation
from holdfast.core.gitops.codify import CodifyResult
from holdfast.core.object_ref import ObjectRef
from holdfast.reconcile.gitops.codify import make_codifier
from holdfast.reconcile.gitops.codify_preview import make_patch

PASSWORD, TOKEN, IN_SECRET = "hunter2-and-more", "tok-4711-of-somebody", "plain-in-a-secret"
WITH_SECRETS = f"""\
apiVersion: v1
kind: ConfigMap
metadata:
  name: a
data:
  db_password: {PASSWORD}
  x: '1'  # tuned by hand
  endpoint: https://maria:{PASSWORD}@db.example.com/x
---
apiVersion: v1
kind: Secret
metadata:
  name: s
stringData:
  anything: {IN_SECRET}
"""


class Here:
    def __init__(self, served: ServedApplications, world: GitopsWorld) -> None:
        self.served, self.world = served, world
        self.http = httpx2.Client(
            base_url=f"{served.url}/api/projects/{PROJECT}/gitops", timeout=20
        )
        self.me = self.identity("admin", name="maria")

    def identity(self, *scopes: str, name: str) -> dict[str, str]:
        return bearer(self.served.server.token(PROJECT, list(scopes), name=name))

    def get(self, path: str, who: dict[str, str] | None = None) -> Any:
        answer = self.http.get(path, headers=who or self.me)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def drift(self, name: str = "a") -> str:
        return next(each.id for each in self.world.drifts if each.object.name == name)

    def choices(self, who: dict[str, str] | None = None, name: str = "a") -> dict[str, Any]:
        found = self.get(f"/drifts/{self.drift(name)}/choices", who)
        return {each["choice"]: each for each in found["choices"]}

    def allowed(self, who: dict[str, str] | None = None, name: str = "a") -> list[str]:
        return [name for name, each in self.choices(who, name).items() if each["allowed"]]


@pytest.fixture
def here(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Here]:
    remediation, spec = getattr(request, "param", (Remediation.REVIEW, {}))
    world = GitopsWorld(route(remediation), drift=DriftSpec(**spec))
    world.codify = make_codifier(world.sources)  # type: ignore[method-assign]  # the real one
    world.git.commit({"a.yaml": WITH_SECRETS, "b.yaml": configmap("b", w="2")})
    with serve_applications(tmp_path, world) as running:
        running.reconcile()
        found = Here(running, world)
        running.call(lambda: world.edit("a"))
        running.reconcile()
        running.passes = False
        with found.http:
            yield found


REPORT = pytest.mark.parametrize("here", [(Remediation.REPORT, {})], indirect=True)
FOUR_EYES = pytest.mark.parametrize(
    "here", [(Remediation.REVIEW, {"four_eyes": True})], indirect=True
)
EVERYTHING = ["approve", "reject", "snooze", "codify", "revert", "hold", "ignore"]


def test_a_reviewer_and_a_writer_may_choose_what_their_scopes_allow(here: Here) -> None:
    assert here.allowed() == EVERYTHING
    assert here.allowed(here.identity("approve", name="joe")) == EVERYTHING[:3]
    assert here.allowed(here.identity("write", name="wim")) == EVERYTHING[3:]
    reader = here.choices(here.identity("read", name="rea"))
    assert not any(each["allowed"] for each in reader.values())
    assert reader["approve"]["why_not"] == "This credential lacks the scope approve."
    assert reader["hold"]["why_not"] == "This credential lacks the scope write."


def test_the_choices_name_the_digest_and_the_plan_that_an_approval_takes(here: Here) -> None:
    id = here.drift()
    found = here.get(f"/drifts/{id}/choices")
    assert (found["drift"], found["digest"]) == (id, here.get(f"/drifts/{id}")["digest"])
    answer = here.http.post(f"/drifts/{id}/approve", json={"plan": found["plan"]}, headers=here.me)
    assert answer.status_code == 200
    after = here.choices()
    assert [name for name, each in after.items() if each["allowed"]] == ["hold", "ignore"]
    assert "approved, by maria" in after["approve"]["why_not"]
    assert "is being put back" in after["revert"]["why_not"]


def test_every_choice_says_its_effect_and_its_cost_and_unknown_is_left_out(here: Here) -> None:
    choices = here.choices()
    assert "1 field of ConfigMap chat/a put back" in choices["approve"]["effect"]
    assert choices["reject"]["cost"] == {"kind": "none"}
    assert all(each["effect"].endswith(".") for each in choices.values())

    def change(cost: Cost | None) -> None:
        assert here.world.context is not None
        state = here.world.context.state
        for drift in list(state.drifts.values()):
            state.drifts[drift.id] = replace(drift, cost=cost)
        state.changes += 1

    here.served.call(lambda: change(Cost(kind=CostKind.ROLLING, pods=3)))
    choices = here.choices()
    assert choices["approve"]["cost"] == choices["revert"]["cost"] == {"kind": "rolling", "pods": 3}
    assert choices["hold"]["cost"] == {"kind": "none"}
    here.served.call(lambda: change(None))
    assert "cost" not in here.choices()["approve"]


@REPORT
def test_nothing_waits_for_an_approval_where_drift_is_only_reported(here: Here) -> None:
    choices = here.choices()
    assert "not waiting for approval" in choices["approve"]["why_not"]
    assert choices["revert"]["allowed"]
    assert "without a review" in choices["revert"]["effect"]


def test_what_is_on_hold_cannot_be_reverted_and_says_so(here: Here) -> None:
    here.http.post(
        "/applications/shop/holds", json={"reason": "INC-1", "seconds": 60}, headers=here.me
    )
    here.served.reconcile()
    revert = here.choices()["revert"]
    assert not revert["allowed"]
    assert "INC-1" in revert["why_not"]


@FOUR_EYES
def test_four_eyes_say_that_it_takes_one_more_and_whose_approval_counted(here: Here) -> None:
    assert "one more person" in here.choices()["approve"]["effect"]
    plan = here.get(f"/drifts/{here.drift()}/choices")["plan"]
    here.http.post(f"/drifts/{here.drift()}/approve", json={"plan": plan}, headers=here.me)
    approve = here.choices()["approve"]
    assert not approve["allowed"]
    assert "takes somebody else" in approve["why_not"]
    joe = here.identity("admin", name="joe")
    assert here.choices(joe)["approve"]["allowed"]
    assert "one more person" not in here.choices(joe)["approve"]["effect"]


def test_an_object_as_a_whole_is_not_hidden_by_a_rule(here: Here) -> None:
    ref = ObjectRef(api_version="v1", kind="ConfigMap", namespace=NAMESPACE, name="b")
    here.served.run(here.world.kube.delete(ref, uid=uid_of(here, "b")))
    here.served.reconcile()
    choices = here.choices(name="b")
    assert "as a whole" in choices["ignore"]["why_not"]
    assert "ConfigMap chat/b is created again" in choices["approve"]["effect"]


def uid_of(here: Here, name: str) -> str:
    live = here.served.run(here.world.live(name))
    assert live is not None
    return str(live["metadata"]["uid"])  # type: ignore[index, call-overload]  # it is one


def test_a_drift_that_ended_offers_nothing(here: Here) -> None:
    id = here.drift()
    here.served.call(lambda: here.world.edit("a", "1"))
    here.served.reconcile()
    found = here.get(f"/drifts/{id}/choices")
    assert not any(each["allowed"] for each in found["choices"])
    assert "has ended" in found["choices"][0]["why_not"]


def test_a_preview_is_the_patch_that_codify_would_push_and_pushes_nothing(here: Here) -> None:
    id, head = here.drift(), here.world.git.head_sha
    before = here.get(f"/drifts/{id}")
    found = here.get(f"/drifts/{id}/codify-preview", here.identity("read", name="rea"))
    assert (found["possible"], found["why_not"], found["secret"]) == (True, "", False)
    assert found["files"] == ["a.yaml"]
    assert found["branch"] == "holdfast/codify/chat-configmap-a"
    assert "-  x: '1'  # tuned by hand" in found["patch"]
    assert "+  x: '9'  # tuned by hand" in found["patch"]
    assert found["patch"].startswith("--- a/a.yaml\n+++ b/a.yaml\n@@ -4,")
    assert here.get(f"/drifts/{id}") == before
    assert here.world.git.head_sha == head
    assert here.world.git.branches.keys() <= {"main"}
    assert here.world.forge is not None
    assert not here.world.forge.pulls


def test_no_secret_beside_the_changed_line_is_in_a_preview(here: Here) -> None:
    text = here.http.get(f"/drifts/{here.drift()}/codify-preview", headers=here.me).text
    assert "db_password" in text
    for planted in (PASSWORD, IN_SECRET):
        assert planted not in text


def test_of_a_secret_no_line_is_shown(here: Here) -> None:
    ref = ObjectRef(api_version="v1", kind="Secret", namespace=NAMESPACE, name="s")
    value = base64.b64encode(TOKEN.encode()).decode()
    here.served.call(
        lambda: here.world.kube.edit(ref, lambda item: item.update(data={"anything": value}))
    )
    here.served.reconcile()
    answer = here.http.get(f"/drifts/{here.drift('s')}/codify-preview", headers=here.me)
    found = answer.json()
    assert (found["possible"], found["secret"], found["patch"]) == (False, True, "")
    assert "in clear" in found["why_not"]
    assert not here.choices(name="s")["codify"]["allowed"]
    listed = here.http.get("/drifts", headers=here.me).text
    for planted in (TOKEN, value, IN_SECRET, PASSWORD):
        assert planted not in answer.text
        assert planted not in listed


def test_what_cannot_be_codified_says_why(here: Here) -> None:
    here.served.call(
        lambda: here.world.kube.edit(
            ObjectRef(api_version="v1", kind="ConfigMap", namespace=NAMESPACE, name="b"),
            lambda item: item["data"].update(api_token=TOKEN),
        )
    )
    here.served.reconcile()
    answer = here.http.get(f"/drifts/{here.drift('b')}/codify-preview", headers=here.me)
    found = answer.json()
    assert not found["possible"]
    assert "looks like a credential" in found["why_not"]
    assert TOKEN not in answer.text


def test_a_drift_that_is_over_by_now_has_no_preview(here: Here) -> None:
    here.served.call(lambda: here.world.edit("a", "1"))
    found = here.get(f"/drifts/{here.drift()}/codify-preview")
    assert (found["possible"], found["patch"]) == (False, "")
    assert "does not differ" in found["why_not"]


def patch_of(before: bytes | None, after: bytes | None) -> str:
    result = CodifyResult(files={"f.yaml": after}, before={"f.yaml": before}, lines=(), layer="")
    return make_patch(result)


def test_a_patch_is_one_that_tools_read(tmp_path: Path) -> None:
    """Checked by `git apply`, on long files with several changes, new and deleted ones."""
    import subprocess

    old = "".join(f"line{n}: {n}\n" for n in range(60))
    new = old.replace("line5: 5\n", "line5: five\n").replace("line6: 6\n", "")
    new = new.replace("line40: 40\n", "line40: 40\nmore: 1\n").replace("line59: 59\n", "line59: x")
    for before, after in [(old, new), (None, "a: 1\n"), ("a: 1\n", None), ("a: 1", "a: 2")]:
        patch = patch_of(before.encode() if before else None, after.encode() if after else None)
        file = tmp_path / "f.yaml"
        file.unlink(missing_ok=True)
        if before is not None:
            file.write_text(before)
        done = subprocess.run(
            ["git", "apply", "-"], input=patch, text=True, cwd=tmp_path, capture_output=True
        )
        assert done.returncode == 0, (done.stderr, patch)
        assert (file.read_text() if file.exists() else None) == after


def test_short_and_many_line_secrets_are_masked_in_a_patch() -> None:
    before = (
        "kind: Secret\nstringData:\n  pin: 7\n  cert: |\n    first secret line\n    second one\n"
        "---\nkind: ConfigMap\ndata:\n  password: 12345\n  y: 7\n"
    )
    patch = patch_of(before.encode(), before.replace("y: 7", "y: 8").encode())
    assert "12345" not in patch
    whole = patch_of(before.encode(), None)
    assert "first secret line" not in whole
    assert "second one" not in whole
    assert "pin: 7" not in whole


def test_a_file_that_cannot_be_read_as_yaml_is_still_masked_line_by_line() -> None:
    text = patch_of(
        b"API_TOKEN=tok-4711-of-somebody\nx=1\n", b"API_TOKEN=tok-4711-of-somebody\nx=2\n"
    )
    assert "tok-4711-of-somebody" not in text
    assert "+x=2" in text
