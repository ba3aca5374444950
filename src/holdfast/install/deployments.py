"""What the pods of an installation have alike: the strictest of the pod security standards.

And the address at which each is reached. For `operator` and `gitops`.
"""

from __future__ import annotations

from holdfast.core.tree import Fields, Tree
from holdfast.install.settings import (
    DEFAULT_LOG_LEVEL,
    GITOPS_NAME,
    OPERATOR_NAME,
    GitopsInstallation,
    Installation,
    PodSettings,
)

HTTP_PORT = 8080
RUN_AS_USER = 65532
OPERATOR_RESOURCES: Fields = {
    "requests": {"cpu": "100m", "memory": "256Mi"},
    "limits": {"memory": "1Gi"},
}
GITOPS_RESOURCES: Fields = {
    "requests": {"cpu": "200m", "memory": "512Mi", "ephemeral-storage": "1Gi"},
    "limits": {"memory": "2Gi"},
}


def object_metadata(name: str, installation: Installation, labels: Fields) -> Fields:
    """Name an object in the installation's own namespace."""
    return {"name": name, "namespace": installation.namespace, "labels": labels}


def pod_security_context() -> Fields:
    """Whom the processes of a pod run as."""
    return {
        "runAsNonRoot": True,
        "runAsUser": RUN_AS_USER,
        "runAsGroup": RUN_AS_USER,
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def container_security_context() -> Fields:
    """What a container may not do."""
    return {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }


def pod_name_env() -> list[Tree]:
    """Tell a container which pod it is in: that is who holds the lease."""
    return [
        {"name": name, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}
        for name, path in (("POD_NAME", "metadata.name"), ("POD_NAMESPACE", "metadata.namespace"))
    ]


def pod_template(pod: Fields, labels: Fields, settings: PodSettings) -> Fields:
    """A pod with the labels that select it, and what the cluster's owner adds."""
    metadata: Fields = {"labels": {**labels, **settings.labels}}
    if settings.annotations:
        metadata["annotations"] = settings.annotations
    return {"metadata": metadata, "spec": pod}


def pod_placement(installation: Installation, settings: PodSettings) -> Fields:
    """Where a pod may run, how urgently, and with which credentials its image is pulled."""
    chosen: Fields = {
        "imagePullSecrets": [{"name": name} for name in installation.pull_secrets],
        "nodeSelector": settings.node_selector,
        "tolerations": settings.tolerations,
        "affinity": settings.affinity,
        "priorityClassName": settings.priority_class,
    }
    return {name: value for name, value in chosen.items() if value}


def container_image(installation: Installation) -> Fields:
    """What a container runs."""
    policy = installation.pull_policy
    return {"image": installation.image, **({"imagePullPolicy": policy} if policy else {})}


def log_arguments(installation: Installation) -> list[Tree]:
    """How much a controller logs, where that is not the default."""
    level = installation.log_level
    return [] if level == DEFAULT_LOG_LEVEL else [f"--log-level={level}"]


def container_ports() -> list[Tree]:
    """The one port on which everything is answered."""
    return [{"name": "http", "containerPort": HTTP_PORT, "protocol": "TCP"}]


def make_service(
    name: str,
    port: str,
    installation: Installation,
    labels: Fields,
    selector: Fields,
    *,
    tls: bool = False,
) -> Fields:
    """The address of that port.

    By TLS it says so: a gateway or a mesh would else take the port for plain HTTP by its name.
    """
    protocol: Fields = {"appProtocol": "https"} if tls else {}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": object_metadata(name, installation, labels),
        "spec": {
            "type": "ClusterIP",
            "selector": selector,
            "ports": [
                {
                    "name": port,
                    "port": HTTP_PORT,
                    "protocol": "TCP",
                    "targetPort": "http",
                    **protocol,
                }
            ],
        },
    }


def container_probes(*, starts_within: int, scheme: str = "HTTP") -> Fields:
    """Have a pod restarted when it stands still, and left alone until it is ready.

    The kubelet checks no certificate when it asks by HTTPS.
    """
    return {
        "startupProbe": _http_probe(scheme, "/healthz", 2, starts_within // 2),
        "livenessProbe": _http_probe(scheme, "/healthz", 10, 3),
        "readinessProbe": _http_probe(scheme, "/readyz", 5, 2),
    }


def _http_probe(scheme: str, path: str, every: int, tries: int) -> Fields:
    return {
        "httpGet": {"path": path, "port": "http", "scheme": scheme},
        "periodSeconds": every,
        "timeoutSeconds": 5,
        "failureThreshold": tries,
    }


def operator_deployment(installation: Installation, labels: Fields, selector: Fields) -> Fields:
    """Several replicas, of which one acts and the others wait for its lease."""
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": object_metadata(OPERATOR_NAME, installation, labels),
        "spec": {
            "replicas": installation.replicas,
            "selector": {"matchLabels": selector},
            "template": pod_template(
                _operator_pod(installation, selector), labels, installation.pod
            ),
        },
    }


def operator_arguments(installation: Installation) -> list[Tree]:
    """The command line of the operator."""
    line: list[Tree] = ["operator", f"--metrics-address=:{HTTP_PORT}"]
    line += [f"--namespace={name}" for name in installation.watched]
    if installation.gateway is not None:
        gateway = installation.gateway
        line += [f"--gateway={gateway.namespace}/{gateway.name}", f"--domain={gateway.domain}"]
    if installation.prometheus is not None:
        line.append(f"--prometheus={installation.prometheus}")
    if installation.page_url:
        line.append(f"--page-url={installation.page_url}")
    line += [f"--model-hub={url}" for url in installation.model_hubs] or ["--no-model-heads"]
    return line + log_arguments(installation)


def _operator_pod(installation: Installation, selector: Fields) -> Fields:
    return {
        "serviceAccountName": installation.pod.account or OPERATOR_NAME,
        "securityContext": pod_security_context(),
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": selector},
            }
        ],
        **pod_placement(installation, installation.pod),
        "terminationGracePeriodSeconds": 30,
        "containers": [_operator_container(installation)],
    }


def _operator_container(installation: Installation) -> Fields:
    return {
        "name": "operator",
        **container_image(installation),
        "args": operator_arguments(installation),
        "env": pod_name_env(),
        "ports": container_ports(),
        **container_probes(starts_within=60),
        "resources": installation.pod.resources or OPERATOR_RESOURCES,
        "securityContext": container_security_context(),
    }


STORE_PATH = "/data/holdfast.db"
CACHE_PATH = "/cache"
KEY_PATH = "/shared"
"""Where the key is that goes with a ledger outside."""
PEOPLE_PATH = "/etc/holdfast/people"
TLS_PATH = "/etc/holdfast/tls"
EGRESS_BLOCKS = {
    "0.0.0.0/0": (
        "169.254.0.0/16",
        "100.100.100.200/32",
        "168.63.129.16/32",
        "192.0.0.192/32",
    ),
    "::/0": ("fe80::/10", "fd00:ec2::254/128"),
}
"""Everywhere, but for link-local addresses and where clouds keep a machine's credentials."""


def gitops_volume_claim(
    installation: Installation, gitops: GitopsInstallation, labels: Fields
) -> Fields:
    """What must outlive the pod: projects, tokens, and the ledger unless a database keeps it."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": object_metadata(GITOPS_NAME, installation, labels),
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": gitops.storage}},
        },
    }


def gitops_network_policy(installation: Installation, labels: Fields, selector: Fields) -> Fields:
    """Nothing but the one port can be reached, and nothing local to the machine is.

    The controller goes to the API server, and to the repositories, forges and channels that
    applications name, which may be anywhere and on any port. It has no business with what a
    machine keeps at link-local addresses, or a cloud at its own: the identity of the node.
    """
    port: Fields = {"port": "http", "protocol": "TCP"}
    names: list[Tree] = [{"port": 53, "protocol": kind} for kind in ("UDP", "TCP")]
    places: list[Tree] = [
        {"ipBlock": {"cidr": cidr, "except": [*kept_out]}}
        for cidr, kept_out in EGRESS_BLOCKS.items()
    ]
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": object_metadata(GITOPS_NAME, installation, labels),
        "spec": {
            "podSelector": {"matchLabels": selector},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [{"ports": [port]}],
            # Names may be asked for at a link-local address: there a node keeps its cache.
            "egress": [{"ports": names}, {"to": places, "ports": [{"protocol": "TCP"}]}],
        },
    }


def gitops_deployment(
    installation: Installation, gitops: GitopsInstallation, labels: Fields, selector: Fields
) -> Fields:
    """One replica, which ends before its successor starts: the volume has one owner at a time."""
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": object_metadata(GITOPS_NAME, installation, labels),
        "spec": {
            "replicas": 1,
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": selector},
            "template": pod_template(_gitops_pod(installation, gitops), labels, gitops.pod),
        },
    }


def gitops_arguments(installation: Installation, gitops: GitopsInstallation) -> list[Tree]:
    """The command line of the controller."""
    line: list[Tree] = ["gitops", "--host=0.0.0.0", f"--port={HTTP_PORT}", f"--db={STORE_PATH}"]
    line.append(f"--cache={CACHE_PATH}")
    line += [f"--namespace={name}" for name in installation.watched]
    if gitops.ledger is not None:
        line.append(f"--key-file={KEY_PATH}/key")
    if gitops.base_url:
        line.append(f"--base-url={gitops.base_url}")
    if gitops.people is not None:
        line.append(f"--people={PEOPLE_PATH}/people.yaml")
    line += [f"--cors-origin={origin}" for origin in gitops.cors_origins]
    if gitops.tls is not None:
        line += [f"--tls-cert={TLS_PATH}/tls.crt", f"--tls-key={TLS_PATH}/tls.key"]
    return line + log_arguments(installation)


def _gitops_pod(installation: Installation, gitops: GitopsInstallation) -> Fields:
    return {
        "serviceAccountName": gitops.pod.account or GITOPS_NAME,
        "securityContext": {
            **pod_security_context(),
            "fsGroup": RUN_AS_USER,
            # A ledger may be large, and it is the controller's own from the first day on.
            "fsGroupChangePolicy": "OnRootMismatch",
        },
        **pod_placement(installation, gitops.pod),
        "terminationGracePeriodSeconds": 60,
        "containers": [_gitops_container(installation, gitops)],
        "volumes": [
            {"name": "data", "persistentVolumeClaim": {"claimName": GITOPS_NAME}},
            {"name": "cache", "emptyDir": {"sizeLimit": "4Gi"}},
            {"name": "tmp", "emptyDir": {"sizeLimit": "1Gi"}},
            *_secret_volumes(gitops),
        ],
    }


def _gitops_container(installation: Installation, gitops: GitopsInstallation) -> Fields:
    return {
        "name": "gitops",
        **container_image(installation),
        "args": gitops_arguments(installation, gitops),
        "env": [*pod_name_env(), *_ledger_env(gitops)],
        "ports": container_ports(),
        # The first start may have a long ledger to bring up to date.
        **container_probes(starts_within=300, scheme="HTTPS" if gitops.tls else "HTTP"),
        "resources": gitops.pod.resources or GITOPS_RESOURCES,
        "securityContext": container_security_context(),
        "volumeMounts": [
            {"name": "data", "mountPath": "/data"},
            {"name": "cache", "mountPath": CACHE_PATH},
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108  # of the container, and its own
            *_secret_mounts(gitops),
        ],
    }


def _ledger_env(gitops: GitopsInstallation) -> list[Tree]:
    """The address has a password in it, so it comes from a Secret and is no argument."""
    if gitops.ledger is None:
        return []
    source: Fields = {"secretKeyRef": {"name": gitops.ledger, "key": "url"}}
    return [{"name": "HOLDFAST_LEDGER", "valueFrom": source}]


def _secret_volumes(gitops: GitopsInstallation) -> list[Tree]:
    """What comes from Secrets as files.

    The key that marks Secrets in a ledger outside goes with it, not with the pod's own volume.
    """
    volumes: list[Tree] = []
    if gitops.ledger is not None:
        key: Fields = {"key": "key", "path": "key"}
        volumes.append({"name": "shared", "secret": {"secretName": gitops.ledger, "items": [key]}})
    if gitops.people is not None:
        volumes.append({"name": "people", "secret": {"secretName": gitops.people}})
    if gitops.tls is not None:
        volumes.append({"name": "tls", "secret": {"secretName": gitops.tls}})
    return volumes


def _secret_mounts(gitops: GitopsInstallation) -> list[Tree]:
    chosen = {
        "shared": (gitops.ledger, KEY_PATH),
        "people": (gitops.people, PEOPLE_PATH),
        "tls": (gitops.tls, TLS_PATH),
    }
    return [
        {"name": name, "mountPath": path, "readOnly": True}
        for name, (secret, path) in chosen.items()
        if secret is not None
    ]
