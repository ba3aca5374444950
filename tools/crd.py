"""Writes deploy/crds/ from the types of the custom resources.

python tools/crd.py          # write it
python tools/crd.py --check  # exit 1 when it is out of date
"""

from __future__ import annotations

import sys
from pathlib import Path

from holdfast.wire.crd import crd_files
from holdfast.wire.yaml import write_document

FOLDER = Path(__file__).resolve().parent.parent / "deploy" / "crds"
MADE = "# Made by tools/crd.py; do not edit.\n"


def main(arguments: list[str]) -> int:
    """Write the files, or say which would change."""
    wanted = {FOLDER / name: MADE + write_document(each) for name, each in crd_files().items()}
    stale = [path for path, text in wanted.items() if not path.exists() or path.read_text() != text]
    if stale and "--check" in arguments:
        names = ", ".join(str(path) for path in stale)
        print(f"out of date: {names}; run python tools/crd.py", file=sys.stderr)
        return 1
    for path in stale:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(wanted[path])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
