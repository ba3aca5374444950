"""Plain YAML and JSON: which files count, what an object is, what becomes of it."""

from __future__ import annotations

import pytest
from tests.adapters.render.repo import KEY, Repo, config_map, names, the

from holdfast.adapters.render import manifests, objects
from holdfast.adapters.render.renderer import FileRenderer
from holdfast.core.errors import ValidationError
from holdfast.core.gitops.source import Renderer
from holdfast.core.object_ref import ObjectRef
from holdfast.reconcile.gitops.ports import SourceUnavailable


def test_one_rule_says_which_files_count(repo: Repo) -> None:
    repo.write(
        {
            "b/2.yml": config_map("second"),
            "a.yaml": config_map("first"),
            "c.json": '{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "third"}}',
            "README.md": "# not YAML: [",
            "D.YAML": "not counted: [",
            ".hidden.yaml": "not counted: [",
            ".sops.yaml": "creation_rules: []",
            ".github/x.yaml": "not counted: [",
            "b/.deep/x.yaml": "not counted: [",
            "script.yaml.sh": "rm",
        }
    )
    assert names(repo.render()) == [
        "ConfigMap team/first",
        "ConfigMap team/second",
        "ConfigMap team/third",
    ]


def test_a_path_may_be_one_file(repo: Repo) -> None:
    repo.write({"a.yaml": config_map("a"), "b.yaml": config_map("b"), "c.txt": "x"})
    assert names(repo.render("b.yaml")) == ["ConfigMap team/b"]
    with pytest.raises(ValidationError, match=r"not a \.yaml"):
        repo.render("c.txt")


def test_documents_and_lists_give_their_objects_with_their_places(repo: Repo) -> None:
    repo.write(
        {
            "all.yaml": """
            # a comment
            ---
            apiVersion: v1
            kind: ConfigMap
            metadata:
              name: one
            ---
            ---
            apiVersion: v1
            kind: List
            items:
              - apiVersion: v1
                kind: ConfigMap
                metadata:
                  name: two
                data:
                  key: value
              - apiVersion: v1
                kind: ConfigMapList
                items:
                  - {apiVersion: v1, kind: ConfigMap, metadata: {name: three}}
            """
        }
    )
    one, two, three = repo.render().objects
    assert (one.ref.name, one.origin.file, one.origin.document) == ("one", "all.yaml", 0)
    assert one.origin.line("/metadata/name") == 6
    assert (two.ref.name, two.origin.document) == ("two", 1)
    assert two.origin.line("/data/key") == 17
    assert two.origin.where("/data/key") == ("all.yaml", 17)
    assert two.origin.line("/data/other") == 16
    assert (three.ref.name, three.origin.line("")) == ("three", 21)


def test_namespaces_are_given_to_what_can_have_one(repo: Repo) -> None:
    repo.write(
        {
            "a.yaml": """
            {apiVersion: v1, kind: ConfigMap, metadata: {name: a}}
            ---
            {apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: own}}
            ---
            {apiVersion: v1, kind: Namespace, metadata: {name: own}}
            ---
            apiVersion: rbac.authorization.k8s.io/v1
            kind: ClusterRole
            metadata: {name: r, namespace: copied-from-elsewhere}
            ---
            {apiVersion: example.com/v1, kind: Local, metadata: {name: x}}
            ---
            {apiVersion: example.com/v1, kind: Global, metadata: {name: x}}
            ---
            {apiVersion: example.com/v1, kind: Unknown, metadata: {name: x}}
            ---
            {apiVersion: defined.dev/v1, kind: Wide, metadata: {name: x}}
            ---
            apiVersion: apiextensions.k8s.io/v1
            kind: CustomResourceDefinition
            metadata: {name: wides.defined.dev}
            spec: {group: defined.dev, names: {kind: Wide, plural: wides}, scope: Cluster}
            """
        }
    )
    known = {"Local": True, "Global": False}
    asked: list[str] = []

    def scoped(ref: ObjectRef) -> bool | None:
        asked.append(ref.kind)
        return known.get(ref.kind)

    assert names(repo.render(by=FileRenderer(key=KEY, scoped=scoped))) == [
        "ConfigMap team/a",
        "ConfigMap own/a",
        "Namespace own",
        "ClusterRole r",
        "Local team/x",
        "Global x",
        "Unknown team/x",
        "Wide x",
        "CustomResourceDefinition wides.defined.dev",
    ]
    assert sorted(asked) == ["Global", "Local", "Unknown"]


def test_an_object_that_is_declared_twice_is_refused_with_both_places(repo: Repo) -> None:
    repo.write(
        {
            "a.yaml": config_map("same") + "---\n" + config_map("other"),
            "b.yaml": "# two\n" + config_map("same").replace("name:", "namespace: team\n  name:"),
        }
    )
    with pytest.raises(ValidationError) as refusal:
        repo.render()
    assert "b.yaml:2" in str(refusal.value) and "a.yaml:1" in str(refusal.value)
    assert len(repo.render(namespace="elsewhere").objects) == 3


def test_two_versions_of_one_kind_are_one_object(repo: Repo) -> None:
    text = "{apiVersion: apps/%s, kind: Deployment, metadata: {name: a}}\n"
    repo.write({"a.yaml": text % "v1" + "---\n" + text % "v1beta1"})
    with pytest.raises(ValidationError, match="declared already"):
        repo.render()


def test_what_a_server_writes_is_dropped(repo: Repo) -> None:
    repo.write(
        {
            "a.yaml": """
            apiVersion: apps/v1
            kind: Deployment
            metadata:
              name: web
              creationTimestamp: null
              uid: 6f1b
              resourceVersion: "12"
              generation: 3
              managedFields: [{manager: kubectl}]
              annotations:
                kubectl.kubernetes.io/last-applied-configuration: '{"secret": 1}'
              labels:
            spec: {replicas: 1}
            status: {}
            """
        }
    )
    assert the(repo.render(), "Deployment").item == {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "team"},
        "spec": {"replicas": 1},
    }


def test_secrets_get_the_form_that_servers_give_them(repo: Repo) -> None:
    repo.write(
        {
            "a.yaml": """
            apiVersion: v1
            kind: Secret
            metadata: {name: s}
            data:
              wrapped: |
                YWJj
                ZGVm
              both: b2xk
              empty:
            stringData:
              both: new
              text: "ü"
            """
        }
    )
    found = the(repo.render(), "Secret")
    assert found.item["data"] == {
        "wrapped": "YWJjZGVm",
        "both": "bmV3",
        "empty": "",
        "text": "w7w=",
    }
    assert "stringData" not in found.item
    assert found.origin.line("/data/text") == 12
    assert not found.encrypted


BAD = {
    "no apiVersion": ("kind: ConfigMap\nmetadata: {name: a}", "no usable apiVersion"),
    "no kind": ("apiVersion: v1\nmetadata: {name: a}", "no usable kind"),
    "no metadata": ("apiVersion: v1\nkind: ConfigMap", "no metadata"),
    "no name": ("apiVersion: v1\nkind: ConfigMap\nmetadata: {}", "no name"),
    "name is a number": ("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: 1}", "cannot be used"),
    "name with slash": ("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a/b}", "cannot be used"),
    "name of dots": ("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: ..}", "cannot be used"),
    "generateName": (
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {generateName: a-}",
        "another name each time",
    ),
    "namespace": (
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: A_B}",
        "the namespace",
    ),
    "label": (
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, labels: {v: 1.0}}",
        "not text",
    ),
    "labels": (
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, labels: [x]}",
        "not a mapping",
    ),
    "a list": ("- a\n- b", "no usable apiVersion"),
    "a text": ("just words", "no usable apiVersion"),
    "values": ("image: nginx\nreplicas: 2", "no usable apiVersion"),
    "data": ("apiVersion: v1\nkind: Secret\nmetadata: {name: a}\ndata: {k: '***'}", "not base64"),
    "stringData": (
        "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\nstringData: {k: 1}",
        "not text",
    ),
    "sealed": (
        "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\n"
        "stringData: {k: 'ENC[AES256_GCM,data:x]'}",
        "encrypted",
    ),
    "duplicate key": ("apiVersion: v1\napiVersion: v1", "given twice"),
    "template": ("apiVersion: {{ .Values.x }}", "x.yaml:1"),
    "item": ("apiVersion: v1\nkind: List\nitems: [3]", "no usable apiVersion"),
}


@pytest.mark.parametrize("case", BAD, ids=str)
def test_what_is_no_object_is_refused_by_file_and_line(repo: Repo, case: str) -> None:
    text, reason = BAD[case]
    repo.write({"good.yaml": config_map("good"), "x.yaml": text})
    with pytest.raises(ValidationError, match=reason) as refusal:
        repo.render()
    assert "x.yaml:" in str(refusal.value)
    assert "good.yaml" not in str(refusal.value)


def test_everything_wrong_is_told_at_once_up_to_a_limit(repo: Repo) -> None:
    repo.write({f"{at:02}.yaml": "kind: X" for at in range(30)})
    with pytest.raises(ValidationError) as refusal:
        repo.render()
    assert "30 problems" in str(refusal.value)
    assert len(refusal.value.problems) == 20


def test_an_alias_bomb_is_refused(repo: Repo) -> None:
    bomb = "a0: &a0 [x,x,x,x,x,x,x,x,x]\n" + "".join(
        f"a{at}: &a{at} [{','.join([f'*a{at - 1}'] * 9)}]\n" for at in range(1, 9)
    )
    repo.write({"bomb.yaml": bomb})
    with pytest.raises(ValidationError, match="aliases"):
        repo.render()


def test_too_many_objects_or_directories_are_refused(
    repo: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objects, "MAX_OBJECTS", 3)
    repo.write({"a.yaml": "---\n".join(config_map(f"c{at}") for at in range(4))})
    with pytest.raises(ValidationError, match="over 3 objects"):
        repo.render()
    monkeypatch.setattr(manifests, "MAX_DEPTH", 3)
    (repo.root / "a.yaml").unlink()
    repo.write({"1/2/3/4/5/a.yaml": config_map("deep")})
    with pytest.raises(ValidationError, match="deep"):
        repo.render()


def test_a_missing_path_is_unknown_and_an_empty_one_has_no_objects(repo: Repo) -> None:
    repo.write({"empty/README.md": "nothing", "comments/a.yaml": "# nothing\n---\n"})
    assert repo.render("empty").objects == ()
    assert repo.render("comments").objects == ()
    with pytest.raises(SourceUnavailable, match="nowhere"):
        repo.render("nowhere")
    with pytest.raises(SourceUnavailable):
        repo.render("empty/README.md/below")
    with pytest.raises(ValidationError, match="upwards"):
        repo.render("empty/../comments")


def test_a_kustomization_among_plain_files_is_refused(repo: Repo) -> None:
    repo.write({"apps/a/kustomization.yaml": "resources: []", "apps/b.yaml": config_map("b")})
    with pytest.raises(ValidationError, match="kustomization"):
        repo.render("apps")
    with pytest.raises(ValidationError, match="kustomization"):
        repo.render("apps/a", renderer=Renderer.YAML)


def test_sealed_and_external_secrets_pass_as_they_are(repo: Repo) -> None:
    sealed = {
        "apiVersion": "bitnami.com/v1alpha1",
        "kind": "SealedSecret",
        "metadata": {"name": "s", "namespace": "team"},
        "spec": {"encryptedData": {"k": "AgBy3i4OJSWK+PiTySYZZA9rO43"}},
    }
    repo.write(
        {
            "a.yaml": """
            apiVersion: bitnami.com/v1alpha1
            kind: SealedSecret
            metadata: {name: s}
            spec: {encryptedData: {k: AgBy3i4OJSWK+PiTySYZZA9rO43}}
            ---
            apiVersion: external-secrets.io/v1
            kind: ExternalSecret
            metadata: {name: e}
            spec: {refreshInterval: 1h}
            """
        }
    )
    rendered = repo.render()
    assert the(rendered, "SealedSecret").item == sealed
    assert not the(rendered, "ExternalSecret").encrypted
