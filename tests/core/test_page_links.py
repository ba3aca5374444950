"""Addresses of the page: right for what is named, and none without a base URL."""

from __future__ import annotations

import pytest

from holdfast.core import page_links
from holdfast.core.errors import ConfigurationError

BASE = "https://holdfast.example.com"


def test_each_screen_has_its_address() -> None:
    made = [
        page_links.drift_link(BASE, "acme", "drf-1"),
        page_links.plan_link(BASE, "acme", "plan-1"),
        page_links.application_link(BASE, "acme", "team.shop"),
        page_links.workload_link(BASE, "acme", "chat"),
        page_links.workload_drift_link(BASE, "acme", "d-1"),
        page_links.project_link(BASE, "acme", "inbox"),
        page_links.page_link(BASE, "me"),
    ]
    assert made == [
        f"{BASE}/ui/{rest}"
        for rest in (
            "p/acme/drifts/drf-1",
            "p/acme/plans/plan-1",
            "p/acme/applications/team.shop",
            "p/acme/workloads/chat",
            "p/acme/workload-drifts/d-1",
            "p/acme/inbox",
            "me",
        )
    ]


def test_a_digest_stays_one_part_of_the_path() -> None:
    link = page_links.plan_link(BASE, "acme", "sha256:a/b?c#d")
    assert link == f"{BASE}/ui/p/acme/plans/sha256%3Aa%2Fb%3Fc%23d"


def test_without_a_base_url_there_is_no_link() -> None:
    assert page_links.drift_link("", "acme", "drf-1") is None
    assert page_links.page_link("", "login") is None


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("", ""),
        ("https://Holdfast.Example.com/", BASE),
        ("https://holdfast.example.com:443", BASE),
        ("http://127.0.0.1:8400", "http://127.0.0.1:8400"),
        ("http://[::1]:8400/", "http://[::1]:8400"),
        ("http://localhost:80", "http://localhost"),
    ],
)
def test_a_base_url_is_kept_in_one_form(given: str, kept: str) -> None:
    assert page_links.normalize_base_url(given) == kept


@pytest.mark.parametrize(
    "given",
    [
        "holdfast.example.com",
        "ftp://holdfast.example.com",
        "javascript:alert(1)",
        "https://",
        "https://user:secret@holdfast.example.com",
        "https://holdfast.example.com/below",
        "https://holdfast.example.com?x=1",
        "https://holdfast.example.com#x",
        "https://holdfast.example.com:port",
        "https://hold fast",
        "https://[::1",
        "https://a\r\nb",
    ],
)
def test_what_is_no_origin_is_refused(given: str) -> None:
    with pytest.raises(ConfigurationError, match="not an origin") as refused:
        page_links.normalize_base_url(given)
    assert "secret" not in str(refused.value)
