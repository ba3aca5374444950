"""What people decide about applications.

Approve, reject, snooze, codify, revert, ignore; pause and resume.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import click

from holdfast.apps.cli import options
from holdfast.apps.cli.applications import next_command_for
from holdfast.apps.cli.connect import ControllerClient, require_controller
from holdfast.apps.cli.exits import Exit, exit_code_of
from holdfast.apps.cli.group import Verb
from holdfast.apps.cli.screen import Screen
from holdfast.apps.cli.session import Session
from holdfast.apps.cli.views.application_drifts import show_drift_fields, writer_name
from holdfast.apps.cli.views.applications import hold_lines, object_address, object_name
from holdfast.apps.cli.views.output import masked_json, show_list, show_result
from holdfast.apps.cli.views.text import age, count, format_time, one_line
from holdfast.core.errors import HoldfastError, ValidationError, WaitTimeout, report_changes
from holdfast.core.gitops.application import HoldEnd
from holdfast.core.quantity import format_seconds
from holdfast.core.text_style import TextStyle
from holdfast.wire.gitops_http_v1 import HoldForm, IgnoredForm, Via, WaitingPlanForm
from holdfast.wire.gitops_v1 import ApplicationDriftForm

_POLL_SECONDS = 0.5
"""Between two questions whether the pull request is there."""
_STEP_OUTCOMES = {"+": "created", "~": "updated", "-": "deleted"}
APPROVAL_NEEDED = "approval-needed"
"""The error code of what waits for a person."""
_KINDS_WITH_ROLLOUT = ("Deployment", "StatefulSet", "DaemonSet")
_VIA = {"direct": Via.DIRECT, "pr": Via.PULL_REQUEST}


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingApproval:
    """A drift or a blocked plan, and the digest that is approved."""

    id: str
    form: ApplicationDriftForm | WaitingPlanForm
    digest: str


@click.command(
    "approve",
    cls=Verb,
    examples=[
        "holdfast approve drf-57557f5b59",
        "holdfast approve drf-57557f5b59 --comment 'window agreed' --yes",
        "holdfast approve plan-1f0a77c2 plan-88be01d3         # several, which guards blocked",
        "holdfast approve --all                               # all that wait, after one question",
        "holdfast approve drf-57557f5b59 --plan-digest sha256:a44c…   # what was reviewed before",
    ],
)
@click.argument("ids", metavar="ID...", nargs=-1)
@click.option("--all", "every", is_flag=True, help="All drifts and plans that wait in the project.")
@options.comment()
@click.option(
    "--plan-digest",
    "digests",
    metavar="DIGEST",
    multiple=True,
    help="The plan that was reviewed; another one is refused. One for each ID, in their order.",
)
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@options.connected(*options.SINGLE_FORMATS)
@click.pass_context
def approve(
    ctx: click.Context,
    session: Session,
    ids: tuple[str, ...],
    every: bool,
    comment: str,
    digests: tuple[str, ...],
    yes: bool,
) -> None:
    """Approve the plans of drifts, and plans that a guard blocked.

    Shows what is approved, its effect and its digest, and asks on a terminal. Elsewhere it needs
    --yes or --plan-digest, and ends with exit code 3 without. When a plan is another one by now,
    it is not approved and the exit code is 5. Where it takes two people, the first approval is
    recorded and still waits for another person, and the exit code is 3. Of several, each is
    approved or refused for itself and has a line of its own; the exit code is that of the first
    that was refused or still waits.
    """
    if bool(ids) == every:
        ctx.fail("Give either the ids of drifts and plans, or --all.")
    if digests and (every or len(digests) != len(ids)):
        ctx.fail("Give --plan-digest once for each ID, in the same order.")
    with require_controller(session) as controller:
        chosen = list(dict.fromkeys(ids)) or _pending_ids(controller)
        if digests and len(chosen) != len(digests):
            ctx.fail("An ID was given twice.")
        if len(chosen) == 1 and not every:
            _approve_one(
                ctx, session, controller, chosen[0], comment, next(iter(digests), None), yes
            )
        elif chosen:
            _approve_several(ctx, session, controller, chosen, comment, digests, yes)
        else:
            session.screen.line("Nothing waits for an approval.")


def _pending_ids(controller: ControllerClient) -> list[str]:
    """Name every drift and every plan that waits for a person."""
    drifts = controller.call(controller.api.drifts(state="awaiting-approval"))
    plans = (plan for each in controller.applications for plan in each.plans)
    return [*(each.id for each in drifts), *(plan.id for plan in plans if not plan.decided)]


def _find_pending(controller: ControllerClient, id: str, digest: str | None) -> PendingApproval:
    """Find what an id names. Raises ValidationError for a drift that waits for nothing."""
    if id.startswith("plan-"):
        plan = controller.call(controller.api.waiting_plan(id))
        if plan.drift and plan.current:
            return _find_pending(controller, plan.drift, digest or plan.digest)
        if not plan.current:
            raise ValidationError(
                f"{id} is not waiting for approval any more.",
                hint=f"holdfast status {plan.application} -o wide shows which plans wait.",
            )
        return PendingApproval(id=id, form=plan, digest=digest or plan.digest)
    drift = controller.call(controller.api.drift(id))
    reviewed = digest or drift.plan
    if not reviewed or (drift.resolved_at is not None and digest is None):
        state = f"it ended ({drift.resolution})" if drift.resolved_at else f"it is {drift.state}"
        raise ValidationError(
            f"{id} is not waiting for approval: {state}. Its policy is {drift.remediation}.",
            hint=next_command_for(drift),
        )
    return PendingApproval(id=id, form=drift, digest=reviewed)


def _show_pending(session: Session, pending: PendingApproval) -> None:
    """Show what would be approved, if it is what waits now."""
    now = datetime.now(UTC)
    if isinstance(pending.form, WaitingPlanForm):
        show_plan_approval(session.screen, pending.form, now=now)
    elif pending.form.plan == pending.digest:
        show_approval(session.screen, pending.form, now=now)


def _send_approval(
    controller: ControllerClient, pending: PendingApproval, comment: str
) -> DecisionOutcome:
    id, api = pending.id, controller.api
    if isinstance(pending.form, WaitingPlanForm):
        plan = controller.call(api.approve_plan(id, plan=pending.digest, comment=comment))
        message = f"Approved by {plan.approved_by}; carried out with the next pass, if the same."
        return DecisionOutcome(id=id, message=message, form=plan)
    drift = controller.call(api.approve(id, plan=pending.digest, comment=comment))
    if drift.state == "awaiting-approval":
        first = f"Approved by {drift.first_approver}, the first of two"
        message = f"{first}; it waits for another person."
        return DecisionOutcome(id=id, message=message, form=drift, waits=True)
    message = f"Approved by {drift.decided_by}; it is applied with the next pass, if nothing moves."
    if drift.resolved_at is not None:
        message = f"Approved by {drift.decided_by}, and applied."
    return DecisionOutcome(id=id, message=message, form=drift)


def _approve_one(
    ctx: click.Context,
    session: Session,
    controller: ControllerClient,
    id: str,
    comment: str,
    digest: str | None,
    yes: bool,
) -> None:
    screen = session.screen
    pending = _find_pending(controller, id, digest)
    if screen.for_people:
        _show_pending(session, pending)
    if not (yes or digest is not None or _confirm(session, [pending])):
        return
    outcome = _send_approval(controller, pending, comment)
    form = outcome.form
    assert form is not None  # noqa: S101  # it was not refused
    show_decision(screen, form, [outcome.message])
    if isinstance(form, WaitingPlanForm):
        screen.next(f"holdfast status {form.application}")
    elif outcome.waits:
        _report_second_approval_needed(session, form)
        ctx.exit(Exit.POLICY)
    else:
        screen.next(f"holdfast drift show {id}")


def _approve_several(
    ctx: click.Context,
    session: Session,
    controller: ControllerClient,
    ids: list[str],
    comment: str,
    digests: tuple[str, ...],
    yes: bool,
) -> None:
    """Approve each by the digest that was shown; what cannot be approved stops none of the rest."""
    screen = session.screen
    done: dict[str, DecisionOutcome] = {}
    pending: list[PendingApproval] = []
    for id, digest in zip(ids, digests or [None] * len(ids), strict=True):
        try:
            pending.append(_find_pending(controller, id, digest))
        except HoldfastError as error:
            done[id] = DecisionOutcome(id=id, error=error)
    if screen.for_people:
        for each in pending:
            _show_pending(session, each)
            screen.line()
    if pending and not (yes or digests or _confirm(session, pending, several=True)):
        return
    for each in pending:
        try:
            done[each.id] = _send_approval(controller, each, comment)
        except HoldfastError as error:
            done[each.id] = DecisionOutcome(id=each.id, error=error)
    show_decisions(screen, [done[id] for id in ids], verb="approved")
    screen.next("holdfast status")
    ctx.exit(next((done[id].exit for id in ids if done[id].exit is not Exit.OK), Exit.OK))


def _report_second_approval_needed(session: Session, drift: ApplicationDriftForm) -> None:
    command = f"holdfast approve {drift.id} --plan-digest {drift.plan}"
    session.screen.error(
        APPROVAL_NEEDED,
        f"{drift.id} waits for another person to approve it too.",
        [
            f"Your approval is recorded, and nothing was put back: {drift.application} asks for "
            "four eyes, and nobody knows who made the change.",
            f"Next: have somebody else run {session.caller.as_typed(command)}",
        ],
    )


def _confirm(session: Session, plans: list[PendingApproval], *, several: bool = False) -> bool:
    digests = " ".join(f"--plan-digest {each.digest}" for each in plans)
    hint = f"add {digests}, or --yes"
    if several:  # a digest goes with an ID, which --all has none of
        command = f"holdfast approve {' '.join(each.id for each in plans)} {digests}"
        hint = f"{session.caller.as_typed(command)}, or add --yes"
    what = "this plan" if len(plans) == 1 else f"these {count(len(plans), 'plan')}"
    return session.confirm(
        f"Approve exactly {what}?", action="Approving", hint=hint, code=APPROVAL_NEEDED
    )


@click.command(
    "reject",
    cls=Verb,
    examples=[
        "holdfast reject drf-57557f5b59 --comment 'raised for the launch, see INC-1432'",
        "holdfast reject drf-57557f5b59 drf-0c1d2e3f4a --comment 'the same, twice'",
        "holdfast reject plan-1f0a77c2 --comment 'the branch was set back by mistake'",
    ],
)
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@options.comment(required=True)
@options.connected(*options.SINGLE_FORMATS)
@click.pass_context
def reject(ctx: click.Context, session: Session, ids: tuple[str, ...], comment: str) -> None:
    """Reject plans of drifts, and blocked ones: nothing is changed.

    The live side of a drift stays as it is, and a blocked plan is not carried out. Each is asked
    about again only when it changes; a blocked plan also when somebody asks for a sync. Of
    several, each has a line of its own; the exit code is that of the first that could not be
    rejected.
    """
    chosen = list(dict.fromkeys(ids))
    with require_controller(session) as controller:
        outcomes = [_send_rejection(controller, id, comment) for id in chosen]
    first, form = outcomes[0], outcomes[0].form
    if len(chosen) > 1:
        show_decisions(session.screen, outcomes, verb="rejected")
        session.screen.next("holdfast drift list")
        ctx.exit(next((each.exit for each in outcomes if each.error is not None), Exit.OK))
    if first.error is not None:
        raise first.error
    assert form is not None  # noqa: S101  # it was not refused
    show_decision(session.screen, form, [first.message])
    if isinstance(form, WaitingPlanForm):
        session.screen.next(f"holdfast status {form.application}")
    else:
        session.screen.next(f"holdfast codify {form.id} writes the live value to Git")


def _send_rejection(controller: ControllerClient, id: str, comment: str) -> DecisionOutcome:
    api = controller.api
    try:
        if id.startswith("plan-"):
            plan = controller.call(api.reject_plan(id, comment=comment))
            message = f"{id} was rejected by {plan.rejected_by}. It is not carried out"
            return DecisionOutcome(id=id, message=f"{message}; Git still differs.", form=plan)
        drift = controller.call(api.reject(id, comment=comment))
        message = f"{id} was rejected by {drift.decided_by}. The live value stays"
        return DecisionOutcome(id=id, message=f"{message}; Git still differs.", form=drift)
    except HoldfastError as error:
        return DecisionOutcome(id=id, error=error)


@click.command("snooze", cls=Verb, examples=["holdfast snooze drf-57557f5b59 --for 4h"])
@click.argument("id")
@options.for_duration()
@options.comment()
@options.connected(*options.SINGLE_FORMATS)
def snooze(session: Session, id: str, seconds: int, comment: str) -> None:
    """Put off the decision about a drift. Nothing is written meanwhile.

    It is asked about again when the time is over, or as soon as it changes.
    """
    with require_controller(session) as controller:
        after = controller.call(controller.api.snooze(id, seconds=seconds, comment=comment))
    until = format_time(after.until) if after.until else "later"
    message = f"{id} is left alone until {until}, or until it changes."
    show_decision(session.screen, after, [message])
    session.screen.next("holdfast drift list --state awaiting-approval")


@click.command(
    "codify",
    cls=Verb,
    examples=["holdfast codify drf-57557f5b59", "holdfast codify drf-57557f5b59 --wait"],
)
@click.argument("id")
@click.option("--wait", is_flag=True, help="Wait until the pull request is there.")
@options.timeout("2m")
@options.connected(*options.SINGLE_FORMATS)
def codify(session: Session, id: str, wait: bool, timeout: float) -> None:
    """Propose the live value of a drift to Git, by one pull request.

    The drift is tolerated until the pull request is merged or closed. Values of Secrets are
    never proposed in clear.
    """
    with require_controller(session) as controller:
        after = controller.call(controller.api.codify(id))
        if wait:
            with report_changes(f"{id} was marked to be proposed."):
                after = _wait_for_pull_request(controller, id, timeout)
    message = f"{id}: a pull request is opened with the next pass."
    if after.url:
        message = f"{id} is proposed in {after.url}"
    elif after.state == "pull-request":
        message = f"{id} is proposed by a branch: its repository has no pull requests."
    show_decision(session.screen, after, [message])
    session.screen.next(f"holdfast drift show {id}")


def _wait_for_pull_request(
    controller: ControllerClient, id: str, timeout: float
) -> ApplicationDriftForm:
    end = time.monotonic() + timeout
    while True:
        drift = controller.call(controller.api.drift(id))
        if drift.url or drift.state == "pull-request" or drift.resolved_at is not None:
            return drift
        if drift.state == "parked":
            raise ValidationError(
                f"{id} is not proposed. {drift.note}",
                hint=f"holdfast revert {id} puts Git's value back; or change Git by hand.",
            )
        if time.monotonic() >= end:
            why = f" {drift.note}" if drift.note else ""
            raise WaitTimeout(
                f"{id} has no pull request after {format_seconds(timeout)}.{why}",
                changed="",
                hint=f"holdfast drift show {id} shows when it is there.",
            )
        time.sleep(min(_POLL_SECONDS, max(0.0, end - time.monotonic())))


@click.command(
    "revert",
    cls=Verb,
    examples=[
        "holdfast revert drf-57557f5b59",
        "holdfast revert drf-57557f5b59 --via pr      # merging the decision is the approval",
    ],
)
@click.argument("id")
@click.option(
    "--via",
    type=click.Choice(list(_VIA)),
    default="direct",
    show_default=True,
    help="direct: as the policy allows, which may be a review. pr: by a pull request.",
)
@options.comment()
@options.connected(*options.SINGLE_FORMATS)
def revert(session: Session, id: str, via: str, comment: str) -> None:
    """Put Git's value back, through the policy.

    Where the policy asks for a review, or for four eyes, it waits for somebody to approve it.
    """
    with require_controller(session) as controller:
        after = controller.call(controller.api.revert(id, via=_VIA[via], comment=comment))
    show_decision(session.screen, after, _describe_revert(after))
    session.screen.next(f"holdfast drift show {id}")


def _describe_revert(drift: ApplicationDriftForm) -> list[str]:
    if drift.state == "approved":
        return [
            f"{drift.id} is put back with the next pass, if nothing moves.",
            describe_effect(drift),
        ]
    if drift.remediation == "pull-request":
        return [f"{drift.id}: a pull request with the decision is opened with the next pass."]
    return [f"{drift.id} waits for a review: the policy asks for one before it is put back."]


@click.command(
    "ignore",
    cls=Verb,
    examples=[
        "holdfast ignore drf-57557f5b59 --for 7d --reason 'load test'",
        "holdfast ignore drf-57557f5b59 --field spec.replicas --manager kubectl",
    ],
)
@click.argument("id")
@click.option("--field", default="", metavar="PATH", help="Only this field; all of it otherwise.")
@click.option("--manager", default="", metavar="NAME", help="Only while this tool wrote it.")
@click.option("--reason", default="", metavar="TEXT", help="Why; kept with the rule.")
@options.for_duration("7d")
@options.connected(*options.SINGLE_FORMATS)
def ignore(session: Session, id: str, field: str, manager: str, reason: str, seconds: int) -> None:
    """Hide a drift, or one field of it, for a limited time.

    A hidden field is neither reported nor written. A field that concerns security can be hidden
    only by a rule in the Application, and a whole object not at all.
    """
    with require_controller(session) as controller:
        rules = controller.call(
            controller.api.ignore(id, seconds=seconds, reason=reason, path=field, manager=manager)
        )

    def describe(rule: IgnoredForm) -> str:
        by = f" while {one_line(rule.manager)} wrote it" if rule.manager else ""
        what = f"{one_line(rule.path)} of {one_line(rule.object)}"
        return f"= {what} is hidden until {format_time(rule.expires)}{by} ({rule.name})"

    show_list(
        session.screen,
        "IgnoreRuleList",
        rules,
        lines=map(describe, rules),
        name=lambda rule: rule.name,
        body=masked_json,
    )
    session.screen.next("holdfast drift list")


@click.command(
    "pause",
    cls=Verb,
    examples=[
        "holdfast pause shop --for 2h --reason INC-1432",
        "holdfast pause shop Deployment/chat/support-bot --for 30m --reason INC-1432",
        "holdfast pause shop --for 2h --reason INC-1432 --then revert",
    ],
)
@click.argument("application", shell_complete=options.complete_names)
@click.argument("object", required=False, default="", metavar="[KIND/NAMESPACE/NAME]")
@options.for_duration()
@click.option("--reason", required=True, metavar="TEXT", help="Why, such as an incident's number.")
@click.option(
    "--then",
    type=click.Choice(["pull-request", "revert"]),
    help="What becomes of changes made meanwhile (default: the application's own rule).",
)
@options.connected(*options.SINGLE_FORMATS)
def pause(
    session: Session, application: str, object: str, seconds: int, reason: str, then: str | None
) -> None:
    """Hold an application, or one object of it: nothing is written to it meanwhile.

    Counts at once, also in the middle of a sync, and always ends. What was changed under it goes
    to Git by a pull request at its end, or is put back; it is never forgotten.
    """
    with require_controller(session) as controller:
        end = HoldEnd(then) if then else None
        hold = controller.call(
            controller.api.pause(
                application, object=object, seconds=seconds, reason=reason, end=end
            )
        )
    show_result(
        session.screen,
        "Hold",
        lines=hold_lines(hold, now=datetime.now(UTC)),
        names=[hold.id],
        body=lambda: masked_json(hold),
    )
    what = f" {object_address(hold.object)}" if hold.object else ""
    session.screen.next(f"holdfast resume {hold.application}{what}")


@click.command(
    "resume",
    cls=Verb,
    examples=["holdfast resume shop", "holdfast resume shop Deployment/chat/support-bot"],
)
@click.argument("application", shell_complete=options.complete_names)
@click.argument("object", required=False, default="", metavar="[KIND/NAMESPACE/NAME]")
@options.connected(*options.SINGLE_FORMATS)
def resume(session: Session, application: str, object: str) -> None:
    """End the holds of an application, or those of one object, before their time.

    Drift that was held is then handled by its route. A hold that an annotation began ends when
    the annotation is removed.
    """
    with require_controller(session) as controller:
        ended = controller.call(controller.api.resume(application, object=object))

    def describe(hold: HoldForm) -> str:
        what = object_name(hold.object) if hold.object else f"all of {hold.application}"
        return f"No longer on hold: {one_line(what)} ({one_line(hold.reason)})"

    show_list(
        session.screen,
        "HoldList",
        ended,
        lines=map(describe, ended),
        name=lambda hold: hold.id,
        body=masked_json,
    )
    session.screen.next(f"holdfast status {application}")


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionOutcome:
    """What became of one decision: what to say of it, or why it was refused."""

    id: str
    message: str = ""
    form: ApplicationDriftForm | WaitingPlanForm | None = None
    error: HoldfastError | None = None
    waits: bool = False
    """It is recorded, and takes effect once another person decides the same."""

    @property
    def exit(self) -> Exit:
        """The exit code of this one alone."""
        if self.error is not None:
            return exit_code_of(self.error)
        return Exit.POLICY if self.waits else Exit.OK


def show_decision(
    screen: Screen, form: ApplicationDriftForm | WaitingPlanForm, lines: Iterable[str]
) -> None:
    """Write what was decided about one drift, or about a plan that a guard blocked."""
    kind = "WaitingPlan" if isinstance(form, WaitingPlanForm) else "Drift"
    names, body = [form.id], lambda: masked_json(form)
    show_result(screen, kind, lines=map(one_line, lines), names=names, body=body)


def show_decisions(screen: Screen, outcomes: Sequence[DecisionOutcome], *, verb: str) -> None:
    """Write each decision on a line of its own."""
    show_result(
        screen,
        "DecisionList",
        lines=_decision_lines(screen, outcomes, verb),
        names=(each.id for each in outcomes if each.error is None),
        body=lambda: {"items": [_decision_body(each, verb) for each in outcomes]},
    )


def _decision_lines(
    screen: Screen, outcomes: Sequence[DecisionOutcome], verb: str
) -> Iterator[str]:
    for each in outcomes:
        message, mark, style = each.message, "+", TextStyle.CREATE
        if each.error is not None:
            message = f"not {verb}: {each.error.happened} {each.error.hint}"
            mark, style = "x", TextStyle.REMOVE
        elif each.waits:
            mark, style = "~", TextStyle.CHANGE
        yield f"{screen.paint(mark, style)} {each.id}  {one_line(message).rstrip()}"
    failed = sum(each.error is not None for each in outcomes)
    waiting = sum(each.waits for each in outcomes)
    parts = [f"{len(outcomes) - failed - waiting} of {len(outcomes)} {verb}"]
    if waiting:
        parts.append(f"{waiting} waiting for another person")
    if failed:
        parts.append(f"{failed} not")
    yield f"{', '.join(parts)}."


def _decision_body(outcome: DecisionOutcome, verb: str) -> Mapping[str, object]:
    body: dict[str, object] = {"id": outcome.id, "outcome": verb, "exitCode": int(outcome.exit)}
    if (error := outcome.error) is not None:
        refusal = {"code": error.code, "happened": error.happened, "next": error.hint}
        return {**body, "outcome": "refused", **refusal}
    body["now"] = masked_json(outcome.form)
    if outcome.waits:
        body |= {"outcome": "waiting", "code": APPROVAL_NEEDED, "happened": outcome.message}
    return body


def show_approval(screen: Screen, drift: ApplicationDriftForm, *, now: datetime) -> None:
    """Write what an approval of a drift's plan would do."""
    kinds = " + ".join(drift.kinds)
    head = f"{drift.id}  {object_name(drift.object)}  {kinds} drift of {drift.application}"
    screen.line(screen.paint(one_line(head), TextStyle.CHANGE))
    where = f" ({drift.where} at {drift.commit[:7]})" if drift.where else f" at {drift.commit[:7]}"
    screen.line(f"Approving puts back what Git declares{one_line(where)}:")
    screen.line()
    show_drift_fields(screen, drift, last="BECOMES")
    screen.line()
    screen.line(f"Effect: {one_line(describe_effect(drift))}")
    reason = f"route {drift.route}" if drift.route else "no route matches it"
    if drift.requested_by:
        reason = f"asked for by {drift.requested_by}"
    writers = one_line(", ".join(dict.fromkeys(writer_name(entry) for entry in drift.entries)))
    ago = age(drift.first_seen, now)
    screen.line(f"Changed by {writers}, seen {ago} ago; {one_line(reason)}.")
    screen.line(f"Plan:   {drift.plan}")


def show_plan_approval(screen: Screen, plan: WaitingPlanForm, *, now: datetime) -> None:
    """Write what the approval of a blocked plan would do."""
    head = f"{plan.id}  {plan.application}  made {age(plan.made_at, now)} ago"
    screen.line(screen.paint(one_line(head), TextStyle.CHANGE))
    screen.line(one_line(plan.told))
    screen.lines(f"  {one_line(step)}" for step in plan.steps)
    marks = Counter(step[:1] for step in plan.steps)
    counts = (f"{marks[mark]} {word}" for mark, word in _STEP_OUTCOMES.items() if marks[mark])
    done, commit = ", ".join(counts), plan.commit[:7]
    effect = f"{done}, as {commit} declares" if done else f"{commit} is followed"
    screen.lines([f"Effect: {effect}.", f"Plan:   {plan.digest}"])


def describe_effect(drift: ApplicationDriftForm) -> str:
    """Say what putting a drift back does to what runs."""
    name = object_name(drift.object)
    if any(not entry.path for entry in drift.entries):
        if not drift.uid:
            return f"{name} is created again."
        if not drift.where:
            return f"{name} is deleted, for Git does not declare it."
        return f"{name}, which somebody replaced, is set to what Git declares."
    fields = count(len(drift.entries), "field")
    template = any(entry.path.startswith("spec.template.") for entry in drift.entries)
    if drift.object.kind in _KINDS_WITH_ROLLOUT and template:
        return f"{fields} of {name} put back; its pods are replaced one after the other."
    return f"{fields} of {name} put back in place."
