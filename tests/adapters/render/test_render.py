"""What a rendering is remembered by, and what its digest covers."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from pathlib import Path

import pytest
from tests.adapters.render.repo import KEY, Repo, config_map
from tests.adapters.render.test_program import fake

from holdfast.adapters.render.renderer import FileRenderer, ManifestCache, RenderCache
from holdfast.core.gitops.source import Renderer
from holdfast.core.object_ref import ObjectRef
from holdfast.reconcile.gitops.ports import SourceUnavailable

SECRET = "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {k: %s}\n"


class Counted(FileRenderer):
    """Counts what is made, not answered from memory."""

    made = 0

    async def _make(self, *given: object) -> object:  # type: ignore[override]
        self.made += 1
        return await super()._make(*given)  # type: ignore[arg-type]


def test_the_digest_is_equal_for_equal_objects_wherever_they_stand(repo: Repo) -> None:
    repo.write(
        {
            "a/1.yaml": config_map("one", k="v") + "---\n" + config_map("two"),
            "b/2.yaml": config_map("two"),
            "b/sub/1.yaml": "# moved\n" + config_map("one", k="v"),
            "c/1.yaml": config_map("one", k="other") + "---\n" + config_map("two"),
        }
    )
    first = repo.render("a").digest
    assert repo.render("b").digest == first
    assert repo.render("c").digest != first
    assert repo.render("a", namespace="x").digest != first


def test_secrets_enter_the_digest_by_a_keyed_mark(repo: Repo) -> None:
    repo.write({"a/s.yaml": SECRET % "one", "b/s.yaml": SECRET % "two", "c/s.yaml": SECRET % "one"})
    mine, other = FileRenderer(key=KEY), FileRenderer(key=b"another")
    assert repo.render("a", by=mine).digest == repo.render("c", by=mine).digest
    assert repo.render("a", by=mine).digest != repo.render("b", by=mine).digest
    assert repo.render("a", by=mine).digest != repo.render("a", by=other).digest


def test_the_same_question_is_answered_from_memory(repo: Repo) -> None:
    repo.write({"a.yaml": config_map("a"), "d/b.yaml": config_map("b")})
    by = Counted(key=KEY)
    first = repo.render(by=by)
    assert repo.render("./", by=by) is first
    assert repo.render(by=by, renderer=Renderer.YAML) is first
    assert by.made == 1


def test_each_thing_that_an_answer_depends_on_asks_anew(repo: Repo, tmp_path: Path) -> None:
    repo.write({"a.yaml": config_map("a"), "d/b.yaml": config_map("b")})
    cache = RenderCache()
    by = Counted(key=KEY, cache=cache)
    repo.render(by=by)
    repo.render(by=by, namespace="other")
    repo.render("d", by=by)
    asyncio.run(
        by.render(
            replace(repo.export, commit="d" * 40), ".", renderer=Renderer.AUTO, namespace="team"
        )
    )
    assert by.made == 4
    for other in (
        Counted(key=b"other", cache=cache),
        Counted(key=KEY, cache=cache, scoped=lambda ref: None),
        Counted(key=KEY, cache=cache, decryptor=object()),  # type: ignore[arg-type]
    ):
        repo.render(by=other)
        assert other.made == 1
    shared = Counted(key=KEY, cache=cache)
    repo.render(by=shared)
    assert shared.made == 0
    assert len(cache) == 7


def test_another_version_of_the_tool_asks_anew(repo: Repo, tmp_path: Path) -> None:
    repo.write({"kustomization.yaml": "resources: []"})
    path = fake(tmp_path, "print('apiVersion: v1\\nkind: ConfigMap\\nmetadata: {name: old}')")
    by = Counted(key=KEY, kustomize=path)
    assert repo.render(by=by).objects[0].ref.name == "old"
    assert repo.render(by=by).objects[0].ref.name == "old"
    assert by.made == 1
    fake(tmp_path, "print('apiVersion: v1\\nkind: ConfigMap\\nmetadata: {name: upgraded}')")
    os.utime(path, ns=(1, 1))
    assert repo.render(by=by).objects[0].ref.name == "upgraded"


def test_what_the_cluster_says_about_kinds_is_asked_again(repo: Repo) -> None:
    repo.write({"a.yaml": "{apiVersion: example.com/v1, kind: Thing, metadata: {name: x}}"})
    known: dict[str, bool] = {}

    def scoped(ref: ObjectRef) -> bool | None:
        return known.get(ref.kind)

    by = Counted(key=KEY, scoped=scoped)
    assert repo.render(by=by).objects[0].ref.namespace == "team"
    assert repo.render(by=by).objects[0].ref.namespace == "team"
    assert by.made == 1
    known["Thing"] = False
    assert repo.render(by=by).objects[0].ref.namespace == ""


def test_failures_are_not_remembered(repo: Repo, tmp_path: Path) -> None:
    repo.write({"kustomization.yaml": "resources: []"})
    path = fake(tmp_path, "sys.exit(1)")
    by = FileRenderer(key=KEY, kustomize=path)
    for _ in range(2):
        with pytest.raises(SourceUnavailable):
            repo.render(by=by)
    stamp = Path(path).stat()
    fake(tmp_path, "sys.exit(0)")
    os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    assert repo.render(by=by).objects == ()


def test_a_commit_shares_what_it_did_not_change(repo: Repo) -> None:
    repo.write({"a.yaml": config_map("a", k="1"), "b.yaml": config_map("b", k="1")})
    by = FileRenderer(key=KEY)
    old = {each.ref.name: each for each in repo.render(by=by).objects}
    repo.write({"b.yaml": config_map("b", k="2")})
    later = replace(repo.export, commit="d" * 40)
    made = asyncio.run(by.render(later, ".", renderer=Renderer.AUTO, namespace="team"))
    new = {each.ref.name: each for each in made.objects}
    assert new["a"].item["data"] is old["a"].item["data"]
    assert new["b"].item["data"] == {"k": "2"}
    assert old["b"].item["data"] == {"k": "1"}


def test_files_that_were_read_are_bounded_by_their_size() -> None:
    files = ManifestCache(size=100)
    text = config_map("a").encode()
    first = files.parse(text, "a.yaml")
    assert files.parse(text, "a.yaml")[0] is first[0]
    assert files.parse(text, "b.yaml")[0].file == "b.yaml"
    for at in range(5):
        files.parse(config_map(f"other-{at}").encode(), "a.yaml")
    assert files.parse(text, "a.yaml")[0] is not first[0]


def test_memory_is_bounded_by_number_and_by_size(repo: Repo) -> None:
    repo.write({f"d{at}/a.yaml": config_map("a", k="x" * 1000) for at in range(6)})
    few = RenderCache(renders=3)
    by = Counted(key=KEY, cache=few)
    for at in range(6):
        repo.render(f"d{at}", by=by)
    assert len(few) == 3
    repo.render("d5", by=by)
    assert by.made == 6
    repo.render("d0", by=by)
    assert by.made == 7
    small = RenderCache(size=2500)
    for at in range(6):
        repo.render(f"d{at}", by=FileRenderer(key=KEY, cache=small))
    assert len(small) == 2
    none = RenderCache(size=10)
    repo.render("d0", by=FileRenderer(key=KEY, cache=none))
    assert len(none) == 0


def test_an_export_that_is_gone_is_unavailable(repo: Repo) -> None:
    export = replace(repo.export, root=repo.root / "gone")
    with pytest.raises(SourceUnavailable, match="cannot be read"):
        asyncio.run(
            FileRenderer(key=KEY).render(export, ".", renderer=Renderer.AUTO, namespace="x")
        )


def test_renderings_at_the_same_time_do_not_disturb_one_another(repo: Repo, kubectl: str) -> None:
    repo.write(
        {f"d{at}/kustomization.yaml": f"namePrefix: p{at}-\nresources: [a.yaml]" for at in range(4)}
    )
    repo.write({f"d{at}/a.yaml": config_map("a") for at in range(4)})
    by = FileRenderer(key=KEY, kustomize=kubectl)

    async def scene() -> list[str]:
        done = await asyncio.gather(
            *(
                by.render(repo.export, f"d{at}", renderer=Renderer.AUTO, namespace="x")
                for at in range(4)
            )
        )
        return [each.objects[0].ref.name for each in done]

    assert asyncio.run(scene()) == [f"p{at}-a" for at in range(4)]
