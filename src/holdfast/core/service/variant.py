"""What a primary and its canary may differ in, and which variant the primary is to run.

Called by `canary`, and by the operator before it renders the primary.
"""

from __future__ import annotations

from dataclasses import replace

from holdfast.core.service.canary_state import CanaryEnding, CanaryState
from holdfast.core.service.spec import InferenceServiceSpec
from holdfast.core.tree import digest, plain


def primary_digest(spec: InferenceServiceSpec) -> str:
    """Name the variant that is declared for the primary."""
    return digest(
        plain([spec.model_ref, spec.image, list(spec.command or ()), list(spec.args or ())])
    )


def canary_digest(spec: InferenceServiceSpec) -> str | None:
    """Name the variant that is declared for the canary; None without a canary."""
    return None if spec.canary is None else primary_digest(canary_as_primary(spec))


def canary_as_primary(spec: InferenceServiceSpec) -> InferenceServiceSpec:
    """Write the canary's variant into the primary's place, as a user would to keep it."""
    own = spec.canary
    if own is None:
        return spec
    return replace(
        spec,
        model_ref=own.model_ref or spec.model_ref,
        image=own.image or spec.image,
        command=own.command or spec.command,
        args=spec.args if own.args is None else own.args,
    )


def primary_spec(spec: InferenceServiceSpec, state: CanaryState | None) -> InferenceServiceSpec:
    """Give the spec to render the primary from: the declared one, unless its canary passed."""
    return canary_as_primary(spec) if promoted(spec, state) else spec


def promoted(spec: InferenceServiceSpec, state: CanaryState | None) -> bool:
    """True while a canary that passed stands in for what is declared."""
    return (
        state is not None
        and state.ending is CanaryEnding.PROMOTED
        and canary_digest(spec) == state.digest
        and primary_digest(spec) == state.base
    )
