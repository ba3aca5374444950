"""Secrets are planted wherever one can be given, and then looked for wherever one could show.

One story through every app, with success and with every kind of refusal. The first table says
what is planted, the functions below it are the surfaces, and the one test compares the two.
"""

from __future__ import annotations

import base64
import json
import logging
import os
import shlex
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx2
import pytest
from click.testing import CliRunner
from tests.support.both_clients import CLIENT_KINDS, data_client, management_client
from tests.support.fault_proxy import FaultProxy
from tests.support.planted_secrets import (
    PlantedSecret,
    Surfaces,
    encodings_of,
    planted_secret,
    planted_token,
    planted_value,
)
from tests.support.processes import HOLDFAST, ROOT, wait_until
from tests.support.server import bearer
from tests.support.serving import ServeProcess, clean_environment, killing_orphans, running_serve

from holdfast import Health, Phase, SecretRef, WorkloadSpec
from holdfast.apps.cli.main import cli

LEAKY = [sys.executable, str(ROOT / "tests" / "support" / "leaky_backend.py")]
HEALTH = Health(path="/health", interval="1s", startup="60s")
PEM = "-----BEGIN RSA PRIVATE KEY-----\n{}\nMIIEow\n-----END RSA PRIVATE KEY-----"


TOKENS = {
    "unknown": ("a token that no server knows", "sdk"),
    "unknown_key": ("a data key that no server knows", "live"),
    "described": ("a token in a description", "sdk"),
    "configured": ("a token in a config", "live"),
    "modelled": ("a token in a model", "sdk"),
    "named": ("a token in a slug", "sdk"),
}
TEXTS = {
    "secret_file": ("a secret file", 'p"a/{}&\\é'),
    "rotated_file": ("a secret file after its rotation", "new {} value"),
    "pem_file": ("a key file", PEM),
    "server_env": ("the server's own environment", "{}"),
    "secret_env": ("a value under a secret's name", "hunter2 {}"),
    "api_key_flag": ("--api-key in a command", "key/{}"),
    "url_password": ("a password in a URL", "https://joe:pw{}@hub.example/x"),
    "pem": ("a private key", PEM),
    "jwt": ("a JWT", "eyJhbGciOiJIUzI1NiJ9.eyJ{}.c2lnbmF0dXJl"),
    "hub": ("a hub token", "hf_A{}"),
    "basic": ("basic credentials", "Basic {}"),
    "garbage": ("a bearer that is no token", "Bearer x{}"),
    "idempotency": ("an idempotency key", "idem-{}"),
    "cookie": ("a cookie", "session={}"),
    "prompt": ("a prompt", "my card is {}"),
}


class Planted(SimpleNamespace):
    """Every value that must be seen nowhere, by name: those of the tables, and real tokens."""

    def __init__(self) -> None:
        super().__init__(
            **{name: planted_token(*given) for name, given in TOKENS.items()},
            **{name: planted_secret(*given) for name, given in TEXTS.items()},
        )

    def all(self) -> list[PlantedSecret]:
        return list(vars(self).values())


def refused_specs(planted: Planted) -> dict[str, dict[str, Any]]:
    """Give documents that carry a secret where none belongs, by the place."""
    good = {"name": "bad", "model": "m", "backend": "vllm"}
    return {
        "env": {**good, "env": {"DB_PASSWORD": planted.secret_env.value}},
        "command": {**good, "command": f"vllm serve m --api-key {planted.api_key_flag.value}"},
        "command=": {**good, "command": f"vllm serve m --api-key={planted.api_key_flag.value}"},
        "args": {**good, "args": ["--api-key", planted.api_key_flag.value]},
        "description": {**good, "description": f"use {planted.described.value}"},
        "config": {**good, "config": {"a": [{"b": planted.configured.value}]}},
        "config key": {**good, "config": {planted.configured.value: 1}},
        "model": {**good, "model": planted.modelled.value},
        "name": {**good, "name": planted.named.value},
        "slug": {**good, "slug": planted.named.value},
        "project": {**good, "project": planted.named.value},
        "image": {**good, "image": planted.url_password.value},
        "url": {**good, "env": {"INDEX": planted.url_password.value}},
        "pem": {**good, "description": planted.pem.value},
        "jwt": {**good, "config": {"header": planted.jwt.value}},
        "hub": {**good, "command": f"vllm serve m --hub {planted.hub.value}"},
        "unknown field": {**good, planted.hub.value: 1},
        "unknown inner": {**good, "health": {planted.hub.value: 1}},
        "wrong type": {**good, "replicas": planted.hub.value},
        "backend": {**good, "backend": planted.hub.value},
        "health path": {**good, "health": {"path": planted.hub.value}},
        "secret reference": {**good, "secrets": {"X": {"name": planted.hub.value, "key": "k"}}},
        "secret in place": {**good, "secrets": {"HF_TOKEN": planted.hub.value}},
    }


def leaky(*flags: str, **more: Any) -> WorkloadSpec:
    """A workload whose backend prints its secrets."""
    given = {"name": "leaky", "health": HEALTH, **more}
    return WorkloadSpec(
        model="m",
        backend="echo",
        command=shlex.join([*LEAKY, *flags]),
        secrets={
            "LEAKY_PASSWORD": SecretRef(name="db", key="password"),
            "LEAKY_PEM": SecretRef(name="tls", key="key"),
        },
        **given,
    )


def plant_tokens(server: ServeProcess, planted: Planted) -> None:
    """Make real tokens of each kind, and start the workload that prints its secrets."""

    def keep(name: str, label: str, value: str) -> None:
        setattr(planted, name, planted_value(label, value))

    server.put_secret("acme", "db", "password", planted.secret_file.value)
    server.put_secret("acme", "tls", "key", planted.pem_file.value)
    with server.management() as mgmt:
        mgmt.ensure(WorkloadSpec(name="gone", model="m", backend="echo", replicas=0))
        keep("ended_key", "a data key of a deleted workload", server.data_key("acme", "gone"))
        mgmt.delete("gone")
        mgmt.ensure(leaky())
        mgmt.wait_until_ready("leaky", timeout=60, silent=True)
    keep("control", "the control token", server.token("acme"))
    keep("reader", "a reader's token", server.token("acme", ["read"], name="reader"))
    keep("revoked", "a revoked token", server.token("acme", name="revoked"))
    server.revoke(planted.revoked.value)
    keep("elsewhere", "another project's token", server.token("other"))
    keep("key", "the data key", server.data_key("acme", "leaky"))
    made = httpx2.post(
        f"{server.url}/api/projects/acme/tokens",
        headers=bearer(planted.control.value),
        json={"kind": "sdk", "name": "made", "scopes": ["read"]},
    )
    assert made.status_code == 201
    keep("created", "a token made over HTTP, and shown there once", made.json()["token"])


def ask_the_sdk(surfaces: Surfaces, server: ServeProcess, planted: Planted) -> None:
    for colour in CLIENT_KINDS:
        ask_one_colour(surfaces, server, planted, colour)


def ask_one_colour(surfaces: Surfaces, server: ServeProcess, planted: Planted, colour: str) -> None:
    def client(value: str, url: str = server.url, **more: Any) -> Any:
        return management_client(colour, url, project="acme", token=value, max_retries=0, **more)

    spec = leaky()
    here = f"SDK {colour}"
    with client(planted.control.value) as mgmt:
        surfaces.add_value(f"{here} client", mgmt)
        surfaces.add_value(f"{here} ensure", mgmt.ensure(spec))
        surfaces.add_value(f"{here} plan", mgmt.plan(replace(spec, replicas=2)))
        for name in ("list", "history", "drifts"):
            surfaces.add_value(f"{here} {name}", getattr(mgmt, name)())
        surfaces.add_value(f"{here} get", mgmt.get("leaky"))
        surfaces.add_value(f"{here} logs", list(mgmt.logs("leaky", tail=1000)))
        surfaces.add_value(f"{here} resolved", mgmt.drifts(include_resolved=True))
        for change in mgmt.watch(timeout=1):
            surfaces.add_value(f"{here} watch", change)
            break
        failing = f"{here} refusals"
        drifted = replace(spec, description="not as declared")
        surfaces.add_failure(failing, lambda: mgmt.ensure(drifted, on_drift="fail"))
        for value in (planted.hub.value, planted.named.value):
            surfaces.add_refusal(failing, lambda value=value: mgmt.get(value))
            surfaces.add_refusal(failing, lambda value=value: mgmt.list(project=value))
            surfaces.add_refusal(failing, lambda value=value: mgmt.ensure(spec, on_drift=value))
        for place, document in refused_specs(planted).items():
            if place != "unknown field":  # Python itself refuses that one
                surfaces.add_refusal(failing, lambda given=document: WorkloadSpec(**given))
    for value in (
        planted.unknown.value,
        planted.revoked.value,
        planted.key.value,
        planted.elsewhere.value,
        planted.jwt.value,
    ):
        with client(value) as mgmt:
            surfaces.add_failure(f"{here} credentials", lambda: mgmt.ensure(spec))
    with client(planted.reader.value) as mgmt:
        surfaces.add_failure(
            f"{here} credentials", lambda: mgmt.ensure(replace(spec, description="changed"))
        )
    surfaces.add_refusal(f"{here} bad address", lambda: client("x", planted.url_password.value))
    for value in (planted.hub.value, planted.named.value):
        surfaces.add_refusal(
            f"{here} bad project",
            lambda value=value: management_client(colour, server.url, project=value, token="x"),
        )
    surfaces.add_refusal(f"{here} bad token", lambda: client(f"{planted.hub.value} x"))
    ask_through_faults(surfaces, server, planted, client, here)

    with data_client(colour, server.url, project="acme", api_key=planted.key.value) as client_:
        endpoint = client_.endpoint("leaky")
        surfaces.add(f"{here} endpoint", repr(client_), repr(endpoint))
        endpoint.generate_text(prompt=planted.prompt.value)
        list(endpoint.generate_text_stream(prompt=planted.prompt.value))
        for value in (planted.unknown_key, planted.control, planted.ended_key):
            wrong = client_.endpoint("leaky", api_key=value.value)
            surfaces.add_failure(
                f"{here} data refusals",
                lambda wrong=wrong: wrong.generate_text(prompt="hello"),
            )


def ask_through_faults(
    surfaces: Surfaces,
    server: ServeProcess,
    planted: Planted,
    client: Callable[..., Any],
    here: str,
) -> None:
    """Break the connection in several ways, one of which says the token back."""
    echoed = b'{"error": "invalid", "message": "bad token %s"}' % planted.control.value.encode()
    with FaultProxy(server.url) as proxy:
        proxy.rewrite_status(1, 500, body=echoed)
        proxy.rewrite_status(2, 400, body=echoed)
        proxy.rewrite_status(3, 200, body=planted.control.value.encode())
        proxy.drop_response(lambda request: request.number > 3)
        with client(planted.control.value, proxy.url) as mgmt:
            for _ in range(4):
                surfaces.add_failure(f"{here} faults", lambda: mgmt.get("leaky"))
        assert proxy.requests[0].headers["authorization"].endswith(planted.control.value)
    with client(planted.control.value, "http://127.0.0.1:9") as mgmt:
        surfaces.add_failure(f"{here} faults", lambda: mgmt.get("leaky"))


def ask_over_http(surfaces: Surfaces, server: ServeProcess, planted: Planted, when: str) -> None:
    """Ask every route, rightly and wrongly. What comes back is kept, headers included."""
    good = bearer(planted.control.value)
    workloads = "/api/projects/acme/workloads"

    with httpx2.Client(base_url=server.url, timeout=30, trust_env=False) as http:

        def ask(name: str, method: str, path: str, **more: Any) -> httpx2.Response:
            more = {"headers": good, **more}
            answer = http.request(method, path, **more)
            surfaces.add(f"HTTP {when} {name}", answer.status_code, answer.headers, answer.content)
            return answer

        for path in (
            workloads,
            f"{workloads}/leaky",
            f"{workloads}/leaky/logs?tail=1000",
            f"{workloads}/leaky/readiness-events",
            "/api/projects/acme/drift?state=all",
            "/api/projects/acme/history?limit=500",
            "/api/projects/acme/tokens",
            "/metrics",
            "/openapi.json",
            "/healthz",
            "/readyz",
        ):
            assert ask("reads", "GET", path).status_code == 200, path
        with http.stream("GET", "/api/projects/acme/events", headers=good) as events:
            declared = {"spec": {"name": "quiet", "model": when, "backend": "echo", "replicas": 0}}
            ask("ensure", "POST", "/api/projects/acme/ensure", json=declared)
            surfaces.add(f"HTTP {when} events", next(events.iter_bytes()))
        for place, document in refused_specs(planted).items():
            for route, body in (
                ("ensure", {"spec": document}),
                ("plan", {"specs": [document]}),
                ("workloads", {"model_name": document.pop("model", "m"), **document}),
            ):
                path = f"/api/projects/acme/{route}"
                answer = ask("refused specs", "POST", path, json=body)
                assert 400 <= answer.status_code < 500, (place, route, answer.status_code)
        for headers in wrong_credentials(planted):
            ask("credentials", "GET", workloads, headers=headers)
            ask("credentials", "POST", "/api/projects/acme/steps", headers=headers, json={})
            ask("credentials", "GET", "/endpoint/acme/leaky/v1/models", headers=headers)
        ask_strangely(ask, planted)
        ask_the_data_plane(ask, planted)


def wrong_credentials(planted: Planted) -> Iterator[dict[str, str]]:
    for each in (planted.unknown, planted.unknown_key, planted.revoked, planted.ended_key):
        yield bearer(each.value)
        yield {"Authorization": each.value}
        yield {"X-Api-Key": each.value}
    yield bearer(planted.elsewhere.value)
    yield bearer(planted.control.value + "00")
    yield {"Authorization": planted.basic.value}
    yield {"Authorization": planted.garbage.value}
    yield {"Cookie": planted.cookie.value}


def secret_paths(value: str) -> Iterator[tuple[str, str]]:
    """Give requests whose path has a secret where a name belongs."""
    yield "GET", f"/api/projects/acme/workloads/{value}"
    yield "PATCH", f"/api/workloads/{value}"
    yield "DELETE", f"/api/projects/acme/tokens/{value}"
    yield "GET", f"/api/projects/acme/drift/{value}"


def ask_strangely(ask: Callable[..., httpx2.Response], planted: Planted) -> None:
    """Put secrets where a request can carry text: path, query, headers, broken bodies."""
    good = bearer(planted.control.value)
    project = "/api/projects/acme"
    for value in (planted.hub.value, planted.unknown.value):
        for method, path in secret_paths(value):
            ask("paths", method, path, headers={})
        ask("paths", "GET", f"/{value}")
        ask("paths", "GET", f"/api/projects/{value}/workloads")
        ask("queries", "GET", f"{project}/workloads?token={value}")
        ask("queries", "GET", f"{project}/workloads?{value}=1")
        ask("queries", "GET", f"{project}/workloads?after={value}")
        ask("queries", "GET", f"{project}/drift?state={value}")
        ask("queries", "GET", f"{project}/history?limit={value}&slug={value}")
        ask("queries", "GET", f"{project}/workloads/leaky/logs?tail={value}&follow={value}")
        for name in ("User-Agent", "If-None-Match", "Accept", "Content-Type"):
            headers = {**good, name: value}
            ask("headers", "GET", f"{project}/workloads/leaky", headers=headers)
            spec = {"name": "quiet", "model": f"by {name}", "backend": "echo", "replicas": 0}
            body = json.dumps({"spec": spec})
            ask("headers", "POST", f"{project}/ensure", headers=headers, content=body)
        for body in (value, f'{{"spec": {value}', json.dumps([value]), json.dumps({value: 1})):
            for route in ("ensure", "plan", "steps", "workloads", "tokens"):
                ask("bodies", "POST", f"{project}/{route}", content=body)
        ask("tokens", "POST", f"{project}/tokens", json={"name": value, "scopes": ["read"]})
        ask("tokens", "POST", f"{project}/tokens", json={"name": "x", "scopes": [value]})
        ask("tokens", "POST", f"{project}/tokens", json={"name": "x", "workload": value})
    live = ask("reads", "GET", f"{project}/workloads/leaky").json()
    ask("patch", "PATCH", f"/api/workloads/{live['id']}", json={"config": {"x": planted.jwt.value}})
    once = {**good, "Idempotency-Key": planted.idempotency.value}
    step = {"project": "acme", "slug": "once", "action": "create", "reason": "test"}
    write = {"name": "once", "model": "m", "backend": "echo", "replicas": 0}
    for change in ({}, {}, {"model": "other"}):
        body = {**step, "disruption": "none", "write": {**write, **change}}
        ask("idempotency", "POST", f"{project}/steps", headers=once, json=body)


def ask_the_data_plane(ask: Callable[..., httpx2.Response], planted: Planted) -> None:
    """Prompts are the users' own: they come back to them, and are kept nowhere."""
    chat = "/endpoint/acme/leaky/v1/chat/completions"
    key = bearer(planted.key.value)
    said = {"messages": [{"role": "user", "content": planted.prompt.value}]}
    for stream in (False, True):
        answer = ask("prompts", "POST", chat, headers=key, json={**said, "stream": stream})
        assert answer.status_code == 200
    ask("data refusals", "POST", chat, headers=bearer(planted.unknown_key.value), json=said)
    ask("data refusals", "POST", f"{chat}?q={planted.prompt.needle}", json=said)


def run_the_commands(
    surfaces: Surfaces,
    server: ServeProcess,
    planted: Planted,
    folder: Path,
    patch: pytest.MonkeyPatch,
) -> None:
    """Every verb that reads or writes, in every form, with good and with refused input."""
    clean = clean_environment(folder)
    for name in os.environ.keys() - clean.keys():
        patch.delenv(name)
    patch.setenv("HOME", clean["HOME"])
    patch.setenv("HOLDFAST_URL", server.url)
    patch.setenv("HOLDFAST_PROJECT", "acme")
    patch.chdir(folder)

    def run(
        *arguments: str,
        token: str = planted.control.value,
        stdin: str = "",
        surface: str = "",
    ) -> int:
        done = CliRunner().invoke(
            cli, list(arguments), env={"HOLDFAST_TOKEN": token}, input=stdin, prog_name="holdfast"
        )
        surfaces.add(surface or f"CLI {' '.join(arguments[:2])}", done.stdout, done.stderr)
        return done.exit_code

    chat = Path("leaky.json")
    chat.write_text(json.dumps({**leaky().fields(), "slug": "leaky", "replicas": 2}))
    for form in ("table", "wide", "json", "yaml", "jsonl", "markdown", "name"):
        for verb in (
            ["status"],
            ["drift", "list"],
            ["drift", "history"],
            ["plan", "-f", "leaky.json"],
        ):
            run(*verb, "-o", form)
        run("history", "-o", form)
    for form in ("table", "json", "yaml"):
        assert run("config", "view", "--show-origin", "-o", form) == 0
        assert run("doctor", "-o", form) == 0
        assert run("token", "list", "-o", form) == 0
        run("diff", "-f", "leaky.json", "-o", form)
        run("ensure", "-f", "leaky.json", "--on-drift", "fail", "-o", form)
    assert run("plan", "-f", "leaky.json", "--out", "plan.json") == 0
    surfaces.add("saved plan", Path("plan.json").read_bytes())
    assert run("logs", "leaky", "--tail", "1000") == 0
    assert run("status", "leaky", "-o", "json") == 0
    for shell in ("bash", "zsh", "fish"):
        assert run("completion", shell) == 0
    complete = {
        "_HOLDFAST_COMPLETE": "bash_complete",
        "COMP_WORDS": "holdfast status ",
        "COMP_CWORD": "2",
    }
    done = subprocess.run(
        HOLDFAST,
        env=clean_environment(
            folder,
            {
                **complete,
                "HOLDFAST_URL": server.url,
                "HOLDFAST_PROJECT": "acme",
                "HOLDFAST_TOKEN": planted.control.value,
            },
        ),
        capture_output=True,
        check=False,
    )
    assert b"leaky" in done.stdout
    surfaces.add("CLI completed names", done.stdout, done.stderr)

    for document in refused_specs(planted).values():
        bad = Path("bad.yaml")
        bad.write_text(json.dumps(document))
        for verb in ("validate", "plan", "ensure"):
            assert run(verb, "-f", "bad.yaml") != 0
        assert run("validate", "-f", "bad.yaml", "-o", "json") != 0
        bad.write_text(f"{json.dumps(document)[:-1]}\n  : [")  # broken, with the secret in it
        assert run("validate", "-f", "bad.yaml", "-o", "yaml") != 0
        bad.unlink()
    script = Path("bad.py")
    script.write_text(
        "from holdfast import WorkloadSpec\n"
        f"hub = {planted.hub.value!r}\n"
        "spec = WorkloadSpec(name='x', model=hub, backend='vllm')\n"
    )
    assert run("validate", "-f", "bad.py") != 0
    script.unlink()
    for each in (planted.unknown, planted.revoked, planted.elsewhere, planted.key, planted.jwt):
        for form in ("table", "json"):
            assert run("status", "-o", form, token=each.value) != 0
        run("doctor", token=each.value)
        run("config", "view", token=each.value)
    for value in (planted.hub.value, planted.unknown.value, planted.url_password.value):
        for arguments in (
            ["status", value],
            ["status", "-p", value],
            ["status", "--url", value],
            ["status", "-o", value],
            ["wait", value, "--timeout", value],
            ["logs", value],
            ["delete", value, "--yes"],
            ["drift", "show", value],
            ["token", "revoke", value],
            ["token", "create", "--name", value, "--scope", "read"],
            ["config", "set", "project", value],
            ["config", "set", "url", value],
            [value],
            ["ensure", "--plan", value],
            ["plan", "-f", value],
            ["help", value],
        ):
            run(*arguments, surface="CLI strange arguments")
    assert run("config", "set", "token", "-", stdin=planted.control.value) == 0
    kept = folder / ".config" / "holdfast" / "config.toml"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    kept.unlink()
    done = CliRunner().invoke(
        cli,
        [
            "token",
            "create",
            "--name",
            "cli",
            "--scope",
            "read",
            "--db",
            str(server.db),
            "-o",
            "name",
        ],
    )
    assert done.exit_code == 0
    planted.commanded = planted_value("a token made by a command", done.stdout.strip())


def break_the_backend(surfaces: Surfaces, server: ServeProcess, planted: Planted) -> None:
    """Let a backend die with its secrets on its lips, and rotate one under a running one."""
    with server.management() as mgmt:
        mgmt.ensure(leaky("--die", name="dying"))
        surfaces.add_failure(
            "SDK failed workload", lambda: mgmt.wait_until_ready("dying", timeout=60, silent=True)
        )
        wait_until(lambda: mgmt.get("dying").status.phase is Phase.ERROR, 60, "the failure")
        surfaces.add_value("SDK failed workload", mgmt.get("dying"))
        surfaces.add_value("SDK failed workload", list(mgmt.logs("dying", tail=1000)))
        server.put_secret("acme", "db", "password", planted.rotated_file.value)
        wait_until(
            lambda: (
                [
                    child.environ["LEAKY_PASSWORD"]
                    for child in server.children()
                    if child.leader and "--die" not in _command_line(child.pid)
                ]
                == [planted.rotated_file.value]
            ),
            60,
            "the rotated secret to arrive",
        )
        mgmt.wait_until_ready("leaky", timeout=60, silent=True)
        surfaces.add_value("SDK logs after a rotation", list(mgmt.logs("leaky", tail=1000)))
        mgmt.delete("dying")


def _command_line(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()


def read_the_files(surfaces: Surfaces, server: ServeProcess, when: str) -> None:
    """Files that the server keeps."""
    for path in [*server.db.parent.glob("holdfast.db*"), *server.db.parent.glob("serve.*")]:
        if path.is_file():
            surfaces.add(f"file {when} {path.name}", path.read_bytes())
    home = Path(f"{server.db}.run")
    for path in home.rglob("*"):
        if path.is_file() and "logs" not in path.parts:
            surfaces.add(f"file {when} {path.relative_to(home)}", path.read_bytes())
        elif path.is_file():
            # What a backend writes is the backend's, so it is for the owner alone.
            assert stat.S_IMODE(path.stat().st_mode) == 0o600, path


def read_the_processes(surfaces: Surfaces, server: ServeProcess) -> None:
    """What other users of the machine may see of a process, and what a child was given."""
    for child in server.children():
        surfaces.add("process command lines", _command_line(child.pid))
        surfaces.add("process environments", child.environ)
    surfaces.add("process command lines", _command_line(server.pid))


@contextmanager
def debug_log(surfaces: Surfaces) -> Iterator[None]:
    """Keep everything that the SDK and its libraries log in this process."""

    class Keeper(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            surfaces.add("SDK log", record.name, self.format(record), vars(record))

    keeper, root = Keeper(logging.DEBUG), logging.getLogger()
    before = root.level
    root.addHandler(keeper)
    root.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        root.removeHandler(keeper)
        root.setLevel(before)


def allowed(planted: Planted) -> Callable[[str, str], bool]:
    """Say where a secret has to be: with the child that was given it, and with who asked."""
    table: Mapping[str, set[str]] = {
        "process environments": {
            planted.secret_file.label,
            planted.rotated_file.label,
            planted.pem_file.label,
        },
        "HTTP json prompts": {planted.prompt.label},
        "HTTP text prompts": {planted.prompt.label},
    }
    return lambda surface, label: label in table.get(surface, ())


def test_no_planted_secret_is_seen_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    surfaces = Surfaces()
    planted = Planted()
    server_env = planted.server_env
    given = {
        "HF_TOKEN": server_env.value,
        "HOLDFAST_TOKEN": server_env.value,
        "AWS_SECRET_ACCESS_KEY": server_env.value,
        "CUDA_API_KEY": server_env.value,
    }
    verbose = ("--log-level", "debug", "--log-format")
    with killing_orphans(tmp_path):
        with running_serve(tmp_path, *verbose, "json", "--leave-running", env=given) as server:
            plant_tokens(server, planted)
            with debug_log(surfaces):
                ask_the_sdk(surfaces, server, planted)
            ask_over_http(surfaces, server, planted, "json")
            with monkeypatch.context() as patch:
                run_the_commands(surfaces, server, planted, tmp_path, patch)
            break_the_backend(surfaces, server, planted)
            read_the_files(surfaces, server, "json")
            read_the_processes(surfaces, server)
        with running_serve(tmp_path, *verbose, "text", env=given) as server:
            with server.management() as mgmt:
                mgmt.wait_until_ready("leaky", timeout=60, silent=True)
            ask_over_http(surfaces, server, planted, "text")
            read_the_files(surfaces, server, "text")
            read_the_processes(surfaces, server)
    read_the_files(surfaces, server, "stopped")

    canaries = planted.all()
    assert len({each.needle for each in canaries}) == len(canaries) >= 12
    assert len(surfaces.seen) > 60
    leaks = surfaces.leaks(canaries, allowed(planted))
    assert not leaks, "\n".join(leaks)


def test_a_secret_in_the_path_or_request_id_of_a_good_caller_is_not_kept(tmp_path: Path) -> None:
    surfaces, hub, unknown = (
        Surfaces(),
        planted_secret("a hub token", "hf_A{}"),
        planted_token("a token"),
    )
    with running_serve(tmp_path, "--no-run") as server:
        good = bearer(server.token("acme"))
        with httpx2.Client(base_url=server.url, headers=good, trust_env=False) as http:
            for each in (hub, unknown):
                for method, path in secret_paths(each.value):
                    answer = http.request(method, path, headers={"X-Request-Id": each.value})
                    surfaces.add("answers", answer.headers, answer.content)
    surfaces.add("log", (tmp_path / "serve.log").read_bytes())
    leaks = surfaces.leaks([hub, unknown])
    assert not leaks, "\n".join(leaks)


def test_the_search_finds_each_form_of_a_secret_and_names_it_without_showing_it() -> None:
    canary = planted_token("a label")
    for form, text in encodings_of(canary.needle):
        surfaces = Surfaces()
        surfaces.add("somewhere", b"before " + text + b" after")
        (found,) = [leak for leak in surfaces.leaks([canary]) if f"({form})" in leak]
        assert "somewhere" in found and "a label" in found
        assert canary.needle not in found
    for before in ("", "a", "ab", "abc"):
        surfaces = Surfaces()
        surfaces.add("encoded", base64.b64encode(f"{before}{canary.value}".encode()))
        assert surfaces.leaks([canary])
