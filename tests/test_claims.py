"""docs/claims.md holds every promise: each is quoted as it stands, and a test tries to break it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
CLAIMS = DOCS / "claims.md"
LEFT_OUT = (
    # Generated from the code, or about the project and not about what it does for a user.
    "reference/cli.md", "reference/errors.md", "architecture.md", "claims.md", "glossary.md",
    "performance.md", "reliability.md", "weaknesses.md", "decisions/",
)  # fmt: skip
STRONG = re.compile(r"\b(never|always|survives?|guarantees?)\b", re.IGNORECASE)
"""Words that make a sentence a promise."""
LINK = re.compile(r"\[[^\]]+\]\(([^)]+)\)")
QUOTED = re.compile(r"\[[^\]]+\]\(([^)]+)\) “([^”]+)”")
NO_PROSE = re.compile(r"`[^`]*`|\| *\w+ *(?=\|)")
TEST = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    promise: str
    pages: tuple[Path, ...]
    quotes: tuple[tuple[Path, str], ...]
    tests: tuple[tuple[str, str], ...]
    limit: str


def _claims() -> list[Claim]:
    found = []
    for line in CLAIMS.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not line.startswith("| ") or cells[0] == "promise":
            continue
        promise, made_in, tests, limit = cells
        found.append(
            Claim(
                promise=promise,
                pages=tuple((DOCS / page).resolve() for page in LINK.findall(made_in)),
                quotes=tuple(
                    ((DOCS / page).resolve(), text) for page, text in QUOTED.findall(made_in)
                ),
                tests=tuple(TEST.findall(tests)),
                limit=limit,
            )
        )
    return found


ALL = _claims()
each_claim = pytest.mark.parametrize("claim", ALL, ids=lambda claim: claim.promise[:60])
PAGES = [
    page
    for page in [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
    if not str(page.relative_to(ROOT)).removeprefix("docs/").startswith(LEFT_OUT)
]


@each_claim
def test_a_promise_names_the_test_that_tries_to_break_it_or_its_limit(claim: Claim) -> None:
    assert claim.tests or claim.limit, claim.promise


@each_claim
def test_the_tests_of_a_promise_exist(claim: Claim) -> None:
    for path, name in claim.tests:
        defined = re.search(rf"^(async )?def {name}\(", (ROOT / path).read_text(), re.MULTILINE)
        assert defined, f"{path}::{name}"


@each_claim
def test_a_promise_is_made_where_it_is_said_to_be_in_the_words_that_are_quoted(
    claim: Claim,
) -> None:
    assert claim.pages, claim.promise
    for page, text in claim.quotes:
        assert text in page.read_text(), f"{page.name}: {text}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_page_promises_what_the_claims_do_not_hold(page: Path) -> None:
    quoted = [text for claim in ALL for where, text in claim.quotes if where == page.resolve()]
    missing = [line for line in _promises(page) if not any(text in line for text in quoted)]
    assert missing == []


def test_the_list_of_what_it_gets_right_is_all_there() -> None:
    readme = (ROOT / "README.md").read_text()
    section = readme.partition("## What it gets right")[2].partition("\n## ")[0]
    bullets = [line for line in section.splitlines() if line.startswith("- ")]
    quoted = [text for claim in ALL for page, text in claim.quotes if page.name == "README.md"]
    assert bullets
    assert [line for line in bullets if not any(text in line for text in quoted)] == []


def _promises(page: Path) -> list[str]:
    """The lines of prose with a strong word. Code is no prose, nor is a cell of one word."""
    prose = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    return [line for line in prose.splitlines() if STRONG.search(NO_PROSE.sub("", line))]
