"""Slugs: one canonical form, and what is refused rather than folded."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.strategies import SLUGS

from holdfast.core.errors import ValidationError
from holdfast.core.names import (
    MAX_SLUG,
    RESERVED,
    WorkloadId,
    canonical_slug,
    is_slug,
    require_slug,
    slug_from_name,
    slug_problems,
)


@pytest.mark.parametrize(
    ("text", "slug"),
    [
        ("support-bot", "support-bot"),
        ("Gemma 4 26B (llama.cpp) on R9700", "gemma-4-26b-llama-cpp-on-r9700"),
        ("  Chat  ", "chat"),
        ("--a--b--", "a-b"),
        ("A_B.C/D", "a-b-c-d"),
        ("chat.", "chat"),
        ("0", "0"),
        ("a" * MAX_SLUG, "a" * MAX_SLUG),
    ],
)
def test_a_name_becomes_one_slug(text: str, slug: str) -> None:
    assert slug_from_name(text) == slug
    assert require_slug(slug) == slug


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("../../etc/passwd", "etc-passwd"),
        ("a b", "a-b"),
        ("a.b", "a-b"),
        ("Support-Bot", "support-bot"),
        (" chat", "chat"),
        ("a--b", "a-b"),
        ("chat-", "chat"),
    ],
)
def test_a_slug_that_somebody_gave_is_never_rewritten(text: str, meant: str) -> None:
    with pytest.raises(ValidationError) as caught:
        require_slug(text)
    (problem,) = caught.value.problems
    assert "is not a slug" in problem.reason
    assert problem.fix == f"Did you mean {meant}?"


def test_what_a_slug_may_mean_is_not_suggested_when_it_holds_a_secret() -> None:
    (problem,) = slug_problems("password=hunter2hunter2", field="slug")
    assert "hunter2" not in str(problem)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no letter or digit"),
        (".", "no letter or digit"),
        ("..", "no letter or digit"),
        ("-", "no letter or digit"),
        ("__proto__", "reserved"),
        *((name, "reserved") for name in sorted(RESERVED)),
        ("API", "reserved"),
        ("a" * (MAX_SLUG + 1), "63 are allowed"),
        ("a" * 253, "63 are allowed"),
        ("сhat", "outside ASCII"),  # a Cyrillic es
        ("chat\u200b", "outside ASCII"),
        ("\u202echat", "outside ASCII"),
        ("café", "outside ASCII"),
        ("cafe\u0301", "outside ASCII"),
        ("ｃｈａｔ", "outside ASCII"),
        ("chat\n", "control"),
        ("ch\x1b[31mat", "control"),
        ("chat\x00", "control"),
    ],
)
def test_what_is_no_slug_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(ValidationError) as caught:
        require_slug(text)
    (problem,) = caught.value.problems
    assert reason in problem.reason
    assert str(caught.value).isascii()
    assert problem.field == "slug"
    assert problem.fix
    assert not is_slug(text)


def test_a_refused_slug_is_not_echoed_when_it_holds_a_token() -> None:
    (problem,) = slug_problems("é ik_sdk_0a1b2c3d_" + "f" * 64, field="slug")
    assert "ffff" not in problem.reason


@given(st.text())
def test_canonical_twice_is_canonical_once(text: str) -> None:
    slug = canonical_slug(text)
    assert canonical_slug(slug) == slug


@given(st.text())
def test_text_without_problems_becomes_a_slug(text: str) -> None:
    problems = slug_problems(text, field="slug", derive=True)
    assert bool(problems) != is_slug(canonical_slug(text)) or (
        # Refused as typed, although its canonical form would do.
        not text.isascii() or not text.isprintable() or text.startswith("__")
    )


@given(st.text())
def test_a_slug_that_is_taken_stands_as_it_was_given(text: str) -> None:
    assert bool(slug_problems(text, field="slug")) != is_slug(text)


@given(SLUGS)
def test_a_slug_is_its_own_canonical_form(slug: str) -> None:
    assert canonical_slug(slug) == slug


def test_a_long_hostile_slug_is_judged_in_linear_time() -> None:
    text = "a-" * 327_680
    assert slug_problems(text, field="slug")
    assert not is_slug(text)
    assert not is_slug("a" * 655_360 + "!")


def test_ids_sort_by_project_and_then_by_slug() -> None:
    ids = [WorkloadId(project=p, slug=s) for p, s in ("ba", "ab", "aa")]
    assert [str(each) for each in sorted(ids)] == ["a/a", "a/b", "b/a"]
