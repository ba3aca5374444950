"""What a person sends by mistake is not told back: not in a refusal, not in a log, not later on."""

from __future__ import annotations

import base64
import logging
from pathlib import Path
from urllib.parse import quote

import httpx2
import pytest
from tests.support.gitops_server import PROJECT, serve_applications
from tests.support.gitops_world import GitopsWorld, config_ref, configmap, route
from tests.support.planted_secrets import PlantedSecret, Surfaces, planted_secret, planted_token
from tests.support.server import bearer

from holdfast.adapters.log_stream import JsonFormat
from holdfast.apps.server.route_table import GITOPS_ROUTES
from holdfast.core.gitops.application import Remediation

PLANTED = (
    planted_token("a token of ours"),
    planted_secret("a token of a forge", "ghp_{}aaaaaaaaaaaaaaaa"),
    planted_secret("a credential in an address", "https://bot:{}@git.example.com/x"),
    planted_secret("a password by its name", "password={}"),
)
FIELDS = ("comment", "reason", "path", "manager", "plan", "until", "for", "object", "wait", "via")


def tried(
    http: httpx2.Client, method: str, path: str, drift: str, canary: PlantedSecret
) -> list[object]:
    """Send a secret wherever a request has room for text, and keep what comes back."""
    value = canary.value
    encoded = quote(value, safe="")
    answers = []
    for place in (drift, encoded):
        url = path
        for part in ("{id}", "{application}", "{provider}"):
            url = url.replace(part, "shop" if (part, place) == ("{application}", drift) else place)
        url = url.replace("{project}", PROJECT)
        answers.append(http.request(method, url, params={"state": value, "about": value}))
        bodies: list[dict[str, object]] = [{field: value} for field in FIELDS]
        bodies += [{value: value}, {"comment": [value]}, dict.fromkeys(FIELDS, value)]
        if method == "POST":
            answers += [http.post(url, json=body) for body in bodies]
            answers.append(http.post(url, content=f'{{"comment": "{value}'.encode()))
            basic = base64.b64encode(value.encode()).decode()
            answers.append(http.post(url, headers={"Authorization": f"Basic {basic}"}))
    assert not any(answer.status_code >= 500 for answer in answers), [a.text for a in answers]
    return [part for answer in answers for part in (answer.text, answer.headers)]


@pytest.mark.parametrize("canary", PLANTED, ids=lambda canary: canary.label)
def test_no_refusal_tells_back_what_was_sent(
    canary: PlantedSecret,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level(logging.DEBUG)
    world = GitopsWorld(route(Remediation.REVIEW))
    world.git.commit({"a.yaml": configmap("a", x="1")})
    surfaces = Surfaces()
    with serve_applications(tmp_path, world) as running:
        running.reconcile()
        running.call(
            lambda: world.kube.edit(config_ref("a"), lambda item: item["data"].update(x="9"))
        )
        running.reconcile()
        running.passes = False
        drift = world.drifts[0].id
        admin = bearer(running.server.token(PROJECT, ["admin"], name="maria"))
        with httpx2.Client(base_url=running.url, headers=admin, timeout=30) as http:
            for each in GITOPS_ROUTES:
                surfaces.add(
                    f"{each.method} {each.path}",
                    *tried(http, each.method, each.path, drift, canary),
                )
            base = f"/api/projects/{PROJECT}/gitops"
            for path in ("history", "holds", "drifts?state=all", "export?what=journal"):
                surfaces.add(f"afterwards {path}", http.get(f"{base}/{path}").text)
        for line, detail in world.ledger_store._entries:
            surfaces.add("journal", repr(line), detail)
        for name, kept in world.ledger_store._records.items():
            surfaces.add("ledger", name, kept.text)
    ours = [each for each in caplog.records if not each.name.startswith("http")]  # not the client's
    surfaces.add("log", *map(JsonFormat().format, ours), *capfd.readouterr())
    assert len(surfaces.seen) > 20
    assert surfaces.leaks([canary]) == []
