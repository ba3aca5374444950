"""Rules about a replica of several nodes: what it cannot have, and what joins its nodes."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.core.backends import MULTI_NODE_BACKENDS, backend_profile
from holdfast.core.custom_resource import ValidationRule, cel_is_set
from holdfast.core.errors import Problem
from holdfast.core.service.rule_terms import (
    CEL_BACKEND,
    CEL_NODES,
    LINE_PATHS,
    backend_of,
    cel_list,
    command_lines,
)
from holdfast.core.service.spec import InferenceServiceSpec as Spec

_NODE_FLAGS = ("--nnodes", "--node-rank")
_OLD_NODE_FLAGS = ("--nccl-init-addr",)
"""Other names under which engines still take a flag that joins nodes."""


def _joins_nothing(spec: Spec) -> bool:
    words = (word for line in command_lines(spec) for word in line)
    return not any(word.partition("=")[0] in _NODE_FLAGS for word in words)


def _cel_joins_nothing(path: str) -> str:
    flags = " || ".join(f"a == '{flag}' || a.startsWith('{flag}=')" for flag in _NODE_FLAGS)
    return f"(!({cel_is_set(path)}) || !self.{path}.exists(a, {flags}))"


NODE_RULES: tuple[ValidationRule[Spec], ...] = (
    ValidationRule(
        field="nodes",
        reason="Holdfast does not know how to start this backend on several nodes.",
        fix=f"Use {' or '.join(MULTI_NODE_BACKENDS)}, or leave nodes out.",
        cel=f"{CEL_NODES} == 1 || {CEL_BACKEND} in {cel_list(MULTI_NODE_BACKENDS)}",
        holds=lambda spec: not spec.multi_node or backend_of(spec) in MULTI_NODE_BACKENDS,
    ),
    ValidationRule(
        field="command",
        reason="with several nodes each pod is started by a command of its own.",
        fix="Leave it out and give args; Holdfast adds what joins the nodes.",
        cel=f"{CEL_NODES} == 1 || !has(self.command)",
        holds=lambda spec: not spec.multi_node or spec.command is None,
    ),
    ValidationRule(
        field="cache",
        reason="it is one volume, which may belong to one node, and several nodes are declared.",
        fix="Leave it out, or mount a volume for many readers with modelVolume.",
        cel=f"{CEL_NODES} == 1 || !has(self.cache)",
        holds=lambda spec: not spec.multi_node or spec.cache is None,
    ),
    ValidationRule(
        field="canary",
        reason="a service of several nodes cannot have one.",
        fix="Leave it out, or declare another service with the variant.",
        cel=f"{CEL_NODES} == 1 || !has(self.canary)",
        holds=lambda spec: not spec.multi_node or spec.canary is None,
    ),
    ValidationRule(
        field="args",
        reason="--nnodes or --node-rank is given, and Holdfast joins the nodes itself.",
        fix="Leave them out, and declare nodes.",
        cel=" && ".join(map(_cel_joins_nothing, LINE_PATHS)),
        holds=_joins_nothing,
    ),
)


def node_flag_problems(spec: Spec) -> Iterator[Problem]:
    """Say which other flags would take the place of ours: of two, engines take the last.

    With one node they may be given. The API server is not asked: their names are the engine's.
    """
    if not spec.multi_node:
        return
    profile = backend_profile(backend_of(spec))
    ours = {*profile.nodes_flags, *profile.worker_flags, *_OLD_NODE_FLAGS}
    for part in spec.args or ():
        given = part.partition("=")[0]
        flag = given.replace("_", "-")
        if flag.startswith("--") and flag in ours and given not in _NODE_FLAGS:
            yield Problem(
                field="args",
                reason=f"{given} is given, and Holdfast joins the nodes itself.",
                fix="Leave it out.",
            )
