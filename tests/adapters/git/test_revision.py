"""A revision is a name or a full commit id, and nothing that Git would read as more."""

from __future__ import annotations

import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.adapters.git.address import branch_ref, check_commit_id, is_ref_name, parse_revision
from holdfast.core.errors import ConfigurationError

SHA = "0123456789abcdef0123456789abcdef01234567"


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("main", ("refs/heads/main", "refs/tags/main")),
        ("release/1.2", ("refs/heads/release/1.2", "refs/tags/release/1.2")),
        ("v1.0.0+build@3", ("refs/heads/v1.0.0+build@3", "refs/tags/v1.0.0+build@3")),
        ("refs/heads/main", ("refs/heads/main",)),
        ("refs/tags/v1", ("refs/tags/v1",)),
        ("HEAD", ("HEAD",)),
        ("Ünï", ("refs/heads/Ünï", "refs/tags/Ünï")),
    ],
)
def test_a_name_is_looked_up_where_branches_and_tags_are(text: str, names: tuple[str, ...]) -> None:
    assert parse_revision(text).names == names


def test_forty_digits_are_a_commit() -> None:
    assert parse_revision(SHA).commit == SHA == check_commit_id(SHA)


HOSTILE = [
    "", " ", "--x", "--upload-pack=touch x", "-c", "-", "@", "@{-1}", "main@{1}", "HEAD:../x",
    "HEAD~1", "main^", "main^{tree}", "a..b", "a...b", ":/x", "a b", "a\nb", "a\0b", "a\x7fb",
    "a\u202eb", "/a", "a/", "a//b", ".a", "a/.b", "a.lock", "a/b.lock/c", "a.", "a*", "a?", "a[b",
    "a\\b", "refs/heads/", "refs/pull/1/head", "refs/heads/refs/heads/x", "refs/heads/--x", "a/-b",
    "x" * 300,
]  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE)
def test_what_git_would_read_as_more_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError):
        parse_revision(text)
    with pytest.raises(ConfigurationError):
        branch_ref(text)


@pytest.mark.parametrize("text", ["HEAD", SHA, "refs/heads/main", "refs/x"])
def test_a_branch_of_ours_has_a_plain_name(text: str) -> None:
    with pytest.raises(ConfigurationError):
        branch_ref(text)


@pytest.mark.parametrize("text", ["", "main", SHA[:39], SHA.upper(), SHA + "0", SHA + "\n"])
def test_a_commit_is_named_in_full(text: str) -> None:
    with pytest.raises(ConfigurationError):
        check_commit_id(text)


@settings(max_examples=60, deadline=None)
@given(st.text(st.sampled_from("ab/.-@{}~^:*[\\ lock\n"), min_size=1, max_size=8))
def test_every_name_we_take_is_one_for_git_too(text: str) -> None:
    if is_ref_name(text):
        assert subprocess.run(["git", "check-ref-format", f"refs/heads/{text}"]).returncode == 0
