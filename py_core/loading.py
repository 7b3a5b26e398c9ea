"""Opens a model file: header, tokenizer, chat template and a backend, ready to generate.

model = await load_model(FileSource("SmolLM2-135M-Instruct.Q4_1.gguf"), WgpuHost())
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from py_core.backends.base import Backend, Progress
from py_core.backends.numpy import NumpyBackend, load_weights
from py_core.backends.wasm.backend import load_wasm
from py_core.backends.wasm.host import KernelHost
from py_core.backends.webgpu.autotune import TuningStore
from py_core.backends.webgpu.backend import load_webgpu
from py_core.backends.webgpu.host import Host
from py_core.engine.engine import Engine
from py_core.formats.gguf import read_header
from py_core.formats.source import WeightSource
from py_core.models.config import ModelConfig
from py_core.models.registry import describe_model
from py_core.tokenizers.byte_bpe import ByteBPE
from py_core.tokenizers.chat_template import ChatTemplate, Message, encode_chat


@dataclass
class Model:
    """Everything that comes from one model file."""

    config: ModelConfig
    tokenizer: ByteBPE
    template: ChatTemplate
    engine: Engine

    @property
    def backend(self) -> Backend:
        return self.engine.backend

    def encode_chat(self, messages: Sequence[Message]) -> list[int]:
        """Token ids of a conversation, ready for the answer. Special tokens in the messages are plain text."""
        return encode_chat(self.tokenizer, self.template, messages)

    def close(self) -> None:
        self.backend.close()


async def load_model(
    source: WeightSource,
    host: Host | KernelHost | None = None,
    progress: Progress | None = None,
    max_context: int = 8192,
    precision: str = "precise",
    tuning: TuningStore | None = None,
) -> Model:
    """Load on a GPU's host or on that of the WASM kernels, or on numpy without one.

    `precision`, "precise" or "fast", is that of activations in the WASM kernels; `tuning` keeps the shapes of kernels
    that were measured on a GPU, without it none are. Raises GGUFError, TokenizerError,
    ChatTemplateError or BackendError with a sentence.
    """
    header = await read_header(source)
    config, graph = describe_model(header)
    tokenizer = ByteBPE.from_gguf(header.metadata)
    template = ChatTemplate.from_gguf(header.metadata)
    backend: Backend
    if host is None:
        weights = await load_weights(source, header, graph, progress)
        backend = NumpyBackend(config, graph, weights, max_context)
    elif isinstance(host, KernelHost):
        backend = await load_wasm(host, source, header, config, graph, progress, max_context, precision)
    else:
        backend = await load_webgpu(host, source, header, config, graph, progress, max_context, tuning)
    return Model(config, tokenizer, template, Engine(backend, tokenizer.eos_ids))
