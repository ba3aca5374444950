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
