"""A server's stand-in that is there to be killed: runs a runner until it is.

Its arguments are the home and one command line. It prints `ready` once the workload is.
"""

from __future__ import annotations

import asyncio
import shlex
import sys
from pathlib import Path

from tests.adapters.runner.harness import UID, make_runner, spec


async def main(home: Path, command: str) -> None:
    runner = make_runner(home, [])
    runner.set([spec(shlex.split(command))])
    await runner.start()
    async for progress in runner.progress(UID):
        print(progress.phase, flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
