"""status, watch, wait, logs, drift and history on the embedded target."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.apps.cli.conftest import EMBED, Holdfast

from holdfast.adapters.store import OpenMode, Store
from holdfast.core.live import Writer
from holdfast.core.names import WorkloadId


@pytest.fixture
def store_file(home: Path) -> Path:
    return home / ".local" / "share" / "holdfast" / "holdfast.db"


@pytest.fixture
def moved(holdfast: Holdfast, chat: Path, store_file: Path) -> str:
    """Somebody else changes a workload; returns the id of the drift."""
    holdfast("ensure", "-f", "chat.yaml")
    with Store.open(store_file, mode=OpenMode.CLIENT) as store:
        record = store.record(WorkloadId(project="default", slug="support-bot"))
        assert record
        uid = record.uid
        store.write(
            lambda tx: tx.update_workload(
                uid,
                {"model": "llama-tiny"},
                version=None,
                writer=Writer(manager="curl", actor="ops"),
                declare=False,
            )
        )
    return holdfast("drift", "list", "-o", "name").out.strip()


def test_status_without_workloads(holdfast: Holdfast) -> None:
    assert holdfast("status").screen == "No workloads.\nNext: holdfast ensure -f FILE\n"


def test_status(holdfast: Holdfast, chat: Path) -> None:
    Path("embed.yaml").write_text(EMBED)
    holdfast("ensure", "-f", "chat.yaml", "-f", "embed.yaml")
    expected = (
        "WORKLOAD             BACKEND   MODEL         READY  SYNC    PHASE       AGE\n"
        "default/embed        llamacpp  bge-m3        0/0    synced  scheduling  0s\n"
        "default/support-bot  vllm      llama-3.1-8b  0/0    synced  scheduling  0s\n"
        "2 workloads · 0 ready · 0 drifted\n"
        "Next: holdfast watch\n"
    )
    assert holdfast("status").screen == expected
    assert holdfast("get").screen == expected


def test_status_says_what_drifted(holdfast: Holdfast, moved: str) -> None:
    run = holdfast("status", "--exit-code")
    assert run.code == 2
    assert "1 workload · 0 ready · 1 drifted\n" in run.out
    assert run.err == f"Next: holdfast drift show {moved}\n"


def test_status_in_every_format(holdfast: Holdfast, chat: Path) -> None:
    holdfast("ensure", "-f", "chat.yaml")
    document = json.loads(holdfast("status", "-o", "json").out)
    assert (document["apiVersion"], document["kind"]) == ("cli.holdfast.dev/v1", "WorkloadList")
    assert document["items"][0]["spec"]["replicas"] == 2
    first, second = holdfast("status", "-o", "jsonl").out.splitlines()
    assert json.loads(first) == {
        "type": "version", "apiVersion": "cli.holdfast.dev/v1", "kind": "WorkloadList",
    }  # fmt: skip
    assert json.loads(second)["slug"] == "support-bot"
    assert holdfast("status", "-o", "yaml").out.startswith("apiVersion: cli.holdfast.dev/v1\n")
    assert "ENDPOINT" in holdfast("status", "-o", "wide").out
    assert holdfast("status", "-o", "markdown").out.startswith("| WORKLOAD | BACKEND |")
    assert holdfast("status", "-o", "json").err == ""


def test_an_unknown_workload_is_an_error(holdfast: Holdfast) -> None:
    run = holdfast("status", "nope")
    assert (run.code, run.screen) == (
        1,
        "error[not-found]: Not found. There is no workload default/nope.\n"
        "  Nothing was changed.\n"
        "  Next: holdfast status -p default lists the workloads there are.\n",
    )


def test_drift_is_listed_shown_and_remembered(holdfast: Holdfast, moved: str) -> None:
    listed = holdfast("drift", "list", "--exit-code")
    assert listed.code == 2
    wide = len(moved)
    assert listed.screen == (
        f"{'ID':<{wide}}  WORKLOAD             KIND           FIELDS  BY          CAUSE   AGE  "
        "STATE\n"
        f"{moved}  default/support-bot  configuration  1       curl (ops)  person  0s   open\n"
        "1 open · oldest 0s\n"
        f"Next: holdfast drift show {moved}\n"
    )
    shown = holdfast("drift", "show", moved).out
    assert shown.startswith(f"{moved}  default/support-bot  configuration drift, open\n")
    assert "model  llama-tiny  llama-3.1-8b  configuration  curl (ops)\n" in shown
    assert "Evidence for model: update by curl" in shown
    assert shown.endswith("\nPutting it back: cost unknown.\n")  # nobody here knows what runs
    assert "  Putting it back: cost unknown.\n" in holdfast("drift", "explain", moved).out
    head, row, *_ = holdfast("drift", "list", "-o", "wide").out.splitlines()
    assert (head.split()[-1], row.split()[-1]) == ("COST", "unknown")
    assert holdfast("ensure", "-f", "chat.yaml").out.startswith("~ default/support-bot  updated")
    assert holdfast("drift", "list").out == "No drift.\n"
    past = json.loads(holdfast("drift", "history", "support-bot", "-o", "json").out)
    assert [each["resolution"] for each in past["items"]] == ["reconciled"]
    ended = holdfast("drift", "history", "support-bot", "-o", "wide").out.splitlines()[1]
    assert ended.split()[-2:] == ["reconciled", "-"]


def test_drift_is_searched_and_filtered_by_cause_and_writer(holdfast: Holdfast, moved: str) -> None:
    def ids(*flags: str) -> str:
        return holdfast("drift", "list", "-o", "name", *flags).out.strip()

    assert ids("--cause", "person") == ids("--writer", "curl") == moved
    assert ids("--search", "SUPPORT-bot /model") == ids("--type", "configuration") == moved
    for flags in (
        ("--cause", "autoscaler"),
        ("--writer", "cur"),
        ("--search", "llama-tiny"),
        ("--type", "image"),
    ):
        assert ids(*flags) == "", flags
        assert holdfast("drift", "list", "--exit-code", *flags).code == 0, flags
    assert "No drift" in holdfast("drift", "list", "--group-by", "cause", "--writer", "x").out
    assert holdfast("drift", "list", "--cause", "moon").code == 64


def test_an_unknown_drift_is_an_error(holdfast: Holdfast) -> None:
    assert holdfast("drift", "show", "drift-none").code == 1


def test_history_says_who_did_what(holdfast: Holdfast, moved: str) -> None:
    rows = json.loads(holdfast("history", "support-bot", "-o", "json").out)["items"]
    assert [(row["action"], row["writer"]["manager"]) for row in rows] == [
        ("drifted", "curl"),
        ("updated", "curl"),
        ("created", "holdfast-cli"),
    ]
    assert len(json.loads(holdfast("history", "--limit", "1", "-o", "json").out)["items"]) == 1
    assert "curl (ops)" in holdfast("history").out


def test_watch_off_a_terminal_streams_json_lines(holdfast: Holdfast, moved: str) -> None:
    lines = [json.loads(line) for line in holdfast("watch", "--timeout", "1s").out.splitlines()]
    assert [line["type"] for line in lines] == ["version", "present"]
    assert lines[1]["workload"]["sync"] == "drifted"


def test_wait_for_synced_ends_when_there_is_no_drift(holdfast: Holdfast, moved: str) -> None:
    run = holdfast("wait", "--for", "synced", "support-bot", "--timeout", "100ms")
    assert run.code == 124
    assert run.err.startswith("error[wait-timeout]: ")
    holdfast("ensure", "-f", "chat.yaml")
    run = holdfast("wait", "--for", "synced", "support-bot")
    assert (run.code, run.err) == (
        0,
        "default/support-bot is as declared.\nNext: holdfast status\n",
    )


def test_wait_and_logs_say_at_once_that_nothing_runs_here(holdfast: Holdfast, chat: Path) -> None:
    holdfast("ensure", "-f", "chat.yaml")
    for command in (["wait", "support-bot"], ["logs", "support-bot"]):
        run = holdfast(*command)
        assert run.code == 1
        assert "holdfast serve" in run.err
    assert holdfast("wait", "nope").err.startswith("error[not-found]")


def test_values_from_outside_cannot_speak_to_the_terminal(
    holdfast: Holdfast, store_file: Path, chat: Path
) -> None:
    holdfast("ensure", "-f", "chat.yaml")
    with Store.open(store_file, mode=OpenMode.CLIENT) as store:
        record = store.record(WorkloadId(project="default", slug="support-bot"))
        assert record
        uid = record.uid
        store.write(
            lambda tx: tx.update_workload(
                uid,
                {"description": "x", "model": "other"},
                version=None,
                writer=Writer(manager="evil\x1b[2J\u202e", actor="ik_sdk_aaaaaaaa_bbbbbbbbbb"),
                declare=False,
            )
        )
    for command in (
        ["history"],
        ["status", "-o", "wide"],
        ["drift", "list"],
        ["plan", "-f", "chat.yaml"],
    ):
        run = holdfast(*command)
        assert "\x1b" not in run.out + run.err
        assert "\u202e" not in run.out + run.err
        assert "bbbbbbbbbb" not in run.out + run.err


@pytest.mark.parametrize(
    "verb", [("drift", "explain"), ("drift", "list"), ("drift", "history"), ("history",)]
)
def test_a_workload_that_is_not_there_is_not_one_without_drift(
    holdfast: Holdfast, verb: tuple[str, ...]
) -> None:
    run = holdfast(*verb, "nosuch")
    assert (run.code, run.out) == (1, "")
    assert "nosuch" in run.err
    assert "holdfast status -p default lists the workloads" in run.err


def test_a_drift_is_explained_by_its_id_too(holdfast: Holdfast, moved: str) -> None:
    run = holdfast("drift", "explain", moved)
    assert (run.code, moved in run.out) == (0, True)


@pytest.mark.parametrize("text", ["../../etc/passwd", "Support-Bot", "support.bot"])
def test_a_slug_is_not_rewritten_on_the_way_to_a_workload(
    holdfast: Holdfast, chat: Path, text: str
) -> None:
    assert holdfast("ensure", "-f", "chat.yaml").code == 0
    run = holdfast("delete", text, "--yes")
    assert run.code != 0
    assert "is not a slug" in run.err
    assert holdfast("status", "support-bot").code == 0
