"""Kustomizations that reach out, run things, loop or grow are refused before anything runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.adapters.render.repo import KEY, Repo, config_map
from tests.adapters.render.test_paths import ESCAPES

from holdfast.adapters.render import layers
from holdfast.adapters.render.files import RepositoryFiles
from holdfast.adapters.render.kustomize import _write_files
from holdfast.adapters.render.renderer import FileRenderer
from holdfast.core.errors import ValidationError
from holdfast.wire.yaml import write_document

REMOTE = [
    "https://example.com/x.yaml", "http://example.com/x", "HTTPS://EXAMPLE.COM/x",
    "https://github.com/org/repo", "https://github.com/org/repo?ref=v1",
    "github.com/org/repo", "GitHub.com/org/repo//path?ref=main", "github.com:org/repo.git",
    "gitlab.com/org/repo", "bitbucket.org/org/repo",
    "git@github.com:org/repo.git", "git@host.xz:path/to/repo", "user@host.xz/path",
    "org-12345@github.com:org/repo",
    "ssh://git@host/repo", "git::https://host/repo", "git::ssh://host/repo", "file:///etc",
    "file://etc/passwd", "FILE:///etc", "oci://host/x", "gh:org/repo", "s3::https://x/y",
    "host.xz/org/repo.git", "host.xz/org/repo.git/path", "org/repo.git//path",
    "https://dev.azure.com/org/p/_git/repo/path", "dev.azure.com/org/p/_git/repo",
    "base?ref=main", "base?timeout=1s", "base//inner", " https://example.com/x",
]  # fmt: skip
FIELDS = {
    "resources": "resources: [{}]",
    "bases": "bases: [{}]",
    "components": "components: [{}]",
    "crds": "crds: [{}]",
    "configurations": "configurations: [{}]",
    "openapi": "openapi: {{path: {}}}",
    "patches": "patches: [{{path: {}}}]",
    "patchesJson6902": "patchesJson6902: [{{path: {}, target: {{kind: A}}}}]",
    "patchesStrategicMerge": "patchesStrategicMerge: [{}]",
    "replacements": "replacements: [{{path: {}}}]",
    "configMapGenerator files": "configMapGenerator: [{{name: a, files: [{}]}}]",
    "configMapGenerator envs": "configMapGenerator: [{{name: a, envs: [{}]}}]",
    "configMapGenerator env": "configMapGenerator: [{{name: a, env: {}}}]",
    "secretGenerator files": "secretGenerator: [{{name: a, files: [{}]}}]",
    "generators": "generators: [{}]",
    "transformers": "transformers: [{}]",
    "validators": "validators: [{}]",
}


@pytest.fixture
def never(tmp_path: Path) -> FileRenderer:
    """A renderer whose program leaves a mark if it is ever run."""
    program = tmp_path / "kustomize"
    program.write_text("#!/bin/sh\necho ran >&2\nexit 1\n")
    program.chmod(0o755)
    return FileRenderer(key=KEY, kustomize=str(program))


def quoted(path: str) -> str:
    return write_document([path]).strip().removeprefix("- ")


@pytest.mark.parametrize("field", FIELDS)
def test_whatever_is_remote_is_refused_in_every_field(
    repo: Repo, never: FileRenderer, field: str
) -> None:
    repo.write({"base/inner/kustomization.yaml": "resources: []"})
    for path in REMOTE:
        repo.write({"kustomization.yaml": "namespace: x\n" + FIELDS[field].format(quoted(path))})
        with pytest.raises(ValidationError) as refusal:
            repo.render(by=never)
        assert "kustomization.yaml:2" in str(refusal.value), path


def test_a_local_path_that_kustomize_takes_for_remote_is_refused_though_it_is_there(
    repo: Repo, never: FileRenderer
) -> None:
    repo.write(
        {
            "github.com/org/repo/kustomization.yaml": "resources: []",
            "https:/host/x.yaml": config_map("a"),
            "kustomization.yaml": "resources: [github.com/org/repo]",
        }
    )
    with pytest.raises(ValidationError, match="remote"):
        repo.render(by=never)
    repo.write({"kustomization.yaml": "configMapGenerator: [{name: a, files: ['https://host/x']}]"})
    with pytest.raises(ValidationError, match="remote"):
        repo.render(by=never)


@pytest.mark.parametrize("field", FIELDS)
def test_no_field_leads_out_of_the_repository(
    repo: Repo, never: FileRenderer, tmp_path: Path, field: str
) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "kustomization.yaml").write_text("resources: []")
    for path in ESCAPES:
        if not path.isprintable():
            continue  # the reader refuses these in any text
        deeper = path.replace("../", "../../", 1) if path.startswith("../") else path
        repo.write({"app/kustomization.yaml": FIELDS[field].format(quoted(deeper))})
        with pytest.raises(ValidationError):
            repo.render("app", by=never)


@pytest.mark.parametrize("field", sorted(set(FIELDS) - {"resources", "bases", "components"}))
def test_files_above_a_kustomization_are_not_read(
    repo: Repo, never: FileRenderer, field: str
) -> None:
    """Also not through a component, whose own directory counts."""
    repo.write(
        {
            "secret.yaml": config_map("a"),
            "comp/kustomization.yaml": "kind: Component\n"
            "apiVersion: kustomize.config.k8s.io/v1alpha1\n"
            + FIELDS[field].format("../secret.yaml"),
            "app/kustomization.yaml": "components: [../comp]",
        }
    )
    with pytest.raises(ValidationError, match="in or below"):
        repo.render("app", by=never)


def test_links_named_by_a_kustomization_are_refused(
    repo: Repo, never: FileRenderer, tmp_path: Path
) -> None:
    outside = tmp_path / "outside.yaml"
    outside.write_text(config_map("leaked"))
    repo.write({"kustomization.yaml": "resources: [a.yaml]"})
    (repo.root / "a.yaml").symlink_to(outside)
    with pytest.raises(ValidationError, match="link"):
        repo.render(by=never)
    (repo.root / "kustomization.yaml").unlink()
    (tmp_path / "k.yaml").write_text("resources: []")
    (repo.root / "kustomization.yaml").symlink_to(tmp_path / "k.yaml")
    with pytest.raises(ValidationError, match="link"):
        repo.render(by=never)


RUNS = {
    "helmCharts": "helmCharts: [{name: x, repo: https://example.com}]",
    "HELMCHARTS": "HELMCHARTS: [{name: x}]",
    "helmGlobals": "helmGlobals: {chartHome: x}",
    "helmChartInflationGenerator": "helmChartInflationGenerator: [{chartName: x}]",
    "unknown": "inventory: {}",
    "case": "Resources: [a.yaml]",
    "nested case": "patches: [{Path: a.yaml}]",
    "generator case": "configMapGenerator: [{name: a, Files: [a.yaml]}]",
    "exec": """
        generators:
          - |-
            apiVersion: v1
            kind: Evil
            metadata:
              name: x
              annotations: {config.kubernetes.io/function: "exec: {path: ./evil}"}
        """,
    "container": """
        transformers:
          - |-
            apiVersion: builtin
            kind: PrefixTransformer
            metadata:
              name: x
              annotations: {config.kubernetes.io/function: "container: {image: evil}"}
        """,
    "helm generator": """
        generators:
          - |-
            {apiVersion: builtin, kind: HelmChartInflationGenerator, metadata: {name: x}}
        """,
    "go plugin": """
        transformers: ["{apiVersion: someteam.example.com/v1, kind: Chart, metadata: {name: x}}"]
        """,
    "plugin with path": """
        transformers:
          - |-
            apiVersion: builtin
            kind: PatchTransformer
            metadata: {name: x}
            Path: https://example.com/x
        """,
    "plugin with inner path": """
        transformers:
          - |-
            apiVersion: builtin
            kind: ReplacementTransformer
            metadata: {name: x}
            replacements: [{path: ../x}]
        """,
    **{
        f"plugin with {key}": f"""
        transformers:
          - |-
            apiVersion: builtin
            kind: {kind}
            metadata: {{name: x}}
            {key}: {value}
        """
        for kind, key, value in (
            # Go takes U+017F for s and U+212A for k where it looks for a key.
            ("ConfigMapGenerator", "file\u017f", "[https://example.com/x]"),
            ("ConfigMapGenerator", "env\u017f", "[https://example.com/x]"),
            ("SecretGenerator", "FILE\u017f", "[https://example.com/x]"),
            ("PatchStrategicMergeTransformer", "path\u017f", "[https://example.com/x]"),
            ("PatchStrategicMergeTransformer", "paths", "[https://example.com/x]"),
            ("PatchJson6902Transformer", "pATH", "https://example.com/x"),
            ("ValueAddTransformer", "targetFilePath", "https://example.com/x"),
            ("ValueAddTransformer", "TargetFilePath", "https://example.com/x"),
            ("ReplacementTransformer", "replacement\u017f", "[{path: https://example.com/x}]"),
            ("PrefixTransformer", "unheard", "of"),
        )
    },
    "plugin with a key in a list": """
        transformers:
          - |-
            apiVersion: builtin
            kind: ReplacementTransformer
            metadata: {name: x}
            replacements: [{source: {kind: A}}, {PATH: https://example.com/x}]
        """,
    "plugin that is a path to Kustomize": """
        transformers: ["{apiVersion: builtin, kind: PrefixTransformer, prefix: x}"]
        """,
    "replacements, folded": "replacements: [{\u017fource: {kind: A}}]",
    "inner key, folded": "labels: [{pairs: {a: b}, include\u017felectors: true}]",
    "generator, folded": "configMapGenerator: [{name: a, file\u017f: [a.yaml]}]",
    "top key, folded": "re\u017fources: [https://example.com/x]",
    "plugin from a file": "transformers: [plugin.yaml]",
    "two documents": "resources: []\n---\nhelmCharts: []",
    "not a mapping": "- resources",
    "not a list": "resources: a.yaml",
    "not text": "resources: [{a: b}]",
    "tag": "resources: !!python/object:os.system [x]",
}


@pytest.mark.parametrize("case", RUNS)
def test_whatever_runs_something_or_is_not_known_is_refused(
    repo: Repo, never: FileRenderer, case: str
) -> None:
    repo.write(
        {
            "a.yaml": config_map("a"),
            "plugin.yaml": "{apiVersion: v1, kind: Evil, metadata: {name: x}}",
            "kustomization.yaml": RUNS[case],
        }
    )
    with pytest.raises(ValidationError) as refusal:
        repo.render(by=never)
    assert "kustomization.yaml" in str(refusal.value)


def test_it_is_refused_however_deep_it_stands(repo: Repo, never: FileRenderer) -> None:
    repo.write(
        {
            "app/kustomization.yaml": "resources: [../a]",
            "a/kustomization.yaml": "components: [../b]",
            "b/kustomization.yaml": "kind: Component\nresources:\n  - https://example.com/x\n",
        }
    )
    with pytest.raises(ValidationError, match=r"b/kustomization\.yaml:3"):
        repo.render("app", by=never)


@pytest.mark.parametrize(
    "files",
    [
        {"app/kustomization.yaml": "resources: [.]"},
        {"app/kustomization.yaml": "resources: [../app]"},
        {"app/kustomization.yaml": "resources: [..]", "kustomization.yaml": "resources: [app]"},
        {
            "app/kustomization.yaml": "resources: [../b]",
            "b/kustomization.yaml": "components: [../c]",
            "c/kustomization.yaml": "bases: [../app]",
        },
    ],
)
def test_a_kustomization_that_includes_itself_is_refused(
    repo: Repo, never: FileRenderer, files: dict[str, str]
) -> None:
    with pytest.raises(ValidationError, match="cycle"):
        repo.write(files).render("app", by=never)


def test_too_many_layers_and_too_deep_ones_are_refused(
    repo: Repo, never: FileRenderer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for at in range(40):
        repo.write({f"l{at}/kustomization.yaml": f"resources: [../l{at + 1}]"})
    with pytest.raises(ValidationError, match="over 32 on one another"):
        repo.render("l0", by=never)
    monkeypatch.setattr(layers, "MAX_LAYERS", 10)
    wide = ", ".join(f"../w{at}" for at in range(20))
    repo.write({f"w{at}/kustomization.yaml": "resources: []" for at in range(20)})
    repo.write({"app/kustomization.yaml": f"resources: [{wide}]"})
    with pytest.raises(ValidationError, match="over 10 layers"):
        repo.render("app", by=never)


def test_a_lattice_of_layers_is_walked_once(repo: Repo) -> None:
    """Two ways down from each of thirty layers are a thousand million paths, and thirty layers."""
    for at in range(30):
        both = f"resources: [../../l{at + 1}/a, ../../l{at + 1}/b]"
        repo.write({f"l{at}/{side}/kustomization.yaml": both for side in "ab"})
    for side in "ab":
        repo.write({f"l30/{side}/kustomization.yaml": "resources: []"})
    trail = repo.trail("l0/a")
    assert len(trail.layers) == 61
    assert len(trail.chain("l30/b/kustomization.yaml")) == 31


def test_a_layer_that_is_not_there_is_refused_by_its_line(repo: Repo, never: FileRenderer) -> None:
    repo.write({"app/kustomization.yaml": "resources:\n  - a.yaml\n"})
    with pytest.raises(ValidationError, match=r"app/kustomization\.yaml:2.*there is no"):
        repo.render("app", by=never)
    repo.write({"app/kustomization.yaml": "resources:\n  - ../b\n", "b/x.yaml": config_map("x")})
    with pytest.raises(ValidationError, match="has no kustomization"):
        repo.render("app", by=never)
    repo.left_out = {"sub": "is a submodule, which is not fetched"}
    repo.write({"app/kustomization.yaml": "resources:\n  - ../sub/base\n"})
    with pytest.raises(ValidationError, match="submodule"):
        repo.render("app", by=never)


def test_two_kustomizations_in_one_directory_are_refused(repo: Repo, never: FileRenderer) -> None:
    repo.write({"kustomization.yaml": "resources: []", "Kustomization": "resources: []"})
    with pytest.raises(ValidationError, match="there too"):
        repo.render(by=never)


def test_kustomize_gets_plugins_and_merge_patches_that_were_written_anew(
    repo: Repo, tmp_path: Path
) -> None:
    """Whatever two parsers could read differently is gone from what the second one gets."""
    repo.write(
        {
            "kustomization.yaml": """
                transformers:
                  - p.yaml
                  - |-
                    apiVersion: builtin
                    kind: SuffixTransformer # a comment
                    metadata: {name: &n two}
                    suffix: *n
                patchesStrategicMerge:
                  - |-
                    kind: A
                    metadata: {name: x}
                """,
            "p.yaml": """
                # A comment that our reader does not give on.
                apiVersion: builtin
                kind: PrefixTransformer
                metadata: {name: one}
                prefix: 'p-'
                """,
        }
    )
    with RepositoryFiles(repo.root, None) as files:
        reading = layers.load_layers(files, ())
    body = reading.stack.entry.body
    two = {
        "apiVersion": "builtin",
        "kind": "SuffixTransformer",
        "metadata": {"name": "two"},
        "suffix": "two",
    }
    assert body["transformers"] == ["p.yaml", json.dumps(two)]
    assert body["patchesStrategicMerge"] == ['{"kind": "A", "metadata": {"name": "x"}}']
    _write_files(reading, tmp_path / "copy")
    assert json.loads((tmp_path / "copy" / "p.yaml").read_text())["prefix"] == "p-"
    assert json.loads((tmp_path / "copy" / "kustomization.yaml").read_text()) == {
        **body,
        "buildMetadata": ["originAnnotations"],
    }


def test_the_harmless_plugins_still_work(repo: Repo, kubectl: str) -> None:
    repo.write(
        {
            "a.yaml": config_map("a"),
            "kustomization.yaml": """
                resources: [a.yaml]
                transformers:
                  - p.yaml
                  - |-
                    apiVersion: builtin
                    kind: PatchTransformer
                    metadata: {name: x}
                    target: {kind: ConfigMap}
                    patch: |-
                      [{"op": "add", "path": "/data", "value": {"k": "v"}}]
                generators:
                  - |-
                    apiVersion: builtin
                    kind: ConfigMapGenerator
                    metadata: {name: made}
                    literals: [a=b]
                    options: {disableNameSuffixHash: true}
                """,
            "p.yaml": """
                apiVersion: builtin
                kind: PrefixTransformer
                metadata: {name: x}
                prefix: p-
                fieldSpecs: [{path: metadata/name}]
                """,
        }
    )
    rendered = repo.render(by=FileRenderer(key=KEY, kustomize=kubectl))
    assert {each.ref.name: each.item["data"] for each in rendered.objects} == {
        "p-a": {"k": "v"},
        "p-made": {"k": "v"},
    }


def test_kustomize_sees_only_what_was_checked(repo: Repo, kubectl: str) -> None:
    """Its own reader would take `RESOURCES` too; it gets a file written from what was read."""
    repo.write(
        {
            "kustomization.yaml": "resources: [a.yaml]\nnamePrefix: &p x-\nnameSuffix: *p\n",
            "a.yaml": config_map("a"),
        }
    )
    rendered = repo.render(by=FileRenderer(key=KEY, kustomize=kubectl))
    assert rendered.objects[0].ref.name == "x-ax-"
