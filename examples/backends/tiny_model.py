"""Writes tiny GGUF models with predictable answers, so that a real server can be tried offline.

The chat model is a genuine Llama-architecture transformer of 6 MB whose weights
spell the alphabet: `a` is followed by `b`, `z` by a full stop, the full stop by
the end of the text, and every other character by `a`. Every chat is therefore
answered with `abcdefghijklmnopqrstuvwxyz.`, and a prompt ending in `c` goes on
with `defg…`. With mean pooling its embeddings are histograms of characters.

The adapter is a LoRA for the chat model, by which it shows what a server has loaded.

The rerank model is a BERT cross-encoder of 0.4 MB with random weights. Its
scores mean nothing, but they are the same on every run.

    python examples/backends/tiny_model.py chat.gguf
    python examples/backends/tiny_model.py rerank.gguf --rerank
    python examples/backends/tiny_model.py sql.gguf --adapter

Needs `gguf` and `numpy`. The same bytes come out each time.
"""

from __future__ import annotations

import argparse
import os
import string
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]

UNKNOWN, START, END = 0, 1, 2
FIRST_BYTE = 3
FIRST_CHARACTER = FIRST_BYTE + 256
CHARACTERS = "".join(map(chr, range(0x20, 0x7F)))
CHAT_VOCABULARY = FIRST_CHARACTER + len(CHARACTERS)

# SentencePiece writes a space as this mark, and BERT's GGUF form puts it before each word.
WORD_MARK = "\u2581"

CHAT_TEMPLATE = (
    "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)


def write_chat_model(path: str | os.PathLike[str]) -> Path:
    """Write the alphabet model for chat, completions and embeddings; return its path."""
    width, blocks, heads, feed_forward = 384, 2, 4, 64
    random = np.random.default_rng(0)

    def noise(deviation: float, *shape: int) -> Floats:
        return (random.standard_normal(shape) * deviation).astype(np.float32)

    with _writer(path, "llama") as gguf_file:
        gguf_file.add_file_type(gguf.LlamaFileType.ALL_F32)
        gguf_file.add_vocab_size(CHAT_VOCABULARY)
        gguf_file.add_context_length(8192)
        gguf_file.add_embedding_length(width)
        gguf_file.add_block_count(blocks)
        gguf_file.add_feed_forward_length(feed_forward)
        gguf_file.add_head_count(heads)
        gguf_file.add_head_count_kv(heads)
        gguf_file.add_layer_norm_rms_eps(1e-5)
        gguf_file.add_rope_dimension_count(width // heads)
        _add_chat_tokenizer(gguf_file)

        embedding = noise(0.001, CHAT_VOCABULARY, width)
        embedding += np.eye(CHAT_VOCABULARY, width, dtype=np.float32)
        output = noise(0.001, CHAT_VOCABULARY, width)
        for token in range(CHAT_VOCABULARY):
            output[_successor(token), token] += 1
        gguf_file.add_tensor("token_embd.weight", embedding)
        gguf_file.add_tensor("output.weight", output)
        gguf_file.add_tensor("output_norm.weight", np.ones(width, dtype=np.float32))
        for block in range(blocks):
            for norm in ("attn_norm", "ffn_norm"):
                gguf_file.add_tensor(f"blk.{block}.{norm}.weight", np.ones(width, dtype=np.float32))
            for name, deviation, rows, columns in (
                ("attn_q", 0.02, width, width),
                ("attn_k", 0.02, width, width),
                ("attn_v", 0.02, width, width),
                # What a block adds to the stream stays far below the embedding's 1.
                ("attn_output", 1e-5, width, width),
                ("ffn_gate", 0.02, feed_forward, width),
                ("ffn_up", 0.02, feed_forward, width),
                ("ffn_down", 1e-5, width, feed_forward),
            ):
                gguf_file.add_tensor(f"blk.{block}.{name}.weight", noise(deviation, rows, columns))
    return Path(path)


def write_rerank_model(path: str | os.PathLike[str]) -> Path:
    """Write the cross-encoder for reranking; return its path."""
    width, blocks, heads, feed_forward, context = 64, 2, 4, 128, 512
    random = np.random.default_rng(0)

    with _writer(path, "bert") as gguf_file:
        vocabulary = _add_rerank_tokenizer(gguf_file)
        gguf_file.add_file_type(gguf.LlamaFileType.ALL_F32)
        gguf_file.add_vocab_size(vocabulary)
        gguf_file.add_context_length(context)
        gguf_file.add_embedding_length(width)
        gguf_file.add_block_count(blocks)
        gguf_file.add_feed_forward_length(feed_forward)
        gguf_file.add_head_count(heads)
        gguf_file.add_layer_norm_eps(1e-12)
        gguf_file.add_causal_attention(False)
        gguf_file.add_pooling_type(gguf.PoolingType.RANK)

        def matrix(name: str, rows: int, columns: int) -> None:
            values = (random.standard_normal((rows, columns)) * 0.2).astype(np.float32)
            gguf_file.add_tensor(f"{name}.weight", values)

        def linear(name: str, rows: int, columns: int) -> None:
            matrix(name, rows, columns)
            gguf_file.add_tensor(f"{name}.bias", np.zeros(rows, dtype=np.float32))

        def norm(name: str) -> None:
            gguf_file.add_tensor(f"{name}.weight", np.ones(width, dtype=np.float32))
            gguf_file.add_tensor(f"{name}.bias", np.zeros(width, dtype=np.float32))

        matrix("token_embd", vocabulary, width)
        matrix("position_embd", context, width)
        matrix("token_types", 2, width)
        norm("token_embd_norm")
        for block in range(blocks):
            for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
                linear(f"blk.{block}.{name}", width, width)
            norm(f"blk.{block}.attn_output_norm")
            linear(f"blk.{block}.ffn_up", feed_forward, width)
            linear(f"blk.{block}.ffn_down", width, feed_forward)
            norm(f"blk.{block}.layer_output_norm")
        linear("cls", width, width)
        linear("cls.output", 1, width)
    return Path(path)


def write_chat_adapter(path: str | os.PathLike[str]) -> Path:
    """Write a LoRA adapter of rank 4 for the chat model, too weak to change an answer."""
    width, blocks, rank = 384, 2, 4
    random = np.random.default_rng(1)
    with _writer(path, "llama") as gguf_file:
        gguf_file.add_type(gguf.GGUFType.ADAPTER)
        gguf_file.add_string(gguf.Keys.Adapter.TYPE, "lora")
        gguf_file.add_float32(gguf.Keys.Adapter.LORA_ALPHA, float(rank))
        for block in range(blocks):
            name = f"blk.{block}.attn_q.weight"
            for part, shape in (("lora_a", (rank, width)), ("lora_b", (width, rank))):
                values = (random.standard_normal(shape) * 0.001).astype(np.float32)
                gguf_file.add_tensor(f"{name}.{part}", values)
    return Path(path)


def _successor(token: int) -> int:
    """Give the token that follows: the next letter, then the full stop, then the end."""
    character = CHARACTERS[token - FIRST_CHARACTER] if token >= FIRST_CHARACTER else ""
    if character == ".":
        return END
    if character == "z":
        follower = "."
    elif character and character in string.ascii_lowercase:
        follower = chr(ord(character) + 1)
    else:
        follower = "a"
    return FIRST_CHARACTER + CHARACTERS.index(follower)


def _add_chat_tokenizer(gguf_file: gguf.GGUFWriter) -> None:
    special = ["<unk>", "<s>", "</s>"]
    single_bytes = [f"<0x{value:02X}>" for value in range(256)]
    characters = [WORD_MARK if character == " " else character for character in CHARACTERS]
    gguf_file.add_tokenizer_model("llama")
    gguf_file.add_token_list(special + single_bytes + characters)
    gguf_file.add_token_scores([0.0] * FIRST_CHARACTER + [-1.0] * len(characters))
    gguf_file.add_token_types(
        [gguf.TokenType.UNKNOWN, gguf.TokenType.CONTROL, gguf.TokenType.CONTROL]
        + [gguf.TokenType.BYTE] * len(single_bytes)
        + [gguf.TokenType.NORMAL] * len(characters)
    )
    gguf_file.add_unk_token_id(UNKNOWN)
    gguf_file.add_bos_token_id(START)
    gguf_file.add_eos_token_id(END)
    gguf_file.add_add_bos_token(True)
    gguf_file.add_add_space_prefix(False)
    gguf_file.add_chat_template(CHAT_TEMPLATE)


def _add_rerank_tokenizer(gguf_file: gguf.GGUFWriter) -> int:
    """Add the tokenizer and return the size of its vocabulary."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    characters = string.ascii_lowercase + string.digits + ".,?!"
    tokens = special + [
        form for character in characters for form in (WORD_MARK + character, character)
    ]
    gguf_file.add_tokenizer_model("bert")
    gguf_file.add_token_list(tokens)
    gguf_file.add_token_scores([0.0] * len(tokens))
    gguf_file.add_token_types(
        [gguf.TokenType.CONTROL] * len(special)
        + [gguf.TokenType.NORMAL] * (len(tokens) - len(special))
    )
    gguf_file.add_token_type_count(2)
    gguf_file.add_pad_token_id(0)
    gguf_file.add_unk_token_id(1)
    gguf_file.add_bos_token_id(2)
    gguf_file.add_eos_token_id(3)
    gguf_file.add_sep_token_id(3)
    gguf_file.add_mask_token_id(4)
    return len(tokens)


@contextmanager
def _writer(path: str | os.PathLike[str], architecture: str) -> Iterator[gguf.GGUFWriter]:
    """Give a writer whose file appears under `path` only when it is whole.

    Two test workers may write the same model at once; each renames a complete
    file, so neither ever loads half of the other's.
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    os.close(handle)
    try:
        gguf_file = gguf.GGUFWriter(name, architecture)
        yield gguf_file
        gguf_file.write_header_to_file()
        gguf_file.write_kv_data_to_file()
        gguf_file.write_tensors_to_file()
        gguf_file.close()
        # A temporary file is private to its owner; a model is an ordinary file.
        Path(name).chmod(0o644)
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", metavar="OUT.gguf", help="the file to write")
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument("--rerank", action="store_true", help="write the rerank model instead")
    instead.add_argument("--adapter", action="store_true", help="write a LoRA adapter instead")
    arguments = parser.parse_args()
    write = write_chat_model
    if arguments.rerank or arguments.adapter:
        write = write_rerank_model if arguments.rerank else write_chat_adapter
    path = write(arguments.out)
    print(f"wrote {path} ({path.stat().st_size} bytes)")


if __name__ == "__main__":
    main()
