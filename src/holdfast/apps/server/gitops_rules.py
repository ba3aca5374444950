"""Ignore rules of applications: where each comes from, what it hides now, and what one would."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from holdfast.apps.server.errors import HttpError
from holdfast.apps.server.gitops_decisions import MAX_BODY
from holdfast.apps.server.gitops_forms import ignore_rule_form
from holdfast.apps.server.gitops_routes import actor_of, require_gitops
from holdfast.apps.server.request import HttpResponse, Request, json_response, read_form
from holdfast.apps.server.services import Services
from holdfast.core.errors import NotFound, RefusedByPolicy
from holdfast.core.gitops.application import IgnoreSpec
from holdfast.core.gitops.ignore import (
    annotated_rules,
    ignore_problems,
    ignore_rule_of,
    would_hide,
)
from holdfast.core.gitops.objects import ForeignOwner
from holdfast.core.object_ref import ObjectRef
from holdfast.core.redact import redact
from holdfast.reconcile.gitops.application_context import ApplicationContext
from holdfast.reconcile.gitops.review import ReviewService
from holdfast.wire.decode import reshape
from holdfast.wire.gitops_http_v1 import (
    HiddenFieldForm,
    IgnorePreviewForm,
    IgnorePreviewRequestForm,
    IgnoreRuleForm,
    IgnoreRuleListForm,
)
from holdfast.wire.gitops_v1 import ObjectForm

MAX_HIDDEN = 200
"""Hidden fields that are named; all are counted."""
_SPEC, _TEMPORARY, _ANNOTATION = "spec", "temporary", "annotation"
_TOOLS = frozenset(owner.value for owner in ForeignOwner)
HiddenField = tuple[ObjectRef, str]


async def list_ignore_rules(services: Services, request: Request) -> HttpResponse:
    """List the ignore rules of every application, and what each hides, as the last pass saw it.

    Of the rules of Argo CD and Flux those that hide something are listed.
    """
    review, _ = require_gitops(services)
    query = request.known_query("application")
    found = [
        form
        for context in _contexts(review, request.params["project"], query.get("application", ""))
        for form in _rule_forms(context)
    ]
    return json_response(IgnoreRuleListForm(rules=found))


async def preview_ignore_rule(services: Services, request: Request) -> HttpResponse:
    """Say what a rule would hide of the drifts that are open now. Changes nothing."""
    review, _ = require_gitops(services)
    form = await read_form(request, IgnorePreviewRequestForm, MAX_BODY)
    spec = IgnoreSpec(
        name="preview",
        owner="preview",
        path=form.path,
        kind=form.kind or None,
        namespace=form.namespace or None,
        object_name=form.name or None,
        manager=form.manager or None,
    )
    problems = ignore_problems(spec, "rule")
    if problems:
        raise HttpError(400, "invalid", "Such a rule would be refused.", problems=problems)
    rule = ignore_rule_of(spec)
    hidden = [
        (drift.object, entry.path)
        for context in _contexts(review, request.params["project"], form.application)
        for drift in context.state.drifts.values()
        for entry in drift.entries
        if would_hide(rule, drift.object, entry)
    ]
    return json_response(IgnorePreviewForm(hides=_hidden_forms(hidden), hides_count=len(hidden)))


async def end_ignore_rule(services: Services, request: Request) -> HttpResponse:
    """End a rule that a person added, before its time: what it hid is reported again."""
    review, _ = require_gitops(services)
    query = request.known_query("application")
    name, project = request.params["name"], request.params["project"]
    every = _contexts(review, project, query.get("application", ""))
    for context in every:
        if name in context.state.rules:
            ended = await review.end_ignore(context, name, actor=actor_of(request))
            return json_response(ignore_rule_form(ended))
    for context in every:
        if any(form.name == name for form in _rule_forms(context)):
            raise RefusedByPolicy(
                f"{name} is declared by {context.application.id}, so no request ends it.",
                hint="Change the spec of the Application, or the object's annotation, in Git.",
            )
    raise NotFound(
        f"There is no ignore rule {name[:80]!a} in project {project}.",
        hint="List them first: it may have ended by itself.",
    )


def _contexts(review: ReviewService, project: str, name: str) -> Sequence[ApplicationContext]:
    return [review.application(project, name)] if name else review.applications(project)


def _rule_forms(context: ApplicationContext) -> Iterator[IgnoreRuleForm]:
    """Write every rule of an application: its own, those of a while, and others'."""
    hidden: dict[str, list[HiddenField]] = {}
    for ref, snapshot in sorted(context.object_states.items()):
        for path, name in snapshot.ignored:
            hidden.setdefault(name, []).append((ref, path))
    spec = context.application.spec.drift
    for each in sorted((spec.ignore if spec else None) or (), key=lambda each: each.name):
        rule = ignore_rule_of(each)
        yield _rule_form(
            context,
            each.name,
            _SPEC,
            hidden.pop(each.name, ()),
            path=each.path or each.pointer or "",
            object=_pattern_text(each.kind, each.namespace, each.object_name),
            manager=each.manager or "",
            owner=each.owner,
            expires=rule.expires,
        )
    for name, kept in sorted(context.state.rules.items()):
        form = ignore_rule_form(kept)
        yield _rule_form(
            context,
            name,
            _TEMPORARY,
            hidden.pop(name, ()),
            path=form.path,
            object=form.object,
            manager=form.manager,
            owner=form.owner,
            reason=form.reason,
            expires=form.expires,
        )
    yield from _annotation_forms(context, hidden)
    for name, fields in sorted(hidden.items()):
        tool, _, place = name.partition(" ")
        if tool in _TOOLS:
            yield _rule_form(context, name, tool, fields, owner=place)


def _annotation_forms(
    context: ApplicationContext, hidden: dict[str, list[HiddenField]]
) -> Iterator[IgnoreRuleForm]:
    """Write the rules that declared objects carry. Those of one object may share a name."""
    if context.desired is None:
        return
    for ref, declared in sorted(context.desired.declared.items()):
        rules = annotated_rules(declared.item).rules
        for name in dict.fromkeys(rule.name for rule in rules):
            same = [rule for rule in rules if rule.name == name]
            yield _rule_form(
                context,
                name,
                _ANNOTATION,
                hidden.pop(name, ()),
                path=", ".join(rule.pointer for rule in same if rule.pointer),
                object=str(ref),
                manager=", ".join(rule.manager for rule in same if rule.manager),
                owner=str(ref),
            )


def _rule_form(
    context: ApplicationContext,
    name: str,
    origin: str,
    hidden: Sequence[HiddenField],
    **more: object,
) -> IgnoreRuleForm:
    texts = {key: redact(value) if isinstance(value, str) else value for key, value in more.items()}
    return IgnoreRuleForm(
        name=redact(name),
        application=str(context.application.id),
        origin=origin,
        hides=_hidden_forms(hidden),
        hides_count=len(hidden),
        **texts,  # type: ignore[arg-type]  # the fields of the form
    )


def _hidden_forms(hidden: Iterable[HiddenField]) -> list[HiddenFieldForm]:
    return [
        HiddenFieldForm(object=reshape(ObjectForm, ref), path=path)
        for ref, path in sorted(hidden)[:MAX_HIDDEN]
    ]


def _pattern_text(kind: str | None, namespace: str | None, name: str | None) -> str:
    """Say which objects a rule is about; empty for all."""
    if not any((kind, namespace, name)):
        return ""
    where = f"{namespace or '*'}/{name or '*'}" if namespace or name else ""
    return " ".join(part for part in (kind or "*", where) if part)
