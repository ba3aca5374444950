"""Manifests for tests: those under tests/corpus/gitops, and small ones as people write them."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from holdfast.core.ownership.canonical import is_custom, value_at
from holdfast.core.tree import Fields
from holdfast.wire.yaml import Document, read_documents

CORPUS = Path(__file__).parent.parent / "corpus" / "gitops"
GATEWAY_TOPIC = "gateway"
"""The topic whose kinds are not of this corpus: its definitions come from the Gateway API."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """One file of the corpus. Its documents are shared: copy what you change."""

    path: Path
    documents: tuple[Document, ...]

    @property
    def topic(self) -> str:
        return self.path.parent.name

    @property
    def items(self) -> list[Fields]:
        values = [document.value for document in self.documents]
        return [value for value in values if isinstance(value, dict)]


@cache
def manifests() -> tuple[Manifest, ...]:
    """Every file, in the order of their paths."""
    return tuple(
        Manifest(path=path, documents=tuple(read_documents(path.read_bytes(), source=path.name)))
        for path in sorted(CORPUS.rglob("*.yaml"))
    )


def corpus_items(*, without: Container[str] = ()) -> list[Fields]:
    """Every object, save for those of some topics."""
    return [item for file in manifests() if file.topic not in without for item in file.items]


def in_namespace(item: Fields, namespace: str) -> Fields:
    """Give the same object in another namespace.

    A claim asks for a storage class that nobody has: a volume that it took would be missed by
    the test that declares the volume, on a cluster that both use.
    """
    metadata: Any = item["metadata"]
    there: Fields = {**item, "metadata": {**metadata, "namespace": namespace}}
    if item["kind"] == "PersistentVolumeClaim":
        spec: Any = item["spec"]
        there["spec"] = {**spec, "storageClassName": f"none-{namespace}"}
    return there


def corpus_items_in(namespace: str) -> list[Fields]:
    """The objects of built-in kinds that can live in this namespace, each name once."""
    found: dict[tuple[object, object], Fields] = {}
    for item in corpus_items(without=(GATEWAY_TOPIC,)):
        metadata: Any = item["metadata"]
        alone = item["kind"] not in ("ResourceQuota", "LimitRange") and not _depends_on_others(item)
        if alone and metadata.get("namespace") and not is_custom(str(item["apiVersion"])):
            found.setdefault((item["kind"], metadata["name"]), in_namespace(item, namespace))
    return list(found.values())


def _depends_on_others(item: Fields) -> bool:
    """True for what is refused or removed without an object that is not with it here."""
    names = ("priorityClassName", "runtimeClassName")
    token = item.get("type") == "kubernetes.io/service-account-token"
    return token or any(value_at(item, ("spec", name)) is not None for name in names)


SETTINGS = """\
apiVersion: v1
kind: ConfigMap
metadata:
  name: {name}
data:
  # Agreed with the search team.
  mode: fast
  limit: "10"  # per second
"""
DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {name}
  labels: {{app: {name}}}
spec:
  replicas: {replicas}
  selector:
    matchLabels: {{app: {name}}}
  template:
    metadata:
      labels: {{app: {name}}}
    spec:
      containers:
      - name: server
        image: {image}  # the team's own build
        args:
        - --port=8000
        - --max-batch=8
        env:
        - name: LEVEL
          value: info  # debug floods the disk
        - name: TZ
          value: UTC
        resources:
          requests: {{cpu: 10m, memory: 16Mi}}
          limits: {{memory: 64Mi}}
"""
SERVICE = """\
apiVersion: v1
kind: Service
metadata:
  name: {name}
spec:
  selector: {{app: {name}}}
  ports:
  - {{name: http, port: 80}}
"""
SECRET = """\
apiVersion: v1
kind: Secret
metadata:
  name: {name}
stringData:
  password: {password}
  user: shop
"""


def settings_yaml(name: str = "settings") -> str:
    return SETTINGS.format(name=name)


def deployment_yaml(name: str, *, image: str = "registry.example/web:v1", replicas: int = 1) -> str:
    return DEPLOYMENT.format(name=name, image=image, replicas=replicas)


def service_yaml(name: str) -> str:
    return SERVICE.format(name=name)


def secret_yaml(name: str, password: str) -> str:
    return SECRET.format(name=name, password=password)
