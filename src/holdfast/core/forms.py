"""How single values of a custom resource must look, said once, in their types.

The checks here and the schema that the API server enforces are both read off these.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """What a text, a number or a list has to look like, in the words of a schema.

    `numeric` texts may also be written as numbers: quantities, and durations.
    `says` ends the sentence "it is not …".
    """

    says: str
    pattern: str | None = None
    numeric: bool = False
    nanoseconds: bool = False
    """A whole number on the wire is one of nanoseconds."""
    minimum: int | None = None
    """For a list, how many items it has at the least."""
    maximum: int | None = None
    max_length: int = 253


Text = Annotated[str, Form(says="a text of 1 to 1000 characters", pattern=r"\S", max_length=1000)]
Slug = Annotated[
    str,
    Form(says="a slug", pattern=r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$", max_length=63),
]
Argument = Annotated[str, Form(says="a text of at most 8192 characters", max_length=8192)]
Quantity = Annotated[
    str,
    Form(
        says="a quantity such as 4, 500m or 16Gi",
        pattern=r"^\+?([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,3})?$",
        numeric=True,
        minimum=1,
        max_length=40,
    ),
]
Duration = Annotated[
    str,
    Form(
        says="a duration such as 30s, 1m30s or 500ms",
        pattern=r"^([0-9]{1,5}h)?([0-9]{1,6}m)?([0-9]{1,8}(\.[0-9]{1,9})?s)?([0-9]{1,9}ms)?$",
        max_length=40,
    ),
]
Count = Annotated[int, Form(says="a whole number from 1 to 1000", minimum=1, maximum=1000)]
CountOrNone = Annotated[int, Form(says="a whole number from 0 to 1000", minimum=0, maximum=1000)]
Percent = Annotated[int, Form(says="a percentage from 0 to 100", minimum=0, maximum=100)]
ObjectName = Annotated[
    str,
    Form(
        says="the name of a Kubernetes object",
        pattern=r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$",
    ),
]


def duration_text(seconds: float) -> str:
    """Write seconds as a duration: 10.0 is `10s`."""
    return f"{Decimal(str(seconds)).normalize():f}s"
