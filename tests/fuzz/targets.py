"""What strangers may hand us, and what must hold for every byte of it.

A target takes bytes and returns, whatever they are: a refusal of ours is an answer, any other
exception is a bug. Where a value comes out, the target checks a law about it as well.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from holdfast.adapters.clock import SystemClock
from holdfast.adapters.git.address import parse_address, parse_revision
from holdfast.adapters.kubernetes.kubeconfig import Kubeconfig
from holdfast.apps.server.protocol import BadFraming, ChunkedBody
from holdfast.core.command import canonical_command, split_command
from holdfast.core.drift import find_drift
from holdfast.core.errors import HoldfastError
from holdfast.core.glob import compiled_glob
from holdfast.core.live import Absent
from holdfast.core.ownership.managed_fields import read_ownership
from holdfast.core.plan import Plan, make_plan
from holdfast.core.quantity import canonical_quantity, parse_duration, parse_quantity
from holdfast.core.redact import Secret
from holdfast.core.tokens import parse as parse_token
from holdfast.core.workload import WorkloadSpec, desired_of
from holdfast.wire.application_v1alpha1 import application_from_json
from holdfast.wire.forge_webhooks import ForgeProvider, PushHint, read_webhook, verify_webhook
from holdfast.wire.inference_service_v1alpha1 import service_from_json
from holdfast.wire.plan_v1 import PlanForm, plan_from_json, plan_to_json, step_from_json
from holdfast.wire.spec_v1 import spec_from_document, spec_to_document
from holdfast.wire.yaml import read_documents, write_document
from holdfast.wire.yaml_edit import Edit, apply_edits

NOW = datetime(2026, 1, 1, tzinfo=UTC)
CLOCK = SystemClock()


@dataclass(frozen=True, slots=True, kw_only=True)
class FuzzTarget:
    run: Callable[[bytes], None]
    seeds: tuple[bytes, ...]


def _text(data: bytes) -> str:
    return data.decode(errors="replace")


def read_yaml(data: bytes) -> None:
    """What was read and written again reads the same."""
    for document in read_documents(data, source="fuzz"):
        again = read_documents(write_document(document.value).encode(), source="fuzz")
        assert [each.value for each in again] == [document.value]


def read_json(data: bytes) -> None:
    read_documents(data, source="fuzz", json=True)


def read_spec(data: bytes) -> None:
    for document in read_documents(data, source="fuzz"):
        spec = spec_from_document(document.value)
        assert spec_from_document(spec_to_document(spec)) == spec


def read_application(data: bytes) -> None:
    for document in read_documents(data, source="fuzz"):
        application_from_json(document.value)


def read_service(data: bytes) -> None:
    for document in read_documents(data, source="fuzz"):
        service_from_json(document.value)


def edit_yaml(data: bytes) -> None:
    """An edit either says exactly what was asked for, or is refused."""
    changed = apply_edits(data, [Edit(path=("data", "key"), value="new")], document=0)
    before = read_documents(data, source="fuzz")
    after = read_documents(changed, source="fuzz")
    assert len(before) == len(after)
    assert after[0].value["data"]["key"] == "new"  # type: ignore[index,call-overload]
    assert [each.value for each in before[1:]] == [each.value for each in after[1:]]


def read_kubeconfig(data: bytes) -> None:
    with TemporaryDirectory() as home:
        path = Path(home) / "config"
        path.write_bytes(data)
        config = Kubeconfig([path])
        for context in [None, *config.contexts]:
            with suppress(HoldfastError):
                config.choose(context, clock=CLOCK)


def receive_webhook(data: bytes) -> None:
    """Nothing unsigned is genuine, and whatever is signed is read without an exception."""
    head, _, body = data.partition(b"\n\n")
    lines = (line.partition(":") for line in head.decode("latin-1").splitlines())
    headers = {name.strip(): value.strip() for name, _, value in lines}
    for provider in ForgeProvider:
        for secret in ("0123456789abcdef", "whsec_MDEyMzQ1Njc4OWFiY2RlZg=="):
            assert verify_webhook(provider, headers, body, Secret(secret), now=NOW) is not None
        found = read_webhook(provider, headers, body)
        if isinstance(found, PushHint):
            assert found.repositories


def frame_chunks(data: bytes) -> None:
    """However a body is cut into pieces, it ends at the same byte or is refused."""
    assert _framed([data]) == _framed([data[at : at + 1] for at in range(len(data))])


def _framed(pieces: list[bytes]) -> tuple[bool, int] | None:
    chunks, beyond = ChunkedBody(), 0
    try:
        for piece in pieces:
            beyond += len(chunks.feed(piece)) if not chunks.ended else len(piece)
    except BadFraming:
        return None
    return chunks.ended, beyond


def compare_command(data: bytes) -> None:
    text = _text(data)
    canonical_command(text)
    with suppress(ValueError):
        split_command(text)


def read_plan(data: bytes) -> None:
    """A plan is read as it was written; its digest is put right, or nothing else is reached."""
    plan_from_json(msgspec.json.encode(_with_its_digest(data)))


def _with_its_digest(data: bytes) -> PlanForm:
    try:
        form = msgspec.json.decode(data, type=PlanForm)
    except (ValueError, RecursionError):
        with suppress(HoldfastError):
            plan_from_json(data)
        return PlanForm()
    plan = Plan(steps=tuple(step_from_json(step) for step in form.steps))
    written = plan_to_json(plan)
    assert plan_from_json(msgspec.json.encode(written)) == plan
    return written


def _saved_plan() -> bytes:
    spec = WorkloadSpec(name="chat", slug="chat", model="m", backend="vllm", command="vllm serve m")
    desired = desired_of(spec, project="acme")
    drift = find_drift(desired=desired, live=Absent(id=desired.id))
    return msgspec.json.encode(plan_to_json(make_plan([drift])))


def parse_git_address(data: bytes) -> None:
    """Nothing that Git would take for an option comes out."""
    address = parse_address(_text(data))
    assert not address.url.startswith("-")
    assert parse_address(address.url) == address


def parse_git_revision(data: bytes) -> None:
    parse_revision(_text(data))


def parse_amount(data: bytes) -> None:
    text = _text(data)
    canonical_quantity(text)
    parse_quantity(text)
    parse_duration(text)


def match_glob(data: bytes) -> None:
    pattern, _, text = _text(data).partition("\n")
    with suppress(ValueError):
        compiled_glob(pattern).matches(text)


def read_managed_fields(data: bytes) -> None:
    with suppress(ValueError, RecursionError):
        value = json.loads(data)
        read_ownership(value)


def read_token(data: bytes) -> None:
    parse_token(_text(data))


SPEC = b"""slug: chat
model: Qwen/Qwen3-8B
backend: vllm
command: vllm serve Qwen/Qwen3-8B --max-model-len 8192 --port ${PORT}
env: {A: '1'}
replicas: 2
canary: {model: other, weight: 10}
"""
SERVICE = b"""apiVersion: holdfast.dev/v1alpha1
kind: InferenceService
metadata: {name: chat, namespace: default}
spec: {modelRef: Qwen/Qwen3-8B, replicas: 2, resources: {cpu: 500m, memory: 1Gi}}
"""
APPLICATION = b"""apiVersion: holdfast.dev/v1alpha1
kind: Application
metadata: {name: shop, namespace: team}
spec:
  source: {repository: "https://git.example/team/shop.git", revision: main, path: deploy}
  drift: {routes: [{name: all, remediation: review}]}
"""
KUBECONFIG = b"""apiVersion: v1
kind: Config
current-context: a
contexts: [{name: a, context: {cluster: c, user: u, namespace: n}}]
clusters: [{name: c, cluster: {server: "https://127.0.0.1:6443"}}]
users: [{name: u, user: {token: t}}]
"""
PUSH = b"""X-GitHub-Event: push
X-GitHub-Delivery: 1

{"ref": "refs/heads/main", "repository": {"clone_url": "https://git.example/team/shop.git"}}"""

TARGETS = {
    "yaml": FuzzTarget(
        run=read_yaml, seeds=(SPEC, SERVICE, b"a: &x [1, 'two']\nb: *x\n---\n|\n t")
    ),
    "json": FuzzTarget(run=read_json, seeds=(b'{"a": [1, 2.5, "\\u00e9", null, true]}',)),
    "spec": FuzzTarget(run=read_spec, seeds=(SPEC,)),
    "application": FuzzTarget(run=read_application, seeds=(APPLICATION,)),
    "service": FuzzTarget(run=read_service, seeds=(SERVICE,)),
    "yaml-edit": FuzzTarget(
        run=edit_yaml,
        seeds=(b"data:\n  key: old  # why\n  other: 1\n", b"a: 1\ndata: {key: 'x', b: [1]}\n"),
    ),
    "kubeconfig": FuzzTarget(run=read_kubeconfig, seeds=(KUBECONFIG,)),
    "webhook": FuzzTarget(run=receive_webhook, seeds=(PUSH,)),
    "framing": FuzzTarget(run=frame_chunks, seeds=(b"5\r\nhello\r\n0\r\n\r\n",)),
    "command": FuzzTarget(run=compare_command, seeds=(b"vllm serve m --a=b -c 'd e' -- f",)),
    "plan": FuzzTarget(run=read_plan, seeds=(_saved_plan(),)),
    "git-address": FuzzTarget(
        run=parse_git_address,
        seeds=(b"https://git.example/a/b.git", b"git@git.example:a/b.git", b"ssh://g@h:22/a"),
    ),
    "git-revision": FuzzTarget(run=parse_git_revision, seeds=(b"main", b"v1.0", b"a" * 40)),
    "amount": FuzzTarget(run=parse_amount, seeds=(b"1.5Gi", b"500m", b"1h30m", b"1e3")),
    "glob": FuzzTarget(run=match_glob, seeds=(b"spec.**.image\nspec.a.b.image",)),
    "managed-fields": FuzzTarget(
        run=read_managed_fields,
        seeds=(
            b'[{"manager": "a", "operation": "Apply", "fieldsType": "FieldsV1", "fieldsV1":'
            b' {"f:spec": {"f:containers": {"k:{\\"name\\":\\"a\\"}": {".": {}}}}}}]',
        ),
    ),
    "token": FuzzTarget(run=read_token, seeds=(b"ik_sdk_00000001_abc",)),
}


def feed(target: FuzzTarget, data: bytes) -> None:
    """Run a target; a refusal of ours is an answer."""
    with suppress(HoldfastError):
        target.run(data)
