"""Writes deploy/crds/ from the types of the custom resource.

python tools/crd.py          # write it
python tools/crd.py --check  # exit 1 when it is out of date
"""

from __future__ import annotations

import sys
from pathlib import Path

from holdfast.wire.crd import GROUP, PLURAL, crd
from holdfast.wire.yaml import write_document

FILE = Path(__file__).resolve().parent.parent / "deploy" / "crds" / f"{GROUP}_{PLURAL}.yaml"


def main(arguments: list[str]) -> int:
    """Write the file, or say that it would change."""
    text = "# Made by tools/crd.py; do not edit.\n" + write_document(crd())
    if FILE.exists() and FILE.read_text() == text:
        return 0
    if "--check" in arguments:
        print(f"out of date: {FILE}; run python tools/crd.py", file=sys.stderr)
        return 1
    FILE.parent.mkdir(parents=True, exist_ok=True)
    FILE.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
