"""Counts the modules that one change travels through, by tracing three of them.

python tools/walks.py          # of this tree
python tools/walks.py ../before

- ensure: the SDK updates a workload in an embedded store.
- operator: the operator puts an edited Deployment back, on the cluster in memory.
- gitops: the GitOps controller puts an edited object back, with everything in memory.

A module counts when one of its functions is called between the change and its end; a hop is a
pair of modules of which one calls the other. Only calls inside src/holdfast are looked at, and
each walk is made once before, so that imports and caches are not part of it. Called by
tools/figures.py. Names that have moved between trees are tried in turn.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib
import inspect
import logging
import sys
import tempfile
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

MODEL = "meta-llama/Llama-3.1-8B-Instruct"
EDITED = "registry.example/edited:1"
IMAGE = "/spec/template/spec/containers/0/image"
TIMEOUT = 20.0


class Trace:
    """The modules whose functions were called, and which called which."""

    def __init__(self, source: Path) -> None:
        self._prefix = f"{source}/"
        self.modules: set[str] = set()
        self.hops: set[tuple[str, str]] = set()

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        threading.setprofile(self._on_event)
        sys.setprofile(self._on_event)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    def _on_event(self, frame: FrameType, event: str, argument: object) -> None:
        if event != "call" or frame.f_code.co_name == "<module>":
            return
        module = self._module(frame)
        if module is None:
            return
        self.modules.add(module)
        caller = frame.f_back
        while caller is not None:  # past the standard library, as far as there is a caller of ours
            if (above := self._module(caller)) is not None:
                if above != module:
                    self.hops.add((above, module))
                return
            caller = caller.f_back

    def _module(self, frame: FrameType) -> str | None:
        file = frame.f_code.co_filename
        if not file.startswith(self._prefix):
            return None
        return file.removeprefix(self._prefix).removesuffix(".py").replace("/", ".")


# Any, here and below: names of whichever tree is looked at, and objects of the Kubernetes API.
Walk = Callable[[Trace], None]


def load(*places: str, missing: Any = ...) -> Any:
    """Give the first of these that the tree has, each `module:name`."""
    for place in places:
        module, _, name = place.partition(":")
        try:
            return getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError):
            continue
    if missing is not ...:
        return missing
    raise SystemExit(f"The tree has none of {', '.join(places)}; tools/walks.py needs its name.")


def _places(packages: Iterable[str], module: str, *names: str) -> list[str]:
    return [f"{package}.{module}:{name}" for package in packages for name in names]


def walk_ensure(trace: Trace) -> None:
    """Update a workload that is there, through the SDK, in a store of its own."""
    client_class, spec = load("holdfast:ManagementClient"), load("holdfast:WorkloadSpec")

    def declared(replicas: int) -> Any:
        return spec(name="bot", model=MODEL, backend="vllm", replicas=replicas,
                    command=f"vllm serve {MODEL}")  # fmt: skip

    with (
        tempfile.TemporaryDirectory() as folder,
        client_class(f"sqlite:///{folder}/holdfast.db", project="acme") as client,
    ):
        for replicas in (1, 2):
            client.ensure(declared(replicas))
        with trace.recording():
            client.ensure(declared(3))


class StoredServices:
    """Stands in for an informer of InferenceServices: reads them where they are stored."""

    has_synced = True

    def __init__(self, kube: Any, ref: Any) -> None:
        self.item: Any = None
        self._kube, self._ref = kube, ref

    async def refresh(self) -> None:
        self.item = await self._kube.get(self._ref)

    def get(self, name: str, namespace: str = "") -> Any:
        return self.item

    def uid(self, key: object) -> str:
        return str(self.item["metadata"]["uid"])

    def names(self) -> list[Any]:
        return []

    def __len__(self) -> int:
        return 1


def walk_operator(trace: Trace) -> None:
    """Edit the Deployment of a service, and have the operator's controller hear of it."""
    asyncio.run(_operator_heals(trace))


async def _operator_heals(trace: Trace) -> None:
    # The SDK's names for it do not change.
    kube = load("holdfast.operator:MemoryKube")()
    object_ref, ref = load("holdfast.operator:ObjectRef"), {"namespace": "shop", "name": "bot"}
    service_ref = object_ref(api_version="holdfast.dev/v1alpha1", kind="InferenceService", **ref)
    item = {"apiVersion": service_ref.api_version, "kind": service_ref.kind,
            "metadata": dict(ref), "spec": {"modelRef": MODEL, "backend": "vllm"}}  # fmt: skip
    stored = await kube.apply(item, manager="kubectl", force=True)
    services = StoredServices(kube, service_ref)
    await services.refresh()
    clock = load("holdfast.adapters.clock:SystemClock")()

    async def post(event: object) -> None:
        pass

    apps = ("holdfast.apps.operator", "holdfast.doors.operator")
    metrics = load(*_places(apps, "metrics", "OperatorMetrics", "Metrics"))()
    settings = load(*_places(apps, "settings", "OperatorSettings", "Settings"))()
    reconciler = load("holdfast.operator:Reconciler")(kube, clock=clock, key=b"k")
    build_operator = load(*_places(apps, "build", "build_operator"), missing=None)
    if build_operator is not None:
        controller = build_operator(
            kube,
            settings=settings,
            services=(services,),
            post_event=post,
            clock=clock,
            chance=lambda: 0.5,
            key=b"k",
            metrics=metrics,
            instance="i",
            reconciler=reconciler,
        ).controller
    else:
        make_queue = load(*_places(apps, "controller", "make_queue"), missing=None)
        recorder = load(
            *_places(["holdfast.adapters.kubernetes"], "events", "EventRecorder", "Recorder")
        )
        controller_class = load(*_places(apps, "controller", "OperatorController", "Controller"))
        more: dict[str, Any] = {"chance": lambda: 0.5, "client": kube}
        if make_queue is not None:
            more["queue"] = make_queue(clock, lambda: 0.5, metrics)
        takes = inspect.signature(controller_class).parameters
        controller = controller_class(
            services=(services,),
            reconciler=reconciler,
            recorder=recorder(
                post, clock=clock, reporter="r", instance="i", count=lambda outcome: 0
            ),
            clock=clock,
            metrics=metrics,
            settings=settings,
            latest=lambda service: service,
            **{name: value for name, value in more.items() if name in takes},
        )
    running = asyncio.ensure_future(controller.run())
    controller.on_service(None, stored)
    child = object_ref(api_version="apps/v1", kind="Deployment", namespace="shop",
                       name="bot-primary")  # fmt: skip

    async def healed() -> bool:
        live: Any = await kube.get(child)
        container = live["spec"]["template"]["spec"]["containers"][0] if live else {}
        return controller.queue.idle and container.get("image") not in (None, EDITED)

    await _until(healed)
    for recorded in (contextlib.nullcontext(), trace.recording()):
        await services.refresh()
        old = await kube.get(child)
        operation = {"op": "replace", "path": IMAGE, "value": EDITED}
        new = await kube.patch(child, [operation], manager="kubectl-edit")
        with recorded:
            controller.on_child(old, new)
            await _until(healed)
    getattr(controller, "workers", controller).stop()
    await running


def walk_gitops(trace: Trace) -> None:
    """Edit an object that Git declares, and have the GitOps controller hear of it."""
    asyncio.run(_gitops_heals(trace))


async def _gitops_heals(trace: Trace) -> None:
    world = load(
        "tests.support.gitops_world:ControllerWorld",
        "tests.apps.gitops.machine:Machine",
        "tests.doors.gitops.machine:Machine",
    )()
    configmap = load("tests.support.gitops_world:configmap")
    old = hasattr(world, "working")  # trees from before these names
    wait_sync, wait_idle, edit = (
        (world.reaches, world.settled, world.edit)
        if old
        else (world.wait_sync, world.wait_idle, world.edit_and_notify)
    )
    ref = load("tests.support.gitops_world:config_ref")("a")

    async def healed() -> bool:
        live = await world.kube.get(ref)
        return bool(live["data"] == {"x": "1"})

    async with world.working() if old else world:
        id = world.declare("shop", {"a.yaml": configmap("a", x="1")})
        await wait_sync(id, "synced")
        for recorded in (contextlib.nullcontext(), trace.recording()):
            await wait_idle()
            with recorded:
                await edit("a", "9")
                await _until(healed)
                await wait_idle()


async def _until(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(TIMEOUT):
        while not await holds():  # noqa: ASYNC110  # a cluster in memory tells nobody
            await asyncio.sleep(0.01)


WALKS: dict[str, Walk] = {
    "ensure, embedded": walk_ensure,
    "operator heals": walk_operator,
    "GitOps heals": walk_gitops,
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Trace three walks through the code.")
    parser.add_argument("root", nargs="?", type=Path, default=Path(__file__).parents[1])
    parser.add_argument("--list", action="store_true", help="name the modules")
    arguments = parser.parse_args()
    root = arguments.root.resolve()
    sys.path[:0] = [str(root / "src"), str(root)]
    logging.disable(logging.CRITICAL)
    for name, walk in WALKS.items():
        trace = Trace(root / "src" / "holdfast")
        walk(trace)
        memory = sum(module.startswith("adapters.memory") for module in trace.modules)
        value = f"{len(trace.modules)} ({memory}), {len(trace.hops)}"
        print(f"{f'walk: {name}; modules (of them memory adapters), hops':<66} {value:>14}")
        for module in sorted(trace.modules) if arguments.list else ():
            print(f"    {module}")


if __name__ == "__main__":
    main()
