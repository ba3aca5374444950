"""`holdfast operator` where it cannot work says so, and where to go on."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.adapters.kubernetes.harness import Script, serving, status

from holdfast.apps.cli.main import cli
from holdfast.apps.operator.main import Operator
from holdfast.apps.operator.settings import OperatorSettings
from holdfast.core.errors import ConfigurationError, TargetUnavailable


def test_a_gateway_needs_a_domain() -> None:
    result = CliRunner().invoke(cli, ["operator", "--gateway", "infra/inference"])
    assert result.exit_code != 0
    assert "--domain" in result.output


def operate(settings: OperatorSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run an operator against an API server that serves none of its kinds."""

    async def played() -> None:
        missing = status(404, "NotFound", "the server could not find the requested resource")
        async with serving(Script(lists=[missing], watches=[[missing]])) as url:
            config = {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "x",
                "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
                "clusters": [{"name": "x", "cluster": {"server": url}}],
                "users": [{"name": "x", "user": {}}],
            }
            path = tmp_path / "kubeconfig"
            path.write_text(json.dumps(config))
            monkeypatch.setenv("KUBECONFIG", str(path))
            await Operator(settings).run()

    asyncio.run(played())


def test_without_its_definitions_it_gives_up_and_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = OperatorSettings(sync_within=0.5, metrics_address="127.0.0.1:0")
    with pytest.raises(TargetUnavailable) as refused:
        operate(settings, tmp_path, monkeypatch)
    assert "inferenceservices" in refused.value.happened
    assert "CRD" in refused.value.hint


def test_an_address_that_is_none_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigurationError):
        operate(OperatorSettings(metrics_address="nowhere"), tmp_path, monkeypatch)
