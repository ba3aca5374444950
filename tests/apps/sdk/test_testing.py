"""The helpers that users test their own deploy scripts with."""

from __future__ import annotations

import pytest

import holdfast.testing
from holdfast import Conflict, ManagementClient, NotFound, Outcome
from holdfast.testing import (
    a_spec,
    async_memory_client,
    drift,
    fail_next,
    memory_client,
    remove,
    writes,
)


def deploy(client: ManagementClient) -> None:
    """A script of a user."""
    client.ensure(a_spec(replicas=2))


def test_a_deploy_script_puts_a_hand_edit_back() -> None:
    client = memory_client()
    deploy(client)
    drift(client, "support-bot", replicas=9, env={"DEBUG": "1"}, by="kubectl-edit", actor="sam")
    (seen,) = client.drifts()
    assert [entry.path for entry in seen.fields] == ["/replicas"]
    assert str(seen.fields[0].writer) == "kubectl-edit (sam)"
    deploy(client)
    assert client.get("support-bot").fields["replicas"] == 2
    assert [step.action for step in writes(client)] == ["create", "update"]


def test_clients_may_share_one_target() -> None:
    first = memory_client()
    second = memory_client(target=holdfast.testing.memory_of(first))
    deploy(first)
    assert second.ensure(a_spec(replicas=2)).outcome is Outcome.UNCHANGED


def test_failures_come_as_often_as_ordered_and_where_ordered() -> None:
    client = memory_client()
    fail_next(client, Conflict("someone else"), times=2, slug="support-bot")
    for _ in range(2):
        with pytest.raises(Conflict):
            client.get("support-bot")
    with pytest.raises(NotFound):
        client.get("support-bot")
    assert not remove(client, "support-bot")


def test_the_helpers_refuse_a_client_that_is_not_on_memory() -> None:
    client = ManagementClient("https://host.example", project="acme", token="t")
    with pytest.raises(TypeError, match=r"holdfast\.testing"):
        drift(client, "support-bot", replicas=9)


def test_every_public_helper_is_there() -> None:
    assert all(hasattr(holdfast.testing, name) for name in holdfast.testing.__all__)
    assert async_memory_client("mine").project == "mine"
