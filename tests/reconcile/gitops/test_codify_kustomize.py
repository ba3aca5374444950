"""With Kustomize a value is changed in the layer that sets it, and shared bases are left alone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.reconcile.gitops.codify_world import KEY, CodifyWorld, diff
from tests.support import testbed
from tests.support.cluster_fixtures import skip_without

from holdfast.adapters.render.renderer import FileRenderer
from holdfast.core.gitops.codify import CannotCodify
from holdfast.core.gitops.source import Renderer
from holdfast.core.tree import Fields
from holdfast.reconcile.gitops.ports import SourceExport

BASE = """
apiVersion: apps/v1
kind: Deployment
metadata:
  name: chat
spec:
  replicas: 1
  selector:
    matchLabels: {app: chat}
  template:
    metadata:
      labels: {app: chat}
    spec:
      containers:
        - name: main
          image: vllm/vllm-openai
          args: [--port, "8000"]
          env:
            - name: LOG_LEVEL
              value: info
            - name: MODE
              value: slow
"""
OVERLAY = """
# production
resources:
  - ../../base
  - extra.yaml
namePrefix: prod-
images:
  - name: vllm/vllm-openai
    newTag: v0.6.3   # pinned
replicas:
  - name: chat
    count: 3
configMapGenerator:
  - name: settings
    literals:
      - MODE=fast
      # how loud
      - LEVEL=info
    files: [tuning.conf=files/tuning.conf]
patches:
  - path: env.yaml
  - target: {kind: Deployment, name: chat}
    patch: |-
      # by operations
      - op: replace
        path: /spec/template/spec/containers/0/args/1
        value: "8080"
"""
ENV_PATCH = """
apiVersion: apps/v1
kind: Deployment
metadata:
  name: chat
spec:
  template:
    spec:
      containers:
        - name: main
          env:
            - name: LOG_LEVEL
              value: debug # noisy
"""
EXTRA = "apiVersion: v1\nkind: ServiceAccount\nmetadata:\n  name: runner\n"


@pytest.fixture
def world(tmp_path: Path, pytestconfig: pytest.Config) -> CodifyWorld:
    try:
        kubectl = testbed.find_testbed().path("kubectl")
    except testbed.NoTestbed as missing:
        skip_without(pytestconfig, "Kustomize", missing)
    return CodifyWorld(
        root=tmp_path, path="overlays/prod", renders=FileRenderer(key=KEY, kustomize=kubectl)
    ).write(
        {
            "base/kustomization.yaml": "resources: [deployment.yaml]\n",
            "base/deployment.yaml": BASE,
            "overlays/prod/kustomization.yaml": OVERLAY,
            "overlays/prod/env.yaml": ENV_PATCH,
            "overlays/prod/extra.yaml": EXTRA,
            "overlays/prod/files/tuning.conf": "a = 1\nb = 2\n",
            "overlays/test/kustomization.yaml": "resources: [../../base]\n",
        }
    )


def main(item: dict[str, Any]) -> dict[str, Any]:
    found = item["spec"]["template"]["spec"]["containers"][0]
    assert isinstance(found, dict)
    return found


KUSTOMIZATION = "overlays/prod/kustomization.yaml"
CASES: dict[str, tuple[Callable[[dict[str, Any]], object], str, list[str]]] = {
    "the tag of an image": (
        lambda item: main(item).update(image="vllm/vllm-openai:v0.7.0"),
        KUSTOMIZATION,
        ["-    newTag: v0.6.3   # pinned", "+    newTag: v0.7.0   # pinned"],
    ),
    "an image by its digest and under another name": (
        lambda item: main(item).update(image="mirror.local/vllm@sha256:" + "0" * 64),
        KUSTOMIZATION,
        [
            "-    newTag: v0.6.3   # pinned",
            "+    newName: mirror.local/vllm",
            "+    digest: sha256:" + "0" * 64,
        ],
    ),
    "the replicas": (
        lambda item: item["spec"].update(replicas=7),
        KUSTOMIZATION,
        ["-    count: 3", "+    count: 7"],
    ),
    "a value of a merge patch": (
        lambda item: main(item)["env"][0].update(value="warning"),
        "overlays/prod/env.yaml",
        ["-              value: debug # noisy", "+              value: warning # noisy"],
    ),
    "a value of an inline patch of operations": (
        lambda item: main(item)["args"].__setitem__(1, "9090"),
        KUSTOMIZATION,
        ['-        value: "8080"', '+        value: "9090"'],
    ),
    "a value of the shared base, by the patch that is there": (
        lambda item: main(item)["env"][1].update(value="fast"),
        "overlays/prod/env.yaml",
        ["+            - name: MODE", "+              value: fast"],
    ),
    "something of the base that went": (
        lambda item: main(item)["env"].pop(1),
        "overlays/prod/env.yaml",
        ["+            - name: MODE", "+              $patch: delete"],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_value_is_changed_in_the_layer_that_sets_it(world: CodifyWorld, case: str) -> None:
    change, file, lines = CASES[case]
    before = (world.root / file).read_text()
    done = world.codify("Deployment", world.live("Deployment", change))
    assert list(done.files) == [file]
    assert diff(before, world.text(done, file)) == lines
    assert not any(name.startswith("base/") for name in done.files)
    assert bool(done.notes) == ("base" in case)


def test_several_values_of_several_layers_change_at_once(world: CodifyWorld) -> None:
    def change(item: dict[str, Any]) -> None:
        item["spec"]["replicas"] = 9
        main(item)["env"][0]["value"] = "error"
        main(item)["image"] = "vllm/vllm-openai:v0.8.0"

    done = world.codify("Deployment", world.live("Deployment", change))
    assert sorted(done.files) == ["overlays/prod/env.yaml", KUSTOMIZATION]
    assert done.layer == "overlays/prod/env.yaml, overlays/prod/kustomization.yaml"


def test_without_a_patch_for_the_object_the_overlay_gets_one(world: CodifyWorld) -> None:
    world.write({KUSTOMIZATION: "# production\nresources: [../../base]\n"})
    live = world.live("Deployment", lambda item: item["spec"].update(replicas=4))
    done = world.codify("Deployment", live)
    assert world.text(done, KUSTOMIZATION) == (
        "# production\nresources: [../../base]\npatches:\n  - patch: |\n"
        "      apiVersion: apps/v1\n      kind: Deployment\n      metadata:\n        name: chat\n"
        "      spec:\n        replicas: 4\n"
    )
    assert "base/deployment.yaml declares it outside" in done.notes[0]


def test_what_the_application_declares_itself_is_changed_there(world: CodifyWorld) -> None:
    live = world.live(
        "ServiceAccount",
        lambda item: item.update(automountServiceAccountToken=False),
        added={"f:automountServiceAccountToken": {}},
    )
    done = world.codify("ServiceAccount", live)
    assert world.text(done, "overlays/prod/extra.yaml") == (
        EXTRA + "automountServiceAccountToken: false\n"
    )


@pytest.mark.parametrize(
    ("key", "value", "file", "lines"),
    [
        ("LEVEL", "debug", KUSTOMIZATION, ["-      - LEVEL=info", "+      - LEVEL=debug"]),
        ("tuning.conf", "a = 1\nb = 3\n", "overlays/prod/files/tuning.conf", ["-b = 2", "+b = 3"]),
    ],
)
def test_a_generated_value_is_changed_where_it_is_made(
    world: CodifyWorld, key: str, value: str, file: str, lines: list[str]
) -> None:
    """The generated name has a hash of the content: the new one takes its place everywhere."""
    before = (world.root / file).read_text()
    live = world.live("ConfigMap", lambda item: item["data"].update({key: value}))
    done = world.codify("ConfigMap", live)
    assert diff(before, world.text(done, file)) == lines
    assert any("new name" in note for note in done.notes)
    assert done.repointed == (), "nothing refers to it"


def test_what_refers_to_a_generated_name_is_told_with_it(world: CodifyWorld) -> None:
    """Its pods are replaced when that is merged, which a reviewer has to know."""
    referring = BASE.replace("name: chat", "name: reader").replace(
        "          image:",
        "          envFrom: [{configMapRef: {name: settings}}]\n          image:",
    )
    world.write({"overlays/prod/extra.yaml": referring})
    live = world.live("ConfigMap", lambda item: item["data"].update(LEVEL="debug"))
    done = world.codify("ConfigMap", live)
    assert [(ref.kind, ref.name) for ref in done.repointed] == [("Deployment", "prod-reader")]


def test_other_overlays_are_as_they_were(world: CodifyWorld) -> None:
    live = world.live("Deployment", lambda item: main(item)["env"][1].update(value="x"))
    done = world.codify("Deployment", live)
    other = CodifyWorld(root=world.root, path="overlays/test", renders=world.renders)
    before = other.render()
    for file, text in done.files.items():
        (world.root / file).write_bytes(text or b"")
    fresh = SourceExport(commit="d" * 40, root=world.root)
    after = asyncio.run(
        world.renders.render(
            fresh, "overlays/test", renderer=Renderer.AUTO, namespace=other.namespace
        )
    )
    assert [each.item for each in after.objects] == [each.item for each in before.objects]


def test_a_deleted_object_of_the_application_goes_with_its_entry(world: CodifyWorld) -> None:
    done = world.codify("ServiceAccount", None)
    assert done.files["overlays/prod/extra.yaml"] is None
    assert diff(OVERLAY.lstrip(), world.text(done, KUSTOMIZATION)) == ["-  - extra.yaml"]


def test_a_deleted_object_of_a_shared_base_is_left_out_by_a_patch(world: CodifyWorld) -> None:
    world.write({KUSTOMIZATION: "resources: [../../base, extra.yaml]\n"})
    done = world.codify("Deployment", None)
    assert list(done.files) == [KUSTOMIZATION]
    assert "$patch: delete" in world.text(done, KUSTOMIZATION)
    assert "outside" in done.notes[0]


def test_an_object_made_without_git_joins_the_resources(world: CodifyWorld) -> None:
    live: Fields = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "data": {"a": "1"},
        "metadata": {"name": "prod-tuning", "namespace": "team", "uid": "u"},
    }
    done = world.adopt(live)
    file = "overlays/prod/configmap-prod-tuning.yaml"
    assert sorted(done.files) == [file, KUSTOMIZATION]
    assert "  name: tuning\n" in world.text(done, file)
    assert diff(OVERLAY.lstrip(), world.text(done, KUSTOMIZATION)) == [
        "+  - configmap-prod-tuning.yaml"
    ]


def test_a_list_of_a_kind_that_kustomize_does_not_know_is_changed_by_an_operation(
    world: CodifyWorld,
) -> None:
    gateway = """
        apiVersion: gateway.networking.k8s.io/v1
        kind: Gateway
        metadata: {name: edge}
        spec:
          gatewayClassName: a
          listeners:
            - {name: http, port: 80, protocol: HTTP}
            - {name: https, port: 443, protocol: HTTPS}
        """
    world.write(
        {
            "base/kustomization.yaml": "resources: [deployment.yaml, gateway.yaml]\n",
            "base/gateway.yaml": gateway,
            KUSTOMIZATION: "resources: [../../base]\n",
        }
    )
    live = world.live("Gateway", lambda item: item["spec"]["listeners"][1].update(port=8443))
    done = world.codify("Gateway", live)
    text = world.text(done, KUSTOMIZATION)
    assert "path: /spec/listeners/1/port" in text
    assert "value: 8443" in text


def test_an_edit_that_would_change_another_object_is_refused(world: CodifyWorld) -> None:
    """Two containers share one entry of `images`, and a second one undoes every patch."""
    world.write(
        {
            KUSTOMIZATION: "resources: [app.yaml]\nimages:\n  - name: a\n    newTag: '1'\n",
            "overlays/prod/app.yaml": BASE.replace("image: vllm/vllm-openai", "image: a")
            + "---"
            + BASE.replace("name: chat", "name: other").replace(
                "image: vllm/vllm-openai", "image: a"
            ),
        }
    )
    live = world.live("Deployment", lambda item: main(item).update(image="a:2"), name="chat")
    with pytest.raises(CannotCodify) as caught:
        world.codify("Deployment", live, name="chat")
    assert "Deployment team/other would change too" in str(caught.value)
    assert "overlays/prod/app.yaml" in str(caught.value)
