"""What is said of a field that does not stay as it was written."""

from __future__ import annotations

from holdfast.core.drift import Cause, DriftKind
from holdfast.core.fight import API_SERVER, describe_fight, describe_rewrite, fight_writers
from holdfast.core.ledger import DriftEntry
from holdfast.core.live import Writer


def entry(path: str, cause: Cause = Cause.UNKNOWN, writer: str = "") -> DriftEntry:
    return DriftEntry(
        path=path, desired=1, live=2, kind=DriftKind.CONFIGURATION, cause=cause, evidence="",
        writer=Writer(manager=writer) if writer else None,
    )  # fmt: skip


def test_who_changes_a_field_is_who_is_on_record() -> None:
    assert fight_writers([entry("a", Cause.PERSON, "kubectl-edit")]) == ("kubectl-edit",)
    assert fight_writers([entry("a", Cause.ADMISSION)]) == (API_SERVER,)
    assert fight_writers([entry("a", Cause.ADMISSION), entry("b", writer="keda")]) == (
        "keda",
        API_SERVER,
    )
    assert fight_writers([entry("a")]) == ()


def test_what_comes_back_each_time_is_told_with_its_party() -> None:
    both = [entry("spec.a", writer="keda"), entry("spec.b", writer="helm")]
    assert describe_fight(both) == "helm and keda and holdfast-gitops keep changing spec.a, spec.b."
    assert describe_fight([entry("")]).startswith(
        "Somebody who leaves no trace and holdfast-gitops"
    )
    server = describe_fight([entry("spec.caBundle", Cause.ADMISSION)])
    assert server.startswith("The API server itself or an admission webhook stores spec.caBundle")
    assert "holdfast-gitops" not in server


def test_what_differs_right_after_a_write_is_blamed_on_a_writer_only_if_there_is_one() -> None:
    told, theirs = describe_rewrite([entry("spec.a", Cause.CONTROLLER, "ca-injector")])
    assert (told, theirs) == (
        "ca-injector changed spec.a as soon as it was written.",
        ("ca-injector",),
    )
    told, theirs = describe_rewrite([entry(f"spec.{name}", Cause.ADMISSION) for name in "abcde"])
    assert "nobody else wrote since, and it still differs in spec.a, spec.b, spec.c and 2" in told
    assert theirs == (API_SERVER,)
    told, theirs = describe_rewrite([entry("spec.a")])
    assert "with no writer on record: it was removed at once, or the API server" in told
    assert theirs == ()
