"""What rules of an InferenceService are made of, where several of them need it.

Each as Python and as CEL: `validation.py` says why a rule is in both.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.core.backends import DEFAULT_BACKEND
from holdfast.core.service.spec import InferenceServiceSpec as Spec

CEL_BACKEND = f"(has(self.backend) ? self.backend : '{DEFAULT_BACKEND}')"
CEL_NODES = "(has(self.nodes) ? self.nodes : 1)"
CEL_MIN = "(has(self.minReplicas) ? self.minReplicas : 0)"
CEL_MAX = "(has(self.maxReplicas) ? self.maxReplicas : 0)"
LINE_PATHS = ("command", "args", "canary.command", "canary.args")


def cel_list(names: Sequence[str]) -> str:
    """Write texts as a list of CEL."""
    return "[" + ", ".join(f"'{name}'" for name in names) + "]"


def backend_of(spec: Spec) -> str:
    """The declared backend, or the one that a service without has."""
    return spec.backend or DEFAULT_BACKEND


def least_replicas(spec: Spec) -> int:
    """The lower bound for an autoscaler; 0 where unset."""
    return as_number(spec.min_replicas)


def most_replicas(spec: Spec) -> int:
    """The upper bound for an autoscaler; 0 where there is none."""
    return as_number(spec.max_replicas)


def as_number(value: object) -> int:
    """Return a number as it is, and 0 for anything else."""
    return value if isinstance(value, int) else 0


def command_lines(spec: Spec) -> list[list[str]]:
    """What stands at `LINE_PATHS`, in that order; empty where it is unset."""
    canary = spec.canary
    lines = [spec.command, spec.args]
    lines += [canary.command, canary.args] if canary else []
    return [texts_of(line) for line in lines]


def texts_of(line: object) -> list[str]:
    """The words of a command line of any shape."""
    return [str(part) for part in line] if isinstance(line, tuple | list) else []
