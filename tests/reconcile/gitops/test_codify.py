"""The file that declares a value comes to declare the live one; what is never written."""

from __future__ import annotations

import base64
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.reconcile.gitops.codify_world import KEY, NOW, CodifyWorld, diff

from holdfast.adapters.render.renderer import FileRenderer
from holdfast.core.gitops.codify import CannotCodify, SecretInClear
from holdfast.core.gitops.pods import image_findings
from holdfast.core.ownership.object_diff import diff_object
from holdfast.core.ownership.signals import declare
from holdfast.core.redact import Secret
from holdfast.core.tree import Fields
from holdfast.reconcile.gitops import codify, codify_edits
from holdfast.wire.yaml import read_documents

APP = """
# the chat application
apiVersion: apps/v1
kind: Deployment
metadata:
  name: chat
  labels: {app: chat}   # flow
spec:
  replicas: 2           # two is enough
  selector:
    matchLabels: {app: chat}
  template:
    metadata:
      labels: {app: chat}
    spec:
      containers:
        # the server
        - name: main
          image: vllm/vllm-openai:v0.6.3   # pinned
          args: ["--port", "8000"]
          env:
            - name: LOG_LEVEL
              value: info
            - name: REGION
              value: eu
          resources:
            limits:
              cpu: 500m
              memory: 1Gi
        - name: sidecar
          image: envoy:1
---
apiVersion: v1
kind: Service
metadata:
  name: chat
spec:
  selector: {app: chat}
  ports:
    - port: 80
"""


@pytest.fixture
def world(tmp_path: Path) -> CodifyWorld:
    return CodifyWorld(root=tmp_path, path="apps/chat", renders=FileRenderer(key=KEY)).write(
        {"apps/chat/app.yaml": APP, "other/thing.yaml": "not: read\n"}
    )


def container(live: dict[str, Any], name: str = "main") -> dict[str, Any]:
    spec = live["spec"]["template"]["spec"]
    return next(each for each in spec["containers"] if each["name"] == name)


def test_a_changed_number_changes_one_line(world: CodifyWorld) -> None:
    live = world.live("Deployment", lambda item: item["spec"].update(replicas=5))
    done = world.codify("Deployment", live)
    assert diff(APP.lstrip(), world.text(done, "apps/chat/app.yaml")) == [
        "-  replicas: 2           # two is enough",
        "+  replicas: 5           # two is enough",
    ]
    assert [(each.file, each.added, each.removed) for each in done.lines] == [
        ("apps/chat/app.yaml", (8,), (8,))
    ]
    assert done.layer == "apps/chat/app.yaml"


def test_fields_of_list_items_are_found_by_their_key(world: CodifyWorld) -> None:
    def change(item: dict[str, Any]) -> None:
        container(item)["image"] = "vllm/vllm-openai:v0.7.0"
        container(item)["env"][1]["value"] = "on"
        container(item)["resources"]["limits"]["cpu"] = "750m"
        container(item, "sidecar")["image"] = "envoy:2"

    done = world.codify("Deployment", world.live("Deployment", change))
    assert diff(APP.lstrip(), world.text(done, "apps/chat/app.yaml")) == [
        "-          image: vllm/vllm-openai:v0.6.3   # pinned",
        "+          image: vllm/vllm-openai:v0.7.0   # pinned",
        "-              value: eu",
        '+              value: "on"',
        "-              cpu: 500m",
        "+              cpu: 750m",
        "-          image: envoy:1",
        "+          image: envoy:2",
    ]


def test_what_was_removed_is_declared_no_more(world: CodifyWorld) -> None:
    def change(item: dict[str, Any]) -> None:
        del container(item)["env"][0]
        del container(item)["resources"]["limits"]["memory"]

    done = world.codify("Deployment", world.live("Deployment", change))
    assert diff(APP.lstrip(), world.text(done, "apps/chat/app.yaml")) == [
        "-            - name: LOG_LEVEL",
        "-              value: info",
        "-              memory: 1Gi",
    ]


def test_where_all_of_a_mapping_is_gone_no_empty_one_is_left(world: CodifyWorld) -> None:
    live = world.live("Deployment", lambda item: container(item).pop("resources"))
    done = world.codify("Deployment", live)
    assert diff(APP.lstrip(), world.text(done, "apps/chat/app.yaml")) == [
        "-          resources:",
        "-            limits:",
        "-              cpu: 500m",
        "-              memory: 1Gi",
    ]


def test_what_others_added_is_declared_without_the_servers_defaults(world: CodifyWorld) -> None:
    added = {
        "f:spec": {
            "f:template": {
                "f:spec": {
                    "f:containers": {
                        'k:{"name":"probe"}': {
                            ".": {},
                            "f:name": {},
                            "f:image": {},
                            "f:imagePullPolicy": {},
                            "f:terminationMessagePath": {},
                        }
                    }
                }
            }
        },
    }

    def change(item: dict[str, Any]) -> None:
        item["spec"]["template"]["spec"]["containers"].append(
            {
                "name": "probe",
                "image": "busybox:1.36",
                "imagePullPolicy": "IfNotPresent",
                "resources": {},
                "terminationMessagePath": "/dev/termination-log",
            }
        )

    done = world.codify("Deployment", world.live("Deployment", change, added=added))
    assert diff(APP.lstrip(), world.text(done, "apps/chat/app.yaml")) == [
        "+        - name: probe",
        "+          image: busybox:1.36",
    ]


def test_the_right_document_of_a_file_is_edited(world: CodifyWorld) -> None:
    live = world.live("Service", lambda item: item["spec"]["ports"][0].update(targetPort=8000))
    live["metadata"]["managedFields"] = [
        {  # type: ignore[call-overload, index]
            "manager": "kubectl-patch",
            "operation": "Update",
            "apiVersion": "v1",
            "fieldsV1": {
                "f:spec": {
                    "f:ports": {
                        'k:{"port":80,"protocol":"TCP"}': {"f:targetPort": {}},
                    }
                }
            },
        }
    ]
    done = world.codify("Service", live)
    assert diff(APP.lstrip(), world.text(done, "apps/chat/app.yaml")) == ["+      targetPort: 8000"]


def test_an_item_of_a_list_document_is_edited_in_place(world: CodifyWorld) -> None:
    text = """
        apiVersion: v1
        kind: List
        items:
          - apiVersion: v1
            kind: ConfigMap
            metadata: {name: a}
            data: {k: "1"}
          - apiVersion: v1
            kind: ConfigMap
            metadata: {name: b}
            data: {k: "1"}
        """
    world.write({"apps/chat/list.yaml": text})
    live = world.live("ConfigMap", lambda item: item["data"].update(k="2"), name="b")
    done = world.codify("ConfigMap", live, name="b")
    assert world.text(done, "apps/chat/list.yaml").count('k: "2"') == 1
    gone = world.codify("ConfigMap", None, name="b")
    (document,) = read_documents(gone.files["apps/chat/list.yaml"] or b"", source="list.yaml")
    assert isinstance(document.value, dict)
    assert len(document.value["items"]) == 1  # type: ignore[arg-type]


def test_a_deleted_object_leaves_its_file(world: CodifyWorld) -> None:
    done = world.codify("Service", None)
    assert world.text(done, "apps/chat/app.yaml") == APP.lstrip().split("---\n")[0]


def test_a_file_goes_with_its_only_object(world: CodifyWorld) -> None:
    world.write({"apps/chat/config.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n"})
    done = world.codify("ConfigMap", None)
    assert dict(done.files) == {"apps/chat/config.yaml": None}


def test_an_object_made_without_git_gets_a_file_with_what_its_writer_wrote(
    world: CodifyWorld,
) -> None:
    live: Fields = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": "tuning",
            "namespace": "team",
            "uid": "u",
            "resourceVersion": "9",
            "creationTimestamp": "2026-11-16T00:00:00Z",
            "labels": {"a": "b"},
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}"},
            "managedFields": [
                {
                    "manager": "kubectl-create",
                    "operation": "Update",
                    "apiVersion": "v1",
                    "fieldsV1": {"f:data": {"f:mode": {}}, "f:metadata": {"f:labels": {"f:a": {}}}},
                }
            ],
        },
        "data": {"mode": "on"},
    }
    done = world.adopt(live)
    assert world.text(done, "apps/chat/configmap-tuning.yaml") == (
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: tuning\n  namespace: team\n"
        '  labels:\n    a: b\ndata:\n  mode: "on"\n'
    )


def test_an_object_that_another_makes_is_not_adopted(world: CodifyWorld) -> None:
    live: Fields = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "ownerReferences": [{"kind": "ReplicaSet", "name": "r"}]},
    }
    with pytest.raises(CannotCodify, match="belongs to another"):
        world.adopt(live)


def test_a_plain_secret_is_never_written(world: CodifyWorld) -> None:
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "team"}}
    world.write(
        {
            "apps/chat/secret.yaml": "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\n"
            "stringData: {password: declared-value}\n"
        }
    )
    live = world.live("Secret", lambda item: item["data"].update(password="Y2FuYXJ5"))
    for attempt in (
        lambda: world.codify("Secret", live),
        lambda: world.codify("Secret", None),
        lambda: world.adopt({**secret, "data": {"password": "Y2FuYXJ5"}}),
    ):
        with pytest.raises(SecretInClear) as caught:
            attempt()
        assert "SOPS" in str(caught.value)
        assert "Y2FuYXJ5" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value"), [("HF_TOKEN", "canary-value"), ("SETTING", "hf_" + "A1b2C3d4" * 4)]
)
def test_a_credential_among_the_variables_is_not_written(
    world: CodifyWorld, name: str, value: str
) -> None:
    item = {"name": name, "value": value}
    added = {
        "f:spec": {
            "f:template": {
                "f:spec": {
                    "f:containers": {
                        'k:{"name":"main"}': {
                            "f:env": {
                                f'k:{{"name":"{name}"}}': {".": {}, "f:name": {}, "f:value": {}}
                            },
                        }
                    }
                }
            }
        }
    }
    live = world.live("Deployment", lambda it: container(it)["env"].append(item), added=added)
    with pytest.raises(SecretInClear) as caught:
        world.codify("Deployment", live)
    assert value not in str(caught.value)


def test_nothing_to_declare_is_refused(world: CodifyWorld) -> None:
    with pytest.raises(CannotCodify, match="Nothing about"):
        world.codify("Deployment", world.live("Deployment", lambda item: None))


def test_a_refusal_says_what_was_tried(world: CodifyWorld) -> None:
    world.write(
        {
            "apps/chat/app.yaml": APP.replace(
                "labels: {app: chat}   # flow", "labels: &l {app: chat}"
            )
            .replace("matchLabels: {app: chat}", "matchLabels: *l")
            .replace("---\n", "---\n# second\n")
        }
    )
    live = world.live("Deployment", lambda item: item["metadata"].pop("labels"))
    with pytest.raises(CannotCodify) as caught:
        world.codify("Deployment", live)
    assert "apps/chat/app.yaml" in str(caught.value)


class Sealing:
    """Stands for SOPS where only the way through matters: seals by reversing."""

    async def decrypt(self, text: bytes, *, source: str, verify: bool = True) -> Fields:
        (document,) = read_documents(text, source=source)
        assert isinstance(document.value, dict)
        value = {key: each for key, each in document.value.items() if key != "sops"}
        data = value["stringData"]
        assert isinstance(data, dict)
        opened = {key: str(each)[len("ENC[AES256_GCM,") : -1][::-1] for key, each in data.items()}
        return {**value, "stringData": dict(opened)}

    async def set_value(self, text: bytes, path: Sequence[str | int], value: Secret) -> bytes:
        key = str(path[-1])
        lines = text.decode().splitlines(keepends=True)
        sealed = f"  {key}: ENC[AES256_GCM,{value.reveal()[::-1]}]\n"
        return "".join(
            sealed if line.strip().startswith(f"{key}:") else line for line in lines
        ).encode()


def test_an_encrypted_value_is_replaced_in_its_encrypted_form(tmp_path: Path) -> None:
    sealing = Sealing()
    world = CodifyWorld(
        root=tmp_path,
        path="app",
        renders=FileRenderer(key=KEY, decryptor=sealing),
        decryptor=sealing,
    ).write(
        {
            "app/secret.yaml": """
        apiVersion: v1
        kind: Secret
        metadata:
          name: s
        stringData:
          password: ENC[AES256_GCM,dlo]
          other: ENC[AES256_GCM,x]
        sops:
          mac: none
        """
        }
    )
    fresh = base64.b64encode(b"canary").decode()
    live = world.live("Secret", lambda item: item["data"].update(password=fresh))
    done = world.codify("Secret", live)
    text = world.text(done, "app/secret.yaml")
    assert "password: ENC[AES256_GCM,yranac]" in text
    assert "canary" not in text.replace("yranac", "")
    assert any("encrypted" in note for note in done.notes)
    labelled = world.live(
        "Secret",
        lambda item: item["metadata"].update(labels={"a": "b"}),
        added={"f:metadata": {"f:labels": {"f:a": {}}}},
    )
    with pytest.raises(CannotCodify, match="not one of its values"):
        world.codify("Secret", labelled)
    world.decryptor = None
    with pytest.raises(CannotCodify, match="sops"):
        world.codify("Secret", live)


def test_what_git_declares_of_an_image_that_moved_is_what_its_file_says(world: CodifyWorld) -> None:
    """The digest that a tag stood for is no declaration; it is told as evidence."""
    live = world.live("Deployment", lambda item: None)
    known = {"main vllm/vllm-openai:v0.6.3": "sha256:" + "a" * 64}
    runs = {"main": {"sha256:" + "b" * 64: ["chat-1"]}}
    (found,) = image_findings(live, runs, known)
    assert found.change.desired == "vllm/vllm-openai:v0.6.3"
    assert found.change.live == f"vllm/vllm-openai:v0.6.3@sha256:{'b' * 64}"
    assert f"stood for sha256:{'a' * 64} when it was applied" in found.evidence


def test_the_image_that_pods_run_is_pinned_by_its_digest(world: CodifyWorld) -> None:
    live = world.live("Deployment", lambda item: None)
    digests = {"main vllm/vllm-openai:v0.6.3": "sha256:" + "a" * 64}
    runs = {"main": {"sha256:" + "b" * 64: ["chat-1"]}}
    done = world.codify_running("Deployment", live, *image_findings(live, runs, digests))
    pinned = f"          image: vllm/vllm-openai:v0.6.3@sha256:{'b' * 64}   # pinned"
    assert pinned in world.text(done, "apps/chat/app.yaml").splitlines()


def test_an_object_that_was_made_anew_cannot_be_declared_by_an_edit(world: CodifyWorld) -> None:
    """A file declares the one as well as the other."""
    live = world.live("Deployment", lambda item: None)
    declared = replace(declare(world.declared("Deployment").item, "holdfast-gitops"), uid="old")
    (gone,) = diff_object(
        fast_path=False, declared=declared, live=live, key=KEY, now=NOW
    ).field_drifts
    with pytest.raises(CannotCodify, match="made anew"):
        world.codify_running("Deployment", live, gone)


def test_files_are_edited_and_compared_beside_the_loop(
    world: CodifyWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They may be large, and nothing may hold up who renews the lease."""
    threads: set[threading.Thread] = set()

    def noted(work: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **more: Any) -> Any:
            threads.add(threading.current_thread())
            return work(*given, **more)

        return call

    for place, name in (
        (codify_edits, "apply_edits"),
        (codify, "touched_lines"),
        (codify, "unexpected_change"),
    ):
        monkeypatch.setattr(place, name, noted(getattr(place, name)))
    live = world.live("Deployment", lambda item: item["spec"].update(replicas=3))
    world.codify("Deployment", live)
    assert threads
    assert threading.main_thread() not in threads


def test_a_large_file_of_equal_lines_is_codified(world: CodifyWorld) -> None:
    lines = ["aaaaaa", "bbbbbb"] * 12_000
    block = "".join(f"    {line}\n" for line in lines)
    head = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  x: |\n"
    world.write({"apps/chat/a.yaml": (head + block).encode()})
    wanted = "\n".join(["new", *lines[5:9_000], "new", *lines[9_000:-7]]) + "\n"

    live = world.live("ConfigMap", lambda item: item["data"].update(x=wanted))
    began = time.monotonic()
    codified = world.codify("ConfigMap", live)
    expected = head + "".join(f"    {line}\n" for line in wanted.splitlines())
    assert world.text(codified, "apps/chat/a.yaml") == expected
    assert time.monotonic() - began < 30, "it takes a second, and difflib minutes"
