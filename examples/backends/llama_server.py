"""Starts llama.cpp's HTTP server from the `xllamacpp` wheel, as an inference backend.

It is the server that the `llama-server` program contains, with no compiler and
no root needed. The flags below carry the names `llama-server` gives them.

    python examples/backends/llama_server.py --model chat.gguf --port 8080 --alias tiny

Where `--host` or `--port` is absent, HOST or PORT from the environment counts,
which is how a Holdfast runner tells a workload where to listen.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import xllamacpp

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def main() -> None:
    arguments = _parse_arguments()
    if not arguments.model.is_file():
        sys.exit(f"llama_server: there is no model at {arguments.model}")
    _check_port(arguments.host, arguments.port)

    # Blocked before the server starts its threads, so that they inherit it and
    # the signal waits for the one thread that asks for it.
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    stopper = threading.Thread(target=_exit_on_signal, daemon=True)
    stopper.start()
    try:
        server = xllamacpp.Server(_parameters(arguments))
    except RuntimeError:
        sys.exit(f"llama_server: llama.cpp could not serve {arguments.model}; see its log above")
    print(f"listening on {server.listening_address}", flush=True)
    stopper.join()


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True, type=Path, metavar="FILE", help="a GGUF file")
    host, port = os.environ.get("HOST"), os.environ.get("PORT")
    parser.add_argument("--host", default=host or "127.0.0.1")
    parser.add_argument("--port", type=int, default=port, required=not port)
    parser.add_argument("--alias", metavar="NAME", help="the model name that answers carry")
    parser.add_argument(
        "--ctx-size", type=int, default=0, help="tokens, shared by all slots; 0 asks the model"
    )
    parser.add_argument("--parallel", type=int, default=2, help="requests served at once")
    # More threads than idle cores makes llama.cpp slower, by tens of times at worst.
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--metrics", action="store_true", help="accepted; /metrics is always there")
    parser.add_argument(
        "--lora-scaled", default="", metavar="FILE:SCALE,...", help="LoRA adapters, in this order"
    )
    pooling = parser.add_mutually_exclusive_group()
    pooling.add_argument("--embeddings", action="store_true", help="serve /v1/embeddings too")
    pooling.add_argument("--rerank", action="store_true", help="serve /v1/rerank")
    return parser.parse_args()


def _parameters(arguments: argparse.Namespace) -> xllamacpp.CommonParams:
    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(arguments.model)
    parameters.model_alias = {arguments.alias or arguments.model.stem}
    parameters.hostnames = [arguments.host]
    parameters.port = arguments.port
    parameters.n_ctx = arguments.ctx_size
    parameters.n_parallel = arguments.parallel
    parameters.cpuparams.n_threads = arguments.threads
    parameters.cpuparams_batch.n_threads = arguments.threads
    parameters.lora_adapters = list(_adapters(arguments.lora_scaled))
    parameters.endpoint_metrics = True
    parameters.ui = False
    # A pooled input must fit one physical batch; the default of 512 refuses a long paragraph.
    parameters.n_ubatch = parameters.n_batch
    pooling = xllamacpp.llama_pooling_type
    if arguments.embeddings:
        parameters.embedding = True
        parameters.pooling_type = pooling.LLAMA_POOLING_TYPE_MEAN
    elif arguments.rerank:
        parameters.embedding = True
        parameters.pooling_type = pooling.LLAMA_POOLING_TYPE_RANK
    return parameters


def _adapters(given: str) -> Iterator[xllamacpp.CommonAdapterLoraInfo]:
    for each in filter(None, given.split(",")):
        path, _, scale = each.rpartition(":")
        if not Path(path).is_file():
            sys.exit(f"llama_server: there is no adapter at {path}")
        yield xllamacpp.CommonAdapterLoraInfo(path, float(scale))


def _check_port(host: str, port: int) -> None:
    """Exit when the port is taken: llama.cpp says so too, but amid its log and not to us."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        # As the server itself does, so that connections still closing do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            sys.exit(f"llama_server: cannot listen on {host}:{port}: {error.strerror}")


def _exit_on_signal() -> None:
    """Leave at once when told to stop.

    An orderly destruction of the server waits for its open streams, which end
    only when their clients give up.
    """
    signal.sigwait(STOP_SIGNALS)
    os._exit(0)


if __name__ == "__main__":
    main()
