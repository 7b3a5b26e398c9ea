"""Tiny real models on the numpy backend, and the chat model, loaded once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.template_renderer import native_renderer
from py_core.backends.numpy import NumpyBackend, load_weights
from py_core.engine.engine import Engine
from py_core.formats.gguf import read_header
from py_core.formats.source import FileSource
from py_core.loading import Model
from py_core.models.config import ModelConfig
from py_core.models.graph import Graph
from py_core.models.registry import describe_model
from py_core.tokenizers.chat_template import ChatTemplate
from py_core.tokenizers.registry import tokenizer_from_gguf
from tests.tiny_llama import TinyLlama

WriteModel = Callable[..., Path]
OpenModel = Callable[..., Awaitable[Model]]


@pytest.fixture(scope="session")
def write_model(tmp_path_factory: pytest.TempPathFactory) -> WriteModel:
    """write_model({key: value or None}, **TinyLlama's fields) -> a new file's path"""

    def write(changes: Mapping[str, Any] | None = None, **options: Any) -> Path:
        path = tmp_path_factory.mktemp("model") / "tiny.gguf"
        return TinyLlama(**options).write(path, changes)

    return write


@pytest.fixture(scope="session")
def tiny_path(write_model: WriteModel) -> Path:
    """A TinyLlama with a context of 512 tokens. With an output matrix of its own it does not just repeat itself."""
    return write_model(tied=False)


@pytest.fixture(scope="session")
def open_model() -> OpenModel:
    """await open_model(path, a subclass of NumpyBackend, context, end_tokens) -> Model"""

    async def open_on(
        path: Path,
        backend: type[NumpyBackend] = NumpyBackend,
        context: int | None = None,
        end_tokens: Collection[int] | None = None,
    ) -> Model:
        source = FileSource(path)
        header = await read_header(source)
        config, graph = describe_model(header, context)
        tokenizer = tokenizer_from_gguf(header.metadata)
        weights = await load_weights(source, header, graph)
        ends = tokenizer.eos_ids if end_tokens is None else end_tokens
        engine = Engine(backend(config, graph, weights), ends)
        template = ChatTemplate.from_gguf(header.metadata, tokenizer, native_renderer())
        return Model(config, tokenizer, template, engine, graph)

    return open_on


@pytest.fixture(scope="session")
def real_parts(model_path: Path) -> tuple[ModelConfig, Graph, dict[str, np.ndarray]]:
    """SmolLM2-135M-Instruct: what a NumpyBackend is made of."""
    source = FileSource(model_path)
    header = asyncio.run(read_header(source))
    config, graph = describe_model(header)
    return config, graph, asyncio.run(load_weights(source, header, graph))


@pytest.fixture(scope="session")
def real_model(model_path: Path, real_parts: tuple) -> Model:
    """SmolLM2-135M-Instruct on numpy. Tests share it; each takes a session of its own."""
    header = asyncio.run(read_header(FileSource(model_path)))
    tokenizer = tokenizer_from_gguf(header.metadata)
    engine = Engine(NumpyBackend(*real_parts), tokenizer.eos_ids)
    template = ChatTemplate.from_gguf(header.metadata, tokenizer, native_renderer())
    return Model(real_parts[0], tokenizer, template, engine, real_parts[1])
