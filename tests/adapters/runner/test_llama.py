"""The runner against llama.cpp's own server and a model that really computes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.adapters.runner.harness import UID, Bench, bench, chat, run, spec, until
from tests.support.processes import BACKENDS, llama_command

from holdfast.adapters.runner.run_spec import RunnerLimits

pytest.importorskip("xllamacpp")
pytest.importorskip("gguf")


def test_a_real_server_is_ready_when_its_model_answers_and_is_healed_when_killed(
    tmp_path: Path,
) -> None:
    model = tmp_path / "chat.gguf"
    subprocess.run([sys.executable, BACKENDS / "tiny_model.py", model], check=True)

    async def answer(b: Bench) -> str:
        lease = b.lease()
        try:
            url = f"{lease.url}/v1/chat/completions"
            async with b.http.post(url, **chat("hello", temperature=0)) as response:
                body = await response.json()
                return str(body["choices"][0]["message"]["content"])
        finally:
            lease.release()

    async def work() -> None:
        command = llama_command("--model", "${MODEL}", "--ctx-size", "1024")
        declared = spec(command, backend="llamacpp", model=str(model), task_type="text2text")
        async with bench(tmp_path, declared) as b:
            await b.ready(seconds=60)
            assert await answer(b) == "abcdefghijklmnopqrstuvwxyz."
            (pid,) = b.leaders()
            os.kill(pid, signal.SIGKILL)
            await until(lambda: b.kinds().count("ready") == 2, "the healing", 60)
            assert await answer(b) == "abcdefghijklmnopqrstuvwxyz."
            b.runner.put(spec([*command, "--alias", "other"], backend="llamacpp", model="gone"))
            await until(lambda: "there is no model" in b.runner.status(UID).message, "the reason")
            assert await answer(b) == "abcdefghijklmnopqrstuvwxyz."

    run(work())


def test_an_adapter_scaled_by_hand_is_told_and_put_back_when_asked(tmp_path: Path) -> None:
    model, adapter = tmp_path / "chat.gguf", tmp_path / "sql.gguf"
    tool = BACKENDS / "tiny_model.py"
    subprocess.run([sys.executable, tool, model], check=True)
    subprocess.run([sys.executable, tool, adapter, "--adapter"], check=True)

    async def scale(b: Bench, value: float | None = None) -> float:
        lease = b.lease()
        url = f"{lease.url}/lora-adapters"
        try:
            if value is not None:
                async with b.http.post(url, json=[{"id": 0, "scale": value}]) as response:
                    assert response.status == 200
            async with b.http.get(url) as response:
                (found,) = await response.json()
                return float(found["scale"])
        finally:
            lease.release()

    async def work() -> None:
        command = llama_command("--model", "${MODEL}", "--ctx-size", "1024")
        declared = spec(
            command,
            backend="llamacpp",
            model=str(model),
            task_type="text2text",
            adapters=[{"name": "sql", "source": str(adapter), "scale": 0.5}],
        )
        async with bench(tmp_path, declared, limits=RunnerLimits(runtime_every=0.2)) as b:
            await b.ready(seconds=60)
            await until(lambda: not b.runner.status(UID).runtime_unknown, "the engine's word", 20)
            assert b.runner.status(UID).runtime == ()
            assert await scale(b, 0.0) == 0.0
            await until(lambda: bool(b.runner.status(UID).runtime), "the difference", 20)
            (found,) = b.runner.status(UID).runtime
            assert (found.field, found.declared, found.served) == ("adapters.sql.scale", "0.5", "0")
            b.runner.try_again(UID)
            await until(lambda: not b.runner.status(UID).runtime, "it to be put back", 20)
            assert await scale(b) == 0.5
            assert b.kinds().count("started") == 1
            assert [kind for kind in b.kinds() if kind.startswith("runtime-")] == [
                "runtime-drifted",
                "runtime-verified",
            ]

    run(work())
