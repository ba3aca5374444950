"""What the verbs share: the flags given so far, and from them settings, screen and client."""

from __future__ import annotations

import warnings
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING

import click

from holdfast.apps.cli.screen import Caller, Screen

if TYPE_CHECKING:  # the rest is loaded by the verbs that need it
    from collections.abc import Iterator, Mapping

    from holdfast.apps.cli.settings import CliSettings
    from holdfast.apps.sdk.management import ManagementClient
    from holdfast.core.live import Live
    from holdfast.core.names import WorkloadId


class Session:
    """One run of the command."""

    def __init__(
        self, caller: Caller | None = None, *, flags: Mapping[str, str] | None = None
    ) -> None:
        self.caller = caller or Caller()
        self.flags = dict(flags or {})
        """Of this command line, by name; those that the user typed are also in `caller`."""

    @cached_property
    def settings(self) -> CliSettings:
        """The settings, each from the nearest source."""
        from holdfast.apps.cli.settings import resolve_settings

        settings = resolve_settings(self.flags)
        for text in settings.warnings:
            self.screen.warn(text)
        return settings

    @cached_property
    def screen(self) -> Screen:
        """Where to write. Only flags and environment decide, so that errors can be shown too."""
        return Screen(
            output=self.flags.get("output", "table"), colour=self.colour, caller=self.caller
        )

    @property
    def colour(self) -> str:
        """When to colour."""
        return self.flags.get("color", "auto")

    @cached_property
    def project(self) -> str:
        """The project that a bare slug belongs to. Raises ConfigurationError if it is no slug."""
        from holdfast.apps.cli.connect import default_project
        from holdfast.apps.cli.settings import DEFAULT
        from holdfast.core.names import is_slug

        given = self.settings.found.get("project")
        if given is None or given.kind == DEFAULT:
            return default_project(self.settings) or (given.value if given else "default")
        if not is_slug(given.value):
            from holdfast.core.errors import ConfigurationError
            from holdfast.core.redact import quote_text

            raise ConfigurationError(
                f"{given.origin} names the project {quote_text(given.value)}, which is not a slug.",
                hint="Use lower-case letters, digits and single dashes, such as ml-platform.",
            )
        return given.value

    @property
    def connected_to(self) -> str:
        """Where the client connects, for people."""
        from holdfast.apps.cli.connect import default_url
        from holdfast.core.redact import redact

        url = redact(self.settings.get("url") or default_url())
        return f"{url.removeprefix('sqlite:///')}, project {self.project}"

    def workload(self, text: str) -> WorkloadId:
        """Read `slug` or `project/slug`."""
        from holdfast.core.names import WorkloadId, require_slug

        project, slash, slug = text.rpartition("/")
        return WorkloadId(
            project=require_slug(project, field="project") if slash else self.project,
            slug=require_slug(slug, field="workload"),
        )

    @property
    def embedded(self) -> bool:
        """True when workloads are only recorded here, and something else must run them."""
        return (self.settings.get("url") or "sqlite:").startswith("sqlite:")

    def find(self, client: ManagementClient, id: WorkloadId) -> Live:
        """Return a live workload, or say how to find out which ones there are."""
        from holdfast.core.errors import NotFound

        try:
            return client.get(id.slug, project=id.project)
        except NotFound as error:
            hint = f"holdfast status -p {id.project} lists the workloads there are."
            raise NotFound(error.happened, hint=hint) from error

    def confirm(self, question: str, *, action: str, hint: str, code: str) -> bool:
        """Ask on a terminal; elsewhere say what to add, and end with exit code 3."""
        from holdfast.apps.cli.exits import Exit

        if not self.screen.interactive:
            self.screen.error(
                code,
                f"{action} needs confirmation, and there is nobody to ask.",
                ["Nothing was changed.", f"Next: {hint}"],
            )
            raise click.exceptions.Exit(Exit.POLICY)
        if click.confirm(question, err=True):
            return True
        self.screen.info("Nothing was changed.")
        return False

    @contextmanager
    def client(self) -> Iterator[ManagementClient]:
        """Connect to where the settings point. The verbs report drift themselves."""
        from holdfast.apps.cli.connect import connect
        from holdfast.core.errors import DriftWarning

        client = connect(self.settings, project=self.project)
        with warnings.catch_warnings(), client:
            warnings.simplefilter("ignore", DriftWarning)
            yield client


pass_session = click.make_pass_decorator(Session, ensure=True)
