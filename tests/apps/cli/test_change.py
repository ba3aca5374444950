"""plan, diff, ensure and delete on the embedded target: what is shown, what is changed."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest
from tests.apps.cli.conftest import CHAT, EMBED, Holdfast

from holdfast import ManagementClient
from holdfast.apps.cli.views.plan import plan_body
from holdfast.core.cost import Cost, CostKind, DeviceNeed
from holdfast.core.errors import TargetUnavailable
from holdfast.core.names import WorkloadId
from holdfast.core.plan import Action, Disruption, Plan, Step


def live(holdfast: Holdfast, slug: str = "support-bot") -> dict[str, object]:
    (item,) = json.loads(holdfast("status", slug, "-o", "json").out)["items"]
    spec: dict[str, object] = item["spec"]
    return spec


@pytest.fixture
def drifted(holdfast: Holdfast, chat: Path) -> Path:
    """A spec that no longer says what is live."""
    assert holdfast("ensure", "-f", "chat.yaml").code == 0
    chat.write_text(CHAT.replace("8192", "16384").replace("info", "debug"))
    return chat


def test_a_plan_of_something_new(holdfast: Holdfast, chat: Path) -> None:
    run = holdfast("plan", "-f", "chat.yaml")
    assert run.code == 0
    assert run.screen == (
        "Comparing 1 workload with HOME/.local/share/holdfast/holdfast.db, project default\n"
        "\n"
        "  +  default/support-bot    create: cost unknown\n"
        "     + name           support-bot\n"
        "     + model          llama-3.1-8b\n"
        "     + backend        vllm\n"
        "     + command        vllm serve llama-3.1-8b --max-model-len 8192\n"
        "     + env.LOG_LEVEL  info\n"
        "     + replicas       2\n"
        "\n"
        "Plan: 1 to create, 0 to update, 0 to delete.\n"
        "Next: holdfast ensure -f chat.yaml\n"
    )
    assert holdfast("status", "-o", "name").out == ""


def test_a_plan_of_a_change(holdfast: Holdfast, drifted: Path) -> None:
    assert holdfast("plan", "-f", "chat.yaml").out == (
        "  ~↻ default/support-bot    update: cost unknown\n"
        "       field                    live     declared\n"
        "     ~ command.--max-model-len  8192  →  16384   configuration, by holdfast-cli (maria)\n"
        "     ~ env.LOG_LEVEL            info  →  debug   configuration, by holdfast-cli (maria)\n"
        "\n"
        "Plan: 0 to create, 1 to update, 0 to delete.\n"
    )


def test_a_plan_of_nothing(holdfast: Holdfast, chat: Path) -> None:
    holdfast("ensure", "-f", "chat.yaml")
    run = holdfast("plan", "-f", "chat.yaml", "--exit-code")
    assert run.code == 0
    assert run.out == "No changes. 1 workload is as declared.\n"


@pytest.mark.parametrize("flag", ["--exit-code", "--detailed-exitcode"])
def test_a_plan_with_changes_exits_2_when_asked(
    holdfast: Holdfast, drifted: Path, flag: str
) -> None:
    assert holdfast("plan", "-f", "chat.yaml", flag).code == 2
    assert holdfast("diff", "-f", "chat.yaml", flag).code == 2
    assert holdfast("plan", "-f", "chat.yaml").code == 0


def test_a_diff(holdfast: Holdfast, drifted: Path) -> None:
    Path("embed.yaml").write_text(EMBED)
    assert holdfast("diff", "-f", "chat.yaml", "-f", "embed.yaml").out == (
        "WORKLOAD             FIELD                    LIVE      DECLARED    KIND           "
        "CHANGED BY\n"
        "default/support-bot  command.--max-model-len  8192      16384       configuration  "
        "holdfast-cli (maria)\n"
        "default/support-bot  env.LOG_LEVEL            info      debug       configuration  "
        "holdfast-cli (maria)\n"
        "default/embed        (all)                    (absent)  (declared)  -              -\n"
        "\n"
        "default/embed  create: cost unknown\n"
        "default/support-bot  update: cost unknown\n"
    )


def test_ensure_creates_then_leaves_alone_then_updates(holdfast: Holdfast, chat: Path) -> None:
    run = holdfast("ensure", "-f", "chat.yaml")
    assert run.screen == (
        "+ default/support-bot  created\n"
        "1 created.\n"
        "Next: holdfast serve, which runs them, unless it runs already\n"
    )
    assert holdfast("apply", "-f", "chat.yaml").out == (
        "= default/support-bot  unchanged\n1 unchanged.\n"
    )
    chat.write_text(CHAT.replace("8192", "16384"))
    assert holdfast("ensure", "-f", "chat.yaml").out == (
        "~ default/support-bot  updated    1 field\n1 updated.\n"
    )
    assert "16384" in str(live(holdfast)["command"])


def test_on_drift_fail_changes_nothing_and_exits_3(holdfast: Holdfast, drifted: Path) -> None:
    Path("embed.yaml").write_text(EMBED)
    run = holdfast("ensure", "-f", "embed.yaml", "-f", "chat.yaml", "--on-drift", "fail")
    assert run.code == 3
    assert run.out == ""
    assert run.err.startswith("error[drift]: Workload has drifted. 1 of 2 workloads have drifted")
    assert "command.--max-model-len" in run.err
    assert "  Nothing was changed.\n" in run.err
    assert holdfast("status", "-o", "name").out == "default/support-bot\n"


def test_on_drift_dry_run_shows_the_plan_and_changes_nothing(
    holdfast: Holdfast, drifted: Path
) -> None:
    run = holdfast("ensure", "-f", "chat.yaml", "--on-drift", "dry-run")
    assert run.code == 0
    assert run.out.startswith("? default/support-bot  planned    2 fields\n")
    assert "Plan: 0 to create, 1 to update, 0 to delete." in run.out
    assert "8192" in str(live(holdfast)["command"])


@pytest.mark.parametrize("word", ["dry_run", "DRY_RUN", "Dry-Run"])
def test_policies_are_taken_as_python_spells_them(
    holdfast: Holdfast, drifted: Path, word: str
) -> None:
    run = holdfast("ensure", "-f", "chat.yaml", "--on-drift", word)
    assert (run.code, "to update" in run.out) == (0, True)
    assert holdfast("ensure", "-f", "chat.yaml", "--on-drift", "FAIL").code == 3
    assert holdfast("ensure", "-f", "chat.yaml", "--on-absent", "PLAN").code == 0


def test_on_drift_warn_warns_once_and_ignore_is_quiet(holdfast: Holdfast, drifted: Path) -> None:
    run = holdfast("ensure", "-f", "chat.yaml", "--on-drift", "warn")
    assert run.code == 0
    assert run.out == "! default/support-bot  left       2 fields\n1 left as found.\n"
    assert run.err.count("warning: Workload default/support-bot has drifted.") == 1
    quiet = holdfast("ensure", "-f", "chat.yaml", "--on-drift", "ignore")
    assert "warning" not in quiet.err
    assert "8192" in str(live(holdfast)["command"])


def test_on_absent_governs_what_is_not_there(holdfast: Holdfast, chat: Path) -> None:
    run = holdfast("ensure", "-f", "chat.yaml", "--on-absent", "fail")
    assert run.code == 1
    assert run.err.startswith("error[not-found]:")
    assert "--on-absent" in run.err
    assert holdfast("ensure", "-f", "chat.yaml", "--on-absent", "plan").out.startswith("? ")
    assert holdfast("status", "-o", "name").out == ""


def test_a_saved_plan_is_applied_as_it_is(holdfast: Holdfast, drifted: Path) -> None:
    run = holdfast("plan", "-f", "chat.yaml", "--out", "plan.json")
    assert run.err.endswith("Next: holdfast ensure --plan plan.json\n")
    assert stat.S_IMODE(Path("plan.json").stat().st_mode) == 0o600
    drifted.write_text("changed after review")
    applied = holdfast("ensure", "--plan", "plan.json")
    assert applied.out == "~ default/support-bot  updated    2 fields\n1 updated.\n"
    assert "16384" in str(live(holdfast)["command"])


def test_a_stale_plan_is_refused_with_exit_5(holdfast: Holdfast, drifted: Path) -> None:
    holdfast("plan", "-f", "chat.yaml", "--out", "plan.json")
    drifted.write_text(CHAT.replace("8192", "4096"))
    holdfast("ensure", "-f", "chat.yaml")
    run = holdfast("ensure", "--plan", "plan.json")
    assert run.code == 5
    assert run.err.startswith("error[stale-plan]: Plan is stale. Workload default/support-bot was")
    assert "4096" in str(live(holdfast)["command"])


def test_an_edited_plan_is_refused(holdfast: Holdfast, drifted: Path) -> None:
    holdfast("plan", "-f", "chat.yaml", "--out", "plan.json")
    text = Path("plan.json").read_text()
    Path("plan.json").write_text(text.replace("16384", "99999"))
    run = holdfast("ensure", "--plan", "plan.json")
    assert run.code == 1
    assert "edited after it was made" in run.err
    assert holdfast("ensure", "--plan", "missing.json").code == 1


def test_the_result_of_ensure_for_programs(holdfast: Holdfast, chat: Path) -> None:
    result = json.loads(holdfast("ensure", "-f", "chat.yaml", "-o", "json").out)
    assert (result["kind"], result["summary"]) == ("EnsureResult", {"created": 1})
    assert result["workloads"][0]["slug"] == "support-bot"
    first, second = holdfast("ensure", "-f", "chat.yaml", "-o", "jsonl").out.splitlines()
    assert json.loads(first)["type"] == "version"
    assert json.loads(second)["outcome"] == "unchanged"
    assert holdfast("ensure", "-f", "chat.yaml", "-o", "name").out == "default/support-bot\n"


def test_delete_needs_a_yes_where_nobody_can_be_asked(holdfast: Holdfast, chat: Path) -> None:
    holdfast("ensure", "-f", "chat.yaml")
    run = holdfast("delete", "support-bot")
    assert run.code == 3
    assert run.screen == (
        "error[confirmation-needed]: Deleting 1 workload needs confirmation, and there is nobody "
        "to ask.\n"
        "  Nothing was changed.\n"
        "  Next: add --yes to delete default/support-bot\n"
    )
    assert holdfast("status", "-o", "name").out == "default/support-bot\n"


def test_delete_is_idempotent(holdfast: Holdfast, chat: Path) -> None:
    holdfast("ensure", "-f", "chat.yaml")
    assert holdfast("delete", "support-bot", "-y").out == "- default/support-bot  deleted\n"
    again = holdfast("delete", "-f", "chat.yaml", "-y")
    assert (again.code, again.out) == (0, "- default/support-bot  was not there\n")
    gone = json.loads(holdfast("delete", "support-bot", "-y", "-o", "json").out)
    assert gone["workloads"] == [{"project": "default", "slug": "support-bot", "outcome": "absent"}]


def test_a_project_can_be_named_by_flag_spec_and_argument(holdfast: Holdfast, chat: Path) -> None:
    holdfast("ensure", "-f", "chat.yaml", "-p", "acme")
    holdfast("-p", "other", "ensure", "-f", "chat.yaml")
    assert holdfast("status", "-p", "acme", "-o", "name").out == "acme/support-bot\n"
    assert holdfast("status", "other/support-bot", "-o", "name").out == "other/support-bot\n"
    chat.write_text(CHAT + "project: third\n")
    holdfast("ensure", "-f", "chat.yaml", "-p", "acme")
    assert holdfast("status", "third/support-bot").code == 0


def test_a_wait_that_fails_says_what_was_changed_before(holdfast: Holdfast, chat: Path) -> None:
    Path("embed.yaml").write_text(EMBED)
    run = holdfast("ensure", "-f", "chat.yaml", "-f", "embed.yaml", "--wait")
    assert run.code == 1
    assert "2 created." in run.out
    assert (
        "Workload default/support-bot was created. Workload default/embed was created." in run.err
    )
    assert "Nothing was changed" not in run.err
    again = holdfast("ensure", "-f", "chat.yaml", "-f", "embed.yaml", "--wait")
    assert "created" not in again.err, "this time nothing was"


def test_a_delete_that_fails_half_way_says_what_is_gone(
    holdfast: Holdfast, chat: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("embed.yaml").write_text(EMBED)
    holdfast("ensure", "-f", "chat.yaml", "-f", "embed.yaml")
    whole = ManagementClient.delete

    def delete(client: ManagementClient, slug: str, **more: Any) -> bool:
        if slug == "embed":
            raise TargetUnavailable("The disk went away.")
        return whole(client, slug, **more)

    monkeypatch.setattr(ManagementClient, "delete", delete)
    run = holdfast("delete", "support-bot", "embed", "--yes")
    assert run.code == 1
    assert "Deleted before that: default/support-bot." in run.err
    assert "Nothing was changed" not in run.err
    assert holdfast("status", "-o", "name").out.split() == ["default/embed"]


def test_a_plan_says_what_its_steps_cost_together() -> None:
    """Each of two finds the GPU that is free, and both do not."""
    need = DeviceNeed(resource="nvidia.com/gpu", needed=1, free=1, added=1, pool="all")
    plan = Plan(
        steps=tuple(
            Step(
                id=WorkloadId(project="acme", slug=slug), action=Action.CREATE, reason="new",
                disruption=Disruption.NONE, write={}, uid=None, version=None,
                cost=Cost(kind=CostKind.NONE, added=1, devices=(need,)),
            )
            for slug in ("chat", "embed")
        )
    )  # fmt: skip
    assert plan_body(plan)["cost"] == {
        "kind": "none",
        "added": 2,
        "several": True,
        "blocked": True,
        "devices": [
            {"resource": "nvidia.com/gpu", "needed": 2, "free": 1, "added": 2, "pool": "all"}
        ],
    }
    assert "Together: will not finish on the nodes there are: needs 2 nvidia.com/gpu" in str(plan)
    alone = Plan(steps=plan.steps[:1])
    assert "Together" not in str(alone)
    assert alone.cost is not None and not alone.cost.blocked
