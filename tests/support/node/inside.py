"""The first process inside a real node's namespaces, which starts everything else in them.

Its PID, mount, network, IPC and UTS namespaces are its own: when it dies, the kernel ends every
process in there, containers included, and takes mounts, interfaces and nftables rules away. There
is no way out of the network: pods and Services are reached by who enters it. Started by
tests/support/node/process.py as `python -m tests.support.node.inside DIRECTORY CGROUP`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from tests.support.control_plane import AdminApi, ApiRequestFailed, ControlPlane
from tests.support.node.images import PAUSE, find_or_build_images
from tests.support.node.registry import set_tag
from tests.support.processes import wait_until
from tests.support.testbed import cache_root, find_testbed, say_on_stderr
from tools.debian import unpack_packages

RUNTIME_PACKAGES = ("containerd", "containernetworking-plugins", "nftables", "runc")
NODE = "node-0"
NODE_ADDRESS = "10.250.0.1"
POD_ADDRESSES = "10.251.0.0/24"
SERVICE_ADDRESSES = "10.96.0.0/16"
CLUSTER_DNS = "10.96.0.10"
REGISTRY_PORT = 5000
REGISTRY = f"{NODE_ADDRESS}:{REGISTRY_PORT}"
READY_TIMEOUT = 120.0
# What kubelet would set for the whole machine. It reads its values here and writes nothing.
KERNEL_SETTINGS = {
    "kernel/keys/root_maxbytes": 25000000,
    "kernel/keys/root_maxkeys": 1000000,
    "kernel/panic": 10,
    "kernel/panic_on_oops": 1,
    "vm/overcommit_memory": 1,
    "vm/panic_on_oom": 0,
}
# containerd, its network plugins and kubelet write at these fixed paths; nobody outside sees it.
PRIVATE_DIRECTORIES = ("/run", "/var/lib/cni", "/var/lib/kubelet", "/var/log")


class NodeInside:
    """Everything that runs on the node but its pods."""

    def __init__(self, directory: Path, cgroup: str) -> None:
        self._directory = directory
        self._cgroup = cgroup
        self._packages = unpack_packages(RUNTIME_PACKAGES, cache_root(), say_on_stderr)
        self._programs = find_testbed()
        self._plane = ControlPlane(directory, self._programs, node_address=NODE_ADDRESS)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        """Start everything; returns once the node is ready for pods."""
        self._isolate()
        self._start_containerd()
        self._start_registry()
        self._plane.start()
        self._start_kubelet()
        self._start_proxy()
        for image in find_or_build_images(say_on_stderr):
            self._ctr("images", "import", str(image.archive))
        api = self._plane.api()
        self._wait(lambda: _is_ready(api), "the node to be ready")
        self._wait(lambda: _has_default_account(api), "the first service account")

    @property
    def state(self) -> dict[str, Any]:  # Any: JSON
        pids = {name: process.pid for name, process in self._processes.items()}
        return {"server": self._plane.server, "pids": {**self._plane.pids, **pids}}

    def _isolate(self) -> None:
        _run("hostname", NODE)
        _run("mount", "--make-rprivate", "/")
        for name, value in KERNEL_SETTINGS.items():
            file = self._path("settings", name.replace("/", "-"))
            file.write_text(f"{value}\n")
            _run("mount", "--bind", str(file), f"/proc/sys/{name}")
        for directory in PRIVATE_DIRECTORIES:
            _run("mount", "-t", "tmpfs", "tmpfs", directory)
        _run("ip", "link", "set", "lo", "up")
        # On loopback, as there is no other interface: this network has no way out.
        _run("ip", "address", "add", f"{NODE_ADDRESS}/32", "dev", "lo")
        # A packet to a Service must be on its way before kube-proxy's rules redirect it.
        _run("ip", "route", "add", SERVICE_ADDRESSES, "dev", "lo", "src", NODE_ADDRESS)
        Path("/proc/sys/net/ipv4/ip_forward").write_text("1")

    def _start_containerd(self) -> None:
        directory = self._directory
        plugins = self._packages / "usr" / "lib" / "cni"
        networks = {
            "cniVersion": "0.4.0",
            "name": "pods",
            "plugins": [
                {
                    # Routed, not bridged: only so does a Service answer a pod of the same node.
                    "type": "ptp",
                    "ipMasq": False,
                    "ipam": {
                        "type": "host-local",
                        "dataDir": str(self._path("addresses", "x").parent),
                        "ranges": [[{"subnet": POD_ADDRESSES}]],
                        "routes": [{"dst": "0.0.0.0/0"}],
                    },
                }
            ],
        }
        self._path("cni", "10-pods.conflist").write_text(json.dumps(networks))
        hosts = self._path(f"registries/{REGISTRY}", "hosts.toml")
        hosts.write_text(
            f'server = "http://{REGISTRY}"\n'
            f'[host."http://{REGISTRY}"]\ncapabilities = ["pull", "resolve"]\n'
        )
        self._path("", "containerd.toml").write_text(
            CONTAINERD.format(
                directory=directory,
                pause=PAUSE,
                plugins=plugins,
                runc=self._packages / "usr" / "sbin" / "runc",
            )
        )
        self._start(
            "containerd", self._packages / "usr/bin/containerd", "--config", "containerd.toml"
        )
        self._wait(lambda: self._ctr("version", check=False), "containerd")

    def _start_registry(self) -> None:
        tags = self._path("registry", "x").parent
        for image in find_or_build_images(say_on_stderr):
            name, _, tag = image.name.partition("/")[2].rpartition(":")
            set_tag(tags, name, tag, image.archive)
        self._start(
            "registry", sys.executable, "-m", "tests.support.node.registry",
            NODE_ADDRESS, REGISTRY_PORT, tags, cwd=Path.cwd(),
        )  # fmt: skip

    def _start_kubelet(self) -> None:
        directory = self._directory
        identity = self._plane.authority.issue(f"system:node:{NODE}", groups=["system:nodes"])
        self._path("", "resolv.conf").write_text("nameserver 127.0.0.1\noptions timeout:1\n")
        settings = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "failCgroupV1": False,
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{self._cgroup}",
            "protectKernelDefaults": True,
            "failSwapOn": False,
            "containerRuntimeEndpoint": f"unix://{directory}/containerd.sock",
            "authentication": {
                "x509": {"clientCAFile": str(self._plane.authority.certificate)},
                "anonymous": {"enabled": False},
            },
            "clusterDNS": [CLUSTER_DNS],
            "clusterDomain": "cluster.local",
            "resolvConf": str(directory / "resolv.conf"),
            "evictionHard": {
                "memory.available": "100Mi",
                "nodefs.available": "1%",
                "imagefs.available": "1%",
            },
            "imageGCHighThresholdPercent": 100,
            "imageGCLowThresholdPercent": 99,
            "nodeStatusUpdateFrequency": "5s",
            "podLogsDir": str(self._path("pod-logs", "x").parent),
            "syncFrequency": "10s",
        }
        self._path("", "kubelet.json").write_text(json.dumps(settings))
        self._start(
            "kubelet", self._programs.path("kubelet"), "--config=kubelet.json",
            f"--kubeconfig={self._plane.kubeconfig('kubelet.kubeconfig', identity)}",
            f"--root-dir={self._path('kubelet', 'x').parent}", f"--hostname-override={NODE}",
            f"--node-ip={NODE_ADDRESS}", f"--cert-dir={self._path('kubelet/pki', 'x').parent}",
        )  # fmt: skip

    def _start_proxy(self) -> None:
        identity = self._plane.authority.issue("system:kube-proxy")
        kubeconfig = self._plane.kubeconfig("kube-proxy.kubeconfig", identity)
        settings = {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "mode": "nftables",
            "clientConnection": {"kubeconfig": str(kubeconfig)},
            "clusterCIDR": POD_ADDRESSES,
            "hostnameOverride": NODE,
            # These belong to the whole machine.
            "conntrack": {
                "maxPerCore": 0,
                "min": 0,
                "tcpEstablishedTimeout": "0s",
                "tcpCloseWaitTimeout": "0s",
            },
        }
        self._path("", "kube-proxy.json").write_text(json.dumps(settings))
        self._start("kube-proxy", self._programs.path("kube-proxy"), "--config=kube-proxy.json")

    def _ctr(self, *arguments: str, check: bool = True) -> bool:
        command = [str(self._packages / "usr/bin/ctr"), "--address", "containerd.sock"]
        ran = subprocess.run(
            [*command, "--namespace", "k8s.io", *arguments],
            cwd=self._directory, env=self._environment(), capture_output=True, text=True,
        )  # fmt: skip
        if check and ran.returncode:
            raise RuntimeError(f"ctr {' '.join(arguments)}: {ran.stderr}")
        return ran.returncode == 0

    def _start(
        self, name: str, program: object, *arguments: object, cwd: Path | None = None
    ) -> None:
        with self._path("logs", f"{name}.log").open("wb") as output:
            self._processes[name] = subprocess.Popen(
                [str(program), *map(str, arguments)],
                cwd=cwd or self._directory,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _environment(self) -> dict[str, str]:
        root = self._packages
        libraries = [root / "usr/lib/x86_64-linux-gnu", root / "lib/x86_64-linux-gnu"]
        programs = [root / "usr/bin", root / "usr/sbin", root / "sbin"]
        return {
            "HOME": str(self._directory),
            "PATH": ":".join([*map(str, programs), "/usr/sbin:/usr/bin:/sbin:/bin"]),
            "LD_LIBRARY_PATH": ":".join(map(str, libraries)),
        }

    def _path(self, directory: str, name: str) -> Path:
        where = self._directory / directory
        where.mkdir(parents=True, exist_ok=True)
        return where / name

    def _wait(self, predicate: Any, what: str) -> None:  # Any: whatever is true in the end
        def check() -> object:
            for name, process in self._processes.items():
                if process.poll() is not None:
                    log = (self._directory / "logs" / f"{name}.log").read_text(errors="replace")
                    raise RuntimeError(f"{name} ended with {process.returncode}: {log[-1500:]}")
            return predicate()

        wait_until(check, READY_TIMEOUT, what, every=0.1)


CONTAINERD = """\
version = 2
root = "{directory}/containerd/root"
state = "{directory}/containerd/state"
disabled_plugins = [
  "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs",
]
[grpc]
address = "{directory}/containerd.sock"
[ttrpc]
address = "{directory}/containerd.ttrpc.sock"
[plugins."io.containerd.internal.v1.opt"]
path = "{directory}/containerd/opt"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{pause}"
disable_apparmor = true
# A machine may not let anyone lower the score by which the kernel picks what to kill.
restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".registry]
config_path = "{directory}/registries"
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{plugins}"
conf_dir = "{directory}/cni"
[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "overlayfs"
default_runtime_name = "runc"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
SystemdCgroup = false
BinaryName = "{runc}"
"""


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)


def _is_ready(api: AdminApi) -> bool:
    try:
        node = api.request("GET", f"/api/v1/nodes/{NODE}")
    except (ApiRequestFailed, OSError):
        return False
    conditions = {item["type"]: item["status"] for item in node["status"].get("conditions", ())}
    return conditions.get("Ready") == "True" and not node["spec"].get("taints")


def _has_default_account(api: AdminApi) -> bool:
    try:
        return bool(api.request("GET", "/api/v1/namespaces/default/serviceaccounts/default"))
    except (ApiRequestFailed, OSError):
        return False


def main(directory: Path, cgroup: str) -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    node = NodeInside(directory, cgroup)
    node.start()
    partial = directory / "inside.json.new"
    partial.write_text(json.dumps(node.state))
    partial.replace(directory / "inside.json")
    while True:  # the first process of a PID namespace reaps what loses its parent
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            time.sleep(1)


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]), sys.argv[2])
    except Exception:
        (Path(sys.argv[1]) / "failed").write_text(traceback.format_exc())
        raise
