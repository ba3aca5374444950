"""A backend that writes its environment into its log, as careless ones do; then it serves.

With `--die` it exits instead, so that what it wrote last becomes the reason of its failure.
Each secret is written in the forms in which programs print: plain, quoted, JSON, base64, URL.
"""

from __future__ import annotations

import base64
import json
import os
import runpy
import sys
from pathlib import Path
from urllib.parse import quote, quote_plus

ECHO = Path(__file__).resolve().parents[2] / "examples" / "backends" / "echo_server.py"


def main() -> None:
    for name, value in sorted(os.environ.items()):
        if not name.startswith("LEAKY_"):
            continue
        print(f"{name} is {value}")
        print(f"{name} is {value!r}")
        print(json.dumps({"headers": [value]}))
        print(f"GET /login?user={quote(value)} {quote(value, safe='')} {quote_plus(value)}")
        print(f"payload {base64.b64encode(value.encode()).decode()}")
        print(f"payload {base64.urlsafe_b64encode(value.encode()).decode().rstrip('=')}")
        print(f"fatal: cannot log in with {value}", file=sys.stderr)
    sys.stdout.flush()
    if "--die" in sys.argv:
        sys.exit(1)
    sys.argv = [str(ECHO), *sys.argv[1:]]
    runpy.run_path(str(ECHO), run_name="__main__")


if __name__ == "__main__":
    main()
