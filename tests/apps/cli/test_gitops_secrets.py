"""Nothing that is secret in Git or in the cluster shows on any surface, in success or in error."""

from __future__ import annotations

from pathlib import Path

import httpx2
import pytest
from tests.apps.cli.conftest import Holdfast
from tests.apps.cli.gitops_application import (
    DEPLOYMENT,
    FILES,
    SECRET,
    ApplicationDriver,
    deployment,
    secret,
    set_image,
    set_password,
)
from tests.support import planted_secrets
from tests.support.gitops_server import PROJECT, serve_applications
from tests.support.gitops_world import GitopsWorld, route
from tests.support.planted_secrets import Surfaces
from tests.support.server import bearer

from holdfast.core.gitops.application import Remediation
from holdfast.reconcile.gitops.ports import RecordKind

FORMATS = ("table", "wide", "json", "yaml", "jsonl", "name", "markdown")
PLANTED = {
    "declared": planted_secrets.planted_secret("a declared Secret", "{}"),
    "live": planted_secrets.planted_secret("a live Secret", "{}"),
    "env": planted_secrets.planted_secret("a declared variable", "{}"),
    "live-env": planted_secrets.planted_secret("a live variable", "{}"),
}


@pytest.mark.parametrize("key", ["password", "plain"])
@pytest.mark.parametrize("remediation", [Remediation.REVIEW, Remediation.REPORT])
def test_no_planted_secret_is_seen_anywhere(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    holdfast: Holdfast,
    remediation: Remediation,
    key: str,
) -> None:
    world = GitopsWorld(route(remediation))
    files = {
        **FILES,
        "bot.yaml": deployment(PLANTED["env"].value),
        "creds.yaml": secret(PLANTED["declared"].value, key),
    }
    world.git.commit(files)
    surfaces = Surfaces()
    with serve_applications(tmp_path, world) as running:
        running.reconcile()
        token = running.server.token(PROJECT, ["admin"], name="maria")
        monkeypatch.setenv("HOLDFAST_URL", running.url)
        monkeypatch.setenv("HOLDFAST_PROJECT", PROJECT)
        monkeypatch.setenv("HOLDFAST_TOKEN", token)
        app = ApplicationDriver(running, world)
        app.edit(DEPLOYMENT, set_image("vllm/vllm-openai:v0.11.0", PLANTED["live-env"].value))
        app.edit(SECRET, set_password(PLANTED["live"].value, key))

        def see(*verb: str) -> None:
            run = holdfast(*verb)
            surfaces.add(" ".join(verb), run.out, run.err)
            assert "Holdfast failed in a way it should not" not in run.err

        for form in FORMATS:
            for verb in ("status", "diff shop", "drift list", "drift history"):
                see(*verb.split(), "-o", form)
        for form in ("json", "yaml", "table"):
            see("status", "shop", "-o", form)
            see("history", "-o", form)
            see("drift", "explain", "-o", form)
            see("sync", "shop", "--dry-run", "--prune", "-o", form)
        see("history", "-o", "wide")
        see("drift", "list", "--group-by", "cause")
        see("drift", "export")
        see("drift", "export", "--journal")
        for name in ("bot", "creds"):
            id = app.id(name)
            see("drift", "show", id)
            see("drift", "show", id, "-o", "json")
            see("approve", id)
            see("approve", id, "--plan-digest", "sha256:0", "-o", "json")
            see("snooze", id, "--for", "1h", "-o", "json")
            see("ignore", id, "--field", "no.such.field")
            see("codify", id, "-o", "yaml")
        see("sync", "shop", "--force", "-o", "json")
        base = f"{running.url}/api/projects/{PROJECT}/gitops"
        for path in ("applications", "applications/shop", "applications/shop/objects",
                     "applications/shop/diff", "applications/shop/plan", "drifts?state=all",
                     "holds", "history", "export", "export?what=journal"):  # fmt: skip
            answer = httpx2.get(f"{base}/{path}", headers=bearer(token))
            surfaces.add(path, answer.text, answer.headers)
        for kind in RecordKind:
            for record in running.run(world.ledger_store.records(kind)):
                surfaces.add(f"ledger {kind}", record.body)
        for entry in running.run(world.ledger_store.entries(limit=1000)):
            surfaces.add("journal", entry)
    assert len(surfaces.seen) > 50
    assert surfaces.leaks(PLANTED.values()) == []


def test_a_secret_that_drifts_again_is_told_from_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, holdfast: Holdfast
) -> None:
    """Keyed marks tell one value from another, so a rejected drift that moves is asked anew."""
    world = GitopsWorld(route(Remediation.REVIEW))
    world.git.commit({"creds.yaml": secret("declared-value")})
    with serve_applications(tmp_path, world) as running:
        running.reconcile()
        monkeypatch.setenv("HOLDFAST_URL", running.url)
        monkeypatch.setenv("HOLDFAST_PROJECT", PROJECT)
        monkeypatch.setenv("HOLDFAST_TOKEN", running.server.token(PROJECT, ["admin"]))
        app = ApplicationDriver(running, world)
        app.edit(SECRET, set_password("first-value"))
        id = app.id("creds")
        shown = holdfast("diff", "shop").out
        assert "*  data.password  hmac " in shown
        assert "its value is never shown" in shown
        holdfast("reject", id, "--comment", "known")
        app.reconcile()
        assert world.drifts[0].state == "rejected"
        app.edit(SECRET, set_password("second-value"))
        app.reconcile()
        assert world.drifts[0].state == "awaiting-approval"
