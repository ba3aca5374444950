"""Whatever the API server answers at whichever call, the same end is reached by the same writes."""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.adapters.kubernetes.harness import (
    CONFIG_MAPS,
    HastyClock,
    api_for,
    cluster_config,
    eventually,
)
from tests.faults.converge import MANAGER, Converger, play
from tests.faults.kube_faults import KubeFaults, calls, faults_before
from tests.support.cluster import Cluster
from tests.support.fault_proxy import When

from holdfast.adapters.clock import SystemClock
from holdfast.adapters.kubernetes.api import KubeApi
from holdfast.core.errors import (
    NOTHING_CHANGED,
    OUTCOME_UNKNOWN,
    HoldfastError,
    PermissionDenied,
    TargetUnavailable,
)
from holdfast.reconcile.kube import (
    ConflictReason,
    KindNotServed,
    KubeConflict,
    VersionExpired,
    ref_of,
)

Fault = Callable[[KubeFaults, When], None]


def answering(code: int, *, html: bool = False, retry_after: int | None = None) -> Fault:
    return lambda kube, when: kube.answer(when, code, html=html, retry_after=retry_after)


def emptied(kube: KubeFaults, when: When) -> None:
    kube.rewrite_status(when, 200, body=b"")


FAULTS: dict[str, Fault] = {
    **{str(code): answering(code) for code in (400, 401, 403, 404, 409, 410, 422, 500, 503, 504)},
    **{f"{code} of a gateway": answering(code, html=True) for code in (400, 403, 404, 409, 502)},
    "200 of a gateway": answering(200, html=True),
    "an empty 200": emptied,
    "429 with a wait": answering(429, retry_after=1),
    "503 with a wait": answering(503, retry_after=1),
    "no answer to a request that never came": lambda kube, when: kube.drop_request(when),
    "no answer to what was done": lambda kube, when: kube.drop_response(when),
    "504 for what was done": lambda kube, when: kube.lose_answer(when, 504),
    "a reset before": lambda kube, when: kube.reset_connection(when),
    "a reset after": lambda kube, when: kube.reset_connection(when, after_commit=True),
    "half a head": lambda kube, when: kube.cut_response(when, after_bytes=40),
    "half a body": lambda kube, when: kube.cut_response(when, after_bytes=400),
    "a hang": lambda kube, when: kube.hang(when),
}
SMOKE = ("409", "503", "200 of a gateway", "504 for what was done", "a reset after", "half a body")


@pytest.fixture(scope="module")
def shared(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubeFaults]:
    """One proxy for all runs of a story, each with objects of its own."""
    with faults_before(cluster, tmp_path_factory.mktemp("faults")) as running:
        yield running


@pytest.fixture(scope="module")
def room(cluster: Cluster) -> Iterator[str]:
    name = cluster.create_namespace()
    yield name
    cluster.delete_namespace(name)


def told(kube: KubeFaults, namespace: str, fault: Fault, *calls_hit: When) -> Counter[str]:
    """Play the story with one fault at some calls; give its creates and deletes per object."""
    kube.reset()
    for when in calls_hit:
        fault(kube, when)
    group = f"g{secrets.token_hex(4)}"
    # A hang costs this much, so it is short; nothing else waits for it.
    asyncio.run(play(kube, namespace, group, within=2.0))

    def plain(counts: Counter[str], verb: str) -> Counter[str]:
        return Counter({f"{verb} {k.replace(group, 'g')}": v for k, v in counts.items()})

    return plain(kube.created(), "create") + plain(kube.deleted(), "delete")


@pytest.fixture(scope="module")
def quiet(shared: KubeFaults, room: str) -> tuple[Counter[str], int]:
    """What the story does when nothing fails, and with how many requests."""
    writes = told(shared, room, emptied)
    assert sum(writes.values()) == 6
    return writes, len(shared.requests)


@pytest.mark.parametrize(
    "fault",
    [pytest.param(name, marks=[] if name in SMOKE else pytest.mark.long) for name in FAULTS],
)
def test_a_fault_at_one_call_of_each_verb_changes_neither_end_nor_writes(
    fault: str, shared: KubeFaults, room: str, quiet: tuple[Counter[str], int]
) -> None:
    where = [
        calls("GET", r"/configmaps", nth=2),
        calls("GET", r"labelSelector", nth=3),
        calls("PATCH", nth=2),
        calls("DELETE"),
    ]
    assert told(shared, room, FAULTS[fault], *where) == quiet[0]
    assert all(when.hit for when in where)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("fault", SMOKE)
def test_a_fault_at_every_call_changes_neither_end_nor_writes(
    fault: str, shared: KubeFaults, room: str, quiet: tuple[Counter[str], int]
) -> None:
    """Once, or seven times in a row, which is more than the client asks again."""
    writes, total = quiet
    for nth in range(1, total):  # the last one only looks at the end, with the faults gone
        when = calls(nth=nth, times=7 if nth % 2 else 1)
        assert told(shared, room, FAULTS[fault], when) == writes, f"call {nth}"
        assert when.hit


def through(kube: KubeFaults, story: Callable[[KubeApi], Any], **options: Any) -> Any:
    """Run something with a client behind the proxy. Any: the story's own result."""

    async def run() -> Any:
        async with api_for(cluster_config(kube.kubeconfig), **options) as api:
            return await story(api)

    return asyncio.run(run())


def test_a_create_that_timed_out_but_held_is_found_again_and_made_once(
    kube: KubeFaults, namespace: str
) -> None:
    async def story(api: KubeApi) -> None:
        controller = Converger(api, namespace, "g")
        item = controller.item("a", "1")
        await controller.client.get(ref_of(item))  # kinds are known now; the create is the next
        kube.delay_response(calls("PATCH"), 3.0)
        api.timeout = 1.0
        with pytest.raises(TargetUnavailable) as raised:
            await controller.client.apply(item, manager=MANAGER, absent=True)
        api.timeout = 20.0
        assert raised.value.changed == OUTCOME_UNKNOWN
        await eventually(lambda: kube.created(), "the create behind the time-out")
        with pytest.raises(KubeConflict) as refused:
            await controller.client.apply(item, manager=MANAGER, absent=True)
        assert refused.value.reason is ConflictReason.EXISTS
        await controller.converge({"a": "1"})
        assert kube.created() == {f"configmaps/{namespace}/g-a": 1}

    through(kube, story, clock=SystemClock())


def test_a_deletion_whose_answer_was_lost_is_not_sent_again_unasked(
    kube: KubeFaults, namespace: str
) -> None:
    """By then the name may be another object's."""

    async def story(api: KubeApi) -> None:
        await api.create(Converger(api, namespace, "g").item("a", "1"))
        kube.drop_response(calls("DELETE"))
        with pytest.raises(TargetUnavailable) as raised:
            await api.delete(CONFIG_MAPS.ref("g-a", namespace))
        assert raised.value.changed == OUTCOME_UNKNOWN
        assert [call.method for call in kube.calls].count("DELETE") == 1

    through(kube, story)


@pytest.mark.parametrize(
    ("code", "html", "retry_after", "changed"),
    [
        (429, False, None, NOTHING_CHANGED),
        (503, False, 1, NOTHING_CHANGED),
        (503, False, None, OUTCOME_UNKNOWN),
        (503, True, None, OUTCOME_UNKNOWN),
        (500, False, None, OUTCOME_UNKNOWN),
        (502, True, None, OUTCOME_UNKNOWN),
        (504, False, None, OUTCOME_UNKNOWN),
    ],
)
def test_a_write_that_failed_says_whether_it_may_have_held(
    code: int,
    html: bool,
    retry_after: int | None,
    changed: str,
    shared: KubeFaults,
    room: str,
) -> None:
    """A gateway answers 503 also when the server broke off in the middle."""

    async def story(api: KubeApi) -> None:
        item = Converger(api, room, "g").item("a", "1")
        shared.answer(calls("POST", times=None), code, html=html, retry_after=retry_after)
        with pytest.raises(TargetUnavailable) as raised:
            await api.create(item)
        assert raised.value.changed == changed

    shared.reset()
    through(shared, story)


@pytest.mark.parametrize("code", [400, 403, 404, 409, 410, 422])
def test_what_a_gateway_refuses_is_not_taken_for_the_clusters_word(
    code: int, shared: KubeFaults, room: str
) -> None:
    """It is neither an absent object nor a fault of the object: the question stays open."""

    async def story(api: KubeApi) -> None:
        shared.answer(calls("GET", r"/configmaps/"), code, html=True)
        with pytest.raises(HoldfastError) as raised:
            await api.get(CONFIG_MAPS.ref("a", room))
        assert isinstance(raised.value, TargetUnavailable | PermissionDenied)

    shared.reset()
    through(shared, story)


async def fill(api: KubeApi, namespace: str, count: int) -> set[str]:
    names = {f"g-{number:05}" for number in range(count)}
    room = asyncio.Semaphore(16)
    controller = Converger(api, namespace, "g")

    async def make(name: str) -> None:
        async with room:
            await api.create(controller.item(name.removeprefix("g-"), "1"))

    await asyncio.gather(*(make(name) for name in names))
    return names


@pytest.mark.parametrize(
    ("count", "page"), [(60, 12), pytest.param(5000, 500, marks=pytest.mark.long)]
)
def test_a_list_that_expires_on_any_page_is_whole_in_the_end(
    count: int, page: int, kube: KubeFaults, cluster: Cluster, namespace: str
) -> None:
    async def story() -> None:
        async with api_for(cluster_config(cluster.kubeconfig)) as api:
            names = await fill(api, namespace, count)
        async with api_for(cluster_config(kube.kubeconfig)) as api:
            listing = partial(api.list, CONFIG_MAPS.scope(namespace, "group=g"), page_size=page)
            for nth in range(1, count // page):
                for times in (1, 2):
                    kube.heal()
                    when = calls("GET", r"[?&]continue=", nth=nth, times=times)
                    kube.answer(when, 410)
                    found = await listing()
                    assert {item["metadata"]["name"] for item in found.items} == names
                    assert len(found.items) == len(names)
                    assert when.hit
            kube.heal()
            kube.answer(calls("GET", r"[?&]continue=", nth=3, times=None), 403)
            with pytest.raises(PermissionDenied):
                await listing()
            kube.heal()
            kube.answer(calls("GET", r"/configmaps", times=None), 410)
            with pytest.raises(VersionExpired):
                await listing()

    asyncio.run(story())


@pytest.mark.long
def test_a_kind_that_may_no_longer_be_listed_is_unknown_and_others_go_on(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    rule = {"apiGroups": [""], "verbs": ["get", "list", "watch", "create", "patch"]}
    subject = {"kind": "User", "name": "narrow", "apiGroup": "rbac.authorization.k8s.io"}
    documents = []
    for kind in ("configmaps", "secrets"):
        metadata = {"name": f"narrow-{kind}", "namespace": namespace}
        reference = {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "Role",
            "name": metadata["name"],
        }
        documents += [
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "Role",
                "metadata": metadata,
                "rules": [{**rule, "resources": [kind]}],
            },
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "RoleBinding",
                "metadata": metadata,
                "subjects": [subject],
                "roleRef": reference,
            },
        ]
    cluster.apply(*documents)

    async def story(kube: KubeFaults) -> None:
        async with api_for(cluster_config(kube.kubeconfig)) as api:
            controller = Converger(api, namespace, "g")
            secrets_kind = await api.resource_of("v1", "Secret")

            async def allowed() -> bool:
                try:
                    await api.list(secrets_kind.scope(namespace))
                    await controller.converge({"a": "1"})
                except (PermissionDenied, AssertionError):
                    return False
                return True

            async with asyncio.timeout(30):
                while not await allowed():  # noqa: ASYNC110  # RBAC tells nobody when it holds
                    await asyncio.sleep(0.1)
            cluster.kubectl("delete", "rolebinding", "narrow-secrets", "-n", namespace)
            async with asyncio.timeout(30):
                while True:
                    try:
                        await api.list(secrets_kind.scope(namespace))
                    except PermissionDenied:
                        break
                    await asyncio.sleep(0.1)
            with pytest.raises(PermissionDenied):
                await api.get(secrets_kind.ref("absent", namespace))
            await controller.converge({"a": "1", "b": "2"})

    with faults_before(cluster, tmp_path, user="narrow", groups=()) as kube:
        asyncio.run(story(kube))


@pytest.mark.long
def test_a_group_whose_server_is_dead_is_unknown_and_others_go_on(
    kube: KubeFaults, cluster: Cluster, namespace: str
) -> None:
    group = f"{namespace}.example.com"
    registration = {
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": f"v1.{group}"},
        "spec": {
            "group": group,
            "version": "v1",
            "groupPriorityMinimum": 100,
            "versionPriority": 100,
            "service": {"name": "nobody", "namespace": namespace, "port": 443},
            "insecureSkipTLSVerify": True,
        },
    }

    async def story(api: KubeApi) -> None:
        async def refusal() -> HoldfastError:
            with pytest.raises(TargetUnavailable) as raised:
                await api.resource_of(f"{group}/v1", "Widget")
            return raised.value

        async with asyncio.timeout(60):
            while isinstance(await refusal(), KindNotServed):  # noqa: ASYNC110  # nor discovery
                await asyncio.sleep(0.1)
        controller = Converger(api, namespace, "g")
        await controller.converge({"a": "1"})
        assert not controller.errors

    cluster.apply(registration)
    try:
        through(kube, story, clock=HastyClock())
    finally:
        cluster.kubectl("delete", "apiservice", f"v1.{group}", "--ignore-not-found")
