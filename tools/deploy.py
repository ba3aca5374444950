"""Writes deploy/kustomize/ and deploy/chart/ from the objects that `holdfast install` prints.

python tools/deploy.py          # write them
python tools/deploy.py --check  # exit 1 when they are out of date
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from holdfast.core.service.children import Gateway
from holdfast.core.tree import Fields
from holdfast.install.objects import objects
from holdfast.install.settings import IMAGE, Installation
from holdfast.version import __version__
from holdfast.wire.yaml import write_document

DEPLOY = Path(__file__).resolve().parent.parent / "deploy"
MADE = "# Made by tools/deploy.py; do not edit.\n"
RIGHTS = ("ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")
MONITORING = ("ServiceMonitor", "PrometheusRule")

# Words that stand where the chart has a choice.
_NAMESPACE, _IMAGE, _WATCHED, _PROMETHEUS = "x-namespace", "x-image", "x-watched", "x-prometheus"
_GATEWAY = Gateway(name="x-name", namespace="x-gateway", domain="x-domain")
_REPLICAS = 9


def main(arguments: list[str]) -> int:
    """Write the files, or say which would change."""
    wanted = {DEPLOY / name: text for name, text in {**kustomize(), **chart()}.items()}
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


def kustomize() -> dict[str, str]:
    """A base with the defaults, and monitoring as a component beside it."""
    everything = objects(Installation(monitoring=True))
    parts = {
        "namespace.yaml": _of(everything, ("Namespace",)),
        "crd.yaml": _of(everything, ("CustomResourceDefinition",)),
        "rights.yaml": _of(everything, ("ServiceAccount", *RIGHTS)),
        "operator.yaml": _of(everything, ("Service", "Deployment")),
    }
    base: Fields = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "sortOptions": {"order": "fifo"},
        "resources": list(parts),
    }
    component: Fields = {
        "apiVersion": "kustomize.config.k8s.io/v1alpha1",
        "kind": "Component",
        "resources": ["monitoring.yaml"],
    }
    files = {f"kustomize/{name}": _written(each) for name, each in parts.items()}
    return files | {
        "kustomize/kustomization.yaml": _written([base]),
        "kustomize/monitoring/kustomization.yaml": _written([component]),
        "kustomize/monitoring/monitoring.yaml": _written(_of(everything, MONITORING)),
    }


def chart() -> dict[str, str]:
    """The same objects, with the choices as values. Helm makes the namespace itself."""
    whole = _choices(watched=())
    here = _choices(watched=(_WATCHED,))
    everywhere = _of(whole, ("ClusterRole", "ClusterRoleBinding"))
    leader = _of(whole, ("Role", "RoleBinding"))
    watched = [each for each in _of(here, ("Role", "RoleBinding")) if each not in leader]
    rights = (
        _template(_of(whole, ("ServiceAccount",)))
        + "---\n{{- if not .Values.watchNamespaces }}\n"
        + _template(everywhere)
        + "{{- end }}\n{{- range .Values.watchNamespaces }}\n---\n"
        + _template(watched)
        + "{{- end }}\n---\n"
        + _template(leader)
    )
    monitoring = _template(_of(whole, MONITORING))
    return {
        "chart/holdfast/Chart.yaml": _written([_chart()]),
        "chart/holdfast/values.yaml": VALUES,
        "chart/holdfast/values.schema.json": json.dumps(_schema(), indent=2) + "\n",
        "chart/holdfast/templates/crd.yaml": MADE + _crd(whole),
        "chart/holdfast/templates/rights.yaml": MADE + rights,
        "chart/holdfast/templates/operator.yaml": MADE
        + _template(_of(here, ("Service", "Deployment"))),
        "chart/holdfast/templates/monitoring.yaml": MADE
        + "{{- if .Values.monitoring }}\n"
        + monitoring
        + "{{- end }}\n",
    }


def _choices(*, watched: tuple[str, ...]) -> tuple[Fields, ...]:
    return objects(
        Installation(
            namespace=_NAMESPACE,
            image=_IMAGE,
            replicas=_REPLICAS,
            watched=watched,
            gateway=_GATEWAY,
            prometheus=_PROMETHEUS,
            monitoring=True,
        )
    )


def _of(found: Sequence[Fields], kinds: Sequence[str]) -> list[Fields]:
    return [each for each in found if each["kind"] in kinds]


def _written(documents: Sequence[Fields]) -> str:
    return MADE + "---\n".join(write_document(each) for each in documents)


def _template(documents: Sequence[Fields]) -> str:
    """Write objects with Helm's actions where the choices are."""
    text = "---\n".join(write_document(each) for each in documents).replace("{{", '{{ "{{" }}')
    lines = []
    for line in text.splitlines(keepends=True):
        indent = line[: len(line) - len(line.lstrip())]
        lines.append(_CHOICES.get(line.strip(), "").replace("INDENT", indent) or line)
    text = "".join(lines)
    text = text.replace(f": {_NAMESPACE}\n", ": {{ $.Release.Namespace | quote }}\n")
    text = text.replace(_NAMESPACE, "{{ $.Release.Namespace }}")
    return text.replace(f": {_WATCHED}\n", ": {{ . | quote }}\n")


def _crd(whole: Sequence[Fields]) -> str:
    text = _template(_of(whole, ("CustomResourceDefinition",)))
    keep = (
        "metadata:\n"
        "  {{- if .Values.crds.keep }}\n"
        "  annotations:\n"
        "    helm.sh/resource-policy: keep\n"
        "  {{- end }}\n"
    )
    text = re.sub("^metadata:\n", keep, text, flags=re.MULTILINE)
    return "{{- if .Values.crds.install }}\n" + text + "{{- end }}\n"


def _chart() -> Fields:
    return {
        "apiVersion": "v2",
        "name": "holdfast",
        "description": "Keeps ML inference workloads where their owners declared them to be",
        "type": "application",
        "version": __version__,
        "appVersion": __version__,
    }


def _schema() -> Fields:
    text: Fields = {"type": "string"}
    flag: Fields = {"type": "boolean"}
    name: Fields = {"type": "string", "pattern": "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$"}
    return {
        "$schema": "https://json-schema.org/draft-07/schema#",
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "global": {"type": "object"},
            "image": {"type": "string", "minLength": 1},
            "replicas": {"type": "integer", "minimum": 1, "maximum": 9},
            "watchNamespaces": {"type": "array", "items": name, "uniqueItems": True},
            "gateway": {
                "type": "object",
                "additionalProperties": False,
                "properties": {"namespace": text, "name": text, "domain": text},
            },
            "prometheus": text,
            "monitoring": flag,
            "crds": {
                "type": "object",
                "additionalProperties": False,
                "properties": {"install": flag, "keep": flag},
            },
        },
    }


_CHOICES = {
    f"replicas: {_REPLICAS}": "INDENTreplicas: {{ .Values.replicas }}\n",
    f"image: {_IMAGE}": "INDENTimage: {{ .Values.image | quote }}\n",
    f"- --namespace={_WATCHED}": (
        "INDENT{{- range .Values.watchNamespaces }}\n"
        'INDENT- {{ printf "--namespace=%s" . | quote }}\n'
        "INDENT{{- end }}\n"
    ),
    f"- --gateway={_GATEWAY.namespace}/{_GATEWAY.name}": (
        "INDENT{{- with .Values.gateway }}\n"
        "INDENT{{- if .name }}\n"
        '{{- $place := required "gateway.namespace goes with gateway.name" .namespace }}\n'
        '{{- $domain := required "gateway.domain goes with gateway.name" .domain }}\n'
        'INDENT- {{ printf "--gateway=%s/%s" $place .name | quote }}\n'
    ),
    f"- --domain={_GATEWAY.domain}": (
        'INDENT- {{ printf "--domain=%s" $domain | quote }}\nINDENT{{- end }}\nINDENT{{- end }}\n'
    ),
    f"- --prometheus={_PROMETHEUS}": (
        "INDENT{{- with .Values.prometheus }}\n"
        'INDENT- {{ printf "--prometheus=%s" . | quote }}\n'
        "INDENT{{- end }}\n"
    ),
}

VALUES = f"""\
{MADE}
# Image of the operator. No registry has this one: build deploy/Containerfile and push it.
image: {IMAGE}

# Operators, of which one acts and the others stand by.
replicas: 2

# Look after these namespaces alone, with rights in them alone. Empty: the whole cluster.
watchNamespaces: []

# Gateway of the Gateway API that routes attach to, and the domain their hosts are under.
gateway:
  namespace: ""
  name: ""
  domain: ""

# Where the metrics of canaries are read.
prometheus: ""

# Adds a ServiceMonitor and alerts, for the Prometheus operator.
monitoring: false

# Helm upgrades the definitions with the chart. With keep, they and the workloads outlive it.
crds:
  install: true
  keep: true
"""

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
