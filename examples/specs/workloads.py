"""Specs in Python: holdfast plan -f examples/specs/workloads.py"""

from holdfast import Canary, WorkloadSpec

workloads = [
    WorkloadSpec(
        name="rerank",
        model="qwen3-reranker-0.6b",
        backend="llamacpp",
        command="llama-server --model /models/${MODEL}.gguf --reranking",
        canary=Canary(model="qwen3-reranker-4b", weight=10),
    ),
]
