"""Opens a model file: header, tokenizer, chat template and a backend, ready to generate.

model = await load_model(FileSource("SmolLM2-135M-Instruct.Q4_1.gguf"), partial(load_webgpu, WgpuHost()), renderer)
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from py_core.backends.protocols import Backend, Progress
from py_core.engine.engine import Engine
from py_core.formats.gguf import GGUFHeader, read_header
from py_core.formats.source import WeightSource
from py_core.models.config import ModelConfig, read_rope_factors
from py_core.models.graph import Graph
from py_core.models.registry import describe_model
from py_core.tokenizers.base import Tokenizer
from py_core.tokenizers.chat_template import ChatTemplate, Message, Tool, encode_chat
from py_core.tokenizers.registry import tokenizer_from_gguf
from py_core.tokenizers.template_renderer import TemplateRenderer


@dataclass
class Model:
    """Everything from one model file. `bos`: False leaves BOS out of prompts, whatever the file says."""

    config: ModelConfig
    tokenizer: Tokenizer
    template: ChatTemplate
    engine: Engine
    graph: Graph
    bos: bool = True

    @property
    def backend(self) -> Backend:
        return self.engine.backend

    async def encode_chat(
        self, messages: Sequence[Message], begun: Sequence[tuple[str, bool]] = (), tools: Sequence[Tool] = ()
    ) -> list[int]:
        """Token ids of a conversation, ready for the answer, or for the rest of an answer that was begun. Special
        tokens in the messages are plain text. begun, tools: as in chat_template.encode_chat."""
        return await encode_chat(self.tokenizer, self.template, messages, bos=self.bos, begun=begun, tools=tools)

    def name_file(self, sha256: str) -> None:
        """Set the hash of the model file; "" if unknown: then no pages that it computes are stored."""
        self.engine.pages.model = f"{sha256}, {self.engine.context_length} tokens" if sha256 else ""

    def close(self) -> None:
        self.engine.close()


BeforeLoading = Callable[[GGUFHeader, ModelConfig, Graph], None]
"""May refuse a model because of its header, by raising."""


class BackendLoader(Protocol):
    """Opens a backend for a model: `load_numpy`, or `partial(load_webgpu, host)`, `partial(load_wasm, host)`.

    Takes the file, its header, and the description from it.
    """

    def __call__(
        self, source: WeightSource, header: GGUFHeader, config: ModelConfig, graph: Graph,
        progress: Progress | None, /,
    ) -> Awaitable[Backend]: ...  # fmt: skip


async def load_model(
    source: WeightSource, load_backend: BackendLoader, renderer: TemplateRenderer,
    progress: Progress | None = None, context: int | None = None,
    before_loading: BeforeLoading = lambda header, config, graph: None,
    phase: Callable[[str], None] = lambda name: None,
) -> Model:  # fmt: skip
    """Read the header, then let the backend load the weights. `before_loading` may refuse the model, by raising.

    renderer: runs the model's chat template. phase: called as each part is finished.

    Raises GGUFError, TokenizerError, ChatTemplateError or BackendError with a sentence.
    """
    header, config, graph = await read_description(source, context, before_loading)
    phase("header read")
    tokenizer = tokenizer_from_gguf(header.metadata)
    phase("tokenizer made")
    template = await _template_of(header.metadata, tokenizer, renderer)
    phase("template checked")
    backend = await load_backend(source, header, config, graph, progress)
    return Model(config, tokenizer, template, Engine(backend, tokenizer.eos_ids, config.diffusion), graph)


async def _template_of(metadata: Mapping[str, Any], tokenizer: Tokenizer, renderer: TemplateRenderer) -> ChatTemplate:
    """The file's template, or that of its model family if the file's does not print the user's message.

    A template that refuses a message, or fails on it, reports that when a message comes; the model runs without a
    template. Raises ChatTemplateError if the source is no template, or takes too long.
    """
    template = ChatTemplate.from_gguf(metadata, tokenizer, renderer)
    await template.check()
    return template if await template.takes_user() else ChatTemplate.from_gguf({}, tokenizer, renderer)


async def read_description(
    source: WeightSource, context: int | None, before_loading: BeforeLoading
) -> tuple[GGUFHeader, ModelConfig, Graph]:
    """The description of a model from its file's header; nothing is allocated. Raises as load_model does."""
    header = await read_header(source)
    config, graph = describe_model(header, context, await read_rope_factors(source, header))
    before_loading(header, config, graph)
    return header, config, graph
