"""No secret survives redaction, and a Secret cannot be let out by accident."""

from __future__ import annotations

import ast
import copy
import json
import logging
import pickle
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.strategies import credentials, trees

from holdfast.core import redact as redact_module
from holdfast.core.redact import (
    MASK,
    Secret,
    credential_in,
    is_reference,
    names_a_secret,
    quote_text,
    redact,
    redact_tree,
)
from holdfast.core.tree import Tree

TOKEN = "ik_sdk_0a1b2c3d_" + "f" * 64
# What may stand right beside a credential in a log line, a URL, a JSON document or a shell.
EDGES = st.sampled_from(
    ["", " ", "\n", "\t", '"', "'", "=", ",", ";", "(", ")", "/", "<", "|", ": "]
)


@given(credentials(), st.text(), st.text(), EDGES, EDGES)
def test_no_credential_survives_in_any_text(
    pair: tuple[str, str], before: str, after: str, left: str, right: str
) -> None:
    text, secret = pair
    gap = left or " "
    assume(secret not in before + after)
    masked = redact(f"{before}{gap}{text}{right}{after}")
    assert secret not in masked


@given(credentials(), trees(), st.booleans())
def test_no_credential_survives_in_any_tree(
    pair: tuple[str, str], tree: Tree, as_key: bool
) -> None:
    text, secret = pair
    planted: Tree = {"a": [tree, {text if as_key else "b": f"see {text}"}]}
    assert secret not in json.dumps(redact_tree(planted), ensure_ascii=False)


@given(st.text())
def test_redacting_twice_is_redacting_once(text: str) -> None:
    assert redact(redact(text)) == redact(text)


@given(trees())
def test_a_tree_without_secrets_keeps_its_shape(tree: Tree) -> None:
    masked = redact_tree(tree)
    assert type(masked) is type(tree)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (TOKEN, "ik_sdk_0a1b2c3d…"),
        (f"x{TOKEN}x", "xik_sdk_0a1b2c3d…"),
        ("ik_live_abc_def", "ik_live_abc…"),
        ("--api-key hunter2 --x", "--api-key *** --x"),
        ("--quiet --api-key hunter2", "--quiet --api-key ***"),
        ("--api-key=hunter2", "--api-key=***"),
        ("--api-key 'two words' x", "--api-key *** x"),
        ('--cmd "run --token hunter2" x', '--cmd "run --token *** x'),
        ("HF_TOKEN=hunter2 vllm", "HF_TOKEN=*** vllm"),
        ("PGPASSWORD=hunter2", "PGPASSWORD=***"),
        ("https://x/?a=1&token=abc&b=2", "https://x/?a=1&token=***&b=2"),
        ("url=https://x/?token=abc", "url=https://x/?token=***"),
        ('{"api_key": "hunter2", "a": 1}', '{"api_key": ***, "a": 1}'),
        ("{'password': 'a\\'b'}", "{'password': ***}"),
        ("redis://:hunter2@db", "redis://***@db"),
        ("https://u:p@ss@h/x", "https://***@h/x"),
        ("Authorization: Bearer abc.def", "Authorization: Bearer ***"),
        ("authorization: basic dXNlcjpwYXNz", "authorization: basic ***"),
    ],
)
def test_what_a_masked_text_looks_like(text: str, shown: str) -> None:
    assert redact(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a workload has drifted",
        "--api-key ${API_KEY}",
        "--api-key $API_KEY",
        "--api-key --quiet",
        "--max-num-batched-tokens 8192",
        "env.HF_TOKEN: it looks like a secret in clear.",
        "ssh://git@example.com/x.git",
        "https://example.com:8443/x",
        "eos_token=</s>",
        "task-scheduler-with-a-long-name",
        "sha256:" + "0" * 64,
        "meta-llama/Llama-3.1-8B-Instruct",
    ],
)
def test_what_is_no_secret_is_left_alone(text: str) -> None:
    assert redact(text) == text
    assert credential_in(text) is None


def test_a_value_is_masked_by_the_name_it_stands_under() -> None:
    tree: Tree = {
        "password": "hunter2",
        "apiKey": "hunter2",
        "empty_token": "",
        "token": ["hunter2", "-x", "hunter2"],
        "args": ["--api-key", "hunter2", "--x", "1"],
        "env": [{"name": "HF_TOKEN", "value": "hunter2"}, {"name": "A", "value": "b"}],
        "secret": {"name": "kept", "n": 1},
        "auth_key": "${FROM_THE_ENVIRONMENT}",
    }
    assert redact_tree(tree) == {
        "password": MASK,
        "apiKey": MASK,
        "empty_token": "",
        "token": [MASK, MASK, MASK],
        "args": ["--api-key", MASK, "--x", "1"],
        "env": [{"name": "HF_TOKEN", "value": MASK}, {"name": "A", "value": "b"}],
        "secret": {"name": "kept", "n": 1},
        "auth_key": "${FROM_THE_ENVIRONMENT}",
    }


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("HF_TOKEN", True), ("--api-key", True), ("apikey", True), ("openaiApiKey", True),
        ("clientSecret", True), ("db.password", True), ("PGPASSWORD", True), ("passphrase", True),
        ("[name=HF_TOKEN]", True), ("AWS_SECRET_ACCESS_KEY", True), ("credentials", True),
        ("tokenizer", False), ("max_tokens", False), ("eos_token", False), ("--pad-token", False),
        ("secrets", False), ("key", False), ("monkey", False), ("", False), ("broken", False),
    ],
)  # fmt: skip
def test_a_name_tells_whether_a_secret_stands_under_it(name: str, secret: bool) -> None:
    assert names_a_secret(name) is secret


@pytest.mark.parametrize(
    ("text", "reference"),
    [("$A", True), ("${A_1}", True), ('"$A"', True), ("$", False), ("$1", False), ("a$A", False),
     ("${A}b", False)],
)  # fmt: skip
def test_a_reference_is_one_variable_and_nothing_beside_it(text: str, reference: bool) -> None:
    assert is_reference(text) is reference


def test_a_credential_is_named_and_never_repeated() -> None:
    assert credential_in(f"see {TOKEN}") == "a Holdfast token"
    assert credential_in("see hf_" + "a" * 30) == "a credential"


@given(st.text())
def test_quoted_input_is_short_and_ascii(text: str) -> None:
    assert quote_text(text).isascii()
    assert quote_text(text).isprintable()
    assert len(quote_text("x" * 1000)) < 70


def test_a_token_is_masked_before_it_is_cut() -> None:
    assert "ffff" not in quote_text("x" * 40 + TOKEN)


def test_long_hostile_texts_are_read_in_linear_time() -> None:
    size = 2 * 65_536  # quadratic work on this would take minutes
    for piece in (
        "--a", "eyJ-", "eyJaaaaaaaa.", "eyJaaaaaaaa.aaaaaaaa", "token=", "-token ", "--token",
        "-----BEGIN PRIVATE ", "-----BEGIN PRIVATE KEY-----", "://a:", "://", "bearer ", "ik_sdk_",
        "ik_sdk_a_", '"', 'token="', "token='", 'token="\\', "sk-", "-", "a", " ", "_token", "=",
        "secret key", "$", "${A", "basic\t", " --token    -",
    ):  # fmt: skip
        text = piece * (size // len(piece))
        redact(text)
        names_a_secret(text)
        is_reference(text)


def test_a_secret_is_not_shown() -> None:
    secret = Secret("hunter2")

    @dataclass
    class Holder:
        secret: Secret

    record = logging.LogRecord("x", logging.INFO, "f", 1, "%s %r", (secret, secret), None)
    shown = f"{secret} {secret!r} {secret!s} {Holder(secret)} {[secret]} {record.getMessage()}"
    assert "hunter2" not in shown
    assert MASK in shown
    assert not hasattr(secret, "__dict__")
    assert secret.reveal() == "hunter2"


def test_a_secret_cannot_be_pickled_copied_hashed_or_written_as_json() -> None:
    secret = Secret("hunter2")

    @dataclass
    class Holder:
        secret: Secret

    for leak in (
        lambda: pickle.dumps(secret),
        lambda: copy.copy(secret),
        lambda: copy.deepcopy([secret]),
        lambda: hash(secret),
        lambda: json.dumps(secret),
        lambda: asdict(Holder(secret)),
    ):
        with pytest.raises(TypeError) as caught:
            leak()
        assert "hunter2" not in str(caught.value)


def test_secrets_are_compared_by_value_and_marked_by_key() -> None:
    assert Secret("a") == Secret("a")
    assert Secret("a") != Secret("b")
    assert Secret("a") != "a"
    mark = Secret("a").fingerprint(b"k")
    assert mark == Secret("a").fingerprint(b"k")
    assert mark != Secret("b").fingerprint(b"k")
    assert mark != Secret("a").fingerprint(b"other")
    assert len(mark) == len(Secret("a" * 1000).fingerprint(b"k"))


def _texts(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Give each text with which an error, a problem, a warning or a note is made."""
    for node in ast.walk(tree):
        named = isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2]
        if isinstance(node, ast.Raise) or named in ("Problem", "Refused", "warn", "note", "fail"):
            for part in ast.walk(node):
                if isinstance(part, ast.JoinedStr):
                    pieces = (v.value if isinstance(v, ast.Constant) else "it" for v in part.values)
                    yield part.lineno, "".join(str(piece) for piece in pieces)
                elif isinstance(part, ast.Constant) and isinstance(part.value, str):
                    yield part.lineno, part.value


def test_no_message_of_ours_is_masked_on_its_way_out() -> None:
    """`pass token=. Make one` lost its advice: what follows the sign looks like a value."""
    source = Path(redact_module.__file__).parent.parent
    masked = [
        f"{file.name}:{line}: {text}"
        for file in source.rglob("*.py")
        for line, text in _texts(ast.parse(file.read_text()))
        if redact(text) != text
    ]
    assert masked == []
