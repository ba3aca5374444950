"""Where a field is declared: the file and the line that people are sent to."""

from __future__ import annotations

import pytest

from holdfast.core.gitops.source import DeclaredObject, Origin
from holdfast.core.object_ref import ref_of
from holdfast.core.tree import Fields, Path
from holdfast.wire.yaml import read_documents

TEXT = b"""\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
spec:
  template:
    spec:
      containers:
        - name: side
          image: side:1
        - name: main
          image: main:1
          args:
            - --one
            - --two
          ports:
            - containerPort: 80
            - containerPort: 80
              protocol: UDP
          env:
            - name: A
              value: x=1,y=2
"""
CONTAINERS = ("spec", "template", "spec", "containers")
MAIN = (*CONTAINERS, "[name=main]")


def declared(elsewhere: dict[str, tuple[str, int]] | None = None) -> DeclaredObject:
    (document,) = read_documents(TEXT, source="web.yaml")
    item = document.value
    assert isinstance(item, dict)
    origin = Origin(file="web.yaml", lines=document.lines, elsewhere=elsewhere or {})
    return DeclaredObject(ref=ref_of(item), item=item, origin=origin)


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ((), 1),
        (("spec",), 5),
        ((*CONTAINERS, "[name=side]", "image"), 10),
        ((*MAIN, "image"), 12),
        ((*MAIN, "args"), 13),
        ((*MAIN, "args", "[1]"), 15),
        ((*MAIN, "args", "[7]"), 13),
        ((*MAIN, "ports", "[containerPort=80,protocol=TCP]"), 17),
        ((*MAIN, "ports", "[containerPort=80,protocol=UDP]", "protocol"), 19),
        ((*MAIN, "env", "[name=A]", "value"), 22),
        ((*MAIN, "resources", "limits"), 11),
        ((*CONTAINERS, "[name=added]", "image"), 8),
    ],
)
def test_a_field_in_a_list_has_the_line_of_its_own_item(path: Path, line: int) -> None:
    assert declared().where(path) == f"web.yaml:{line}"


def test_a_field_that_an_overlay_sets_has_the_overlays_file() -> None:
    found = declared({"/spec/template/spec/containers/1/image": ("prod/kustomization.yaml", 4)})
    assert found.where((*MAIN, "image")) == "prod/kustomization.yaml:4"
    assert found.where((*CONTAINERS, "[name=side]", "image")) == "web.yaml:10"


def test_an_item_whose_key_holds_a_comma_is_found() -> None:
    item: Fields = {"apiVersion": "v1", "kind": "A", "list": [{"name": "x"}, {"name": "a,b"}]}
    origin = Origin(file="a.yaml", lines={"": 1, "/list": 2, "/list/0": 3, "/list/1": 4})
    found = DeclaredObject(
        ref=ref_of({**item, "metadata": {"name": "a"}}), item=item, origin=origin
    )
    assert found.where(("list", "[name=a,b]", "name")) == "a.yaml:4"
