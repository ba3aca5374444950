"""Kubeconfig files: merged as kubectl merges them, refused with the file and context named."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from holdfast.adapters.clock import SystemClock
from holdfast.adapters.kubernetes.kubeconfig import ClusterConfig, load_config
from holdfast.core.errors import ConfigurationError

SECRET = "hunter2-hunter2"
BASE = """
current-context: dev
contexts:
- {name: dev, context: {cluster: c1, user: u1, namespace: shop}}
- {name: prod, context: {cluster: c2, user: u2}}
clusters:
- {name: c1, cluster: {server: "https://one.example:6443/"}}
users:
- {name: u1, user: {token: hunter2-hunter2}}
"""
MORE = """
current-context: ignored
clusters:
- {name: c1, cluster: {server: "https://never.example"}}
- {name: c2, cluster: {server: "https://two.example", certificate-authority: pki/ca.crt}}
users:
- {name: u2, user: {token: x}}
"""


def load(folder: Path, *texts: str, context: str | None = None) -> ClusterConfig:
    paths = []
    for number, text in enumerate(texts):
        path = folder / f"config-{number}"
        path.write_text(text)
        paths.append(str(path))
    listed = os.pathsep.join([*paths, str(folder / "missing")])
    return load_config(context, clock=SystemClock(), environ={"KUBECONFIG": listed})


def one(user: str = "{}", cluster: str = '{server: "https://x"}') -> str:
    return (
        "current-context: dev\n"
        "contexts: [{name: dev, context: {cluster: c, user: u}}]\n"
        f"clusters: [{{name: c, cluster: {cluster}}}]\n"
        f"users: [{{name: u, user: {user}}}]\n"
    )


def test_the_first_file_that_has_a_name_wins(tmp_path: Path) -> None:
    config = load(tmp_path, BASE, MORE)
    assert (config.server, config.namespace) == ("https://one.example:6443", "shop")


def test_a_context_may_be_spread_over_files_and_paths_count_from_their_own(tmp_path: Path) -> None:
    config = load(tmp_path, BASE, MORE, context="prod")
    assert (config.server, config.namespace) == ("https://two.example", "default")
    authority = config.authority
    assert authority is not None and not isinstance(authority, bytes)
    assert authority.path == tmp_path / "pki" / "ca.crt"


def test_an_unknown_context_names_those_that_exist(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"config-0.*'qa'.*dev, prod"):
        load(tmp_path, BASE, context="qa")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (BASE.replace("current-context: dev", ""), "no current-context"),
        (BASE.replace("name: u1", "name: other"), "user 'u1'"),
        (BASE.replace("name: c1", "name: other"), "cluster 'c1'"),
        (BASE.replace("token: hunter2-hunter2", "token: [hunter2-hunter2]"), "Expected `str"),
        (BASE + "\n\t: : hunter2-hunter2", "line .* is no YAML"),
        (one("{username: ada, password: hunter2-hunter2}"), "password"),
        (one("{auth-provider: {name: gcp}}"), "auth-provider"),
        (one('{token: "hunter2-hunter2 and more"}'), "characters that no token has"),
        (one("{client-certificate-data: aHVudGVyMi1odW50ZXIy}"), "without its key"),
        (one("{client-certificate-data: '%%', client-key-data: '%%'}"), "base64"),
        (one("{as-groups: [ops]}"), "groups without a user"),
        (one("{exec: {command: x, apiVersion: v1alpha1}}"), "speaks v1alpha1"),
        (one(cluster="{server: ''}"), "no server address"),
        (one(cluster='{server: "https://x", proxy-url: "socks5://u:hunter2-hunter2@p"}'), "proxy"),
        (
            one(
                cluster='{server: "https://x", insecure-skip-tls-verify: true, '
                "certificate-authority: a}"
            ),
            "insecure-skip-tls-verify",
        ),
    ],
)
def test_what_cannot_work_is_refused_without_a_secret(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said) as raised:
        load(tmp_path, text)
    assert SECRET not in str(raised.value)
    assert str(tmp_path / "config-0") in str(raised.value)


def test_a_loaded_configuration_does_not_show_its_secrets(tmp_path: Path) -> None:
    assert SECRET not in repr(load(tmp_path, BASE))


def test_files_that_are_all_missing_are_an_error_and_not_a_pod(tmp_path: Path) -> None:
    pod = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    with pytest.raises(ConfigurationError, match="missing"):
        load_config(clock=SystemClock(), environ={**pod, "KUBECONFIG": str(tmp_path / "missing")})


def test_outside_of_a_pod_without_a_kubeconfig_nothing_is_guessed(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="not a pod either"):
        load_config(clock=SystemClock(), environ={"HOME": str(tmp_path)})
