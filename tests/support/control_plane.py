"""Runs the processes of a real Kubernetes control plane in one directory, on loopback.

Kept alive by the process that started it: the kernel ends them when that one dies, however it
dies. Called by tests/support/cluster_process.py, which is that process for a whole test run.
"""

from __future__ import annotations

import http.client
import json
import os
import shutil
import signal
import ssl
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.support.certificates import Authority, Certificate
from tests.support.processes import (
    assert_running,
    dying_with_us,
    free_port,
    start_on_free_ports,
    start_process,
    wait_until,
)
from tests.support.testbed import STAGES, Programs

REQUEST_TIMEOUT = 10.0
JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"


class ApiRequestFailed(Exception):
    def __init__(self, status: int, said: str) -> None:
        super().__init__(f"{status}: {said}")
        self.status = status


class AdminApi:
    def __init__(self, *, server: str, authority: Path, identity: Certificate) -> None:
        self._address = urlsplit(server).netloc
        self._context = ssl.create_default_context(cafile=str(authority))
        self._context.load_cert_chain(identity.certificate, identity.key)

    def ready(self) -> bool:
        try:
            return self._send("GET", "/readyz", None, JSON)[0] == http.HTTPStatus.OK
        except (OSError, http.client.HTTPException):
            return False

    # Any: objects of the Kubernetes API as they come over the wire.
    def request(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        content_type: str = JSON,
    ) -> dict[str, Any]:
        """Send one request and give the object it answers with; raises RequestFailed."""
        status, answer = self._send(method, path, body, content_type)
        if status >= http.HTTPStatus.BAD_REQUEST:
            raise ApiRequestFailed(status, answer.decode(errors="replace"))
        found: dict[str, Any] = json.loads(answer)
        return found

    def _send(
        self, method: str, path: str, body: Mapping[str, Any] | None, content_type: str
    ) -> tuple[int, bytes]:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Accept": JSON, "Content-Type": content_type, "User-Agent": "holdfast-testbed"}
        connection = http.client.HTTPSConnection(
            self._address, timeout=REQUEST_TIMEOUT, context=self._context
        )
        try:
            connection.request(method, path, data, headers)
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()


START_TIMEOUT = 60.0
STOP_TIMEOUT = 5.0
AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived", "ResponseStarted"],
    "rules": [{"level": "Metadata"}],
}


API_SERVICE_ADDRESS = "10.96.0.1"


class ControlPlane:
    """etcd, kube-apiserver, kube-controller-manager and kube-scheduler.

    Nodes are KWOK's, and nothing runs in their pods, unless `node_address` says where a real
    kubelet runs.
    """

    def __init__(self, directory: Path, programs: Programs, *, node_address: str = "") -> None:
        self._directory = directory
        self._programs = programs
        self._node_address = node_address
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self.authority = Authority.create(directory / "pki")
        self._serving = self.authority.issue(
            "kube-apiserver",
            hosts=[
                "IP:127.0.0.1",
                f"IP:{API_SERVICE_ADDRESS}",
                "DNS:localhost",
                "DNS:kubernetes.default.svc",
            ],
        )
        self._admin = self.authority.issue("admin", groups=["system:masters"])
        self._tokens = self.authority.signing_pair("service-accounts")
        self.server = ""

    @property
    def pids(self) -> dict[str, int]:
        return {name: process.pid for name, process in self._processes.items()}

    def api(self) -> AdminApi:
        return AdminApi(
            server=self.server, authority=self.authority.certificate, identity=self._admin
        )

    def start(self) -> None:
        """Start everything; returns once the API server says that it is ready."""
        start_on_free_ports(self._start_all, self.stop)

    def stop(self) -> None:
        """End every process and remove the database; logs and the audit log stay."""
        for process in reversed(self._processes.values()):
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
        for process in reversed(self._processes.values()):
            try:
                # Nothing here is worth a graceful end: the database goes with it.
                process.wait(timeout=0.2 if process.poll() is None else None)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(timeout=STOP_TIMEOUT)
        self._processes.clear()
        shutil.rmtree(self._directory / "etcd", ignore_errors=True)

    def _start_all(self) -> None:
        self._start_api()
        self._start_controllers()

    def _start_api(self) -> None:
        directory, etcd, peers, port = self._directory, free_port(), free_port(), free_port()
        shutil.rmtree(directory / "etcd", ignore_errors=True)  # of a cluster that was killed
        (directory / "audit.log").unlink(missing_ok=True)
        self.server = f"https://127.0.0.1:{port}"
        audit_policy = directory / "audit-policy.json"
        audit_policy.write_text(json.dumps(AUDIT_POLICY))
        clients, peer = f"http://127.0.0.1:{etcd}", f"http://127.0.0.1:{peers}"
        self._run(
            "etcd",
            f"--data-dir={directory / 'etcd'}",
            f"--listen-client-urls={clients}",
            f"--advertise-client-urls={clients}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--unsafe-no-fsync",
        )
        self._run(
            "kube-apiserver",
            f"--etcd-servers={clients}",
            f"--secure-port={port}",
            f"--tls-cert-file={self._serving.certificate}",
            f"--tls-private-key-file={self._serving.key}",
            f"--client-ca-file={self.authority.certificate}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={self._tokens.certificate}",
            f"--service-account-signing-key-file={self._tokens.key}",
            "--authorization-mode=Node,RBAC",
            "--service-cluster-ip-range=10.96.0.0/16",
            "--allow-privileged=true",
            f"--audit-policy-file={audit_policy}",
            f"--audit-log-path={directory / 'audit.log'}",
            # What a request did is in the log before its answer is out.
            "--audit-log-mode=blocking",
            *self._node_flags(),
        )
        wait_until(self._ready, START_TIMEOUT, "the API server to be ready")

    def _node_flags(self) -> list[str]:
        if self._node_address:
            return [
                f"--advertise-address={self._node_address}",
                f"--kubelet-client-certificate={self._admin.certificate}",
                f"--kubelet-client-key={self._admin.key}",
                "--kubelet-preferred-address-types=InternalIP",
            ]
        return [
            "--bind-address=127.0.0.1",
            # A laptop without a network has no other address to offer; nobody asks for it.
            "--advertise-address=127.0.0.1",
            "--endpoint-reconciler-type=none",
            # Pods in a namespace a moment old must not wait for its service account.
            "--disable-admission-plugins=ServiceAccount",
        ]

    def _start_controllers(self) -> None:
        self.kubeconfig("admin.kubeconfig", self._admin)
        manager = self.kubeconfig(
            "controller-manager.kubeconfig",
            self.authority.issue("system:kube-controller-manager"),
        )
        scheduler = self.kubeconfig(
            "scheduler.kubeconfig", self.authority.issue("system:kube-scheduler")
        )
        pace = ["--kube-api-qps=300", "--kube-api-burst=600", "--leader-elect=false"]
        self._run(
            "kube-controller-manager",
            f"--kubeconfig={manager}",
            f"--service-account-private-key-file={self._tokens.key}",
            f"--root-ca-file={self.authority.certificate}",
            "--use-service-account-credentials=true",
            "--secure-port=0",
            "--horizontal-pod-autoscaler-sync-period=1s",
            "--horizontal-pod-autoscaler-downscale-stabilization=3s",
            # Nobody sends heartbeats for KWOK's nodes; without this all pods flicker every minute.
            f"--node-monitor-grace-period={'20s' if self._node_address else '24h'}",
            # Pods here start serving at once, so their first figures count.
            "--horizontal-pod-autoscaler-cpu-initialization-period=1s",
            "--horizontal-pod-autoscaler-initial-readiness-delay=1s",
            *pace,
        )
        self._run("kube-scheduler", f"--kubeconfig={scheduler}", "--secure-port=0", *pace)
        if not self._node_address:
            self._start_kwok()

    def _start_kwok(self) -> None:
        kwok = self.kubeconfig(
            "kwok.kubeconfig", self.authority.issue("kwok", groups=["system:masters"])
        )
        stages = [f"--config={stage}" for stage in sorted(STAGES.glob("*.yaml"))]
        self._run(
            "kwok",
            f"--kubeconfig={kwok}",
            "--manage-all-nodes=true",
            # Addresses kept for documentation and for pods: nobody answers there.
            "--node-ip=192.0.2.1",
            "--cidr=10.244.0.0/16",
            *stages,
        )

    def kubeconfig(self, name: str, identity: Certificate) -> Path:
        path = self._directory / name
        write_kubeconfig(
            path,
            server=self.server,
            authority=self.authority.certificate,
            user={"client-certificate": str(identity.certificate), "client-key": str(identity.key)},
        )
        return path

    def _run(self, name: str, *arguments: str) -> None:
        logs = self._directory / "logs"
        logs.mkdir(exist_ok=True)
        # A home of its own: KWOK would read ~/.kwok. No proxy stands between us and loopback.
        environment = {"HOME": str(self._directory), "PATH": os.defpath}
        log = logs / f"{name}.log"
        log.unlink(missing_ok=True)
        self._processes[name] = start_process(
            dying_with_us(self._programs.path(name), *arguments),
            log,
            cwd=self._directory,
            env=environment,
        )

    def _ready(self) -> bool:
        for name, process in self._processes.items():
            assert_running(process, name, self._directory / "logs" / f"{name}.log")
        return self.api().ready()


def write_kubeconfig(
    path: Path, *, server: str, authority: Path, user: dict[str, str], namespace: str = "default"
) -> None:
    """Write a kubeconfig with one context. JSON is YAML, so every client reads it."""
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": "testbed",
                "cluster": {"server": server, "certificate-authority": str(authority)},
            }
        ],
        "users": [{"name": "user", "user": user}],
        "contexts": [
            {
                "name": "testbed",
                "context": {"cluster": "testbed", "user": "user", "namespace": namespace},
            }
        ],
        "current-context": "testbed",
    }
    path.touch(mode=0o600)
    path.write_text(json.dumps(document, indent=2))
