"""Types are made ready by one thread, so that many may decode."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import holdfast

RACE = """
import sys, threading, msgspec
from holdfast.wire.decode import prepare_type
sys.setswitchinterval(1e-6)
BODY = b'{"one": {"a": 1}, "two": [{"b": "x"}]}'
TYPES = '''
class Inner(msgspec.Struct):
    a: "int" = 0
    b: "str" = ""
class Form(msgspec.Struct):
    one: "Inner"
    two: "list[Inner]"
'''
for _ in range(150):
    exec(TYPES)
    form, gate = Form, threading.Barrier(8)
    def read():
        gate.wait()
        msgspec.json.decode(BODY, type=prepare_type(form))
    threads = [threading.Thread(target=read) for _ in range(8)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
print("held")
"""
THREADED = ("adapters/http", "adapters/store/target.py", "wire/plan_v1.py")
"""What threads of our users run."""


def test_threads_that_meet_a_type_together_do_not_end_the_process() -> None:
    run = subprocess.run([sys.executable, "-c", RACE], capture_output=True, text=True, timeout=110)
    assert (run.returncode, run.stdout) == (0, "held\n"), run.stderr


def calls(path: Path) -> list[ast.Call]:
    return [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]


@pytest.mark.parametrize("place", THREADED)
def test_whatever_decodes_in_threads_of_users_prepares_its_type(place: str) -> None:
    root = Path(holdfast.__file__).parent / place
    for path in [root] if root.is_file() else sorted(root.glob("*.py")):
        for call in calls(path):
            name = ast.unparse(call.func)
            if name not in ("msgspec.json.decode", "msgspec.convert"):
                continue
            kinds = [each.value for each in call.keywords if each.arg == "type"] or call.args[1:2]
            told = f"{path.name}:{call.lineno}"
            assert kinds, told
            assert ast.unparse(kinds[0]) == "dict" or "prepare_type(" in ast.unparse(kinds[0]), told
