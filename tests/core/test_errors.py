"""The error tree: stable codes, full sentences, and errors that survive a pickle."""

from __future__ import annotations

import copy
import pickle

import pytest

from holdfast.core import errors
from holdfast.core.errors import (
    MAX_PROBLEMS,
    ApiError,
    BackendError,
    Conflict,
    DriftError,
    HoldfastError,
    PermissionDenied,
    Problem,
    Retry,
    StalePlan,
    StoreHeld,
    ValidationError,
)
from holdfast.core.plan import Plan


def tree(root: type[HoldfastError] = HoldfastError) -> list[type[HoldfastError]]:
    below = [each for child in root.__subclasses__() for each in tree(child)]
    return [root, *(each for each in below if each.__module__ == errors.__name__)]


CLASSES = tree()


def example(kind: type[HoldfastError]) -> HoldfastError:
    match kind.__name__:
        case "DriftError":
            return DriftError("It moved.", plan=Plan(steps=()), hint="Look.")
        case "ApiError":
            return ApiError("It failed.", status=502, reason="bad_gateway")
        case "BackendError":
            return BackendError("It failed.", message="out of memory", status=500, hint="Wait.")
        case "PermissionDenied":
            return PermissionDenied("Not yours.", reason="project_scope_mismatch")
        case "ValidationError":
            return ValidationError(problems=[Problem(field="a", reason="no.", fix="Yes.")])
        case "StoreHeld":
            return StoreHeld("It is held.", hint="Ask the server.", url="http://127.0.0.1:9")
        case _:
            return kind("It happened.", changed="Half was changed.", hint="Try again.")


def test_every_class_has_a_code_of_its_own() -> None:
    assert len({kind.code for kind in CLASSES}) == len(CLASSES)
    assert all("code" in vars(kind) for kind in CLASSES)


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_a_class_says_what_it_is(kind: type[HoldfastError]) -> None:
    assert kind.code == kind.code.lower()
    assert " " not in kind.code
    assert not kind.summary.endswith(".")
    assert isinstance(kind.retry, Retry)
    assert kind.__doc__


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_an_error_survives_a_pickle_and_a_copy(kind: type[HoldfastError]) -> None:
    error = example(kind)
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):  # noqa: S301  # our own
        assert type(again) is kind
        assert str(again) == str(error)
        assert vars(again) == vars(error)
        assert again.args == error.args


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_a_message_is_the_summary_and_then_full_sentences(kind: type[HoldfastError]) -> None:
    text = str(example(kind))
    assert text.startswith(f"{kind.summary}. ")
    # A prompt that a backend refused concerns nothing that is kept.
    assert "changed." in text or kind is BackendError


def test_a_message_says_what_happened_what_was_changed_and_what_to_do() -> None:
    error = Conflict("It moved.", changed="Nothing was changed.", hint="Look again.")
    assert str(error) == (
        "Another writer was first. It moved. Nothing was changed. Look again."
    )  # fmt: skip
    assert error.detail == "It moved. Nothing was changed. Look again."
    assert str(Conflict("It moved.")) == (
        "Another writer was first. It moved. Nothing was changed."
    )  # fmt: skip


def test_every_problem_is_in_the_message() -> None:
    problems = [Problem(field=name, reason="bad.", fix="Fix it.") for name in "ab"]
    error = ValidationError(problems=problems)
    assert error.problems == tuple(problems)
    assert str(error) == (
        "Input was refused. 2 problems found. Nothing was changed."
        "\n  a: bad. Fix it.\n  b: bad. Fix it."
    )
    assert "1 problem found." in str(ValidationError(problems=problems[:1]))


def test_the_tree_has_the_shape_that_callers_rely_on() -> None:
    assert issubclass(DriftError, ValidationError)
    assert issubclass(StalePlan, Conflict)
    assert all(
        each is HoldfastError or each in (Exception, BaseException, object) or each in CLASSES
        for kind in CLASSES
        for each in kind.__mro__
    )


def test_of_very_many_problems_a_hundred_are_told() -> None:
    found = [Problem(field=f"f{n}", reason="it is wrong.", fix="Fix it.") for n in range(1_000)]
    error = ValidationError(problems=found)
    assert len(error.problems) == MAX_PROBLEMS
    assert "1000 problems found" in str(error) and "and 900 more" in str(error)
