"""A hub is asked which commit a branch is at: within bounds, without a token, and nowhere else."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator
from dataclasses import replace

import pytest
from tests.support.hub import ModelHub, serve_hub

from holdfast.adapters.hub_heads import HubClient
from holdfast.core.model import files_digest
from holdfast.core.service.model_head import HeadQuestion, HubHead, HubProblem

OLD = {"config.json": b"{}", "model.safetensors": b"1" * 2000}
NEW = {"config.json": b"{}", "model.safetensors": b"2" * 2000}
PIN = "5" * 40


@pytest.fixture
def hub() -> ModelHub:
    return ModelHub(files=dict(OLD))


@pytest.fixture
def url(hub: ModelHub) -> Iterator[str]:
    with serve_hub(hub) as address:
        yield address


def question(url: str, pin: str | None = None) -> HeadQuestion:
    return HeadQuestion(
        endpoint=url, repo="org/tiny", branch="main", pin=pin, digest=False, gguf=None, token=False
    )


def ask(given: HeadQuestion, *, times: int = 1, within: float = 5.0) -> HubHead | HubProblem:
    async def run() -> HubHead | HubProblem:
        client = HubClient(timeout=within)
        try:
            for _ in range(times - 1):
                await client.find_head(given)
            return await client.find_head(given)
        finally:
            await client.aclose()

    return asyncio.run(run())


def problem(given: HeadQuestion, *, within: float = 5.0) -> HubProblem:
    found = ask(given, within=within)
    assert isinstance(found, HubProblem)
    return found


def test_the_head_of_a_branch_is_told(hub: ModelHub, url: str) -> None:
    assert ask(question(url)) == HubHead(commit=hub.commit)
    (headers,) = hub.asked("/revision/main")
    assert "authorization" not in headers


def test_a_pin_that_the_branch_went_on_from_is_found_among_its_commits(
    hub: ModelHub, url: str
) -> None:
    pin = hub.move(NEW)
    hub.past += [f"{number:040x}" for number in range(7)]
    hub.page = 3
    assert ask(question(url, pin)) == HubHead(commit=hub.commit, has_pin=True)
    last = hub.past[-1]
    assert ask(question(url, last)) == HubHead(commit=hub.commit, has_pin=True)
    assert ask(question(url, PIN)) == HubHead(commit=hub.commit, has_pin=False)


def test_a_pin_at_the_head_needs_no_list_of_commits(hub: ModelHub, url: str) -> None:
    assert ask(question(url, hub.commit)) == HubHead(commit=hub.commit, has_pin=True)
    assert hub.asked("/commits/") == []


def test_a_pin_that_was_found_once_is_not_looked_for_again(hub: ModelHub, url: str) -> None:
    pin = hub.move(NEW)
    assert ask(question(url, pin), times=3) == HubHead(commit=hub.commit, has_pin=True)
    assert len(hub.asked("/commits/")) == 1


def test_a_list_of_commits_has_an_end_for_who_asks(hub: ModelHub, url: str) -> None:
    hub.move(NEW)
    hub.page, hub.past = 1, [f"{number:040x}" for number in range(1000)]
    assert ask(question(url, PIN)) == HubHead(commit=hub.commit, has_pin=None)
    assert len(hub.asked("/commits/")) == 10


def test_a_hub_that_lists_no_commits_leaves_that_unknown(hub: ModelHub, url: str) -> None:
    hub.no_commits = True
    assert ask(question(url, PIN)) == HubHead(commit=hub.commit, has_pin=None)


def test_the_digest_is_told_where_the_list_has_every_hash(hub: ModelHub, url: str) -> None:
    """The Hub lists the SHA-256 of large files alone, which a single GGUF file is."""
    hub.files = {"README.md": b"x", "tiny-Q4_K_M.gguf": b"3" * 3000}
    wants = replace(question(url), digest=True, gguf="")
    found = ask(wants)
    digest = files_digest({"tiny-Q4_K_M.gguf": hashlib.sha256(b"3" * 3000).hexdigest()})
    assert found == HubHead(commit=hub.commit, digest=digest)
    assert ask(replace(wants, gguf=None)) == HubHead(commit=hub.commit, digest=None)
    assert ask(replace(wants, gguf="Q8_0")) == HubHead(commit=hub.commit, digest=None)


def test_a_renamed_repository_is_asked_under_its_new_name(hub: ModelHub, url: str) -> None:
    hub.repo, hub.renamed = "org/renamed", "org/tiny"
    assert ask(question(url)) == HubHead(commit=hub.commit)


def test_a_gated_model_is_refused_and_said_to_be(hub: ModelHub, url: str) -> None:
    hub.token = "hf_x"
    found = problem(question(url))
    assert found.refused
    assert "without a token (HTTP 401): it does not exist, is private, or is gated." in (
        found.message
    )


def test_a_branch_that_is_gone_is_a_refusal(url: str) -> None:
    found = problem(replace(question(url), branch="v9"))
    assert found.refused and "org/tiny at v9" in found.message


@pytest.mark.parametrize("part", ["head", "commits"])
def test_a_hub_in_trouble_is_a_problem_that_passes(hub: ModelHub, url: str, part: str) -> None:
    hub.failures = 1
    if part == "commits":
        hub.move(NEW)
        hub.failures = 0
        hub.failing = "/commits/"
    found = problem(question(url, PIN))
    assert not found.refused and "HTTP 503" in found.message


def test_a_hub_that_hangs_is_given_up(hub: ModelHub, url: str) -> None:
    hub.stall_lists = 0.6
    found = problem(question(url), within=0.2)
    assert not found.refused and "gave no answer in 0.2 s" in found.message


def test_nobody_there_is_a_problem_that_passes() -> None:
    found = problem(question("http://127.0.0.1:9"))
    assert not found.refused and "could not be reached" in found.message


@pytest.mark.parametrize("body", [b"[]", b"{", b'{"sha": "main", "siblings": []}'])
def test_an_answer_that_is_none_is_not_believed(hub: ModelHub, url: str, body: bytes) -> None:
    hub.says = body
    found = problem(question(url))
    assert not found.refused and found.message.endswith("with something else.")


def test_another_host_is_not_asked(hub: ModelHub, url: str) -> None:
    hub.sends_to = "http://127.0.0.1:1/api/models/org/tiny/revision/main"
    found = problem(question(url))
    assert found.message == f"{url} sends to another host, which is not asked."
