"""What a plan should lead to, told without any target."""

from __future__ import annotations

from holdfast.core.plan import Action, Step
from holdfast.core.tree import Fields


def predict(step: Step, fields: Fields) -> Fields:
    """Say what the live fields will be once a step is carried out."""
    after = {} if step.action is Action.DELETE else dict(fields)
    for name, value in step.write.items():
        if value is None:
            after.pop(name, None)
        else:
            after[name] = value
    return after
