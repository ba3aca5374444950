"""Objects as a server would have them, without a server: values, and who owns which."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterable
from typing import Any

from tests.support.ownership import KEY, MANAGER

from holdfast.core.ownership.canonical import (
    canonical_object,
    leaf_paths,
    rules_for,
    secret_as_stored,
)
from holdfast.core.ownership.managed_fields import Ownership
from holdfast.core.tree import Path

NOBODY = Ownership(entries=())


def fields_v1_key(segment: str) -> str:
    """Write a path segment as a key of FieldsV1."""
    if not segment.startswith("["):
        return f"f:{segment}"
    pairs = (part.partition("=") for part in re.split(r",(?=\w+=)", segment[1:-1]))
    return "k:" + json.dumps({name: int(v) if v.isdigit() else v for name, _, v in pairs})


def fields_v1_of(paths: Iterable[Path]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for path in paths:
        here = fields
        for segment in path:
            here = here.setdefault(fields_v1_key(segment), {})
            if segment.startswith("["):
                here.setdefault(".", {})
    return fields


def applied(item: dict[str, Any]) -> dict[str, Any]:
    """The object as a server would have it after its apply, with a controller's status."""
    rules = rules_for(item["kind"], item["apiVersion"], NOBODY)
    tree = canonical_object(item, rules, key=KEY)
    ours = fields_v1_of(
        path
        for path in leaf_paths(tree)
        if path[0] not in ("apiVersion", "kind") and path not in (("metadata", "name"),)
    )
    live: dict[str, Any] = copy.deepcopy(item)
    if item["kind"] == "Secret":
        live = dict(secret_as_stored(live))
    status = {"f:status": {"f:conditions": {'k:{"type":"Ready"}': {".": {}, "f:type": {}}}}}
    live["status"] = {"conditions": [{"type": "Ready"}]}
    live["metadata"] |= {
        "uid": "u",
        "resourceVersion": "1",
        "managedFields": [
            {
                "manager": MANAGER,
                "operation": "Apply",
                "apiVersion": item["apiVersion"],
                "fieldsType": "FieldsV1",
                "fieldsV1": ours,
            },
            {
                "manager": "kube-controller-manager",
                "operation": "Update",
                "subresource": "status",
                "apiVersion": item["apiVersion"],
                "fieldsType": "FieldsV1",
                "fieldsV1": status,
            },
        ],
    }
    return live
