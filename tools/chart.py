"""The Helm chart: the same objects as the export, with the choices as values.

Called by `deploy.py`. The objects are made with words that stand where there is a choice, and
those are then replaced by Helm's actions.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from manifests import (
    EVERYWHERE,
    HERE,
    MADE,
    MONITORING,
    RUNNING,
    format_file,
    join_documents,
    name_of,
    select_kinds,
    split_gitops,
)

from holdfast.core.service.children import Gateway
from holdfast.core.tree import Fields
from holdfast.install.objects import installation_objects
from holdfast.install.settings import (
    DEFAULT_IMAGE,
    DEFAULT_RUNBOOKS,
    GITOPS_NAME,
    STORAGE_PATTERN,
    GitopsInstallation,
    Installation,
)
from holdfast.version import __version__

_NAMESPACE, _IMAGE, _WATCHED, _PROMETHEUS = "x-namespace", "x-image", "x-watched", "x-prometheus"
_GATEWAY = Gateway(name="x-name", namespace="x-gateway", domain="x-domain")
_REPLICAS = 9
_GITOPS = GitopsInstallation(writes=True, secrets=True, storage="x-storage", ledger="x-ledger")
_RUNBOOKS, _GRAFANA = "x-runbooks", "x-grafana"


def chart() -> dict[str, str]:
    """The same objects, with the choices as values. Helm makes the namespace itself."""
    whole, whole_gitops = split_gitops(_choices(watched=()))
    here, here_gitops = split_gitops(_choices(watched=(_WATCHED,)))
    templates = {
        "crd.yaml": _crd(whole),
        "rights.yaml": _rights(whole, here),
        "operator.yaml": _template(select_kinds(here, ("Service", "Deployment"))),
        "monitoring.yaml": _when("$.Values.monitoring", _template(select_kinds(whole, MONITORING))),
        "gitops-rights.yaml": _when(_ON, _rights(whole_gitops, here_gitops)),
        "gitops.yaml": _when(_ON, _running(here_gitops)),
        "gitops-monitoring.yaml": _when(
            f"and $.Values.monitoring {_ON}", _template(select_kinds(whole_gitops, MONITORING))
        ),
    }
    return {
        "chart/holdfast/Chart.yaml": format_file([_chart()]),
        "chart/holdfast/values.yaml": VALUES,
        "chart/holdfast/values.schema.json": json.dumps(_schema(), indent=2) + "\n",
        **{f"chart/holdfast/templates/{name}": MADE + text for name, text in templates.items()},
    }


def _rights(whole: Sequence[Fields], here: Sequence[Fields]) -> str:
    """Rights on the cluster, or in each namespace that is looked after; and in its own always."""
    own = select_kinds(whole, HERE)
    watched = [each for each in select_kinds(here, HERE) if each not in own]
    return (
        _template(select_kinds(whole, ("ServiceAccount",)))
        + "---\n{{- if not .Values.watchNamespaces }}\n"
        + _pieces(select_kinds(whole, EVERYWHERE))
        + "{{- end }}\n{{- range .Values.watchNamespaces }}\n---\n"
        + _pieces(watched)
        + "{{- end }}\n---\n"
        + _template(own)
    )


def _pieces(found: Sequence[Fields]) -> str:
    """Write rights, of which some are there on demand."""
    template = ""
    for each in found:
        asked = _DEMANDS.get(name_of(each).removeprefix(f"{GITOPS_NAME}-"))
        text = ("---\n" if template else "") + _template([each])
        template += _when(asked, text) if asked else text
    return template


def _when(condition: str, text: str) -> str:
    return f"{{{{- if {condition} }}}}\n{text}{{{{- end }}}}\n"


def _choices(*, watched: tuple[str, ...]) -> tuple[Fields, ...]:
    return installation_objects(
        Installation(
            namespace=_NAMESPACE,
            image=_IMAGE,
            replicas=_REPLICAS,
            watched=watched,
            gateway=_GATEWAY,
            prometheus=_PROMETHEUS,
            gitops=_GITOPS,
            monitoring=True,
            runbooks=_RUNBOOKS,
            grafana=_GRAFANA,
        )
    )


def _template(documents: Sequence[Fields]) -> str:
    """Write objects with Helm's actions where the choices are."""
    text = join_documents(documents).replace("{{", '{{ "{{" }}')
    lines = []
    for line in text.splitlines(keepends=True):
        indent = line[: len(line) - len(line.lstrip())]
        lines.append(_CHOICES.get(line.strip(), "").replace("INDENT", indent) or line)
    text = "".join(lines)
    text = text.replace(f": {_NAMESPACE}\n", ": {{ $.Release.Namespace | quote }}\n")
    text = text.replace(_NAMESPACE, "{{ $.Release.Namespace }}")
    for word, value in ((_RUNBOOKS, "$.Values.runbooks"), (_GRAFANA, "$.Values.grafana")):
        text = re.sub(rf": {word}(/\S+)\n", rf': {{{{ printf "%s\1" {value} | quote }}}}\n', text)
    return text.replace(f": {_WATCHED}\n", ": {{ . | quote }}\n")


def _running(found: Sequence[Fields]) -> str:
    """Write the controller. Its volume outlives the chart: nothing else has the ledger."""
    keep = "metadata:\n  annotations:\n    helm.sh/resource-policy: keep\n"
    volume = _template(select_kinds(found, ("PersistentVolumeClaim",))).replace(
        "metadata:\n", keep, 1
    )
    return volume + "---\n" + _template(select_kinds(found, RUNNING[1:]))


def _crd(whole: Sequence[Fields]) -> str:
    text = _template(select_kinds(whole, ("CustomResourceDefinition",)))
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
            "gitops": {
                "type": "object",
                "additionalProperties": False,
                "properties": {
                    "enabled": flag,
                    "writes": flag,
                    "secrets": flag,
                    "storage": {"type": "string", "pattern": STORAGE_PATTERN},
                    "ledger": {"type": "string", "pattern": "^([a-z0-9]([a-z0-9.-]*[a-z0-9])?)?$"},
                },
            },
            "monitoring": flag,
            "runbooks": text,
            "grafana": text,
            "crds": {
                "type": "object",
                "additionalProperties": False,
                "properties": {"install": flag, "keep": flag},
            },
        },
    }


_ON = "$.Values.gitops.enabled"
_DEMANDS = {
    "writes": "$.Values.gitops.writes",
    "secrets": "$.Values.gitops.secrets",
    "secret-writes": "and $.Values.gitops.secrets $.Values.gitops.writes",
}
"""Parts of the GitOps controller's rights, and when they are given."""

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
    "- name: HOLDFAST_LEDGER": (
        "INDENT{{- with .Values.gitops.ledger }}\nINDENT- name: HOLDFAST_LEDGER\n"
    ),
    f"name: {_GITOPS.ledger}": "INDENTname: {{ . | quote }}\n",
    "key: url": "INDENTkey: url\nINDENT{{- end }}\n",
    "- --key-file=/shared/key": (
        "INDENT{{- if .Values.gitops.ledger }}\nINDENT- --key-file=/shared/key\nINDENT{{- end }}\n"
    ),
    "- name: shared": "INDENT{{- with .Values.gitops.ledger }}\nINDENT- name: shared\n",
    f"secretName: {_GITOPS.ledger}": "INDENTsecretName: {{ . | quote }}\n",
    "readOnly: true": "INDENTreadOnly: true\nINDENT{{- end }}\n",
    "path: key": "INDENTpath: key\nINDENT{{- end }}\n",
    f"storage: {_GITOPS.storage}": "INDENTstorage: {{ .Values.gitops.storage | quote }}\n",
    f"- --prometheus={_PROMETHEUS}": (
        "INDENT{{- with .Values.prometheus }}\n"
        'INDENT- {{ printf "--prometheus=%s" . | quote }}\n'
        "INDENT{{- end }}\n"
    ),
}

VALUES = f"""\
{MADE}
# Image of the operator. No registry has this one: build deploy/Containerfile and push it.
image: {DEFAULT_IMAGE}

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

# The GitOps controller. As it is, it reads and reports; docs/operations/gitops.md has its rights.
gitops:
  enabled: false
  # Let it create, change and delete the usual kinds of objects in the namespaces it looks after.
  writes: false
  # Let it read Secrets there, and with writes write them.
  secrets: false
  # Size of the volume that keeps the ledger, the projects and the tokens.
  storage: 1Gi
  # A Secret for a PostgreSQL database that keeps the ledger instead: url is its address, key the
  # key that marks Secrets in it.
  ledger: ""

# Adds ServiceMonitors and alerts, for the Prometheus operator, and a board for Grafana.
monitoring: false

# Where you serve the runbooks, and your Grafana; alerts link to both.
runbooks: {DEFAULT_RUNBOOKS}
grafana: ""

# Helm upgrades the definitions with the chart. With keep, they and the workloads outlive it.
crds:
  install: true
  keep: true
"""
