"""Notices of one cause are one message; what is too much becomes one digest; nothing gets lost."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import count

from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.gitops.notification import (
    DIGEST_TYPE,
    ChannelLimits,
    MessageBucket,
    Notice,
    NoticeBatch,
    Severity,
    WaitingNotice,
    make_batch,
    make_digest,
    notice_cause,
    overflowing,
)

AT = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
LIMITS = ChannelLimits()
numbers = count()


def notice(
    cause: str = "",
    *,
    severity: Severity = Severity.WARNING,
    subject: str = "Deployment/prod/chat",
    type_: str = "dev.holdfast.drift.detected.v1",
    application: str = "prod/chat",
) -> Notice:
    number = next(numbers)
    return Notice(
        id=f"n-{number}",
        type=type_,
        source="/clusters/local",
        subject=subject,
        at=AT + timedelta(seconds=number % 60),
        severity=severity,
        title=f"Title {number}",
        text="Text.",
        data={"cause": cause, "application": application},
    )


def waiting(
    amount: int, *causes: str, since: float = 0.0, held: bool = False
) -> list[WaitingNotice]:
    names = causes or ("one",)
    return [
        WaitingNotice(notice=notice(names[index % len(names)]), since=since, held=held)
        for index in range(amount)
    ]


def ids(found: NoticeBatch) -> list[str]:
    return [each.notice.id for group in (*found.groups, found.digest) for each in group]


def due(items: list[WaitingNotice], *, now: float = 60.0, tokens: int = 10) -> NoticeBatch:
    return make_batch(items, now=now, limits=LIMITS, tokens=tokens)


def test_a_group_is_collected_for_its_window_from_the_first_notice_on() -> None:
    items = [*waiting(1, since=0.0), *waiting(2, since=50.0)]
    early = due(items, now=59.0)
    assert early == NoticeBatch(again_in=1.0)
    later = due(items, now=60.0)
    assert [len(group) for group in later.groups] == [3]
    assert later.again_in is None


def test_notices_are_grouped_by_cause_and_by_type_where_none_is_named() -> None:
    assert notice_cause(notice("kubectl")) == "kubectl"
    assert notice_cause(notice("")) == "dev.holdfast.drift.detected.v1"
    found = due(waiting(9, "a", "b", "c"))
    assert [len(group) for group in found.groups] == [3, 3, 3]
    assert {len({notice_cause(each.notice) for each in group}) for group in found.groups} == {1}


def test_something_critical_does_not_wait_and_takes_its_group_along() -> None:
    loud = WaitingNotice(notice=notice("a", severity=Severity.CRITICAL), since=5.0)
    items = [*waiting(2, "a", since=4.0), *waiting(1, "b", since=4.0), loud]
    found = due(items, now=5.0)
    assert [len(group) for group in found.groups] == [3]
    assert found.again_in == 59.0


def test_a_thousand_notices_at_once_are_one_digest() -> None:
    for causes in (("one",), ("a", "b", "c"), tuple(f"c{n}" for n in range(200))):
        found = due(waiting(1000, *causes))
        assert found.groups == ()
        assert len(found.digest) == 1000
        told = make_digest([each.notice for each in found.digest], channel="slack", at=AT)
        assert told.title.startswith("1000 more notices")


def test_a_critical_group_stands_apart_in_a_flood() -> None:
    loud = WaitingNotice(notice=notice("fire", severity=Severity.CRITICAL), since=0.0)
    found = due([*waiting(500, "a", "b"), loud])
    assert found.groups == ((loud,),)
    assert len(found.digest) == 500


def test_more_groups_than_messages_are_allowed_end_in_one_digest() -> None:
    items = waiting(10, *(f"c{n}" for n in range(10)))
    found = due(items, tokens=3)
    assert len(found.groups) == 2
    assert len(found.digest) == 8
    assert due(items, tokens=1).groups == ()
    assert len(due(items, tokens=1).digest) == 10
    assert due(items, tokens=0) == NoticeBatch()


def test_a_subject_that_flaps_is_told_of_once_it_is_quiet() -> None:
    items = [each for at in range(0, 500, 50) for each in waiting(1, since=float(at), held=True)]
    assert due(items, now=500.0).again_in == 550.0  # ten minutes after the last, at 450
    quiet = due(items, now=1050.0)
    assert len(quiet.digest) == 10
    told = make_digest([each.notice for each in quiet.digest], channel="slack", at=AT)
    assert told.title == "10 more notices about Deployment/prod/chat"


def test_a_subject_that_never_stops_flapping_is_told_of_once_an_hour() -> None:
    items = [each for at in range(0, 3600, 60) for each in waiting(1, since=float(at), held=True)]
    assert due(items, now=3599.0) == NoticeBatch(again_in=1.0)
    assert len(due(items, now=3600.0).digest) == 60


def test_force_ends_every_wait() -> None:
    items = [*waiting(2, "a"), *waiting(1, "b", held=True)]
    found = make_batch(items, now=0.0, limits=LIMITS, tokens=10, force=True)
    assert sorted(ids(found)) == sorted(each.notice.id for each in items)


SEVERITIES = st.sampled_from(Severity)
ITEMS = st.lists(
    st.builds(
        lambda cause, severity, subject, since, held: WaitingNotice(
            notice=notice(cause, severity=severity, subject=subject), since=since, held=held
        ),
        st.sampled_from("abcdefghij"),
        SEVERITIES,
        st.sampled_from("xyz"),
        st.floats(0, 100),
        st.booleans(),
    ),
    max_size=80,
)


@given(items=ITEMS, now=st.floats(100, 5000), tokens=st.integers(0, 12), force=st.booleans())
def test_whatever_is_due_is_told_once_and_within_the_rate(
    items: list[WaitingNotice], now: float, tokens: int, force: bool
) -> None:
    found = make_batch(items, now=now, limits=LIMITS, tokens=tokens, force=force)
    told = ids(found)
    assert len(told) == len(set(told))
    assert set(told) <= {each.notice.id for each in items}
    assert len(found.groups) + bool(found.digest) <= tokens
    assert len(found.digest) != 1
    assert all(0 < len(group) <= LIMITS.group for group in found.groups)
    if tokens and force:
        assert len(told) == len(items)
    if tokens and found.again_in is None:
        assert len(told) == len(items)


@given(amount=st.integers(0, 60), most=st.integers(2, 20))
def test_the_oldest_give_way_when_more_waits_than_is_kept(amount: int, most: int) -> None:
    items = [each for at in range(amount) for each in waiting(1, since=float(at))]
    limits = ChannelLimits(waiting=most)
    old = overflowing(items, limits)
    assert list(old) == items[: len(old)]
    if amount > most:
        assert len(old) >= 2
        assert amount - len(old) + 1 <= most  # with the digest in their place
    else:
        assert old == ()


@given(st.lists(st.lists(SEVERITIES, min_size=2, max_size=6), min_size=2, max_size=4))
def test_digests_of_digests_add_up(groups: list[list[Severity]]) -> None:
    inner = [
        make_digest([notice(severity=each) for each in group], channel="x", at=AT)
        for group in groups
    ]
    total = make_digest([*inner, notice()], channel="x", at=AT)
    amount = sum(map(len, groups)) + 1
    assert total.data["count"] == amount
    assert total.data["types"] == {"dev.holdfast.drift.detected.v1": amount}
    loud = any(Severity.CRITICAL in group for group in groups)
    assert (total.severity is Severity.CRITICAL) is loud


def test_a_digest_names_numbers_applications_and_the_loudest_first() -> None:
    many = [notice(application=f"prod/a{n}") for n in range(30)]
    loud = notice(severity=Severity.CRITICAL, application="prod/z", subject="Service/prod/z")
    told = make_digest([*many, loud], channel="slack", at=AT)
    assert told.type == DIGEST_TYPE
    assert told.title == "31 more notices"
    assert told.text.split("\n")[0] == "31 × drift detected."
    assert told.text.split("\n")[1] == f"• {loud.title}"
    assert told.text.endswith("… and 21 more.")
    named = told.data["applications"]
    assert isinstance(named, list)
    assert len(named) == 20


def test_a_digest_of_the_same_notices_for_the_same_channel_is_the_same() -> None:
    many = [notice() for _ in range(3)]
    one = make_digest(many, channel="slack", at=AT)
    assert make_digest(many[::-1], channel="slack", at=AT).id == one.id
    assert make_digest(many, channel="other", at=AT).id != one.id
    assert make_digest(many[:2], channel="slack", at=AT).id != one.id


@given(st.lists(st.floats(0, 100), max_size=50))
def test_a_rate_is_never_exceeded(steps: list[float]) -> None:
    limits = ChannelLimits(burst=3, every=10.0)
    bucket = MessageBucket(tokens=3.0, at=0.0)
    now, sent = 0.0, 0
    for step in steps:
        now += step
        bucket = bucket.filled(now, limits)
        if bucket.whole:
            assert bucket.wait(limits) == 0.0
            bucket = bucket.taken()
            sent += 1
        else:
            assert 0.0 < bucket.wait(limits) <= limits.every
    assert sent <= 3 + now / limits.every + 1e-3
