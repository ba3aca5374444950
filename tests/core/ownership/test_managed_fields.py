"""Ownership is read as the API server writes it, and never guessed."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.ownership.managed_fields import covers, keyed_lists, read_ownership, touches
from holdfast.core.tokens import mint
from holdfast.core.tree import Path, show_path

OURS = frozenset({"holdfast-operator"})
ENTRY = {
    "manager": "holdfast-operator",
    "operation": "Apply",
    "apiVersion": "apps/v1",
    "time": "2026-11-16T01:00:00Z",
    "fieldsType": "FieldsV1",
    "fieldsV1": {
        "f:metadata": {"f:finalizers": {'v:"keep/me"': {}}},
        "f:spec": {
            "f:selector": {},
            "f:containers": {
                'k:{"name":"app"}': {
                    ".": {},
                    "f:name": {},
                    "f:ports": {
                        'k:{"containerPort":80,"protocol":"TCP"}': {".": {}, "f:containerPort": {}}
                    },
                }
            },
            "f:imagePullSecrets": {'k:{"name":"registry"}': {}},
            "f:list": {"i:0": {"f:a": {}}},
        },
    },
}
FOREIGN = {
    "manager": "kubectl-edit",
    "operation": "Update",
    "apiVersion": "apps/v1",
    "fieldsV1": {"f:spec": {"f:template": {".": {}, "f:x": {}}, "f:empty": {".": {}}}},
}


def test_every_form_of_key_becomes_a_path() -> None:
    [entry] = read_ownership([ENTRY]).entries
    assert sorted(map(show_path, entry.paths)) == [
        "metadata.finalizers[keep/me]",
        "spec.containers[name=app]",
        "spec.containers[name=app].name",
        "spec.containers[name=app].ports[containerPort=80,protocol=TCP]",
        "spec.containers[name=app].ports[containerPort=80,protocol=TCP].containerPort",
        "spec.imagePullSecrets[name=registry]",
        "spec.list[0].a",
        "spec.selector",
    ]
    assert entry.at == datetime(2026, 11, 16, 1, tzinfo=UTC)


def test_an_entry_kept_as_text_is_read_alike() -> None:
    text = ENTRY | {"fieldsV1": json.dumps(ENTRY["fieldsV1"])}
    assert read_ownership([text]) == read_ownership([ENTRY])
    assert read_ownership([ENTRY | {"fieldsV1": "{not json"}]).wiped


def test_a_mapping_is_owned_by_its_fields_unless_it_is_empty() -> None:
    [entry] = read_ownership([FOREIGN]).entries
    assert entry.paths == {("spec", "template", "x"), ("spec", "empty")}
    assert entry.at is None
    assert entry.writer.operation == "update"


@pytest.mark.parametrize(
    ("path", "owned"),
    [
        (("spec", "selector", "matchLabels", "app"), True),
        (("spec", "containers", "[name=app]", "name"), True),
        (("spec", "containers", "[name=app]", "image"), False),
        (("spec", "imagePullSecrets", "[name=registry]", "name"), True),
        (("spec",), False),
        (("spec", "replicas"), False),
    ],
)
def test_a_whole_value_contains_its_fields_and_a_list_item_does_not(
    path: Path, owned: bool
) -> None:
    ownership = read_ownership([ENTRY])
    assert bool(ownership.owners(path, "apps/v1")) is owned


def test_paths_are_compared_inside_one_version() -> None:
    ownership = read_ownership([ENTRY, FOREIGN])
    assert ownership.ours(OURS, "apps/v1")
    assert ownership.ours(OURS, "apps/v2") is None
    assert [entry.manager for entry in ownership.foreign(OURS, "apps/v1")] == ["kubectl-edit"]
    assert ownership.foreign(OURS, "apps/v2") == ()


def test_an_update_under_our_name_is_not_ours() -> None:
    ownership = read_ownership([ENTRY | {"operation": "Update"}])
    assert ownership.ours(OURS, "apps/v1") is None
    assert len(ownership.foreign(OURS, "apps/v1")) == 1


@pytest.mark.parametrize("managed", [None, [], [{}], "text", [None], [{"manager": "x"}]])
def test_wiped_ownership_is_a_state_of_its_own(managed: object) -> None:
    assert read_ownership(managed).wiped


@pytest.mark.parametrize(
    "odd",
    [
        {"time": "yesterday"},
        {"time": None},
        {"manager": None},
        {"fieldsV1": {"k:{": {}, "f:a": {}}},
    ],
)
def test_an_odd_entry_is_read_as_far_as_it_goes(odd: dict[str, object]) -> None:
    [entry] = read_ownership([FOREIGN | odd]).entries
    assert entry.at is None
    assert entry.paths


def test_the_keys_of_lists_are_learned_from_the_entries() -> None:
    assert keyed_lists(read_ownership([ENTRY])) == {
        "containers": "name",
        "ports": "containerPort,protocol=TCP",  # which was not sent, so it is the default
        "imagePullSecrets": "name",
    }


paths = st.lists(st.sampled_from(["a", "b", "[name=x]", "[name=y]"]), min_size=1, max_size=4).map(
    tuple
)


@given(st.frozensets(paths, max_size=6), paths)
def test_a_set_covers_its_own_paths_and_touches_what_it_covers(
    owned: frozenset[Path], path: Path
) -> None:
    assert all(covers(owned, mine) for mine in owned)
    assert not covers(owned, path) or touches(owned, path)


def test_a_credential_in_the_name_of_a_writer_is_not_told_and_the_entry_stays_its_own() -> None:
    """Who writes takes any name; the entry itself is what the API server compares."""
    token = mint("sdk", bytes(range(32))).secret.reveal()
    [entry] = read_ownership([FOREIGN | {"manager": token}]).entries
    assert token[-40:] not in repr(entry.writer)
    assert entry.manager == token
