"""Real Kustomize: what comes out, and where each field of it was set."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.adapters.render.repo import KEY, Repo, config_map, items, names, the

from holdfast.adapters.render.origins import ORIGIN
from holdfast.adapters.render.renderer import FileRenderer
from holdfast.core.errors import ValidationError
from holdfast.core.gitops.source import Renderer
from holdfast.reconcile.gitops.ports import SourceUnavailable

DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
spec:
  replicas: 1
  selector:
    matchLabels: {app: web}
  template:
    metadata:
      labels: {app: web}
    spec:
      containers:
        - name: main
          image: registry.example/nginx:1
          env:
            - name: LEVEL
              value: info
        - name: side
          image: side:1
---
apiVersion: v1
kind: Service
metadata:
  name: web
spec:
  selector: {app: web}
"""
OVERLAY = """
namespace: prod
namePrefix: p-
resources:
  - ../../base
components:
  - ../../team
images:
  - name: registry.example/nginx
    newTag: "2"
replicas:
  - name: web
    count: 4
patches:
  - path: patch.yaml
  - target: {kind: Deployment, name: web}
    patch: |-
      # inline
      - op: add
        path: /spec/paused
        value: true
configMapGenerator:
  - name: settings
    literals:
      - level=debug
"""
PATCH = """
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
spec:
  template:
    spec:
      containers:
        - name: added
          image: added:1
        - name: side
          image: side:2
"""


@pytest.fixture
def layered(repo: Repo) -> Repo:
    return repo.write(
        {
            "base/kustomization.yaml": "resources:\n  - web.yaml\n",
            "base/web.yaml": DEPLOYMENT,
            "team/kustomization.yaml": (
                "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\n"
                "labels:\n  - pairs:\n      team: ml\n"
            ),
            "overlays/prod/kustomization.yaml": OVERLAY,
            "overlays/prod/patch.yaml": PATCH,
        }
    )


def test_each_object_names_the_file_that_declares_it(
    layered: Repo, kustomize: FileRenderer
) -> None:
    rendered = layered.render("overlays/prod", by=kustomize)
    web, service, settings = (
        the(rendered, kind) for kind in ("Deployment", "Service", "ConfigMap")
    )
    assert (web.ref.namespace, web.ref.name) == ("prod", "p-web")
    assert (web.origin.file, web.origin.document) == ("base/web.yaml", 0)
    assert (service.origin.file, service.origin.document) == ("base/web.yaml", 1)
    assert service.origin.where("/spec/selector/app") == ("base/web.yaml", 27)
    assert settings.origin.file == "overlays/prod/kustomization.yaml"
    assert settings.origin.where("/data/level") == ("overlays/prod/kustomization.yaml", 24)
    assert all(ORIGIN not in str(each.item) for each in rendered.objects)


def test_each_field_names_the_file_that_set_it(layered: Repo, kustomize: FileRenderer) -> None:
    web = the(layered.render("overlays/prod", by=kustomize), "Deployment")
    spec = web.item["spec"]
    assert isinstance(spec, dict)
    overlay, patch = "overlays/prod/kustomization.yaml", "overlays/prod/patch.yaml"
    where = web.origin.where
    containers = "/spec/template/spec/containers"
    at = {
        each["name"]: f"{containers}/{place}"
        for place, each in enumerate(spec["template"]["spec"]["containers"])  # type: ignore[index, call-overload, arg-type]
    }
    assert where(f"{at['main']}/image") == (overlay, 8)
    assert where(f"{at['main']}/env/0/value") == ("base/web.yaml", 18)
    assert where(f"{at['side']}/image") == (patch, 12)
    assert where(f"{at['added']}/image") == (patch, 10)
    assert where("/spec/replicas") == (overlay, 11)
    assert where("/spec/paused") == (overlay, 20)
    assert where("/metadata/namespace") == (overlay, 1)
    assert where("/metadata/name") == (overlay, 2)
    assert where("/metadata/labels/team") == ("team/kustomization.yaml", 4)
    assert where("/spec/selector/matchLabels/app") == ("base/web.yaml", 8)
    main = ("spec", "template", "spec", "containers", "[name=main]")
    assert web.where((*main, "image")) == f"{overlay}:8", "as a drift names it"
    assert web.where((*main[:-1], "[name=side]", "image")) == f"{patch}:12"


def test_an_item_that_a_patch_puts_at_the_end_of_a_list_has_the_patchs_line(
    repo: Repo, kustomize: FileRenderer
) -> None:
    repo.write(
        {
            "kustomization.yaml": """
                resources: [web.yaml]
                patches:
                  - target: {kind: Deployment}
                    patch: |-
                      - op: add
                        path: /spec/template/spec/containers/-
                        value: {name: late, image: late:1}
                """,
            "web.yaml": """
                apiVersion: apps/v1
                kind: Deployment
                metadata: {name: web}
                spec:
                  selector: {matchLabels: {app: web}}
                  template:
                    metadata: {labels: {app: web}}
                    spec:
                      containers:
                        - name: main
                          image: main:1
                """,
        }
    )
    web = the(repo.render(by=kustomize), "Deployment")
    late = ("spec", "template", "spec", "containers", "[name=late]", "image")
    assert web.where(late) == "kustomization.yaml:7"


def test_the_export_is_only_read(layered: Repo, kubectl: str, tmp_path: Path) -> None:
    before = {path: path.read_bytes() for path in layered.root.rglob("*") if path.is_file()}
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    layered.render("overlays/prod", by=FileRenderer(key=KEY, kustomize=kubectl, scratch=scratch))
    after = {path: path.read_bytes() for path in layered.root.rglob("*") if path.is_file()}
    assert after == before
    assert not list(scratch.iterdir())


def test_files_that_no_layer_names_take_no_part(layered: Repo, kustomize: FileRenderer) -> None:
    before = layered.render("overlays/prod", by=kustomize)
    layered.write({"base/extra.yaml": config_map("extra"), "overlays/prod/x.yaml": "not: [yaml"})
    (layered.root / "base" / "link.yaml").symlink_to("/etc/passwd")
    by = FileRenderer(key=KEY, kustomize=kustomize._given)
    assert layered.render("overlays/prod", by=by) == before


def test_the_repositorys_own_wish_for_origins_is_kept(
    layered: Repo, kustomize: FileRenderer
) -> None:
    layered.write({"own/kustomization.yaml": "resources: [../base]\n"})
    bare = layered.render("own", by=kustomize)
    layered.write(
        {"wish/kustomization.yaml": "resources: [../base]\nbuildMetadata: [originAnnotations]\n"}
    )
    wish = layered.render("wish", by=kustomize)
    assert "../base/web.yaml" in str(the(wish, "Service").item)
    assert "origin" not in str(the(bare, "Service").item)
    assert the(wish, "Service").origin.file == "base/web.yaml"


def test_a_merged_generator_names_the_overlay(repo: Repo, kustomize: FileRenderer) -> None:
    repo.write(
        {
            "base/kustomization.yaml": """
            configMapGenerator:
              - name: settings
                literals: [a=1]
                files: [text.txt, renamed=sub/other.txt]
            """,
            "base/text.txt": "text",
            "base/sub/other.txt": "other",
            "over/kustomization.yaml": """
            resources: [../base]
            configMapGenerator:
              - name: settings
                behavior: merge
                literals:
                  - b=2
            """,
        }
    )
    settings = the(repo.render("over", by=kustomize), "ConfigMap")
    assert settings.item["data"] == {"a": "1", "b": "2", "text.txt": "text", "renamed": "other"}
    assert settings.origin.file == "base/kustomization.yaml"
    assert settings.origin.where("/data/a") == ("base/kustomization.yaml", 3)
    assert settings.origin.where("/data/renamed") == ("base/kustomization.yaml", 4)
    assert settings.origin.where("/data/b") == ("over/kustomization.yaml", 6)


def test_plain_yaml_and_kustomize_give_equal_objects(repo: Repo, kubectl: str) -> None:
    """One file's objects are the same whichever way they are read, and so is their digest."""
    tricky = """
    apiVersion: v1
    kind: ConfigMap
    metadata:
      name: tricky
      annotations: {}
      labels: {"on": "on", "1": "1"}
    data:
      "yes": "yes"
      octal: "010"
      time: "12:30:45"
      multi: |
        a
        ---
        b
      folded: >-
        one
        two
      empty: ""
      tilde: "~"
      date: "2026-01-01"
      big: "12345678901234567890123"
    ---
    apiVersion: v1
    kind: Secret
    metadata: {name: s, creationTimestamp: null}
    type: Opaque
    stringData: {a: "x\\ny", b: "no"}
    data: {c: eA==}
    status: {}
    ---
    apiVersion: example.com/v1
    kind: Thing
    metadata: {name: t}
    spec:
      int: 3
      float: 1.5
      exponent: 1e3
      "on": "on"
      truth: true
      octal: 0o17
      nothing: ~
      nested: [[1, [2]], {a: [b]}]
      anchored: &x {k: v}
      alias: *x
    """
    more = """
    apiVersion: v1
    kind: List
    items:
      - {apiVersion: v1, kind: Namespace, metadata: {name: ns}}
    """
    repo.write(
        {
            "plain/a.yaml": tricky,
            "plain/b.yaml": more,
            "plain/c.yaml": DEPLOYMENT,
            "layer/a.yaml": tricky,
            "layer/b.yaml": more,
            "layer/c.yaml": DEPLOYMENT,
            "layer/kustomization.yaml": "resources: [a.yaml, b.yaml, c.yaml]",
        }
    )
    by = FileRenderer(key=KEY, kustomize=kubectl)
    plain, layer = repo.render("plain", by=by), repo.render("layer", by=by)
    assert items(plain) == items(layer)
    assert plain.digest == layer.digest
    assert {each.ref: each.origin.line("") for each in plain.objects} == {
        each.ref: each.origin.line("") for each in layer.objects
    }


def test_where_kustomize_reads_a_scalar_its_own_way_its_reading_counts(
    repo: Repo, kustomize: FileRenderer
) -> None:
    """Kustomize takes a bare `on` for text, kubectl for true; each renderer keeps to its own."""
    thing = "apiVersion: example.com/v1\nkind: Thing\nmetadata: {name: t}\nspec: {flag: on}\n"
    repo.write(
        {"a/t.yaml": thing, "b/t.yaml": thing, "b/kustomization.yaml": "resources: [t.yaml]"}
    )
    assert the(repo.render("a", by=kustomize), "Thing").item["spec"] == {"flag": True}
    assert the(repo.render("b", by=kustomize), "Thing").item["spec"] == {"flag": "on"}


def test_auto_chooses_by_the_kustomization_file(layered: Repo, kustomize: FileRenderer) -> None:
    layered.write({"plain/a.yaml": config_map("a")})
    assert len(layered.render("base", by=kustomize).objects) == 2
    assert names(layered.render("plain", by=kustomize)) == ["ConfigMap team/a"]
    with pytest.raises(SourceUnavailable, match=r"plain/kustomization\.yaml"):
        layered.render("plain", by=kustomize, renderer=Renderer.KUSTOMIZE)


def test_what_kustomize_cannot_do_is_told_without_the_private_copys_path(
    repo: Repo, kustomize: FileRenderer, tmp_path: Path
) -> None:
    repo.write(
        {
            "kustomization.yaml": "resources: [a.yaml]\npatches: [{path: p.yaml}]\n",
            "a.yaml": config_map("a"),
            "p.yaml": config_map("another"),
        }
    )
    with pytest.raises(SourceUnavailable, match="no matches") as failure:
        repo.render(by=kustomize)
    assert "holdfast-render" not in str(failure.value)


def test_secrets_in_what_kustomize_quotes_are_masked(repo: Repo, kustomize: FileRenderer) -> None:
    repo.write(
        {
            "kustomization.yaml": """
            resources: [a.yaml]
            secretGenerator:
              - name: s
                literals: [token=literalcanary12345]
            patches:
              - target: {kind: Secret}
                patch: |-
                  stringData: {password: patchcanary12345}
                  data: [filecanary]
            """,
            "a.yaml": "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\n"
            "stringData: {k: filecanary12345}\n",
        }
    )
    with pytest.raises((SourceUnavailable, ValidationError)) as failure:
        repo.render(by=kustomize)
    assert "canary" not in str(failure.value)


def test_an_empty_kustomization_declares_nothing(repo: Repo, kustomize: FileRenderer) -> None:
    repo.write({"kustomization.yaml": "resources: []\n"})
    assert repo.render(by=kustomize).objects == ()


def test_a_large_output_is_read_whole(repo: Repo, kustomize: FileRenderer) -> None:
    """One document has the limits of a file; the whole may be far larger."""
    blob = "x" * 100_000
    files = {f"{at}.yaml": config_map(f"c{at}", blob=blob) for at in range(50)}
    repo.write({**files, "kustomization.yaml": f"resources: [{', '.join(files)}]"})
    assert len(repo.render(by=kustomize).objects) == 50
