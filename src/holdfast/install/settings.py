"""The choices that an installation leaves open."""

from __future__ import annotations

from dataclasses import dataclass, field

from holdfast.core.model import DEFAULT_HUB
from holdfast.core.service.children import Gateway
from holdfast.core.tree import Fields, Tree
from holdfast.version import __version__

OPERATOR_NAME = "holdfast-operator"
GITOPS_NAME = "holdfast-gitops"
DEFAULT_NAMESPACE = "holdfast-system"
DEFAULT_RUNBOOKS = "docs/operations/runbooks"
"""In this repository: nobody serves them unless you do."""
DEFAULT_IMAGE = f"holdfast:{__version__}"
"""What `deploy/Containerfile` is built as. No registry has it: push it where the nodes look."""
STORAGE_PATTERN = r"^[1-9][0-9]*(Mi|Gi|Ti)$"
"""How the size of a volume is written."""


DEFAULT_LOG_LEVEL = "info"


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSettings:
    """What a cluster asks of one controller's pods. What is empty here is not said."""

    resources: Fields | None = None
    """None means those that the controller is known to need."""
    node_selector: Fields = field(default_factory=dict)
    tolerations: list[Tree] = field(default_factory=list)
    affinity: Fields = field(default_factory=dict)
    priority_class: str = ""
    annotations: Fields = field(default_factory=dict)
    labels: Fields = field(default_factory=dict)
    """Beside our own, which select the pods."""
    account: str = ""
    """Of the service account; empty means the controller's own name."""
    account_annotations: Fields = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class GitopsInstallation:
    """One GitOps controller. As it is, it reads and reports."""

    writes: bool = False
    """Lets it create, change and delete the usual kinds of objects in the namespaces that it looks
    after. Who can run pods in a namespace can use everything in it, so this is no small right."""
    secrets: bool = False
    """Lets it read Secrets there, and with `writes` write them."""
    storage: str = "1Gi"
    """Of the volume that keeps the ledger, the projects and the tokens."""
    ledger: str | None = None
    """A Secret in the controller's namespace for a PostgreSQL database that keeps the ledger
    instead: `url` is its address, `key` the key that marks Secrets in it."""
    base_url: str = ""
    """Where browsers reach it, as `https://holdfast.example.com`."""
    people: str | None = None
    """A Secret there, of which `people.yaml` is the people file. What that names as a file may be
    another key of it."""
    cors_origins: tuple[str, ...] = ()
    """Origins whose scripts may read what the API answers."""
    tls: str | None = None
    """A Secret there of the type `kubernetes.io/tls`: with it the server speaks TLS."""
    pod: PodSettings = field(default_factory=PodSettings)


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """One operator, and perhaps a GitOps controller. Without `watched`, for the whole cluster."""

    namespace: str = DEFAULT_NAMESPACE
    image: str = DEFAULT_IMAGE
    pull_policy: str = ""
    """Empty leaves it to the cluster, which pulls what it does not have."""
    pull_secrets: tuple[str, ...] = ()
    """Secrets in the installation's namespace."""
    log_level: str = DEFAULT_LOG_LEVEL
    pod: PodSettings = field(default_factory=PodSettings)
    """Of the operator."""
    replicas: int = 2
    watched: tuple[str, ...] = ()
    node_reads: bool = False
    """With `watched`, lets the operator read nodes and the Events about them, which explain lost
    replicas. One of the whole cluster may anyway."""
    pod_reads: bool = False
    """With `node_reads`, lets the controllers list the pods of all namespaces, without which
    nobody knows which devices are free. A pod shows what is declared of it, variables included."""
    gateway: Gateway | None = None
    prometheus: str | None = None
    """Where a canary's metrics are read."""
    page_url: str = ""
    """Where people reach the page of a control plane over the cluster, as
    `https://holdfast.example.com`; the operator's Events link to it."""
    model_hubs: tuple[str, ...] = (DEFAULT_HUB,)
    """Hubs that are asked whether the branches of pinned models moved on; none: nobody is."""
    gitops: GitopsInstallation | None = None
    monitoring: bool = False
    """Adds objects of the Prometheus operator, whose definitions the cluster must have, and a
    board for Grafana."""
    runbooks: str = DEFAULT_RUNBOOKS
    """Where people read the runbooks; alerts link to them."""
    grafana: str = ""
    """Where people open the board; alerts link to it."""
