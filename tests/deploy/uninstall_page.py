"""The page about uninstalling, as the commands that its tests run."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tests.support.processes import ROOT

PAGE = ROOT / "docs" / "how-to" / "uninstall.md"
WITH_HELM, WITH_MANIFESTS = "With Helm", "With `holdfast install` or kustomize"
_BLOCK = re.compile(r"```bash\n(.*?)```", re.DOTALL)


def uninstall_steps(installed: str) -> Iterator[tuple[int, str]]:
    """Every command for who installed in that way, in the page's order, with the step's number."""
    text = PAGE.read_text()
    for section in re.split(r"^## (?=\d+\. )", text, flags=re.MULTILINE)[1:]:
        number = int(section.partition(".")[0])
        for part in re.split(r"^### ", section, flags=re.MULTILINE):
            title = part.partition("\n")[0]
            if title not in {WITH_HELM, WITH_MANIFESTS} - {installed}:
                yield from ((number, command) for command in _BLOCK.findall(part))
