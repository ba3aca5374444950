"""Writes what is made in deploy/ from the objects that `holdfast install` prints.

A kustomize base with its components, a Helm chart, and for monitoring the rule files and the
Grafana board.

python tools/deploy.py          # write them
python tools/deploy.py --check  # exit 1 when they are out of date
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from chart import chart  # beside this file
from manifests import MONITORING, RIGHTS, RUNNING, format_file, name_of, select_kinds, split_gitops

from holdfast.core.tree import Fields
from holdfast.install.monitoring import (
    DASHBOARD_FILE,
    dashboard_text,
    rule_group,
)
from holdfast.install.objects import installation_objects
from holdfast.install.settings import GITOPS_NAME, OPERATOR_NAME, GitopsInstallation, Installation

DEPLOY = Path(__file__).resolve().parent.parent / "deploy"


def main(arguments: list[str]) -> int:
    """Write the files, or say which would change."""
    made = {**kustomize(), **chart(), **monitoring()}
    wanted = {DEPLOY / name: text for name, text in made.items()}
    there = {
        path
        for folder in ("kustomize", "chart")
        for path in (DEPLOY / folder).rglob("*")
        if path.is_file()
    }
    stale = [path for path, text in wanted.items() if not path.exists() or path.read_text() != text]
    stale += sorted(there - set(wanted))
    if not stale:
        return 0
    if "--check" in arguments:
        names = ", ".join(str(path.relative_to(DEPLOY.parent)) for path in stale)
        print(f"out of date: {names}; run python tools/deploy.py", file=sys.stderr)
        return 1
    for path in there - set(wanted):
        path.unlink()
    for path, text in wanted.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return 0


def monitoring() -> dict[str, str]:
    """What a Prometheus and a Grafana take that no operator looks after."""
    controllers = {"operator": OPERATOR_NAME, "gitops": GITOPS_NAME}
    files = {
        f"monitoring/{name}.rules.yaml": format_file(
            [{"groups": [rule_group(controller, Installation())]}]
        )
        for name, controller in controllers.items()
    }
    return files | {f"monitoring/{DASHBOARD_FILE}": dashboard_text()}


def kustomize() -> dict[str, str]:
    """A base with the defaults, and beside it components for what is added on demand."""
    everything = installation_objects(
        Installation(monitoring=True, gitops=GitopsInstallation(writes=True))
    )
    base, added = split_gitops(everything)
    writes = [each for each in select_kinds(added, RIGHTS) if name_of(each).endswith("-writes")]
    parts = {
        "namespace.yaml": select_kinds(base, ("Namespace",)),
        "crd.yaml": select_kinds(base, ("CustomResourceDefinition",)),
        "rights.yaml": select_kinds(base, ("ServiceAccount", *RIGHTS)),
        "operator.yaml": select_kinds(base, ("Service", "Deployment")),
    }
    components = {
        "monitoring": {"monitoring.yaml": select_kinds(base, MONITORING)},
        "gitops": {
            "rights.yaml": [
                each
                for each in select_kinds(added, ("ServiceAccount", *RIGHTS))
                if each not in writes
            ],
            "gitops.yaml": select_kinds(added, RUNNING),
        },
        "gitops-writes": {"rights.yaml": writes},
        "gitops-monitoring": {"monitoring.yaml": select_kinds(added, MONITORING)},
    }
    files = {f"kustomize/{name}": format_file(each) for name, each in parts.items()}
    files["kustomize/kustomization.yaml"] = format_file([_kustomization(list(parts))])
    for folder, found in components.items():
        made = _kustomization(list(found), kind="Component")
        files[f"kustomize/{folder}/kustomization.yaml"] = format_file([made])
        for name, each in found.items():
            files[f"kustomize/{folder}/{name}"] = format_file(each)
    return files


def _kustomization(resources: Sequence[str], kind: str = "Kustomization") -> Fields:
    version = "v1beta1" if kind == "Kustomization" else "v1alpha1"
    made: Fields = {"apiVersion": f"kustomize.config.k8s.io/{version}", "kind": kind}
    if kind == "Kustomization":
        made["sortOptions"] = {"order": "fifo"}
    return {**made, "resources": [*resources]}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
