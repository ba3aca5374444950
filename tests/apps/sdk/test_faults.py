"""A network that fails at one exact point, between the SDK and a real control plane.

After each fault the end state is compared, row by row, with what a run without faults leaves.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from tests.apps.sdk.remote_target import TestClock, instant_client
from tests.support.both_clients import CLIENT_KINDS, management_client
from tests.support.fault_proxy import FaultProxy, Recorded, Response
from tests.support.processes import wait_until
from tests.support.server import RunningServer

from holdfast import AuthError, HoldfastError, OnDrift, Outcome, TargetUnavailable
from holdfast.core.errors import NOTHING_CHANGED, OUTCOME_UNKNOWN
from holdfast.testing import a_spec

pytestmark = pytest.mark.parametrize("colour", CLIENT_KINDS)


def is_write(request: Recorded) -> bool:
    return request.method == "POST"


def is_read(request: Recorded) -> bool:
    return request.method == "GET"


def first(chosen: Callable[[Recorded], bool]) -> Callable[[Recorded], bool]:
    """Choose only the first request that fits."""
    seen: list[int] = []

    def choose(request: Recorded) -> bool:
        if chosen(request) and (not seen or seen == [request.number]):
            seen[:] = [request.number]
            return True
        return False

    return choose


def story(server: RunningServer, slug: str) -> tuple[int, list[str]]:
    """How many workloads of the slug there are, and every row about it, oldest first."""
    with server.admin() as store:
        records = [each for each in store.records("acme") if each.id.slug == slug]
        rows = store.history("acme", slug=slug)
    return len(records), [f"{row.action} {row.generation}" for row in reversed(rows)]


def cuts(size: int) -> list[int]:
    """Places to cut a response: each edge, and a sample of all that lies between."""
    return sorted({0, 1, *range(0, size, max(1, size // 24)), size - 2, size - 1})


def test_a_response_cut_anywhere_leaves_one_effect(
    colour: str, server: RunningServer, proxy: FaultProxy, slug: str
) -> None:
    with instant_client(colour, proxy.url, server.token("acme")) as client:
        client.ensure(a_spec(name=f"{slug}-9999"))
        size = next(each for each in proxy.requests if is_write(each)).response_bytes
        for place in cuts(size):
            name = f"{slug}-{place:04d}"
            proxy.reset()
            proxy.cut_response(first(is_write), after_bytes=place)
            assert client.ensure(a_spec(name=name)).outcome is Outcome.CREATED
            assert len(proxy.mutating) == 2
            assert story(server, name) == (1, ["created 1"])

            proxy.reset()
            proxy.cut_response(first(is_write), after_bytes=place)
            assert client.ensure(a_spec(name=name, replicas=3)).outcome is Outcome.UPDATED
            assert story(server, name) == (1, ["created 1", "updated 2"])


def test_a_deletion_whose_answer_was_lost_happens_once(
    colour: str, server: RunningServer, proxy: FaultProxy, slug: str
) -> None:
    with instant_client(colour, proxy.url, server.token("acme")) as client:
        client.ensure(a_spec(name=slug))
        proxy.drop_response(lambda request: b'"delete"' in request.body)
        with pytest.raises(TargetUnavailable) as raised:
            client.delete(slug)
        assert raised.value.changed == OUTCOME_UNKNOWN
        assert client.delete(slug) is False
    count, rows = story(server, slug)
    assert (count, [row.split()[0] for row in rows]) == (0, ["created", "deleted"])


def test_a_request_that_arrives_twice_has_one_effect(
    colour: str, server: RunningServer, proxy: FaultProxy, slug: str
) -> None:
    proxy.replay(is_write)
    with instant_client(colour, proxy.url, server.token("acme")) as client:
        assert client.ensure(a_spec(name=slug)).outcome is Outcome.CREATED
        assert client.ensure(a_spec(name=slug, replicas=2)).outcome is Outcome.UPDATED
    assert [request.deliveries for request in proxy.mutating] == [2, 2]
    assert story(server, slug) == (1, ["created 1", "updated 2"])


def test_a_request_that_arrives_after_a_newer_one_is_refused(
    colour: str, server: RunningServer, proxy: FaultProxy, slug: str
) -> None:
    token = server.token("acme")
    with management_client(colour, server.url, project="acme", token=token) as other:
        other.ensure(a_spec(name=slug, replicas=1))
        release = proxy.hold(is_write)
        with management_client(
            colour, proxy.url, project="acme", token=token, timeout=1.5
        ) as client:
            with pytest.raises(TargetUnavailable) as raised:
                client.ensure(a_spec(name=slug, replicas=3))
            assert raised.value.changed == OUTCOME_UNKNOWN
        other.ensure(a_spec(name=slug, replicas=4))
        release()
        late = proxy.mutating[0]
        wait_until(lambda: late.finished, what="the late request to be answered")
        assert late.status == 409
        assert other.get(slug).fields["replicas"] == 4
    assert story(server, slug) == (1, ["created 1", "updated 2"])


@pytest.mark.parametrize("after_bytes", [None, 0, 20, 400], ids=str)
def test_a_write_that_hangs_ends_at_the_deadline_with_its_outcome_unknown(
    colour: str, server: RunningServer, proxy: FaultProxy, slug: str, after_bytes: int | None
) -> None:
    proxy.hang(is_write, after_bytes=after_bytes)
    token = server.token("acme")
    with management_client(colour, proxy.url, project="acme", token=token, timeout=1.5) as client:
        with pytest.raises(TargetUnavailable, match=r"1\.5 s") as raised:
            client.ensure(a_spec(name=slug))
        assert raised.value.changed == OUTCOME_UNKNOWN
        proxy.reset()
        client.ensure(a_spec(name=slug))
    assert story(server, slug) == (1, ["created 1"])


@pytest.mark.parametrize("after_bytes", [None, 0, 20, 200], ids=str)
def test_a_read_that_hangs_ends_at_the_deadline_and_nothing_was_changed(
    colour: str, server: RunningServer, proxy: FaultProxy, slug: str, after_bytes: int | None
) -> None:
    proxy.hang(is_read, after_bytes=after_bytes)
    token = server.token("acme")
    with management_client(colour, proxy.url, project="acme", token=token, timeout=0.4) as client:
        with pytest.raises(TargetUnavailable) as raised:
            client.ensure(a_spec(name=slug))
        assert raised.value.changed == NOTHING_CHANGED
    assert proxy.mutating == []


def _truncated(response: Response) -> Response:
    return Response(status=200, headers=response.headers, body=response.body[:-9])


FAULTS: dict[str, Callable[[FaultProxy], None]] = {
    "none": lambda proxy: None,
    "answer lost": lambda proxy: proxy.drop_response(first(is_read)),
    "request lost": lambda proxy: proxy.drop_request(first(is_read)),
    "cut": lambda proxy: proxy.cut_response(first(is_read), after_bytes=250),
    "doubled": lambda proxy: proxy.replay(is_read),
    "503": lambda proxy: proxy.rewrite_status(is_read, 503),
    "429": lambda proxy: proxy.rewrite_status(first(is_read), 429, headers={"retry-after": "1"}),
    "HTML": lambda proxy: proxy.rewrite_status(is_read, 200, body=b"<html>"),
    "empty 200": lambda proxy: proxy.rewrite_status(is_read, 200),
    "bare 404": lambda proxy: proxy.rewrite_status(is_read, 404),
    "bare 410": lambda proxy: proxy.rewrite_status(is_read, 410),
    "403": lambda proxy: proxy.rewrite_status(is_read, 403),
    "truncated": lambda proxy: proxy.rewrite_response(is_read, _truncated),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.filterwarnings("ignore::holdfast.DriftWarning")
def test_a_policy_that_only_looks_sends_no_write_whatever_the_network_does(
    colour: str, server: RunningServer, proxy: FaultProxy, slug: str, fault: str
) -> None:
    with instant_client(colour, proxy.url, server.token("acme")) as client:
        live = client.ensure(a_spec(name=slug, replicas=1)).live
        for policy in (OnDrift.FAIL, OnDrift.DRY_RUN, OnDrift.WARN, OnDrift.IGNORE):
            proxy.reset()
            FAULTS[fault](proxy)
            try:
                client.ensure(a_spec(name=slug, replicas=2), on_drift=policy)
            except HoldfastError as error:
                assert error.changed == NOTHING_CHANGED  # noqa: PT017  # some runs succeed
            assert proxy.mutating == []
        proxy.reset()
        assert client.get(slug).version == live.version


UNREADABLE = ("503", "HTML", "empty 200", "bare 404", "bare 410", "403", "truncated")


@pytest.mark.parametrize("fault", UNREADABLE)
def test_what_could_not_be_read_is_never_taken_as_absent_and_never_written(
    colour: str, server: RunningServer, proxy: FaultProxy, slug: str, fault: str
) -> None:
    FAULTS[fault](proxy)
    with instant_client(colour, proxy.url, server.token("acme")) as client:
        with pytest.raises(HoldfastError):
            client.ensure(a_spec(name=slug))
        with pytest.raises(HoldfastError):
            client.delete(slug)
        with pytest.raises(HoldfastError):
            client.plan(a_spec(name=slug))
    assert proxy.mutating == []


def test_a_token_revoked_in_the_middle_stops_the_client_at_its_next_request(
    colour: str, server: RunningServer, proxy: FaultProxy, slug: str
) -> None:
    token = server.token("acme", name=f"doomed-{slug}")

    def revoke(response: Response) -> Response:
        server.revoke(token)
        return response

    proxy.rewrite_response(1, revoke)
    with instant_client(colour, proxy.url, token) as client:
        with pytest.raises(AuthError) as raised:
            client.ensure(a_spec(name=slug))
        assert [request.method for request in proxy.requests] == ["GET", "POST"]
        assert token.split("_")[-1] not in str(raised.value)
        with pytest.raises(AuthError):
            client.ensure_all([a_spec(name=slug), a_spec(name=f"{slug}-b")])
        assert len(proxy.requests) == 3
    assert story(server, slug) == (0, [])


@pytest.mark.parametrize("years", [-1, 1])
def test_a_wrong_clock_changes_no_decision(
    colour: str, server: RunningServer, proxy: FaultProxy, slug: str, years: int
) -> None:
    clock = TestClock(now=datetime.now(UTC) + timedelta(days=365 * years))
    date = datetime.now(UTC)
    headers = {
        "date": date.strftime("%a, %d %b %Y %H:%M:%S GMT"),
        "retry-after": (date + timedelta(seconds=2)).strftime("%a, %d %b %Y %H:%M:%S GMT"),
    }
    proxy.rewrite_status(1, 503, headers=headers)
    with instant_client(colour, proxy.url, server.token("acme"), clock=clock) as client:
        outcomes = [
            client.ensure(a_spec(name=slug)).outcome,
            client.ensure(a_spec(name=slug)).outcome,
            client.ensure(a_spec(name=slug, replicas=2)).outcome,
        ]
    assert outcomes == [Outcome.CREATED, Outcome.UNCHANGED, Outcome.UPDATED]
    assert clock.slept == [2.0]


def test_a_conflict_storm_ends_in_the_declared_state(
    colour: str, server: RunningServer, proxy: FaultProxy, slug: str
) -> None:
    """Another writer gets in between each look and each write, five times over."""
    token = server.token("acme")
    meddled: list[int] = []
    with management_client("sync", server.url, project="acme", token=token) as other:
        other.ensure(a_spec(name=slug, replicas=1))

        def meddle(response: Response) -> Response:
            if len(meddled) < 5:
                meddled.append(1)
                other.ensure(a_spec(name=slug, replicas=10 + len(meddled)))
            return response

        proxy.rewrite_response(is_read, meddle)
        with instant_client(colour, proxy.url, token) as client:
            ref = client.ensure(a_spec(name=slug, replicas=2))
        assert ref.outcome is Outcome.UPDATED
        assert other.get(slug).fields["replicas"] == 2
    assert [request.status for request in proxy.mutating] == [409] * 5 + [200]
