"""The main job, on this machine, in about a minute. `make quickstart` runs it.

Everything it starts lives in a temporary directory and is stopped at the end, also on Ctrl-C.
"""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
import warnings
from collections.abc import Callable
from pathlib import Path

from holdfast import (
    DataClient,
    DriftError,
    DriftWarning,
    Endpoint,
    HoldfastError,
    ManagementClient,
    OnDrift,
    Progress,
    WorkloadSpec,
)

HERE = Path(__file__).resolve().parent
HOLDFAST = Path(sys.executable).with_name("holdfast")
COLOUR = sys.stdout.isatty() and "NO_COLOR" not in os.environ


def main() -> int:
    began = time.monotonic()
    print(bold("Holdfast quickstart") + faint("   everything below really happens, on loopback\n"))
    with tempfile.TemporaryDirectory(prefix="holdfast-") as scratch:
        server = None
        try:
            server, url = start_control_plane(Path(scratch))
            tell_the_story(Path(scratch), url)
        except KeyboardInterrupt:
            print("\ninterrupted; stopping what was started")
            return 130
        finally:
            if server is not None:
                stop(server)
    print(f"\n{good('✓')} stopped everything it started. {time.monotonic() - began:.0f} s in all.")
    print(faint("\nNext: docs/tutorial.md, or  .venv/bin/holdfast --help"))
    return 0


def tell_the_story(scratch: Path, url: str) -> None:
    holdfast(scratch, "project", "create", "acme")
    owner = token(scratch, name="deploy-script")
    mgmt = ManagementClient(url, project="acme", token=owner)
    spec = declared(scratch)

    step("Declare a workload and make it so", "mgmt.ensure(spec)")
    ref = mgmt.ensure(spec)
    done(f"workload {ref.workload_slug} was {ref.outcome}")
    mgmt.wait_until_ready(ref.workload_slug, timeout=90, on_progress=show_progress())

    step("Ask it something, through the data plane", 'endpoint.generate_text(prompt="hello")')
    key = data_key(scratch, ref.workload_slug)
    endpoint = DataClient(url, project="acme").endpoint(ref.workload_slug, api_key=key)
    answer = endpoint.generate_text(prompt="hello", max_tokens=26, temperature=0)
    done(f"{answer.model} answered: {bold(answer.text.strip())}")

    step(
        "Somebody edits it behind Holdfast's back",
        "PATCH /api/workloads/…   (curl, token ops-laptop)",
    )
    ops = token(scratch, name="ops-laptop")
    edit_behind_the_back(mgmt, spec, url, ops)
    wait_for_rollout(mgmt, spec.slug)
    done("the live workload now runs with another command")

    step("What changed, what kind of drift, and by whom", "print(mgmt.plan(spec))")
    print(indent(str(mgmt.plan(spec))))

    step("The policies that leave it alone", "mgmt.ensure(spec, on_drift=…)")
    before = mgmt.get(spec.slug).generation
    try:
        mgmt.ensure(spec, on_drift=OnDrift.FAIL)
    except DriftError as error:
        done(f"FAIL    raised {type(error).__name__} with {error.plan.id}")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        outcome = mgmt.ensure(spec, on_drift=OnDrift.WARN).outcome
    shown = next(each.category.__name__ for each in caught if each.category is DriftWarning)
    done(f"WARN    {outcome}, with a {shown}")
    done(f"IGNORE  {mgmt.ensure(spec, on_drift=OnDrift.IGNORE).outcome}, quietly")
    done(f"generation {before} before, {mgmt.get(spec.slug).generation} after: nothing was changed")

    step("Reconcile while requests keep flowing", "mgmt.ensure(spec)")
    with Traffic(endpoint) as traffic:
        ref = mgmt.ensure(spec)
        done(f"workload {ref.workload_slug} was {ref.outcome}; a new process takes over")
        wait_for_rollout(mgmt, spec.slug)
    done(f"{traffic.answered} requests answered meanwhile, {bold(f'{traffic.failed} lost')}")
    if traffic.failed:
        raise SystemExit("quickstart: requests were lost; please report this")

    step("The history", "holdfast history support-bot")
    environment = {**os.environ, "HOLDFAST_URL": url, "HOLDFAST_TOKEN": owner}
    environment |= {"HOLDFAST_PROJECT": "acme", "FORCE_COLOR": "1" if COLOUR else ""}
    shown = subprocess.run(
        [HOLDFAST, "history", spec.slug], env=environment, text=True, capture_output=True
    )
    print(indent(shown.stdout.rstrip() or shown.stderr.rstrip()))

    if os.environ.get("STAY"):
        show_page(environment)
    else:
        print(faint(f"\nIts page is at {url}/ui/; make quickstart STAY=1 stays up for a look."))
    mgmt.delete(spec.slug)
    mgmt.close()


def show_page(environment: dict[str, str]) -> None:
    """Name a link that signs in, and stay until the reader has seen enough."""
    step("Have a look yourself", "holdfast ui")
    print(faint("   A link signs one browser in, within a minute. Enter gives another, q ends."))
    command = [HOLDFAST, "ui", "--no-open", "-o", "name"]
    try:
        while True:
            made = subprocess.run(command, env=environment, text=True, capture_output=True)
            done(f"open {bold(made.stdout.strip() or made.stderr.strip())}")
            if input().strip().lower() == "q":
                return
    except EOFError:  # nobody is there to press a key: stay until Ctrl-C
        threading.Event().wait()


def declared(scratch: Path) -> WorkloadSpec:
    """A llama.cpp server with a tiny model, or the echo server where there is no wheel."""
    if importlib.util.find_spec("xllamacpp"):
        sys.path.insert(0, str(HERE / "backends"))
        from tiny_model import write_chat_model

        model = scratch / "tiny.gguf"
        write_chat_model(model)
        program = f"{sys.executable} {HERE / 'backends' / 'llama_server.py'}"
        command = f"{program} --model {model} --alias tiny --ctx-size 4096 --parallel 2"
        return WorkloadSpec(name="Support bot", model="tiny", backend="llamacpp", command=command)
    program = f"{sys.executable} {HERE / 'backends' / 'echo_server.py'}"
    command = f"{program} --model tiny --tokens 8"
    return WorkloadSpec(name="Support bot", model="tiny", backend="echo", command=command)


def edit_behind_the_back(mgmt: ManagementClient, spec: WorkloadSpec, url: str, ops: str) -> None:
    assert spec.command is not None
    other = spec.command.replace("--ctx-size 4096", "--ctx-size 2048")
    other = other.replace("--tokens 8", "--tokens 4")
    body = json.dumps({"config": {"command": other}}).encode()
    request = urllib.request.Request(
        f"{url}/api/workloads/{mgmt.get(spec.slug).uid}", data=body, method="PATCH"
    )
    request.add_header("Authorization", f"Bearer {ops}")
    request.add_header("Content-Type", "application/json")
    request.add_header("User-Agent", "curl/8.5.0")
    with urllib.request.urlopen(request) as answer:
        answer.read()


class Traffic:
    """A few callers that send one request after the other, and count."""

    def __init__(self, endpoint: Endpoint, callers: int = 3) -> None:
        self.answered = self.failed = 0
        self._endpoint = endpoint
        self._ending = threading.Event()
        self._counting = threading.Lock()
        self._callers = [threading.Thread(target=self._send) for _ in range(callers)]

    def __enter__(self) -> Traffic:
        for caller in self._callers:
            caller.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        for caller in self._callers:
            caller.join()

    def _send(self) -> None:
        while not self._ending.is_set():
            try:
                self._endpoint.generate_text(prompt="ping", max_tokens=4)
            except HoldfastError as error:
                with self._counting:
                    self.failed += 1
                print(f"    lost: {error}")
            else:
                with self._counting:
                    self.answered += 1


def wait_for_rollout(mgmt: ManagementClient, slug: str) -> None:
    """Wait until the old process is gone, so that the traffic spans the whole change."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        actions = [entry.action for entry in mgmt.history(slug=slug, limit=20)]
        since = actions[: actions.index("updated")]  # newest first
        if "stopped" in since or "replaced" in since:
            return
        time.sleep(0.2)


def show_progress() -> Callable[[Progress], None]:
    """Print each phase once, with what it waits for."""
    seen: set[str] = set()

    def show(progress: Progress) -> None:
        if progress.phase not in seen:
            seen.add(progress.phase)
            print(f"   {faint('·')} {progress.phase}  {faint(progress.message)}", flush=True)

    return show


def start_control_plane(scratch: Path) -> tuple[subprocess.Popen[str], str]:
    step("Start a control plane", "holdfast serve")
    server = subprocess.Popen(
        [HOLDFAST, "serve", "--db", scratch / "holdfast.db", "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=(scratch / "server.log").open("w"),
        text=True,
        start_new_session=True,
    )
    assert server.stdout is not None
    for line in server.stdout:
        if "http://" in line:
            url = "http://" + line.split("http://", 1)[1].split()[0].rstrip(".,")
            done(f"listening on {url}")
            return server, url
    log = (scratch / "server.log").read_text()
    raise SystemExit(f"quickstart: the control plane did not start\n{log}")


def stop(server: subprocess.Popen[str]) -> None:
    server.send_signal(signal.SIGTERM)
    try:
        server.wait(timeout=30)
    except subprocess.TimeoutExpired:
        os.killpg(server.pid, signal.SIGKILL)


def token(scratch: Path, *, name: str) -> str:
    return holdfast(scratch, "token", "create", "--name", name, "--scope", "write", "-o", "name")


def data_key(scratch: Path, slug: str) -> str:
    return holdfast(scratch, "token", "create", "--name", "app", "--workload", slug, "-o", "name")


def holdfast(scratch: Path, *arguments: str) -> str:
    """Run a command of the server's owner, on the store itself."""
    command = [HOLDFAST, *arguments, "--project", "acme", "--db", scratch / "holdfast.db"]
    done = subprocess.run(command, text=True, check=True, capture_output=True)
    return done.stdout.strip()


_count = 0


def step(title: str, code: str) -> None:
    global _count
    _count += 1
    print(f"\n{bold(f'{_count}. {title}')}   {faint(code)}", flush=True)


def done(text: str) -> None:
    print(f"   {good('✓')} {text}", flush=True)


def indent(text: str) -> str:
    return "\n".join(f"   {line}" for line in text.splitlines())


def bold(text: str) -> str:
    return f"\x1b[1m{text}\x1b[0m" if COLOUR else text


def faint(text: str) -> str:
    return f"\x1b[2m{text}\x1b[0m" if COLOUR else text


def good(text: str) -> str:
    return f"\x1b[32m{text}\x1b[0m" if COLOUR else text


if __name__ == "__main__":
    sys.exit(main())
