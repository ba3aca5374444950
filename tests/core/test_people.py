"""Who decided, as a text; and who counts as one person."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.people import (
    Actor,
    Person,
    actor_text,
    claim_values,
    parse_actor,
    same_person,
    shown_name,
)

ANN = Person(issuer="https://git.example.com", subject="7", name="Ann")
BEN = Person(issuer="https://git.example.com", subject="8", name="Ben")

names = st.text(min_size=1, max_size=60).map(lambda text: shown_name(text))
people = st.builds(
    Person,
    issuer=st.sampled_from(["https://a.example", "https://b.example/x"]),
    subject=st.text(min_size=1, max_size=40),
    name=names,
    job=st.booleans(),
)


@given(name=names, person=st.none() | people, token=st.sampled_from(["", "1a2b3c4d"]))
def test_what_was_written_is_read_back(name: str, person: Person | None, token: str) -> None:
    """Whatever is in a name or a subject, it says nothing about anybody else."""
    if not token and person is None:
        return
    read = parse_actor(actor_text(name, token_id=token, person=person))
    assert read == Actor(name=name, token_id=token, person_id=person.id if person else "")


def test_a_job_is_told_from_a_person_of_the_same_issuer_and_subject() -> None:
    job = replace(ANN, job=True)
    assert parse_actor(actor_text("ci", token_id="1a2b3c4d", person=job)).job
    assert not parse_actor(actor_text("Ann", person=ANN)).job
    assert not parse_actor("job:https://git.example.com|7 (1a2b3c4d)").job, "a name says nothing"
    assert not same_person(actor_text("Ann", person=ANN), actor_text("Ann", person=job))


@given(one=people, other=people)
def test_two_subjects_are_two_people_whatever_their_names(one: Person, other: Person) -> None:
    same = (one.issuer, one.subject, one.job) == (other.issuer, other.subject, other.job)
    texts = actor_text(one.name, person=one), actor_text(other.name, person=other)
    assert same_person(*texts) is same


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (actor_text("Ann", person=ANN), actor_text("Ann", person=BEN), False),
        (actor_text("Ann", person=ANN), actor_text("Anna", person=ANN), True),
        (actor_text("Ann", person=ANN), actor_text("ci", token_id="1a2b3c4d", person=ANN), True),
        (
            actor_text("a", token_id="1", person=ANN),
            actor_text("b", token_id="2", person=ANN),
            True,
        ),
        (actor_text("ci", token_id="1a2b3c4d"), actor_text("ci", token_id="5e6f7a8b"), True),
        (actor_text("ci", token_id="1a2b3c4d"), actor_text("me", token_id="5e6f7a8b"), False),
        # Nobody knows whose the token is: an equal name is taken for one person.
        (actor_text("Ann", person=ANN), actor_text("Ann", token_id="1a2b3c4d"), True),
        (actor_text("Ann", person=ANN), "Ann", True),
        (actor_text("Ann", person=ANN), "kubectl", False),
        # A name that looks like somebody's id.
        (actor_text(f"Ben ({BEN.id})", person=ANN), actor_text("Ben", person=BEN), False),
        (actor_text(f"Ann ({ANN.id})", token_id="1a2b3c4d"), actor_text("Ann", person=ANN), False),
    ],
)
def test_who_counts_as_one_person(one: str, other: str, same: bool) -> None:
    assert same_person(one, other) is same
    assert same_person(other, one) is same


def test_texts_from_before_are_read_as_they_were_meant() -> None:
    assert parse_actor("maria (3f9a01bc)") == Actor(name="maria", token_id="3f9a01bc")
    assert parse_actor("holdfast-gitops") == Actor(name="holdfast-gitops")


@pytest.mark.parametrize(
    ("claims", "name", "values"),
    [
        ({"groups": ["a", "b"]}, "groups", ("a", "b")),
        ({"groups": "a"}, "groups", ("a",)),
        ({"groups": None}, "groups", ()),
        ({"groups": [["a"], {"b": 1}, "", "c"]}, "groups", ("c",)),
        ({"id": 7}, "id", ("7",)),
        ({"ref_protected": True}, "ref_protected", ("true",)),
        ({"realm_access": {"roles": ["x"]}}, "realm_access.roles", ("x",)),
        ({"a.b": "flat", "a": {"b": "deep"}}, "a.b", ("flat",)),
        ({"email": "a@b.c", "email_verified": True}, "email", ("a@b.c",)),
        ({"email": "a@b.c", "email_verified": "true"}, "email", ()),
        ({"email": "a@b.c"}, "email", ()),
        ({}, "groups", ()),
    ],
)
def test_what_an_issuer_says(claims: dict[str, object], name: str, values: tuple[str, ...]) -> None:
    assert claim_values(claims, name) == values


@pytest.mark.parametrize("name", ["", " \n\t ", "a\x00b", None, 7, "a\u202eb"])
def test_what_is_no_name_is_not_shown(name: object) -> None:
    assert shown_name(name, "fallback") == "fallback"
