"""The journal of applications, page by page or whole, and the webhooks of their forges."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from datetime import UTC, datetime

from holdfast.apps.server import gitops_forms as forms
from holdfast.apps.server.body import read_body
from holdfast.apps.server.errors import HttpError
from holdfast.apps.server.gitops_departed import with_departed
from holdfast.apps.server.gitops_routes import desk_of
from holdfast.apps.server.request import Answer, Request, Stream, json_answer
from holdfast.apps.server.services import Services
from holdfast.core.errors import NotFound
from holdfast.reconcile.gitops.book_export import drift_lines, entries_of, journal_lines
from holdfast.reconcile.gitops.ledger import PROJECTS, projects_in
from holdfast.reconcile.gitops.ports import Book, Entry, RecordKind
from holdfast.wire.gitops_http_v1 import JournalForm
from holdfast.wire.gitops_v1 import app_id

MAX_ROWS = 1_000
HOOK_BODY = 1024 * 1024
JSON_LINES = "application/jsonl"
_CODES = {
    400: "bad_request", 401: "unauthenticated", 404: "not_found", 413: "too_large",
    429: "too_many_requests",
}  # fmt: skip


async def list_history(services: Services, request: Request) -> Answer:
    """List lines of the journal, newest first; `before` goes on from the `next` of a page.

    `subject` is the id of a drift, a plan or a hold.
    """
    query = request.known_query("application", "subject", "since", "before", "limit")
    limit = request.number("limit", default=100, high=MAX_ROWS)
    before = request.number("before", default=0, high=2**62, low=0)
    book, names = await _asked(services, request.params["project"], query.get("application", ""))
    project, since = request.params["project"], _since(query.get("since"))
    found: list[Entry] = []
    for name in names:
        lines = entries_of(
            book, application=name, project=project, subject=query.get("subject", ""),
            since=since, before=before,
        )  # fmt: skip
        async with aclosing(lines) as some:
            most = limit
            async for entry in some:
                found.append(entry)
                most -= 1
                if not most:
                    break
    found.sort(key=lambda entry: entry.seq, reverse=True)
    page = found[:limit]
    more = page[-1].seq if len(page) == limit else None
    return json_answer(
        JournalForm(entries=[forms.journal_entry(entry) for entry in page], next=more)
    )


async def export(services: Services, request: Request) -> Stream:
    """Give every drift, or with `what=journal` every line of the journal, as lines of JSON.

    One application after the other. A line says in `kind` what it is.
    """
    query = request.known_query("application", "what")
    what = query.get("what", "drifts")
    if what not in ("drifts", "journal"):
        raise HttpError(400, "invalid", "The parameter what is either drifts or journal.")
    project = request.params["project"]
    book, names = await _asked(services, project, query.get("application", ""))
    chunks = _journals(book, names, project) if what == "journal" else _drifts(book, names, project)
    return Stream(headers=[(b"content-type", JSON_LINES.encode())], chunks=chunks)


async def _journals(book: Book, names: Sequence[str], project: str) -> AsyncIterator[bytes]:
    for name in names:
        async for line in journal_lines(book, application=name, project=project):
            yield line


async def _drifts(book: Book, names: Sequence[str], project: str) -> AsyncIterator[bytes]:
    for name in names:
        async for line in drift_lines(book, application=name, project=project):
            yield line


async def hook(services: Services, request: Request) -> Answer:
    """Take a webhook of a forge. It is checked by its signature, and only hastens the next look.

    There is no such route where no webhooks are configured.
    """
    if services.hook is None:
        raise HttpError(404, "no_such_route", "There is nothing at this path.")
    body = await read_body(request, HOOK_BODY)
    headers = {
        name.decode("latin-1"): value.decode("latin-1") for name, value in request.headers.items()
    }
    answer = await services.hook(request.params["provider"], headers, body)
    if answer.status in _CODES:
        raise HttpError(answer.status, _CODES[answer.status], answer.told)
    return Answer(status=answer.status)


async def _asked(services: Services, project: str, name: str) -> tuple[Book, list[str]]:
    """The applications that are asked about: one, or all of the project, gone ones too."""
    desk, book = desk_of(services)
    owned = await book.records(RecordKind.REVISION, key=PROJECTS)
    had = {record.application for record in owned if project in projects_in(record)}
    names = {each for each in had if not name or app_id(each).is_called(name)}
    try:
        chosen, gone = await with_departed(desk, book, project, name)
    except NotFound:
        if not names:
            raise
        return book, sorted(names)
    names |= {str(each.application.id) for each in chosen}
    names |= {str(each.application) for each in gone}
    return book, sorted(names)


def _since(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise HttpError(
            400, "invalid", "The parameter since is a time such as 2026-11-20T18:00:00Z."
        ) from None
    return found if found.tzinfo else found.replace(tzinfo=UTC)
