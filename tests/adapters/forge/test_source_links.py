"""Links to file and line on a forge: only where it is known what the address means."""

from __future__ import annotations

import pytest

from holdfast.adapters.forge.providers import source_link
from holdfast.core.gitops.application import ForgeProvider

SHA = "0123456789abcdef0123456789abcdef01234567"


@pytest.mark.parametrize(
    ("repository", "provider", "expected"),
    [
        ("https://github.com/acme/deploy.git", None, "https://github.com/acme/deploy/blob/{0}"),
        ("https://gitlab.com/a/b/deploy", None, "https://gitlab.com/a/b/deploy/-/blob/{0}"),
        (
            "https://codeberg.org/acme/deploy.git",
            None,
            "https://codeberg.org/acme/deploy/src/commit/{0}",
        ),
        (
            "http://127.0.0.1:3000/acme/deploy.git",
            ForgeProvider.GITEA,
            "http://127.0.0.1:3000/acme/deploy/src/commit/{0}",
        ),
        (
            "https://maria:s3cretpass1@git.example.com/acme/deploy.git?token=s3cretpass1",
            ForgeProvider.GITLAB,
            "https://git.example.com/acme/deploy/-/blob/{0}",
        ),
    ],
)
def test_a_line_is_linked_in_the_words_of_its_forge(
    repository: str, provider: ForgeProvider | None, expected: str
) -> None:
    found = source_link(repository, provider=provider, commit=SHA, where="over lay/a#1.yaml:6")
    assert found == expected.format(SHA) + "/over%20lay/a%231.yaml#L6"


@pytest.mark.parametrize(
    ("repository", "provider"),
    [
        ("https://git.example.com/acme/deploy.git", None),
        ("git@github.com:acme/deploy.git", None),
        ("ssh://git@github.com/acme/deploy.git", None),
        ("/srv/git/deploy", None),
        ("file:///srv/git/deploy", ForgeProvider.GITEA),
        ("javascript:alert(1)", ForgeProvider.GITHUB),
        ("https://github.com/acme/deploy.git", ForgeProvider.GITLAB),
    ],
)
def test_there_is_no_link_where_the_forge_is_unknown_or_not_of_the_web(
    repository: str, provider: ForgeProvider | None
) -> None:
    assert source_link(repository, provider=provider, commit=SHA, where="a.yaml:6") == ""


@pytest.mark.parametrize(("commit", "where"), [("", "a.yaml:6"), ("main", "a.yaml:6"), (SHA, "")])
def test_there_is_no_link_without_a_commit_or_a_file(commit: str, where: str) -> None:
    assert source_link("https://github.com/acme/deploy", commit=commit, where=where) == ""


def test_a_file_without_a_line_is_linked_as_a_whole() -> None:
    found = source_link("https://github.com/acme/deploy", commit=SHA, where="a.yaml")
    assert found == f"https://github.com/acme/deploy/blob/{SHA}/a.yaml"
