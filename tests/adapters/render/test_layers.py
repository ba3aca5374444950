"""The trail of a Kustomize path: every layer, and where each of its values stands."""

from __future__ import annotations

import pytest
from tests.adapters.render.repo import Repo, config_map

from holdfast.adapters.render.renderer import FileRenderer
from holdfast.core.errors import ValidationError
from holdfast.core.gitops.kustomize import FileLocation, GeneratorKind, PatchForm, ResourceKind
from holdfast.core.gitops.source import Renderer

OVERLAY = """
namespace: prod
namePrefix: p-
nameSuffix: -s
resources:
  - ../base
  - extra.yaml
components: [../comp]
labels:
  - pairs: {team: ml}
    includeSelectors: true
commonAnnotations: {owner: me}
images:
  - name: nginx
    newName: registry/nginx
    newTag: "2"
  - name: other
    digest: sha256:abc
replicas:
  - {name: web, count: 3}
patches:
  - path: merge.yaml
  - target: {kind: Deployment, name: web.*, labelSelector: app=web}
    patch: |-
      - op: replace
        path: /spec/replicas
        value: 4
  - patch: "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {k: v}}"
patchesStrategicMerge:
  - merge.yaml
  - |-
    apiVersion: v1
    kind: ConfigMap
    metadata: {name: a}
    data:
      k: v
patchesJson6902:
  - path: ops.json
    target: {version: v1, kind: ConfigMap, name: a}
configMapGenerator:
  - name: settings
    behavior: create
    literals:
      - a=1
      - b="quoted = text"
    files: [f.txt, key=sub/g.txt]
    envs: [vars.env]
secretGenerator:
  - name: token
    options: {disableNameSuffixHash: true}
    literals: [password=hunter2]
replacements:
  - source: {kind: ConfigMap, name: a}
    targets: []
"""


@pytest.fixture
def layered(repo: Repo) -> Repo:
    return repo.write(
        {
            "over/kustomization.yaml": OVERLAY,
            "over/extra.yaml": config_map("extra"),
            "over/merge.yaml": "# one\n"
            + config_map("a", x="1")
            + "---\n"
            + config_map("b", w="2"),
            "over/ops.json": '[{"op": "add", "path": "/data/z", "value": "3"}]',
            "over/f.txt": "f",
            "over/sub/g.txt": "g",
            "over/vars.env": "A=1",
            "base/kustomization.yml": "resources: [web.yaml]",
            "base/web.yaml": config_map("web"),
            "comp/Kustomization": "kind: Component",
            "unrelated.yaml": "x: [",
        }
    )


def test_layers_come_overlay_first_with_their_files(layered: Repo) -> None:
    trail = layered.trail("over")
    assert [(layer.file, layer.component) for layer in trail.layers] == [
        ("over/kustomization.yaml", False),
        ("base/kustomization.yml", False),
        ("comp/Kustomization", True),
    ]
    assert trail.entry.parents == ()
    assert trail.layer("base/kustomization.yml").parents == ("over/kustomization.yaml",)
    assert trail.files == (
        "base/kustomization.yml", "base/web.yaml", "comp/Kustomization", "over/extra.yaml",
        "over/f.txt", "over/kustomization.yaml", "over/merge.yaml", "over/ops.json",
        "over/sub/g.txt", "over/vars.env",
    )  # fmt: skip
    assert [(each.kind, each.path, each.location.line) for each in trail.entry.resources] == [
        (ResourceKind.LAYER, "base/kustomization.yml", 5),
        (ResourceKind.FILE, "over/extra.yaml", 6),
        (ResourceKind.COMPONENT, "comp/Kustomization", 7),
    ]


def test_a_file_leads_to_the_layers_that_it_passes(layered: Repo) -> None:
    trail = layered.trail("over")
    assert [layer.file for layer in trail.chain("base/web.yaml")] == [
        "over/kustomization.yaml",
        "base/kustomization.yml",
    ]
    assert [layer.file for layer in trail.chain("over/merge.yaml")] == ["over/kustomization.yaml"]
    assert trail.chain("unrelated.yaml") == ()
    assert trail.bringing("comp/Kustomization") == trail.layer("comp/Kustomization")


def test_plain_settings_have_their_places(layered: Repo) -> None:
    entry = layered.trail("over").entry
    assert entry.namespace and (entry.namespace.value, entry.namespace.location.line) == ("prod", 1)
    assert entry.name_prefix and entry.name_prefix.value == "p-"
    assert entry.name_suffix and entry.name_suffix.location == FileLocation(
        file="over/kustomization.yaml", pointer="/nameSuffix", line=3
    )
    (labels,) = entry.labels
    assert (dict(labels.pairs), labels.selectors, labels.location.line) == ({"team": "ml"}, True, 9)
    assert entry.annotations == {"owner": "me"}
    assert entry.others == ("replacements",)
    assert entry.location("/images/1/digest").line == 17
    assert entry.body["namespace"] == "prod"


def test_images_and_replicas_have_their_places(layered: Repo) -> None:
    entry = layered.trail("over").entry
    first, second = entry.images
    assert (first.name, first.new_name, first.new_tag, first.digest) == (
        "nginx", "registry/nginx", "2", "",
    )  # fmt: skip
    assert (first.location.pointer, first.location.line) == ("/images/0", 13)
    assert second.digest == "sha256:abc"
    (replicas,) = entry.replicas
    assert (replicas.name, replicas.count, replicas.location.line) == ("web", 3, 19)


def test_patches_in_every_spelling_are_read(layered: Repo) -> None:
    entry = layered.trail("over").entry
    by_place = [
        (
            each.form.value,
            each.inline,
            each.location.file,
            each.location.document,
            each.entry.pointer,
        )
        for each in entry.patches
    ]
    over = "over/kustomization.yaml"
    assert by_place == [
        ("merge", False, "over/merge.yaml", 0, "/patchesStrategicMerge/0"),
        ("merge", False, "over/merge.yaml", 1, "/patchesStrategicMerge/0"),
        ("merge", True, over, 0, "/patchesStrategicMerge/1"),
        ("operations", False, "over/ops.json", 0, "/patchesJson6902/0"),
        ("merge", False, "over/merge.yaml", 0, "/patches/0"),
        ("merge", False, "over/merge.yaml", 1, "/patches/0"),
        ("operations", True, over, 0, "/patches/1"),
        ("merge", True, over, 0, "/patches/2"),
    ]
    block = entry.patches[2]
    assert block.lines["/data/k"] == 35
    operations = entry.patches[6]
    assert operations.form is PatchForm.OPERATIONS
    assert operations.body == [{"op": "replace", "path": "/spec/replicas", "value": 4}]
    assert operations.location.pointer == "/patches/1/patch"
    assert operations.lines["/0/value"] == 26
    assert operations.target is not None
    assert operations.target.name == "web.*"
    assert operations.target.label_selector == "app=web"
    assert entry.patches[7].lines["/data/k"] == 27
    assert entry.patches[1].lines["/data/w"] == 14


def test_generators_tell_their_literals_but_no_secret(layered: Repo) -> None:
    trail = layered.trail("over")
    settings, token = trail.entry.generators
    assert settings.kind is GeneratorKind.CONFIG_MAP and settings.hashed
    assert [(each.key, each.value, each.location.line) for each in settings.literals] == [
        ("a", "1", 43),
        ("b", "quoted = text", 44),
    ]
    assert [(each.key, each.path) for each in settings.files] == [
        ("f.txt", "over/f.txt"),
        ("key", "over/sub/g.txt"),
    ]
    assert [each.path for each in settings.envs] == ["over/vars.env"]
    assert token.kind is GeneratorKind.SECRET and not token.hashed
    assert [(each.key, each.value) for each in token.literals] == [("password", None)]


def test_a_plain_directory_has_no_trail(repo: Repo) -> None:
    repo.write({"a.yaml": config_map("a")})
    assert FileRenderer(key=b"k").trail(repo.export, ".", renderer=Renderer.AUTO) is None


@pytest.mark.parametrize(
    "text",
    [
        "replicas: [{name: web, count: many}]",
        "labels: [{pairs: {v: 1.0}}]",
        "namespace: 12",
        "configMapGenerator: [{name: a, literals: [nothing]}]",
        "patches: [{patch: 'just text', target: {kind: A}}]",
        "patches: [{target: {kind: A}}]",
        "patches: [{path: a.yaml, target: {knid: A}}]",
        "images: [nginx]",
    ],
)
def test_an_entry_that_cannot_be_meant_is_refused_by_its_line(repo: Repo, text: str) -> None:
    repo.write({"kustomization.yaml": f"# first\n{text}\n", "a.yaml": config_map("a")})
    with pytest.raises(ValidationError, match=r"kustomization\.yaml:2"):
        repo.trail(".")
