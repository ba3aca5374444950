"""What you need to test a program that deploys with Holdfast, without a server.

    from holdfast import OnDrift
    from holdfast.testing import a_spec, drift, memory_client

    def test_my_deploy_puts_a_hand_edit_back():
        client = memory_client()
        deploy(client)                                    # your code
        drift(client, "support-bot", replicas=9, by="kubectl-edit")
        deploy(client)
        assert client.get("support-bot").fields["replicas"] == 2

The memory target behind these clients keeps the same contract as the real ones. Workloads
are ready at once unless `set_progress` says otherwise.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, TypeAlias

from holdfast.adapters.clock import BlockingClock, SystemClock
from holdfast.adapters.memory.target import MemoryTarget
from holdfast.apps.sdk.management import AsyncManagementClient, ManagementClient
from holdfast.core.backends import Backend
from holdfast.core.errors import HoldfastError, TargetUnavailable
from holdfast.core.live import Live, Progress, Writer
from holdfast.core.names import WorkloadId
from holdfast.core.plan import Step
from holdfast.core.tree import Tree, plain_tree
from holdfast.core.workload import WorkloadSpec

__all__ = [
    "MemoryTarget",
    "a_spec",
    "async_memory_client",
    "drift",
    "fail_next",
    "memory_client",
    "remove",
    "set_available",
    "set_logs",
    "set_progress",
    "writes",
]

Client: TypeAlias = ManagementClient | AsyncManagementClient


def memory_client(
    project: str = "test", *, manager: str = "holdfast-sdk", target: MemoryTarget | None = None
) -> ManagementClient:
    """Return a client on a target of its own, or on one that other clients share."""
    shared = target or _target(manager, blocking=True)
    return ManagementClient(project=project, manager=manager, target=shared)


def async_memory_client(
    project: str = "test", *, manager: str = "holdfast-sdk", target: MemoryTarget | None = None
) -> AsyncManagementClient:
    """Return an async client on a target of its own, or on one that other clients share."""
    shared = target or _target(manager, blocking=False)
    return AsyncManagementClient(project=project, manager=manager, target=shared)


# Any: the fields of WorkloadSpec, which checks each of them when it is built.
def a_spec(**overrides: Any) -> WorkloadSpec:
    """Return a valid spec; name only what matters to your test."""
    fields: dict[str, Any] = {  # as above
        "name": "support-bot",
        "model": "meta-llama/Llama-3.1-8B-Instruct",
        "backend": Backend.VLLM,
        "command": "vllm serve meta-llama/Llama-3.1-8B-Instruct --max-model-len 8192",
        **overrides,
    }
    return WorkloadSpec(**fields)


def drift(
    client: Client,
    slug: str,
    *,
    by: str = "kubectl-edit",
    actor: str | None = None,
    project: str | None = None,
    **fields: object,
) -> Live:
    """Edit live fields behind Holdfast's back, as the tool `by`; None clears a field."""
    edited: dict[str, Tree] = {name: plain_tree(value) for name, value in fields.items()}
    return memory_of(client).edit(
        _id(client, slug, project), edited, writer=Writer(manager=by, actor=actor)
    )


def remove(
    client: Client, slug: str, *, by: str = "kubectl-delete", project: str | None = None
) -> bool:
    """Delete a live workload behind Holdfast's back; False when there is none."""
    return memory_of(client).remove(_id(client, slug, project), writer=Writer(manager=by))


def fail_next(
    client: Client,
    error: HoldfastError | None = None,
    *,
    times: int = 1,
    after_effect: bool = False,
    slug: str | None = None,
) -> None:
    """Let the next calls to the target, or those about one slug, raise.

    With `after_effect` the next steps are carried out before the answer is lost, which is
    how a network really fails.
    """
    lost = error or TargetUnavailable("The test ordered this failure.")
    memory_of(client).fail(lost, times=times, after_effect=after_effect, slug=slug)


def set_available(client: Client, available: bool) -> None:
    """Take the target down, or bring it back."""
    memory_of(client).down = not available


def set_progress(client: Client, slug: str, progress: Sequence[Progress]) -> None:
    """Lay down what `wait_until_ready` will see; end with `ready` or `error`, or it hangs on."""
    memory_of(client).phases[slug] = tuple(progress)


def set_logs(client: Client, slug: str, lines: Sequence[str]) -> None:
    """Lay down a workload's log."""
    memory_of(client).lines[slug] = tuple(lines)


def writes(client: Client) -> list[Step]:
    """Return every step that took effect, in order."""
    return list(memory_of(client).writes)


def memory_of(client: Client) -> MemoryTarget:
    """Return the memory target behind a client of this module."""
    target = client.target
    if not isinstance(target, MemoryTarget):
        raise TypeError("this helper needs a client made by holdfast.testing")
    return target


def _target(manager: str, *, blocking: bool) -> MemoryTarget:
    numbers = itertools.count(1)
    return MemoryTarget(
        clock=BlockingClock() if blocking else SystemClock(),
        writer=Writer(manager=manager),
        new_uid=lambda: f"{next(numbers):08x}-test",
    )


def _id(client: Client, slug: str, project: str | None) -> WorkloadId:
    return WorkloadId(project=project or client.project or "test", slug=slug)
