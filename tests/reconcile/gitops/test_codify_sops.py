"""With the real SOPS: the live value of a Secret lands in Git for the same recipients alone."""

from __future__ import annotations

import base64
from pathlib import Path

from tests.reconcile.gitops.codify_world import KEY, CodifyWorld
from tests.support.go_programs import IDENTITY, Sops, sops

from holdfast.adapters.render.renderer import FileRenderer
from holdfast.adapters.render.sops import SopsDecryptor
from holdfast.core.redact import Secret

__all__ = ["sops"]

SECRET = """apiVersion: v1
kind: Secret
metadata:
    name: db
stringData:
    password: declared-one
    user: reader
"""
CANARY = "canary-7f3d9a"


def test_a_changed_secret_is_written_encrypted_and_opens_to_the_live_value(
    tmp_path: Path,
    sops: Sops,  # the fixture
) -> None:
    decryptor = SopsDecryptor(age_key=Secret(IDENTITY), program=sops.path)
    world = CodifyWorld(
        root=tmp_path,
        path="app",
        renders=FileRenderer(key=KEY, decryptor=decryptor),
        decryptor=decryptor,
    ).write({"app/secret.yaml": sops.encrypt(SECRET).encode()})
    fresh = base64.b64encode(CANARY.encode()).decode()
    live = world.live("Secret", lambda item: item["data"].update(password=fresh))
    done = world.codify("Secret", live)
    text = world.text(done, "app/secret.yaml")
    assert CANARY not in text
    assert fresh not in text
    assert CANARY not in repr(done)
    world.write({"app/secret.yaml": text.encode()})
    data = CodifyWorld(
        root=tmp_path, path="app", renders=FileRenderer(key=KEY, decryptor=decryptor)
    )
    item = data.declared("Secret").item
    assert item["data"] == {"password": fresh, "user": base64.b64encode(b"reader").decode()}
