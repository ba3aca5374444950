"""A command line is compared as a command line."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.strategies import command_pairs

from holdfast.core.command import canonical_command, shell_syntax, split_command
from holdfast.core.scan import MAX_TEXT


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("vllm serve m --a b", "vllm serve m --a=b"),
        ("vllm serve m --a 1 --b 2", "vllm serve m --b 2 --a 1"),
        ("vllm serve m --a 1", "vllm --a 1 serve m"),
        ("x --a 'b c'", 'x  --a="b c"'),
        ("x --trust-remote-code m", "x m --trust-remote-code"),
        ("x --enable-prefix-caching m", "x m --enable-prefix-caching"),
        ("x --temp -1", "x --temp=-1"),
        ("x -p 8000", "x -p=8000"),
        ("x --a ''", "x --a="),
        ("x \\\n  --a b", "x --a b"),
    ],
)
def test_another_spelling_is_the_same_command(left: str, right: str) -> None:
    assert canonical_command(left) == canonical_command(right)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("a b", "b a"),
        ("x --a 1 --a 2", "x --a 2 --a 1"),
        ("x --a 1", "x --a 2"),
        ("x --a", "x --a true"),
        ("x --a 1", "x --a 1 --a 1"),
        ("x -- --a", "x --a"),
        ("x --verbose", "x --quiet"),
        ("x 'a b'", "x a b"),
    ],
)
def test_a_different_command_is_different(left: str, right: str) -> None:
    assert canonical_command(left) != canonical_command(right)


@given(command_pairs())
def test_equivalent_spellings_have_one_form(pair: tuple[str, str]) -> None:
    assert canonical_command(pair[0]) == canonical_command(pair[1])


@given(st.text())
def test_any_text_has_a_form(text: str) -> None:
    assert isinstance(canonical_command(text), dict)


def test_a_line_with_an_open_quote_is_kept_as_it_stands() -> None:
    assert canonical_command("x 'a") == {"0": "x 'a"}
    with pytest.raises(ValueError):
        split_command("x 'a")


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("a | b", "|"),
        ("a && b", "&&"),
        ("a > log", ">"),
        ("a $(cat key)", "$(cat"),
        ("a ${PORT} --x=a|b", None),
        ("sh -c 'a | b'", None),
    ],
)
def test_shell_syntax_is_found(line: str, found: str | None) -> None:
    assert shell_syntax(split_command(line)) == found


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("vllm serve m -tp 2", "vllm serve m --tensor-parallel-size=2"),
        ("vllm serve m --max_model_len 8192", "vllm serve m --max-model-len 8192"),
        ("vllm serve m --max_model_len=8192", "vllm serve m --max-model-len 8192"),
        ("/opt/bin/vllm serve m --enforce_eager x", "/opt/bin/vllm serve m --enforce-eager x"),
        (
            "python3 -m vllm.entrypoints.openai.api_server -pp 2",
            "python3 -m vllm.entrypoints.openai.api_server --pipeline-parallel-size 2",
        ),
        (
            "python3 -m sglang.launch_server --model m --tp 2",
            "python3 -m sglang.launch_server --model-path m --tp-size 2",
        ),
        ("llama-server -m f -c 8192 -ngl 99", "llama-server --model f --ctx-size 8192"
         " --n-gpu-layers 99"),
        ("llama-server --ctx_size 1", "llama-server --ctx-size 1"),
    ],
)  # fmt: skip
def test_the_spellings_that_a_backend_takes_for_one_flag_are_one(one: str, other: str) -> None:
    assert canonical_command(one) == canonical_command(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("vllm serve m -tp 2", "vllm serve m -tp 4"),
        ("vllm serve m -tp 2", "vllm serve m -dp 2"),
        ("mine -tp 2", "mine --tensor-parallel-size 2"),
        ("mine --max_len 2", "mine --max-len 2"),
        ("vllm serve m --chat-template a_b", "vllm serve m --chat-template a-b"),
        ("vllm serve m --hf-overrides=a_b", "vllm serve m --hf-overrides=a-b"),
    ],
)
def test_other_values_and_other_programs_stay_apart(one: str, other: str) -> None:
    assert canonical_command(one) != canonical_command(other)


def test_a_repeated_flag_keeps_its_order_across_its_spellings() -> None:
    assert canonical_command("vllm serve m -tp 2 --tensor-parallel-size 4") == {
        "0": "vllm", "1": "serve", "2": "m", "--tensor-parallel-size": ["2", "4"],
    }  # fmt: skip


def test_a_line_that_is_far_too_long_is_not_split() -> None:
    """Splitting takes quadratic time: 54 seconds for 1.8 MB."""
    with pytest.raises(ValueError, match="too long"):
        split_command("x" * (MAX_TEXT + 1))
    assert canonical_command("x" * (MAX_TEXT + 1)) == {"0": "x" * (MAX_TEXT + 1)}
