"""The verbs about applications, against a controller behind the real server."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.apps.cli.conftest import Holdfast
from tests.apps.cli.gitops_application import (
    DEPLOYMENT,
    FILES,
    ApplicationDriver,
    Serve,
    deployment,
    set_image,
    use,
)
from tests.support.gitops_world import GitopsWorld, MemorySources, config_ref, configmap, route

from holdfast.apps.cli.screen import Screen
from holdfast.core.gitops.application import (
    ApplicationId,
    DriftSpec,
    MatchSpec,
    Remediation,
    SyncSpec,
)


def test_status_lists_applications_and_says_where_to_look(serve: Serve, holdfast: Holdfast) -> None:
    app = serve()
    run = holdfast("status", "--exit-code")
    assert (run.code, run.out.splitlines()[0].split()) == (
        0,
        ["NAME", "SYNC", "HEALTH", "REVISION", "DRIFT", "AHEAD", "HELD", "FETCHED", "MESSAGE"],
    )
    assert "team/shop  synced  healthy" in run.out
    app.move()
    run = holdfast("status", "--exit-code")
    assert run.code == 2
    assert "1 application · 1 drifted · 1 waiting for a person" in run.out
    assert run.err == "Next: holdfast status team/shop\n"


def test_status_of_one_application_shows_what_is_apart(serve: Serve, holdfast: Holdfast) -> None:
    app = serve()
    id = app.move()
    holdfast("pause", "shop", "ConfigMap/chat/b", "--for", "2h", "--reason", "INC-1432")
    run = holdfast("status", "shop")
    assert f"ConfigMap chat/a  drifted   healthy  {id}" in run.out
    assert "ConfigMap chat/b  " not in run.out.split("On hold")[0]
    assert "On hold: ConfigMap chat/b for 2h more, by maria (" in run.out
    assert "INC-1432" in run.out
    assert run.err == f"Next: holdfast drift show {id}\n"
    assert "ConfigMap chat/b  in-sync" in holdfast("status", "shop", "-o", "wide").out


@pytest.mark.parametrize("form", ["json", "yaml", "jsonl", "name", "markdown", "wide"])
def test_every_format_is_written(serve: Serve, holdfast: Holdfast, form: str) -> None:
    app = serve()
    app.move()
    for verb in (["status"], ["diff", "shop"], ["drift", "list"], ["drift", "history"]):
        run = holdfast(*verb, "-o", form)
        assert run.code == 0, run.screen
        assert run.out
        if form == "json":
            assert json.loads(run.out)["apiVersion"] == "cli.holdfast.dev/v1"
        if form == "jsonl":
            assert json.loads(run.out.splitlines()[0])["type"] == "version"
        if form in ("json", "yaml", "jsonl", "name"):
            assert run.err == ""


def test_a_diff_is_labelled_and_explained(serve: Serve, holdfast: Holdfast) -> None:
    app = serve()
    id = app.move("9\x1b[31m\u202e")
    run = holdfast("diff", "shop", "--exit-code")
    assert run.code == 2
    assert re.search(r"^ +path +live +git +why$", run.out, flags=re.M)
    assert re.search(r"~  data\.x  9\\x1b\[31m\\u202e +1 +configuration, kubectl-edit", run.out)
    assert "declared in a.yaml:6" in run.out
    assert "~ drifted: somebody changed it" in run.out
    holdfast("ignore", id, "--field", "data.x", "--for", "7d", "--reason", "load test")
    app.reconcile()
    run = holdfast("diff", "shop", "--exit-code")
    assert run.code == 0
    assert f"tolerated: rule {id}-0" in run.out
    assert "= tolerated, left as it is" in run.out
    assert "No difference that is not tolerated." in run.out


def test_drifts_are_listed_shown_explained_and_put_together_by_cause(
    serve: Serve, holdfast: Holdfast
) -> None:
    app = serve()
    id = app.move()
    run = holdfast("drift", "list", "shop", "--exit-code")
    assert run.code == 2
    assert re.search(rf"{id}  team/shop +ConfigMap chat/a +configuration +1 +kubectl-edit", run.out)
    assert run.err == f"Next: holdfast drift show {id}\n"
    assert holdfast("drift", "list", "--type", "image", "--exit-code").code == 0
    assert "No drift." in holdfast("drift", "list", "--state", "snoozed").out
    for wanted in ("--cause=person", "--writer=kubectl-edit", "--search=shop data"):
        assert holdfast("drift", "list", wanted, "-o", "name").out.strip() == id, wanted
    for other in ("--cause=autoscaler", "--writer=kubectl", "--search=shop nothing"):
        assert holdfast("drift", "list", other, "-o", "name").out.strip() == "", other
    assert holdfast("drift", "list", "--state", "sleepy").code == 64
    grouped = holdfast("drift", "list", "--group-by", "cause").out
    assert re.search(r"kubectl-edit \(person\) +1 +configuration", grouped)
    shown = holdfast("drift", "show", id)
    assert "Evidence for data.x: kubectl-edit (update) wrote it at " in shown.out
    assert "Plan that waits: sha256:" in shown.out
    assert shown.err.startswith(f"Next: holdfast approve {id}")
    explained = holdfast("drift", "explain", "shop").out
    assert "data.x is 9, Git declares 1." in explained
    assert "a tool that people use by hand or in scripts" in explained
    (line,) = holdfast("drift", "export").out.splitlines()
    assert json.loads(line)["drift"]["id"] == id
    journal = [
        json.loads(each)
        for each in holdfast("drift", "export", "--journal").out.split("\n")
        if each
    ]
    assert journal[0]["action"] == "approval-requested"
    assert "approval-requested" in holdfast("history", "--about", id).out


def test_an_approval_shows_what_it_does_and_asks_nobody_off_a_terminal(
    serve: Serve, holdfast: Holdfast
) -> None:
    app = serve()
    id = app.move()
    plan = app.world.drifts[0].plan
    run = holdfast("approve", id)
    assert run.code == 3
    assert re.search(r"data\.x  9 +1 +configuration", run.out)
    assert "Effect: 1 field of ConfigMap chat/a put back in place." in run.out
    assert f"Plan:   {plan}" in run.out
    assert f"Next: add --plan-digest {plan}, or --yes" in run.err
    assert app.data() == {"x": "9"}
    run = holdfast("approve", id, "--plan-digest", plan, "--comment", "window agreed")
    assert run.code == 0
    assert "Approved by maria (" in run.out
    app.reconcile()
    assert app.data() == {"x": "1"}
    shown = holdfast("drift", "show", id).out
    assert "The declared values were put back after a review." in shown
    assert '"window agreed"' in shown


def test_on_a_terminal_it_asks_and_no_is_no(
    serve: Serve, holdfast: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = serve()
    id = app.move()
    made = Screen.__init__

    def on_a_terminal(self: Screen, **more: Any) -> None:
        made(self, **more)
        self.interactive = True

    monkeypatch.setattr(Screen, "__init__", on_a_terminal)
    run = holdfast("approve", id, stdin="n\n")
    assert run.code == 0
    assert run.err.endswith("Nothing was changed.\n")
    assert app.world.drifts[0].state == "awaiting-approval"
    run = holdfast("approve", id, stdin="y\n")
    assert "Approve exactly this plan? [y/N]" in run.err
    assert "Approved by maria (" in run.out


def test_a_plan_that_moved_is_not_approved(serve: Serve, holdfast: Holdfast) -> None:
    app = serve()
    id = app.move()
    plan = app.world.drifts[0].plan
    app.move("10")
    run = holdfast("approve", id, "--plan-digest", plan, "-o", "json")
    assert run.code == 5
    said = json.loads(run.out)
    assert (said["kind"], said["code"]) == ("Error", "stale-plan")
    assert "drift of data.x by kubectl-edit" in said["happened"]
    assert said["changed"] == "Nothing was changed."
    assert said["next"] == f"Review it again: holdfast drift show {id}"
    assert app.data() == {"x": "10"}


def test_a_drift_that_waits_for_nothing_cannot_be_approved(
    serve: Serve, holdfast: Holdfast
) -> None:
    app = serve(GitopsWorld(route(Remediation.REPORT)))
    id = app.move()
    run = holdfast("approve", id, "--yes")
    assert run.code == 1
    assert f"{id} is not waiting for approval: it is detected. Its policy is report." in run.err
    assert f"Next: holdfast revert {id}" in run.err


def test_a_refusal_that_is_no_lost_race_does_not_speak_of_another_writer(
    serve: Serve, holdfast: Holdfast
) -> None:
    app = serve(GitopsWorld(route(Remediation.REPORT)))
    id = app.move()
    run = holdfast("approve", id, "--plan-digest", "sha256:0")
    assert run.code == 1
    assert run.err.startswith(
        f"error[invalid-state]: Not possible as it stands. {id} is not waiting for approval: it is "
        "detected."
    )
    (known,) = app.served.followed.values()
    other = ApplicationId(namespace="other", name=known.application.id.name)
    namesake = replace(known, application=replace(known.application, id=other))
    app.served.call(lambda: app.served.followed.update({other: namesake}))
    run = holdfast("diff", "shop")
    assert run.code == 1
    assert run.err.startswith(
        "error[ambiguous]: Name is ambiguous. shop may be other/shop, team/shop."
    )
    assert "Next: Name it with its namespace." in run.err
    assert app.data() == {"x": "9"}


def test_the_first_of_two_approvals_says_that_it_waits_for_another_person(
    serve: Serve, holdfast: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = serve(GitopsWorld(route(Remediation.REVIEW), drift=DriftSpec(four_eyes=True)))
    first, second = two_drifts(app)
    run = holdfast("approve", first, "--yes")
    assert run.code == 3
    assert re.search(r"^Approved by maria .*; it waits for another person\.$", run.out, flags=re.M)
    assert f"error[approval-needed]: {first} waits for another person" in run.err
    assert f"Next: have somebody else run holdfast approve {first} --plan-digest sha" in run.err
    run = holdfast("approve", first, "--yes", "-o", "json")
    assert (run.code, json.loads(run.out)["state"]) == (3, "awaiting-approval")
    assert "error[approval-needed]:" in run.err
    run = holdfast("approve", first, second, "--yes", "-o", "json")
    items = json.loads(run.out)["items"]
    assert run.code == 3
    assert [(each["outcome"], each["exitCode"]) for each in items] == [("waiting", 3)] * 2
    run = holdfast("approve", first, "nosuch", "--yes")
    assert run.code == 3
    assert "0 of 2 approved, 1 waiting for another person, 1 not." in run.out
    app.reconcile()
    assert (app.data("a"), app.data("b")) == ({"x": "9"}, {"w": "5"}), "one person only"
    use(app.served.server, monkeypatch, "approve", name="otto")
    assert holdfast("approve", first, second, "--yes").code == 0
    app.reconcile()
    assert (app.data("a"), app.data("b")) == ({"x": "1"}, {"w": "2"})


def test_who_may_write_may_not_approve_and_the_other_way_round(
    serve: Serve, holdfast: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = serve()
    id = app.move()
    use(app.served.server, monkeypatch, "write")
    run = holdfast("approve", id, "--yes")
    assert run.code == 4
    assert "lacks the scope approve" in run.err
    use(app.served.server, monkeypatch, "approve")
    assert holdfast("sync", "shop").code == 4
    assert holdfast("approve", id, "--yes").code == 0


def test_a_decision_can_be_to_leave_it(serve: Serve, holdfast: Holdfast) -> None:
    app = serve()
    id = app.move()
    run = holdfast("snooze", id, "--for", "4h", "-o", "json")
    assert json.loads(run.out)["state"] == "snoozed"
    assert holdfast("reject", id).code == 64, "a rejection has a reason"
    assert holdfast("snooze", id).code == 64, "a snooze has an end"
    run = holdfast("reject", id, "--comment", "raised for the launch")
    assert run.code == 0
    assert "The live value stays; Git still differs." in run.out
    app.reconcile()
    assert app.data() == {"x": "9"}
    assert "raised for the launch" in holdfast("drift", "show", id).out


def test_a_drift_goes_to_git_or_back(serve: Serve, holdfast: Holdfast) -> None:
    app = serve(GitopsWorld(route(Remediation.REPORT)))
    id = app.move()
    run = holdfast("codify", id, "--wait", "--timeout", "20s")
    assert run.code == 0, run.screen
    assert f"{id} is proposed in {app.world.forge.pulls[1].url}" in run.out
    assert "is put back with the next pass" in holdfast("revert", id).out, "rather than proposed"
    other = second_drift(app)
    run = holdfast("revert", other)
    assert "is put back with the next pass" in run.out
    app.reconcile()
    assert app.data("b") == {"w": "2"}


def test_a_drift_goes_to_a_branch_where_there_is_no_forge(
    serve: Serve, holdfast: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waited two minutes for a pull request that could not be."""

    async def no_forge(*asked: object) -> None:
        return None

    monkeypatch.setattr(MemorySources, "forge", no_forge)
    app = serve(GitopsWorld(route(Remediation.REPORT)))
    run = holdfast("codify", app.move(), "--wait", "--timeout", "20s")
    assert run.code == 0, run.screen
    assert "is proposed by a branch: its repository has no pull requests." in run.out


def test_a_revert_of_what_another_tool_applies_is_refused(serve: Serve, holdfast: Holdfast) -> None:
    """It said "put back in place" and ended well, and nothing was ever written."""
    from tests.support.gitops_world import NAMESPACE, config_ref

    app = serve(GitopsWorld(route(Remediation.REPORT)))
    mark = {"argocd.argoproj.io/tracking-id": f"shop:/ConfigMap:{NAMESPACE}/c"}
    metadata = {"name": "c", "namespace": NAMESPACE, "annotations": mark}
    item = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"x": "1"}}
    app.served.call(lambda: app.world.kube.create(item, manager="argocd-controller"))
    app.commit(c=configmap("c", x="1"))
    app.reconcile()
    app.edit(config_ref("c"), lambda item: item["data"].update(x="9"))
    run = holdfast("revert", app.id("c"))
    assert run.code == 3, run.screen
    assert "applies this object, so it is observed and never written" in run.err
    assert "put back in place" not in run.screen
    app.reconcile()
    assert app.data("c") == {"x": "9"}


def second_drift(app: ApplicationDriver) -> str:
    from tests.support.gitops_world import config_ref

    app.edit(config_ref("b"), lambda item: item["data"].update(w="5"))
    return app.id("b")


def test_a_hold_ends_by_command(serve: Serve, holdfast: Holdfast) -> None:
    app = serve(GitopsWorld(route(Remediation.SELF_HEAL)))
    assert holdfast("pause", "shop", "--for", "2h").code == 64, "a hold has a reason"
    assert holdfast("pause", "shop", "--for", "31d", "--reason", "x").code == 64
    run = holdfast("pause", "shop", "--for", "2h", "--reason", "INC-1432", "--then", "revert")
    assert run.code == 0
    assert "What changes under it is reverted at its end" in run.out
    assert run.err == "Next: holdfast resume team/shop\n"
    app.move()
    assert app.data() == {"x": "9"}
    assert re.search(r"held \(\d+h.* left\)", holdfast("drift", "list").out)
    assert "No longer on hold: all of team/shop (INC-1432)" in holdfast("resume", "team/shop").out
    assert holdfast("resume", "shop").code == 1


def test_a_sync_is_planned_done_and_told(serve: Serve, holdfast: Holdfast) -> None:
    world = GitopsWorld(route(Remediation.REPORT), sync=SyncSpec(automatic=False))
    app = serve(world)
    holdfast("sync", "shop")
    app.commit(b=configmap("b", w="7"), c=configmap("c", z="1"))
    app.reconcile()
    run = holdfast("sync", "shop", "--dry-run", "--exit-code")
    assert run.code == 2
    assert "+ ConfigMap chat/c  it is declared and not there" in run.out
    assert "\nTogether: restarts nothing\n" in run.out
    assert re.search(r"data\.w +2 +→ +7", run.out)
    assert "Plan: 1 to create, 1 to update, 0 to delete" in run.out
    assert run.err == "Next: holdfast sync shop\n"
    run = holdfast("sync", "shop", "--wait", "--timeout", "20s")
    assert run.code == 0, run.screen
    assert "team/shop is synced and healthy." in run.out
    assert (app.data("b"), app.data("c")) == ({"w": "7"}, {"z": "1"})
    app.move()
    assert "puts back drf-" in holdfast("sync", "shop", "--dry-run").out


def sync_too_much(serve: Serve, holdfast: Holdfast) -> str:
    """Ask for a sync that would delete too much; give the plan that waits for a person then."""
    world = GitopsWorld(sync=SyncSpec(automatic=False))
    world.git.commit({f"{n}.yaml": configmap(f"c{n}", x="1") for n in range(20)})
    app = serve(world)
    holdfast("sync", "shop")
    app.served.call(
        lambda: world.git.commit({f"{n}.yaml": configmap(f"c{n}", x="1") for n in range(12)})
    )
    run = holdfast("sync", "shop", "--prune")
    assert run.code == 3
    (plan,) = re.findall(r"Next: holdfast approve (plan-\w+)", run.err)
    return str(plan)


def test_a_sync_that_would_delete_too_much_waits_for_an_approval(
    serve: Serve, holdfast: Holdfast
) -> None:
    plan = sync_too_much(serve, holdfast)
    assert "waits for a person" in holdfast("status", "shop").out
    shown = holdfast("approve", plan)
    assert shown.code == 3
    assert "- delete ConfigMap chat/c19" in shown.out
    assert holdfast("approve", plan, "--yes").code == 0


def test_a_parked_plan_is_rejected_and_asked_about_again_by_a_sync(
    serve: Serve, holdfast: Holdfast
) -> None:
    plan = sync_too_much(serve, holdfast)
    run = holdfast("reject", plan, "--comment", "set back by mistake")
    assert run.code == 0
    assert f"{plan} was rejected by maria" in run.out
    assert "It is not carried out; Git still differs." in run.out
    assert "Next: holdfast status team/shop" in run.err
    assert f"! {plan} rejected by maria" in holdfast("status", "shop").out
    assert holdfast("approve", "--all", "--yes").out == "Nothing waits for an approval.\n"
    run = holdfast("reject", plan, "nosuch", "--comment", "again")
    assert run.code == 5, "somebody decided before"
    assert f"x {plan}  not rejected: {plan} was rejected by maria" in run.out
    assert json.loads(holdfast("status", "shop", "-o", "json").out)["plans"][0]["rejected_by"]
    assert holdfast("sync", "shop", "--prune").code == 3
    assert "waits for a person" in holdfast("status", "shop").out
    assert holdfast("approve", plan, "--yes").code == 0


def test_an_approval_says_when_pods_are_replaced(serve: Serve, holdfast: Holdfast) -> None:
    world = GitopsWorld(route(Remediation.REVIEW, match=MatchSpec(kinds=("Deployment",))))
    world.git.commit({**FILES, "bot.yaml": deployment()})
    app = serve(world)
    app.edit(DEPLOYMENT, set_image("vllm/vllm-openai:v0.11.0"))
    run = holdfast("approve", app.id("bot"))
    assert "its pods are replaced one after the other" in run.out


def test_a_stale_source_is_said_and_nothing_is_taken_for_gone(
    serve: Serve, holdfast: Holdfast
) -> None:
    app = serve()
    app.world.git.down = "git.example.com did not answer"
    app.reconcile()
    assert "synced (stale)" in holdfast("status").out
    shown = holdfast("status", "shop").out
    assert "Stale    " in shown
    assert "git.example.com did not answer" in shown
    assert "What was declared before still counts; nothing is pruned." in shown


def test_a_server_without_a_controller_says_so(
    holdfast: Holdfast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.support.server import running_server

    with running_server(tmp_path, run=False) as server:
        use(server, monkeypatch, "admin")
        assert "No workloads." in holdfast("status").out
        assert "No drift." in holdfast("drift", "list", "--group-by", "cause").out
        assert holdfast("drift", "list", "--state", "held").code == 64
        for verb in (["approve", "drf-1"], ["sync", "shop"], ["diff", "shop"]):
            run = holdfast(*verb)
            assert run.code == 1
            assert "There is no GitOps controller at http://" in run.err
            assert "Next: Set HOLDFAST_URL" in run.err


def test_a_verb_for_workloads_says_that_a_controller_has_applications(
    serve: Serve, holdfast: Holdfast, chat: Path
) -> None:
    serve()
    run = holdfast("plan", "-f", str(chat))
    assert run.code == 1
    assert "it has applications, which holdfast status lists" in run.err


def test_names_that_are_not_there_are_said_with_where_to_look(
    serve: Serve, holdfast: Holdfast
) -> None:
    serve()
    for verb in (["status", "nope"], ["diff", "nope"], ["sync", "nope"]):
        run = holdfast(*verb)
        assert run.code == 1
        assert "There is no application 'nope' in project ml-platform." in run.err
        assert "Next: holdfast status lists them." in run.err
    assert "Next: Did you mean shop? holdfast status lists them." in holdfast("diff", "shp").err
    run = holdfast("drift", "show", "drf-0")
    assert "Next: holdfast drift list shows the open ones" in run.err


def test_names_of_applications_are_completed(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    import click

    from holdfast.apps.cli.options import complete_names

    serve()
    context = click.Context(click.Command("x"))
    found = complete_names(context, click.Argument(["name"]), "s")
    assert found == ["shop"]


def test_a_value_of_many_lines_is_shown_as_a_bounded_diff(serve: Serve, holdfast: Holdfast) -> None:
    lines = [f"line {number}" for number in range(2_000)]
    app = serve()
    moved = "\n".join([*lines[:1_000], "somebody's", *lines[1_000:]])
    declared = configmap("a", x="TEXT").replace("'TEXT'", json.dumps("\n".join(lines)))
    app.commit(a=declared)
    app.reconcile()
    id = app.move(moved)
    for run in (holdfast("diff", "shop"), holdfast("drift", "show", id)):
        assert run.code == 0
        assert "(2001 lines)" in run.out
        assert "\n  -somebody's\n" in run.out
        assert "  +++ git\n" in run.out
        assert len(run.out) < 4_000


def test_a_drift_of_a_whole_object_says_what_stands_on_either_side(
    serve: Serve, holdfast: Holdfast
) -> None:
    app = serve()
    app.served.run(app.world.kube.delete(config_ref("a")))
    app.served.reconcile()
    shown = holdfast("drift", "show", app.id("a")).out
    assert re.search(r"\(whole object\) +\(not there\) +\(declared\) +resource +unknown", shown)
    assert "Evidence for (whole object): the server has no such object" in shown
    page = holdfast("diff", "shop", "-o", "markdown").out
    assert re.search(r"\| \(whole object\) \|  \|  \| `.+` \|", page)


def two_drifts(app: ApplicationDriver) -> tuple[str, str]:
    first = app.move()
    return first, second_drift(app)


def test_several_are_approved_each_by_its_own_digest(serve: Serve, holdfast: Holdfast) -> None:
    app = serve()
    first, second = two_drifts(app)
    run = holdfast("approve", first, second)
    assert run.code == 3, "nobody can be asked"
    assert run.err.count("--plan-digest sha256:") == 2
    assert all(each.state == "awaiting-approval" for each in app.world.drifts)
    run = holdfast("approve", first, second, "--yes", "--comment", "both")
    assert run.code == 0
    assert run.out.count("Effect: 1 field of ConfigMap") == 2
    assert re.search(rf"^\+ {first}  Approved by maria", run.out, flags=re.M)
    assert re.search(rf"^\+ {second}  Approved by maria", run.out, flags=re.M)
    assert "2 of 2 approved." in run.out
    app.reconcile()
    assert (app.data("a"), app.data("b")) == ({"x": "1"}, {"w": "2"})


def test_of_several_a_stale_one_is_refused_and_the_rest_approved(
    serve: Serve, holdfast: Holdfast
) -> None:
    app = serve()
    first, second = two_drifts(app)
    plans = {each.id: each.plan for each in app.world.drifts}
    app.move("10")
    given = ["--plan-digest", plans[first], "--plan-digest", plans[second]]
    assert holdfast("approve", first, second, *given[:2]).code == 64
    assert holdfast("approve", first, first, *given).code == 64
    run = holdfast("approve", first, second, "nosuch", *given, "--plan-digest", "x", "-o", "json")
    assert run.code == 5, "of the first that was refused"
    items = json.loads(run.out)["items"]
    assert [(each["id"], each["outcome"], each["exitCode"]) for each in items] == [
        (first, "refused", 5),
        (second, "approved", 0),
        ("nosuch", "refused", 1),
    ]
    assert items[0]["code"] == "stale-plan"
    app.reconcile()
    assert (app.data("a"), app.data("b")) == ({"x": "10"}, {"w": "2"})


def test_all_that_waits_is_approved_after_one_question(serve: Serve, holdfast: Holdfast) -> None:
    app = serve()
    assert "Nothing waits for an approval." in holdfast("approve", "--all", "--yes").out
    assert holdfast("approve").code == 64
    assert holdfast("approve", "drf-1", "--all").code == 64
    two_drifts(app)
    run = holdfast("approve", "--all", "--yes")
    assert (run.code, "2 of 2 approved." in run.out) == (0, True)


def test_with_nobody_to_ask_the_command_that_approves_all_is_told_and_works(
    serve: Serve, holdfast: Holdfast
) -> None:
    """It said to add --plan-digest, which goes with IDs, and --all has none."""
    app = serve()
    two_drifts(app)
    run = holdfast("approve", "--all")
    assert run.code == 3
    told = re.search(r"Next: holdfast (approve .*), or add --yes", run.err)
    assert told is not None, run.screen
    run = holdfast(*told[1].split())
    assert (run.code, "2 of 2 approved." in run.out) == (0, True)


def test_several_are_rejected_and_one_that_is_not_there_stops_none(
    serve: Serve, holdfast: Holdfast
) -> None:
    app = serve()
    first, second = two_drifts(app)
    run = holdfast("reject", first, "drf-nosuch", second, "--comment", "as they should be")
    assert run.code == 1
    assert re.search(r"^x drf-nosuch  not rejected: ", run.out, flags=re.M)
    assert "2 of 3 rejected, 1 not." in run.out
    assert {each.state for each in app.world.drifts} == {"rejected"}
