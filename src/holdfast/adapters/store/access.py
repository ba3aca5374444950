"""The access side of a transaction: projects and tokens."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime

from holdfast.adapters.store import rows
from holdfast.adapters.store.ledger import HOLDFAST, Ledger
from holdfast.adapters.store.records import Project, Scope, Token, TokenKind
from holdfast.core.errors import (
    AlreadyExists,
    NotFound,
    Problem,
    RefusedByPolicy,
    ValidationError,
)
from holdfast.core.live import Writer
from holdfast.core.names import WorkloadId, is_slug


class Access(Ledger):
    """Who may do what, changed with an audit row each."""

    def create_project(self, slug: str, *, writer: Writer = HOLDFAST) -> Project:
        """Make a project. Raises Conflict when there is one of this slug."""
        if not is_slug(slug):
            problem = Problem(
                field="project",
                reason=f"{slug[:80]!a} is not a project slug.",
                fix="Use lower-case letters, digits and dashes, 63 at most.",
            )
            raise ValidationError(problems=[problem])
        if self.project(slug) is not None:
            raise AlreadyExists(f"Project {slug} already exists.", todo="Choose another slug.")
        others = self.projects()
        if others and self._one_project():
            raise RefusedByPolicy(
                f"Project {slug} was not created: the server that has this store open runs the "
                f"workloads of project {others[0].slug}, and a command that is run there can read "
                "every project's secrets and tokens.",
                todo="Start that server with --shared-runner if all projects trust each other, "
                "with --no-run if it need not run workloads, or give the project a server and a "
                "store of its own.",
            )
        project = Project(id=self._new_id(), slug=slug, created_at=self.now)
        self._execute(rows.PROJECTS.insert, rows.project_row(project))
        self._note_access(slug, "project-created", writer, f"project {slug}")
        return project

    def ensure_project(self, slug: str, *, writer: Writer = HOLDFAST) -> Project:
        """Return the project of this slug, making it when there is none."""
        return self.project(slug) or self.create_project(slug, writer=writer)

    def create_token(
        self,
        *,
        id: str,
        kind: TokenKind,
        project: str,
        name: str,
        scopes: Iterable[Scope],
        secret_hash: bytes,
        workload_uid: str | None = None,
        elsewhere: bool = False,
        expires_at: datetime | None = None,
        writer: Writer = HOLDFAST,
    ) -> Token:
        """Keep a token that the caller has made; its secret never comes here.

        `elsewhere` says that another target keeps the workload, and that the caller found it.
        """
        if self.project(project) is None:
            raise NotFound(f"There is no project {project}.", todo="Create it first.")
        workload = self.record_by_uid(workload_uid) if workload_uid else None
        unknown = workload is None or workload.id.project != project
        if workload_uid and unknown and not elsewhere:
            raise NotFound(f"There is no workload {workload_uid} in project {project}.")
        if self.token(id) is not None:
            raise AlreadyExists(f"Token {id} already exists.", todo="Create it again.")
        token = Token(
            id=id,
            kind=kind,
            project=project,
            name=name,
            scopes=frozenset(scopes),
            secret_hash=secret_hash,
            created_at=self.now,
            workload_uid=workload_uid,
            expires_at=expires_at,
        )
        self._execute(
            rows.TOKENS.insert,
            rows.token_row(token),
        )
        self._note_access(project, "token-created", writer, f"token {name} ({id})")
        return token

    def revoke_token(self, id: str, *, writer: Writer = HOLDFAST) -> bool:
        """End a token at once and for good; False when it was not valid any more."""
        token = self.token(id)
        if token is None or token.revoked_at is not None:
            return False
        row = rows.token_row(replace(token, revoked_at=self.now))
        self._execute(
            "UPDATE tokens SET revoked_at = ?, seal = ? WHERE id = ?", (row[-2], row[-1], id)
        )
        self._note_access(token.project, "token-revoked", writer, f"token {token.name} ({id})")
        return True

    def _revoke_data_keys(self, uid: str, writer: Writer) -> None:
        found = self._execute(
            "SELECT id FROM tokens WHERE workload_uid = ? AND revoked_at IS NULL", (uid,)
        )
        for (id,) in found:
            self.revoke_token(id, writer=writer)

    def _note_access(self, project: str, action: str, writer: Writer, summary: str) -> None:
        everything = WorkloadId(project=project, slug="")
        self._audit(everything, action, writer, summary, None, uid="", generation=0)
        self.touched.discard(everything)
