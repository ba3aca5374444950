"""How single values of an Application must look; the types of its fields name these."""

from __future__ import annotations

from typing import Annotated

from holdfast.core.forms import Form

GitUrl = Annotated[str, Form(says="the address of a repository", pattern=r"^\S+$", max_length=1000)]
Revision = Annotated[
    str,
    Form(says="a branch, a tag or a commit", pattern=r"^[A-Za-z0-9][^\s~^:?*\[\\]*$"),
]
RepositoryPath = Annotated[
    str, Form(says="a path inside the repository", pattern=r"^[^/\s\\][^\s\\]*$", max_length=1000)
]
Pattern = Annotated[str, Form(says="a name, with * for any text", pattern=r"^[^\s?\[\]]+$")]
PathGlob = Annotated[str, Form(says="a path, with * and ** for any", max_length=500, pattern=r"\S")]
Namespace = Annotated[
    str,
    Form(
        says="the name of a namespace",
        pattern=r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$",
        max_length=63,
    ),
]
SecretKey = Annotated[
    str, Form(says="a key of a Secret", pattern=r"^[A-Za-z0-9_-][A-Za-z0-9._-]*$")
]
Pointer = Annotated[
    str, Form(says="a JSON pointer such as /spec/replicas", pattern=r"^/.*/.+", max_length=500)
]
Moment = Annotated[
    str,
    Form(
        says="a time such as 2026-11-20T18:00:00Z",
        pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(Z|[+-]\d\d:\d\d)$",
        max_length=40,
    ),
]
Cron = Annotated[
    str,
    Form(
        says="a schedule of five fields such as 0 22 * * 1-5",
        pattern=r"^[0-9A-Za-z*,/#-]+( [0-9A-Za-z*,/#-]+){4}$",
    ),
]
SOME = Form(says="a list of at least one", minimum=1)
"""An empty list would read as "nothing" to one and as "no matter" to another."""
Zone = Annotated[
    str, Form(says="a time zone such as Europe/Madrid", pattern=r"^[A-Za-z][A-Za-z0-9_+/-]*$")
]
