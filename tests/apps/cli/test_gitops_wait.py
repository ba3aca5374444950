"""`wait` and `sync --wait` for applications: there in the end, or told at once why it cannot be."""

from __future__ import annotations

import os
import re
import signal
import threading
from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.apps.cli.conftest import Holdfast
from tests.apps.cli.gitops_application import (
    DEPLOYMENT,
    FILES,
    ApplicationDriver,
    Serve,
    deployment,
)
from tests.support.gitops_world import GitopsWorld, configmap, route
from tests.support.processes import HOLDFAST, started

from holdfast.core.errors import ValidationError
from holdfast.core.gitops.application import Remediation, SyncSpec

MANUAL = SyncSpec(automatic=False)


def ahead(app: ApplicationDriver, **files: str) -> None:
    """Git moves, and it is seen."""
    app.commit(**(files or {"b": configmap("b", w="7")}))
    app.reconcile()


def meanwhile(work: Callable[[], None], after: float = 0.5) -> threading.Timer:
    timer = threading.Timer(after, work)
    timer.start()
    return timer


def test_an_application_that_is_there_is_not_waited_for(serve: Serve, holdfast: Holdfast) -> None:
    serve()
    run = holdfast("wait", "shop")
    assert (run.code, run.out) == (0, "")
    assert run.err == "team/shop is synced and healthy.\nNext: holdfast status shop\n"
    for goal in ("synced", "healthy", "ready"):
        assert holdfast("wait", "shop", "team/shop", "--for", goal).code == 0


def test_what_is_being_rolled_out_is_waited_for(serve: Serve, holdfast: Holdfast) -> None:
    world = GitopsWorld()
    world.git.commit({**FILES, "bot.yaml": deployment()})
    app = serve(world)
    assert holdfast("wait", "shop", "--for", "synced").code == 0
    late = holdfast("wait", "shop", "--timeout", "200ms")
    assert late.code == 124
    assert re.match(r"team/shop is synced and (progressing|degraded)\.", late.err)
    assert (
        "error[wait-timeout]: Not ready in time. After 0.2 s team/shop is synced and " in late.err
    )
    assert "Next: holdfast status team/shop shows what is missing." in late.err
    begun = holdfast("sync", "shop", "--wait", "--timeout", "200ms")
    assert begun.code == 124
    assert "The sync of shop was begun. The controller carries on." in begun.err

    def get_ready() -> None:
        app.served.call(lambda: world.kube.make_ready(DEPLOYMENT))
        app.served.reconcile()

    timer = meanwhile(get_ready)
    run = holdfast("wait", "shop", "--timeout", "60s")
    timer.join()
    assert run.code == 0, run.screen
    assert run.err.endswith("team/shop is synced and healthy.\nNext: holdfast status shop\n")


def test_what_nobody_applies_by_itself_is_told_at_once(serve: Serve, holdfast: Holdfast) -> None:
    app = serve(GitopsWorld(sync=MANUAL))
    holdfast("sync", "shop")
    ahead(app)
    run = holdfast("wait", "shop")
    assert run.code == 3
    assert run.err == (
        "error[waits-for-a-person]: Git moved ahead, and team/shop is synced only when somebody "
        "asks for it.\n"
        "  Next: holdfast sync team/shop --wait\n"
    )
    assert holdfast("wait", "shop", "--for", "healthy").code == 0
    run = holdfast("sync", "shop", "--wait")
    assert run.code == 0, run.screen
    assert holdfast("wait", "shop").code == 0


def test_what_is_left_over_needs_somebody_who_prunes(serve: Serve, holdfast: Holdfast) -> None:
    app = serve(GitopsWorld(sync=SyncSpec(automatic=True)))
    app.served.call(lambda: app.world.git.commit({"a.yaml": FILES["a.yaml"]}))
    app.reconcile()
    for verb in (["wait", "shop"], ["sync", "shop", "--wait"]):
        run = holdfast(*verb)
        assert run.code == 3, run.screen
        assert "ConfigMap chat/b of team/shop is no longer declared" in run.err
        assert "Next: holdfast sync team/shop --prune --wait" in run.err
    assert holdfast("sync", "shop", "--prune", "--wait").code == 0
    assert app.data("b") is None


def test_a_plan_that_a_guard_parked_ends_the_wait(serve: Serve, holdfast: Holdfast) -> None:
    world = GitopsWorld(sync=SyncSpec(automatic=True, prune=True))
    world.git.commit({f"{n}.yaml": configmap(f"c{n}", x="1") for n in range(20)})
    app = serve(world)
    app.served.call(
        lambda: world.git.commit({f"{n}.yaml": configmap(f"c{n}", x="1") for n in range(12)})
    )
    app.reconcile()
    run = holdfast("wait", "shop", "--for", "synced")
    assert run.code == 3
    (plan,) = re.findall(r"Next: holdfast approve (plan-\w+)", run.err)
    assert f"{plan} of team/shop waits for a person. 8 of 20 objects would be deleted" in run.err
    run = holdfast("sync", "shop", "--wait")
    assert run.code == 3
    assert run.err.endswith(f"Next: holdfast approve {plan}\n")


@pytest.mark.parametrize(
    ("remediation", "told", "hint"),
    [
        (Remediation.REVIEW, "waits for a review.", "approve"),
        (Remediation.REPORT, "is only reported.", "revert"),
    ],
)
def test_drift_that_does_not_heal_by_itself_ends_the_wait(
    serve: Serve,
    holdfast: Holdfast,
    remediation: Remediation,
    told: str,
    hint: str,
) -> None:
    app = serve(GitopsWorld(route(remediation)))
    id = app.move()
    for goal in ("synced", "ready"):
        run = holdfast("wait", "shop", "--for", goal)
        assert run.code == 3
        assert f"ConfigMap chat/a has drifted, and {id} {told}" in run.err
        assert f"Next: holdfast {hint} {id}" in run.err
    assert holdfast("wait", "shop", "--for", "healthy").code == 0


def test_a_sync_puts_back_reported_drift_and_waits_for_it(serve: Serve, holdfast: Holdfast) -> None:
    app = serve(GitopsWorld(route(Remediation.REPORT)))
    app.move()
    run = holdfast("sync", "shop", "--wait", "--timeout", "60s")
    assert run.code == 0, run.screen
    assert "team/shop is synced and healthy." in run.out
    assert app.data() == {"x": "1"}


def test_a_sync_does_not_wait_for_a_review(serve: Serve, holdfast: Holdfast) -> None:
    app = serve()
    id = app.move()
    run = holdfast("sync", "shop", "--wait")
    assert run.code == 3
    assert run.err.endswith(f"Next: holdfast approve {id}\n")
    run = holdfast("sync", "shop", "--wait", "--force")
    assert run.code == 0, run.screen


def test_a_pause_that_outlasts_the_wait_ends_it(serve: Serve, holdfast: Holdfast) -> None:
    app = serve(GitopsWorld(route(Remediation.SELF_HEAL)))
    holdfast("pause", "shop", "--for", "2h", "--reason", "INC-1432")
    assert holdfast("wait", "shop").code == 0, "nothing is apart yet"
    ahead(app)
    run = holdfast("wait", "shop")
    assert run.code == 3
    assert re.search(r"team/shop is on hold until \S+ \S+Z, by maria \(\w+\): INC-1432", run.err)
    assert "Next: holdfast resume team/shop" in run.err
    run = holdfast("wait", "shop", "--timeout", "3h", "--for", "healthy")
    assert run.code == 0
    holdfast("resume", "shop")
    assert holdfast("wait", "shop", "--timeout", "60s").code == 0


def test_a_pause_of_one_object_counts_when_that_one_is_apart(
    serve: Serve, holdfast: Holdfast
) -> None:
    app = serve(GitopsWorld(route(Remediation.SELF_HEAL)))
    holdfast("pause", "shop", "ConfigMap/chat/b", "--for", "2h", "--reason", "INC-1432")
    ahead(app)
    run = holdfast("wait", "shop")
    assert run.code == 3
    assert "ConfigMap chat/b is on hold until " in run.err
    assert "Next: holdfast resume team/shop ConfigMap/chat/b" in run.err


def test_a_suspended_application_is_not_waited_for(serve: Serve, holdfast: Holdfast) -> None:
    app = serve()
    spec = replace(app.world.application.spec, suspend=True)
    app.world.application = replace(app.world.application, spec=spec)
    app.reconcile()
    for goal in ("ready", "synced", "healthy"):
        run = holdfast("wait", "shop", "--for", goal)
        assert run.code == 3
        assert "team/shop is suspended: nothing of it is observed or written." in run.err
        assert "Next: Set spec.suspend of the Application to false." in run.err


def test_a_source_that_is_away_is_waited_for_and_a_broken_one_is_not(
    serve: Serve, holdfast: Holdfast
) -> None:
    app = serve()
    app.world.git.down = "git.example.com did not answer"
    app.reconcile()
    run = holdfast("wait", "shop", "--timeout", "200ms")
    assert run.code == 124, "what is newest is not known, so it is not in sync with that"

    def back() -> None:
        app.world.git.down = ""
        app.reconcile()

    timer = meanwhile(back)
    assert holdfast("wait", "shop", "--timeout", "60s").code == 0
    timer.join()
    app.world.renderer.refused = ValidationError("b.yaml:3: this is no YAML.")
    ahead(app, c=configmap("c", z="1"))
    run = holdfast("wait", "shop")
    assert run.code == 1
    assert "team/shop cannot follow its repository: " in run.err
    assert "b.yaml:3: this is no YAML." in run.err


def test_names_that_are_not_there_are_said(serve: Serve, holdfast: Holdfast) -> None:
    serve()
    run = holdfast("wait", "shop", "nope")
    assert run.code == 1
    assert "There is no application 'nope' in project ml-platform." in run.err


def test_healthy_is_a_word_for_applications(holdfast: Holdfast) -> None:
    run = holdfast("wait", "support-bot", "--for", "healthy")
    assert run.code == 64
    assert "--for healthy is about applications" in run.err


@pytest.mark.parametrize("verb", ["wait shop --for ready", "sync shop --wait"])
def test_control_c_ends_the_waiting_alone(serve: Serve, verb: str) -> None:
    world = GitopsWorld()
    world.git.commit({**FILES, "bot.yaml": deployment()})
    app = serve(world)
    project = ["--project", os.environ["HOLDFAST_PROJECT"]]
    with started([*HOLDFAST, *project, *verb.split(), "--timeout", "5m"]) as waiting:
        assert waiting.stderr
        assert waiting.stderr.readline().startswith("team/shop is synced and ")
        waiting.send_signal(signal.SIGINT)
        out, rest = waiting.communicate(timeout=30)
    assert (waiting.returncode, out) == (130, "")
    assert rest == (
        "No longer waiting; the controller carries on.\n"
        "Next: holdfast --project ml-platform wait --for ready shop --timeout 300s\n"
    )
    assert app.data("a") == {"x": "1"}


def test_a_sync_that_could_not_read_git_does_not_pass_for_one(
    serve: Serve, holdfast: Holdfast
) -> None:
    app = serve()
    app.world.git.down = "git.example.com did not answer"
    run = holdfast("sync", "shop")
    assert run.code == 1
    assert "warning: The newest commit was not followed: " in run.err
    assert "git.example.com did not answer" in run.err
    app.world.git.down = ""
    app.world.renderer.refused = ValidationError("b.yaml:3: this is no YAML.")
    app.commit(c=configmap("c", z="1"))
    for verb in (["sync", "shop"], ["sync", "shop", "--wait"]):
        run = holdfast(*verb)
        assert run.code == 1
        assert "team/shop cannot follow its repository: " in run.err


def test_a_sync_of_what_is_on_hold_says_so(serve: Serve, holdfast: Holdfast) -> None:
    app = serve(GitopsWorld(route(Remediation.SELF_HEAL)))
    assert holdfast("sync", "shop").code == 0
    holdfast("pause", "shop", "--for", "2h", "--reason", "INC-1432")
    assert holdfast("sync", "shop").code == 0, "there is nothing that it would do"
    ahead(app)
    run = holdfast("sync", "shop")
    assert run.code == 3
    assert "team/shop is on hold until " in run.err
    assert app.data("b") == {"w": "2"}
