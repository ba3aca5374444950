"""The Helm chart: the same objects as the export, with the choices as values.

Called by `deploy.py`. The objects are made with words that stand where there is a choice, and
those are then replaced by Helm's actions.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from manifests import (
    EVERYWHERE,
    HERE,
    MADE,
    MONITORING,
    RIGHTS,
    RUNNING,
    format_file,
    join_documents,
    name_of,
    namespace_of,
    select_kinds,
    split_gitops,
)

from holdfast.core.model import DEFAULT_HUB
from holdfast.core.service.children import Gateway
from holdfast.core.tree import Fields
from holdfast.install.deployments import (
    GITOPS_RESOURCES,
    OPERATOR_RESOURCES,
    PEOPLE_PATH,
    TLS_PATH,
)
from holdfast.install.objects import installation_objects
from holdfast.install.settings import (
    DEFAULT_IMAGE,
    DEFAULT_LOG_LEVEL,
    DEFAULT_RUNBOOKS,
    GITOPS_NAME,
    OPERATOR_NAME,
    STORAGE_PATTERN,
    GitopsInstallation,
    Installation,
    PodSettings,
)
from holdfast.version import __version__
from holdfast.wire.yaml import write_document

_NAMESPACE, _IMAGE, _WATCHED, _PROMETHEUS = "x-namespace", "x-image", "x-watched", "x-prometheus"
_PAGE_URL = "x-page-url"
_MODEL_HUB = "x-hub"
_GATEWAY = Gateway(name="x-name", namespace="x-gateway", domain="x-domain")
_REPLICAS = 9
_PULL_SECRET, _PULL_POLICY, _LOG_LEVEL = "x-pull-secret", "x-pull-policy", "x-log-level"
_PULL_SECRETS_LINE = f"imagePullSecrets: {_PULL_SECRET}\n"


def _words(controller: str) -> PodSettings:
    """Stand-ins for the pod settings of one controller."""
    return PodSettings(
        resources=f"x-{controller}-resources",
        node_selector=f"x-{controller}-nodeSelector",
        tolerations=f"x-{controller}-tolerations",
        affinity=f"x-{controller}-affinity",
        priority_class=f"x-{controller}-priorityClassName",
        annotations=f"x-{controller}-podAnnotations",
        labels={f"x-{controller}-podLabels": "x"},
        account=f"x-{controller}-account",
        account_annotations=f"x-{controller}-accountAnnotations",
    )


_GITOPS = GitopsInstallation(
    writes=True,
    secrets=True,
    storage="x-storage",
    ledger="x-ledger",
    base_url="x-base-url",
    people="x-people",
    cors_origins=("x-cors-origin",),
    tls="x-tls",
    pod=_words("gitops"),
)
_RUNBOOKS, _GRAFANA = "x-runbooks", "x-grafana"


def chart() -> dict[str, str]:
    """The same objects, with the choices as values. Helm makes the namespace itself."""
    whole, whole_gitops = split_gitops(_choices(watched=()))
    here, here_gitops = split_gitops(_choices(watched=(_WATCHED,)))
    users = [each for each in select_kinds(whole, EVERYWHERE) if _is_for_people(each)]
    whole = [each for each in whole if each not in users]
    here = [each for each in here if each not in users]
    templates = {
        "_helpers.tpl": _HELPERS,
        "NOTES.txt": _NOTES,
        "crd.yaml": _crd(whole),
        "rights.yaml": _CHECKS + _rights(whole, here),
        "user-roles.yaml": _when(
            "and $.Values.userRoles (not $.Values.watchNamespaces)", _template(users)
        ),
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
        **{
            f"chart/holdfast/templates/{name}": (MADE if name.endswith(".yaml") else "") + text
            for name, text in templates.items()
        },
    }


def _is_for_people(item: Any) -> bool:  # Any: an object of the Kubernetes API
    name = name_of(item)
    return not name.startswith((OPERATOR_NAME, GITOPS_NAME))


def _rights(whole: Sequence[Fields], here: Sequence[Fields]) -> str:
    """Rights on the cluster, or in each namespace that is looked after; and in its own always.

    Those of some namespaces may read more of the cluster, where that was chosen.
    """
    own = select_kinds(whole, HERE)
    watched = [each for each in select_kinds(here, HERE) if namespace_of(each) == _WATCHED]
    beyond = [each for each in select_kinds(here, RIGHTS) if each not in (*own, *watched)]
    (account,) = select_kinds(whole, ("ServiceAccount",))
    values = "$.Values.gitops" if GITOPS_NAME in str(select_kinds(whole, HERE)) else "$.Values"
    return (
        _when(f"{values}.serviceAccount.create", _template([account]) + "---\n")
        + "{{- if not .Values.watchNamespaces }}\n"
        + _pieces(select_kinds(whole, EVERYWHERE))
        + "{{- end }}\n{{- range .Values.watchNamespaces }}\n---\n"
        + _pieces(watched)
        + "{{- end }}\n{{- if .Values.watchNamespaces }}\n---\n"
        + _pieces(beyond)
        + "{{- end }}\n---\n"
        + _template(own)
    )


def _pieces(found: Sequence[Fields]) -> str:
    """Write rights, of which some are there on demand."""
    template = ""
    for each in found:
        asked = _DEMANDS.get(name_of(each))
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
            pull_policy=_PULL_POLICY,
            pull_secrets=(_PULL_SECRET,),
            log_level=_LOG_LEVEL,
            pod=_words("operator"),
            replicas=_REPLICAS,
            watched=watched,
            node_reads=True,
            pod_reads=True,
            gateway=_GATEWAY,
            prometheus=_PROMETHEUS,
            page_url=_PAGE_URL,
            model_hubs=(_MODEL_HUB,),
            gitops=_GITOPS,
            monitoring=True,
            runbooks=_RUNBOOKS,
            grafana=_GRAFANA,
        )
    )


def _template(documents: Sequence[Fields]) -> str:
    """Write objects with Helm's actions where the choices are."""
    text = join_documents(documents).replace("{{", '{{ "{{" }}')
    text = re.sub(rf"imagePullSecrets:\n *- name: {_PULL_SECRET}\n", _PULL_SECRETS_LINE, text)
    lines = []
    for line in text.splitlines(keepends=True):
        indent = line[: len(line) - len(line.lstrip())]
        chosen = _CHOICES.get(line.strip(), "").replace("INDENT", indent)
        for more in (0, 2):
            chosen = chosen.replace(f"WIDTH+{more}", str(len(indent) + more))
        lines.append(chosen or line)
    text = "".join(lines)
    text = text.replace(f": {_NAMESPACE}\n", ": {{ $.Release.Namespace | quote }}\n")
    text = text.replace(_NAMESPACE, "{{ $.Release.Namespace }}")
    for controller, name in _CONTROLLERS.items():
        account = f'include "holdfast.account" (list {_values(controller)} "{name}") | quote'
        text = text.replace(f": x-{controller}-account\n", f": {{{{ {account} }}}}\n")
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


def _pod_schema() -> Fields:
    """The choices that both controllers have."""
    words: Fields = {"type": "object", "additionalProperties": {"type": "string"}}
    ours = "^app[.]kubernetes[.]io/(name|instance|component|part-of|version)$"
    return {
        "resources": {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                "requests": {"type": "object"},
                "limits": {"type": "object"},
                "claims": {"type": "array"},
            },
        },
        "nodeSelector": words,
        "tolerations": {"type": "array", "items": {"type": "object"}},
        "affinity": {"type": "object"},
        "priorityClassName": {"type": "string"},
        "podAnnotations": words,
        "podLabels": {**words, "propertyNames": {"not": {"pattern": ours}}},
        "serviceAccount": {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                "create": {"type": "boolean"},
                "name": {"type": "string", "pattern": "^([a-z0-9]([a-z0-9.-]*[a-z0-9])?)?$"},
                "annotations": words,
            },
        },
    }


def _schema() -> Fields:
    text: Fields = {"type": "string"}
    flag: Fields = {"type": "boolean"}
    name: Fields = {"type": "string", "pattern": "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$"}
    secret: Fields = {"type": "string", "pattern": "^([a-z0-9]([a-z0-9.-]*[a-z0-9])?)?$"}
    origin = r"https?://[a-z0-9.:\[\]-]+"
    return {
        "$schema": "https://json-schema.org/draft-07/schema#",
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "global": {"type": "object"},
            "image": {
                "type": "object",
                "additionalProperties": False,
                "properties": {
                    "repository": {"type": "string", "minLength": 1},
                    "tag": text,
                    "digest": {"type": "string", "pattern": "^(sha256:[0-9a-f]{64})?$"},
                    "pullPolicy": {"enum": ["", "Always", "IfNotPresent", "Never"]},
                },
            },
            "imagePullSecrets": {
                "type": "array",
                "items": {
                    "type": "object",
                    "additionalProperties": False,
                    "required": ["name"],
                    "properties": {"name": text},
                },
            },
            "logLevel": {"enum": ["debug", "info", "warning", "error"]},
            **_pod_schema(),
            "userRoles": flag,
            "replicas": {"type": "integer", "minimum": 1, "maximum": 9},
            "watchNamespaces": {"type": "array", "items": name, "uniqueItems": True},
            "nodeReads": flag,
            "podReads": flag,
            "gateway": {
                "type": "object",
                "additionalProperties": False,
                "properties": {"namespace": text, "name": text, "domain": text},
            },
            "prometheus": text,
            "pageUrl": {"type": "string", "pattern": f"^({origin})?$"},
            "modelHubs": {
                "type": "array",
                "items": {"type": "string", "pattern": "^https?://[!-?A-~]+$"},
                "uniqueItems": True,
            },
            "gitops": {
                "type": "object",
                "additionalProperties": False,
                "properties": {
                    **_pod_schema(),
                    "enabled": flag,
                    "writes": flag,
                    "secrets": flag,
                    "storage": {"type": "string", "pattern": STORAGE_PATTERN},
                    "ledger": secret,
                    "baseUrl": {"type": "string", "pattern": f"^({origin})?$"},
                    "people": secret,
                    "corsOrigins": {
                        "type": "array",
                        "items": {"type": "string", "pattern": f"^{origin}$"},
                        "uniqueItems": True,
                    },
                    "tls": secret,
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
    f"{OPERATOR_NAME}-nodes-{_NAMESPACE}": "$.Values.nodeReads",
    f"{OPERATOR_NAME}-pods-{_NAMESPACE}": "$.Values.podReads",
    f"{GITOPS_NAME}-nodes-{_NAMESPACE}": "$.Values.podReads",
    f"{GITOPS_NAME}-writes": "$.Values.gitops.writes",
    f"{GITOPS_NAME}-secrets": "$.Values.gitops.secrets",
    f"{GITOPS_NAME}-secret-writes": "and $.Values.gitops.secrets $.Values.gitops.writes",
}
"""Rights that are given on demand, by their names, and when."""

_CONTROLLERS = {"operator": OPERATOR_NAME, "gitops": GITOPS_NAME}


def _values(controller: str) -> str:
    """Where the values of a controller are: those of the operator are at the top."""
    return "$.Values.gitops" if controller == "gitops" else "$.Values"


def _given_tree(key: str, word: str, value: str) -> dict[str, str]:
    """A field that is written as it is given, where it is given."""
    action = (
        f"INDENT{{{{- with {value} }}}}\n"
        f"INDENT{key}:\n"
        "INDENT  {{- toYaml . | nindent WIDTH+2 }}\n"
        "INDENT{{- end }}\n"
    )
    return {f"{key}: {word}": action}


def _pod_choices(controller: str) -> dict[str, str]:
    values = _values(controller)
    word = f"x-{controller}-"
    choices = {
        **_given_tree("resources", f"{word}resources", f"{values}.resources"),
        **_given_tree("annotations", f"{word}podAnnotations", f"{values}.podAnnotations"),
        **_given_tree(
            "annotations", f"{word}accountAnnotations", f"{values}.serviceAccount.annotations"
        ),
        f"{word}podLabels: x": (
            f"INDENT{{{{- with {values}.podLabels }}}}\n"
            "INDENT{{- toYaml . | nindent WIDTH+0 }}\n"
            "INDENT{{- end }}\n"
        ),
        f"priorityClassName: {word}priorityClassName": (
            f"INDENT{{{{- with {values}.priorityClassName }}}}\n"
            "INDENTpriorityClassName: {{ . | quote }}\n"
            "INDENT{{- end }}\n"
        ),
    }
    for key in ("nodeSelector", "tolerations", "affinity"):
        choices |= _given_tree(key, word + key, f"{values}.{key}")
    return choices


_HELPERS = """\
{{- /* Made by tools/deploy.py; do not edit. */ -}}
{{- define "holdfast.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}
{{- define "holdfast.account" -}}
{{- $values := index . 0 -}}
{{- if not $values.serviceAccount.create -}}
{{- $name := $values.serviceAccount.name -}}
{{- required "serviceAccount.name goes with serviceAccount.create: false" $name -}}
{{- else -}}
{{- $values.serviceAccount.name | default (index . 1) -}}
{{- end -}}
{{- end -}}
"""

_CHECKS = """\
{{- if and $.Values.nodeReads (not $.Values.watchNamespaces) }}
{{- fail "nodeReads goes with watchNamespaces; an operator of the whole cluster reads nodes" }}
{{- end }}
{{- if and $.Values.podReads (not $.Values.nodeReads) }}
{{- fail "podReads goes with nodeReads" }}
{{- end }}
"""

_NOTES = f"""\
{{{{- /* Made by tools/deploy.py; do not edit. */ -}}}}
{{{{- if eq .Values.image.repository "{DEFAULT_IMAGE.partition(":")[0]}" }}}}
WARNING: no registry has the image {{{{ include "holdfast.image" . }}}}, so pods will not start
unless your nodes have it. Build deploy/Containerfile, push it, and set image.repository.

{{{{ end -}}}}
See that the controllers run:

  kubectl -n {{{{ .Release.Namespace }}}} get deployments -l app.kubernetes.io/part-of=holdfast
{{{{- if and .Values.gitops.enabled (not .Values.gitops.tls) }}}}
{{{{- if not (hasPrefix "https://" .Values.gitops.baseUrl) }}}}

Nobody can sign in to the page of the GitOps controller as it is, for that takes TLS: set
gitops.tls, or gitops.baseUrl to the https:// address of what stands before it.
{{{{- end }}}}
{{{{- end }}}}
"""

_CHOICES = {
    f"replicas: {_REPLICAS}": "INDENTreplicas: {{ .Values.replicas }}\n",
    f"image: {_IMAGE}": 'INDENTimage: {{ include "holdfast.image" $ | quote }}\n',
    f"imagePullPolicy: {_PULL_POLICY}": (
        "INDENT{{- with $.Values.image.pullPolicy }}\n"
        "INDENTimagePullPolicy: {{ . }}\n"
        "INDENT{{- end }}\n"
    ),
    **_given_tree("imagePullSecrets", _PULL_SECRET, "$.Values.imagePullSecrets"),
    f"- --log-level={_LOG_LEVEL}": (
        f'INDENT{{{{- if ne $.Values.logLevel "{DEFAULT_LOG_LEVEL}" }}}}\n'
        'INDENT- {{ printf "--log-level=%s" $.Values.logLevel | quote }}\n'
        "INDENT{{- end }}\n"
    ),
    **_pod_choices("operator"),
    **_pod_choices("gitops"),
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
    f"- --base-url={_GITOPS.base_url}": (
        "INDENT{{- with .Values.gitops.baseUrl }}\n"
        'INDENT- {{ printf "--base-url=%s" . | quote }}\n'
        "INDENT{{- end }}\n"
    ),
    f"- --people={PEOPLE_PATH}/people.yaml": (
        "INDENT{{- if .Values.gitops.people }}\n"
        f"INDENT- --people={PEOPLE_PATH}/people.yaml\n"
        "INDENT{{- end }}\n"
    ),
    f"- --cors-origin={_GITOPS.cors_origins[0]}": (
        "INDENT{{- range .Values.gitops.corsOrigins }}\n"
        'INDENT- {{ printf "--cors-origin=%s" . | quote }}\n'
        "INDENT{{- end }}\n"
    ),
    f"- --tls-cert={TLS_PATH}/tls.crt": (
        "INDENT{{- if .Values.gitops.tls }}\n" + f"INDENT- --tls-cert={TLS_PATH}/tls.crt\n"
    ),
    f"- --tls-key={TLS_PATH}/tls.key": (
        f"INDENT- --tls-key={TLS_PATH}/tls.key\n" + "INDENT{{- end }}\n"
    ),
    "- name: people": "INDENT{{- with .Values.gitops.people }}\nINDENT- name: people\n",
    f"secretName: {_GITOPS.people}": ("INDENTsecretName: {{ . | quote }}\nINDENT{{- end }}\n"),
    "- name: tls": "INDENT{{- with .Values.gitops.tls }}\nINDENT- name: tls\n",
    f"secretName: {_GITOPS.tls}": "INDENTsecretName: {{ . | quote }}\nINDENT{{- end }}\n",
    "scheme: HTTPS": "INDENTscheme: {{ if .Values.gitops.tls }}HTTPS{{ else }}HTTP{{ end }}\n",
    "appProtocol: https": (
        "INDENT{{- if .Values.gitops.tls }}\nINDENTappProtocol: https\nINDENT{{- end }}\n"
    ),
    "scheme: https": "INDENT{{- if .Values.gitops.tls }}\nINDENTscheme: https\n",
    "insecureSkipVerify: true": "INDENTinsecureSkipVerify: true\nINDENT{{- end }}\n",
    f"storage: {_GITOPS.storage}": "INDENTstorage: {{ .Values.gitops.storage | quote }}\n",
    f"- --prometheus={_PROMETHEUS}": (
        "INDENT{{- with .Values.prometheus }}\n"
        'INDENT- {{ printf "--prometheus=%s" . | quote }}\n'
        "INDENT{{- end }}\n"
    ),
    f"- --page-url={_PAGE_URL}": (
        "INDENT{{- with .Values.pageUrl }}\n"
        'INDENT- {{ printf "--page-url=%s" . | quote }}\n'
        "INDENT{{- end }}\n"
    ),
    f"- --model-hub={_MODEL_HUB}": (
        "INDENT{{- range .Values.modelHubs }}\n"
        'INDENT- {{ printf "--model-hub=%s" . | quote }}\n'
        "INDENT{{- else }}\n"
        "INDENT- --no-model-heads\n"
        "INDENT{{- end }}\n"
    ),
}


def _indented(tree: Fields, by: int) -> str:
    return "".join(" " * by + line for line in write_document(tree).splitlines(keepends=True))


def _pod_values(resources: Fields, by: int) -> str:
    """The values that both controllers have, indented."""
    lines = f"""\
resources:
{_indented(resources, 2)}nodeSelector: {{}}
tolerations: []
affinity: {{}}
priorityClassName: ""
podAnnotations: {{}}
podLabels: {{}}
# Without create, an account of that name must be there; bindings to it are made all the same.
serviceAccount:
  create: true
  name: ""
  annotations: {{}}
"""
    return "".join(" " * by + line for line in lines.splitlines(keepends=True))


VALUES = f"""\
{MADE}
# Image of the controllers. No registry has this one: build deploy/Containerfile and push it.
image:
  repository: {DEFAULT_IMAGE.partition(":")[0]}
  # Empty: the version of the chart.
  tag: ""
  # sha256:..., in place of the tag.
  digest: ""
  # Always, IfNotPresent or Never. Empty leaves it to the cluster.
  pullPolicy: ""

# Secrets of the namespace to pull it with, as in a pod: [{{name: registry}}]
imagePullSecrets: []

# debug, info, warning or error, for both controllers.
logLevel: {DEFAULT_LOG_LEVEL}

# Operators, of which one acts and the others stand by.
replicas: 2

# The operator's pods and account. gitops has the same for its own.
{_pod_values(OPERATOR_RESOURCES, 0)}
# Look after these namespaces alone, with rights in them alone. Empty: the whole cluster.
watchNamespaces: []

# With watchNamespaces: let the operator read nodes, and the Events about them in the namespace
# default, so that failing hardware is known for a cause.
nodeReads: false

# With nodeReads: let the controllers list the pods of all namespaces, so that free devices are
# counted. Pods show the variables of their containers.
podReads: false

# Gateway of the Gateway API that routes attach to, and the domain their hosts are under.
gateway:
  namespace: ""
  name: ""
  domain: ""

# Where the metrics of canaries are read.
prometheus: ""

# Where people reach the page of a holdfast serve over this cluster, as
# https://holdfast.example.com: the operator's Events link to it.
pageUrl: ""

# Model hubs that the operator asks, without a token, whether the branches of pinned models moved
# on. Empty: nobody is asked, as where no hub can be reached.
modelHubs: [{DEFAULT_HUB}]

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
  # Where browsers reach it, as https://holdfast.example.com. The page needs this, or tls.
  baseUrl: ""
  # A Secret that lets people and CI jobs sign in: people.yaml is the people file.
  people: ""
  # Origins whose scripts may read what its API answers: [https://app.example.com]
  corsOrigins: []
  # A Secret of the type kubernetes.io/tls, with which it speaks TLS.
  tls: ""
{_pod_values(GITOPS_RESOURCES, 2)}
# Lets the cluster's view role read InferenceServices and Applications, and edit and admin write
# InferenceServices. Applications are written by whom you bind to holdfast-application-editor.
# Not with watchNamespaces: nothing is granted on the cluster as a whole then.
userRoles: true

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
