"""What people and programs do to an object behind our back, and what a verdict must say of it.

The end-to-end tests make each edit on a real cluster. The pure tests read what was captured
there; `python -m tests.support.edits` captures it anew.
"""

from __future__ import annotations

import copy
import json
import os
import re
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tests.support.cluster import Cluster, KubectlFailed
from tests.support.ownership import apply

from holdfast.core.drift import Cause, DriftKind
from holdfast.core.ownership.delegated import FieldClass
from holdfast.core.ownership.object_diff import ObjectState
from holdfast.core.ownership.signals import Signal

CAPTURED = Path(__file__).parent.parent / "core" / "ownership" / "objects"
SERVER = "spec.template.spec.containers[name=server]"

# Any, here and below: objects of the Kubernetes API as they come over the wire.
DEPLOYMENT: dict[str, Any] = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "bot", "labels": {"app": "bot"}},
    "spec": {
        "replicas": 2,
        "selector": {"matchLabels": {"app": "bot"}},
        "template": {
            "metadata": {"labels": {"app": "bot"}},
            "spec": {
                "containers": [
                    {
                        "name": "server",
                        "image": "registry.example/vllm:v1",
                        "args": ["--port=8000"],
                        "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
                        "ports": [{"containerPort": 8000}],
                        "resources": {"requests": {"cpu": "0.5", "memory": "64Mi"}},
                        "volumeMounts": [{"name": "models", "mountPath": "/models"}],
                    }
                ],
                "tolerations": [{"key": "gpu", "operator": "Exists"}],
                "volumes": [{"name": "models", "emptyDir": {}}],
            },
        },
    },
}
SERVICE: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "bot"},
    "spec": {"selector": {"app": "bot"}, "ports": [{"name": "http", "port": 80}]},
}
SECRET: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Secret",
    "metadata": {"name": "bot"},
    "stringData": {"token": "hunter2-first"},
}


@dataclass(frozen=True, kw_only=True)
class ExpectedDrift:
    """One finding."""

    path: str
    signal: Signal = Signal.VALUE
    cause: Cause = Cause.PERSON
    manager: str | None = None
    kind: DriftKind = DriftKind.CONFIGURATION
    field_class: FieldClass = FieldClass.OWNED


@dataclass(frozen=True, kw_only=True)
class Edit:
    """Calls of kubectl, what they leave behind, and what to say of it."""

    name: str
    calls: tuple[tuple[str, ...], ...]
    state: ObjectState = ObjectState.DRIFTED
    field_drifts: tuple[ExpectedDrift, ...] = ()
    after_dry_run: ObjectState | None = None
    """The state once a dry run has been asked, if another one."""
    item: dict[str, Any]
    stdin: dict[str, Any] | None = None
    until: Callable[[dict[str, Any]], object] = bool

    @property
    def file(self) -> Path:
        """Where it is captured."""
        return CAPTURED / f"{re.sub(r'[^a-z]+', '-', self.name)}.json"


def with_change(item: dict[str, Any], change: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    copied = copy.deepcopy(item)
    change(copied)
    return copied


def _patch(kind: str, form: str, body: object, *flags: str) -> tuple[str, ...]:
    return ("patch", kind, "bot", f"--type={form}", "-p", json.dumps(body), *flags)


def _container(**fields: Any) -> dict[str, Any]:
    return {"spec": {"template": {"spec": {"containers": [{"name": "server", **fields}]}}}}


def _deployment(name: str, *calls: tuple[str, ...], **more: Any) -> Edit:
    return Edit(name=name, calls=calls, item=DEPLOYMENT, **more)


def _older(item: dict[str, Any]) -> None:
    item["spec"]["template"]["spec"]["containers"][0]["args"] = ["--port=9"]


EDITS = (
    _deployment("nothing", state=ObjectState.IN_SYNC),
    _deployment(
        "kubectl edit",
        ("edit", "deployment", "bot"),
        field_drifts=(
            ExpectedDrift(path=f"{SERVER}.image", manager="kubectl-edit", kind=DriftKind.IMAGE),
        ),
    ),
    _deployment(
        "kubectl patch",
        _patch("deployment", "strategic", _container(args=["--port=1"])),
        field_drifts=(ExpectedDrift(path=f"{SERVER}.args", manager="kubectl-patch"),),
    ),
    _deployment(
        "kubectl set image",
        ("set", "image", "deployment/bot", "server=registry.example/vllm:v2"),
        field_drifts=(
            ExpectedDrift(path=f"{SERVER}.image", manager="kubectl-set", kind=DriftKind.IMAGE),
        ),
    ),
    _deployment(
        "kubectl set env, a changed and a new variable",
        ("set", "env", "deployment/bot", "A=9", "NEW=1"),
        field_drifts=(
            ExpectedDrift(path=f"{SERVER}.env[name=A].value", manager="kubectl-set"),
            ExpectedDrift(
                path=f"{SERVER}.env[name=NEW]", signal=Signal.ADDED, manager="kubectl-set"
            ),
        ),
    ),
    _deployment(
        "a variable removed",
        ("set", "env", "deployment/bot", "A-"),
        field_drifts=(ExpectedDrift(path=f"{SERVER}.env[name=A]", cause=Cause.UNKNOWN),),
    ),
    _deployment(
        "kubectl scale",
        ("scale", "deployment", "bot", "--replicas=4"),
        field_drifts=(ExpectedDrift(path="spec.replicas", manager="kubectl"),),
    ),
    _deployment(
        "an autoscaler",
        ("autoscale", "deployment", "bot", "--min=3", "--max=5", "--cpu=50%"),
        state=ObjectState.IN_SYNC,
        field_drifts=(
            ExpectedDrift(
                path="spec.replicas",
                cause=Cause.AUTOSCALER,
                manager="kube-controller-manager",
                field_class=FieldClass.DELEGATED,
            ),
        ),
        until=lambda live: live["spec"]["replicas"] == 3,
    ),
    _deployment(
        "kubectl label",
        ("label", "deployment", "bot", "team=search"),
        field_drifts=(
            ExpectedDrift(
                path="metadata.labels.team", signal=Signal.ADDED, manager="kubectl-label"
            ),
        ),
    ),
    _deployment(
        "a label of a controller",
        ("label", "deployment", "bot", "seen=yes", "--field-manager=backup-operator"),
        state=ObjectState.IN_SYNC,
        field_drifts=(
            ExpectedDrift(
                path="metadata.labels.seen",
                signal=Signal.ADDED,
                cause=Cause.CONTROLLER,
                manager="backup-operator",
                field_class=FieldClass.OBSERVED,
            ),
        ),
    ),
    _deployment(
        "kubectl rollout restart",
        ("rollout", "restart", "deployment/bot"),
        state=ObjectState.IN_SYNC,
        field_drifts=(
            ExpectedDrift(
                path="spec.template.metadata.annotations.kubectl.kubernetes.io/restartedAt",
                signal=Signal.ADDED,
                manager="kubectl-rollout",
                field_class=FieldClass.OBSERVED,
            ),
        ),
    ),
    _deployment(
        "a container and a privilege added by another manager",
        _patch(
            "deployment",
            "strategic",
            {
                "spec": {
                    "template": {
                        "spec": {
                            "hostNetwork": True,
                            "containers": [{"name": "miner", "image": "registry.example/m:1"}],
                        }
                    }
                }
            },
            "--field-manager=miner-operator",
        ),
        field_drifts=tuple(
            ExpectedDrift(
                path=f"spec.template.spec.{path}",
                signal=Signal.ADDED,
                cause=Cause.CONTROLLER,
                manager="miner-operator",
            )
            for path in ("containers[name=miner]", "hostNetwork")
        ),
    ),
    _deployment(
        "a client-side apply of an older file",
        ("apply", "-f", "-"),
        stdin=with_change(DEPLOYMENT, _older),
        field_drifts=(ExpectedDrift(path=f"{SERVER}.args", manager="kubectl-client-side-apply"),),
    ),
    _deployment(
        "a volume swapped for the host's",
        _patch(
            "deployment",
            "json",
            [
                {
                    "op": "replace",
                    "path": "/spec/template/spec/volumes/0",
                    "value": {"name": "models", "hostPath": {"path": "/"}},
                }
            ],
        ),
        field_drifts=(
            ExpectedDrift(
                path="spec.template.spec.volumes[name=models].emptyDir", cause=Cause.UNKNOWN
            ),
            ExpectedDrift(
                path="spec.template.spec.volumes[name=models].hostPath.path",
                signal=Signal.ADDED,
                manager="kubectl-patch",
            ),
        ),
    ),
    _deployment(
        "changed and changed back",
        ("set", "image", "deployment/bot", "server=registry.example/vllm:v2"),
        ("set", "image", "deployment/bot", "server=registry.example/vllm:v1"),
        state=ObjectState.SUSPECT,
        after_dry_run=ObjectState.IN_SYNC,
        field_drifts=(
            ExpectedDrift(
                path=f"{SERVER}.image",
                signal=Signal.LOST,
                manager="kubectl-set",
                kind=DriftKind.IMAGE,
            ),
        ),
    ),
    _deployment(
        "another spelling of the same memory",
        _patch(
            "deployment",
            "strategic",
            _container(resources={"requests": {"memory": "67108864", "cpu": "500m"}}),
        ),
        state=ObjectState.SUSPECT,
        after_dry_run=ObjectState.IN_SYNC,
        field_drifts=(
            ExpectedDrift(
                path=f"{SERVER}.resources.requests.memory",
                signal=Signal.LOST,
                manager="kubectl-patch",
            ),
        ),
    ),
    _deployment(
        "variables in another order",
        _patch(
            "deployment",
            "json",
            [
                {
                    "op": "replace",
                    "path": "/spec/template/spec/containers/0/env",
                    "value": [{"name": "B", "value": "2"}, {"name": "A", "value": "1"}],
                }
            ],
        ),
        state=ObjectState.IN_SYNC,
    ),
    _deployment(
        "wiped ownership",
        _patch("deployment", "merge", {"metadata": {"managedFields": [{}]}}),
        ("set", "env", "deployment/bot", "A=9"),
        state=ObjectState.WIPED,
        field_drifts=(ExpectedDrift(path=f"{SERVER}.env[name=A].value", cause=Cause.UNKNOWN),),
    ),
    Edit(
        name="a selector of a service",
        item=SERVICE,
        calls=(("set", "selector", "service", "bot", "app=other"),),
        field_drifts=(ExpectedDrift(path="spec.selector.app", manager="kubectl-set"),),
    ),
    Edit(
        name="a port moved",
        item=SERVICE,
        calls=(
            _patch(
                "service", "json", [{"op": "replace", "path": "/spec/ports/0/port", "value": 81}]
            ),
        ),
        field_drifts=(
            ExpectedDrift(path="spec.ports[port=80,protocol=TCP]", cause=Cause.UNKNOWN),
            ExpectedDrift(
                path="spec.ports[port=81,protocol=TCP]",
                signal=Signal.ADDED,
                manager="kubectl-patch",
            ),
        ),
    ),
    Edit(
        name="a secret and one more",
        item=SECRET,
        calls=(
            _patch("secret", "merge", {"stringData": {"token": "hunter2-next", "more": "hunter2"}}),
        ),
        field_drifts=(
            ExpectedDrift(
                path="data.more",
                signal=Signal.ADDED,
                manager="kubectl-patch",
                kind=DriftKind.SECRET,
            ),
            ExpectedDrift(path="data.token", manager="kubectl-patch", kind=DriftKind.SECRET),
        ),
    ),
)


def make_edit(edit: Edit, cluster: Cluster, namespace: str) -> dict[str, dict[str, Any]]:
    """Apply, edit, and give what is there then, with the answer of a dry run."""
    apply(cluster, edit.item, namespace)
    with patch.dict(os.environ, {"KUBE_EDITOR": "sed -i s/vllm:v1/vllm:edited/"}):
        for call in edit.calls:
            stdin = json.dumps(edit.stdin) if edit.stdin else None
            cluster.kubectl(*call, "-n", namespace, stdin=stdin)
    kind, name = edit.item["kind"], edit.item["metadata"]["name"]
    cluster.wait(kind, name, namespace, edit.until)
    dry_run = apply_dry(cluster, edit, namespace)
    return {"live": cluster.get(kind, name, namespace), "dry_run": dry_run}


def apply_dry(cluster: Cluster, edit: Edit, namespace: str) -> dict[str, Any]:
    """The answer of a dry run; {} where the server says that an apply cannot heal this."""
    try:
        return apply(cluster, edit.item, namespace, dry_run=True)
    except KubectlFailed as refused:
        if "is invalid" not in str(refused):
            raise
        return {}


def capture() -> None:
    """Make every edit on a cluster of its own and write down what it left behind."""
    CAPTURED.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        cluster = Cluster.join(Path(scratch) / "cluster")
        for edit in EDITS:
            found = make_edit(edit, cluster, cluster.create_namespace())
            for answer in found.values():
                answer.pop("status", None)
            edit.file.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
        cluster.stop()


if __name__ == "__main__":
    capture()
