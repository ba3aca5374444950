"""Applies manifests as the operator does, with kubectl, and asks for verdicts on what is there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml
from tests.support.cluster import Cluster

from holdfast.core.ownership.delegated import ALONE, Surroundings
from holdfast.core.ownership.signals import Declaration
from holdfast.core.ownership.verdict import Verdict, judge
from holdfast.core.tree import digest

MANAGER = "holdfast-operator"
KEY = b"a key of the tests"
NOW = datetime(2026, 11, 16, tzinfo=UTC)
CORPUS = Path(__file__).parent.parent / "corpus"


# Any, here and below: objects of the Kubernetes API as they come over the wire.
def corpus() -> list[dict[str, Any]]:
    """Every manifest of the corpus, the definition of a kind before its objects."""
    files = sorted(CORPUS.glob("*.yaml"), key=lambda file: (file.stem == "custom", file.stem))
    return [item for file in files for item in yaml.safe_load_all(file.read_text())]


def declare(item: dict[str, Any], **more: Any) -> Declaration:
    return Declaration(item=item, digest=digest(item), managers=frozenset({MANAGER}), **more)


def verdict(
    item: dict[str, Any],
    live: dict[str, Any] | None,
    *,
    around: Surroundings = ALONE,
    dry_run: dict[str, Any] | None = None,
    **more: Any,
) -> Verdict:
    """Judge an object as the operator would."""
    return judge(
        declared=declare(item),
        live=live,
        key=KEY,
        now=more.pop("now", NOW),
        around=around,
        dry_run=dry_run,
        **more,
    )


def apply(
    cluster: Cluster, item: Mapping[str, Any], namespace: str, *, dry_run: bool = False
) -> dict[str, Any]:
    """Apply under our manager, by force, and give the server's answer."""
    flags = ["--dry-run=server"] if dry_run else []
    answer = cluster.kubectl(
        *["apply", "--server-side", "--force-conflicts", f"--field-manager={MANAGER}"],
        *["-n", namespace, "-o", "json", "--show-managed-fields", "-f", "-", *flags],
        stdin=json.dumps(item),
    )
    found: dict[str, Any] = json.loads(answer)
    return found
