"""The supported architectures: maps a GGUF's `general.architecture` to the function that describes its forward pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module

import numpy as np

from py_core.display import shown
from py_core.formats.gguf import GGUFError, GGUFHeader
from py_core.formats.gguf_types import AdapterFileError
from py_core.models.config import ROPE_FACTORS, ModelConfig, config_from_gguf
from py_core.models.graph import Graph


def _described_by(module: str) -> Callable[[ModelConfig, Graph], None]:
    """The function `describe` of an architecture's module, which is imported when a file needs it: the page compiles
    none but Llama's before (app/building/python/archives.py)."""
    return lambda config, graph: import_module(f"py_core.models.{module}").describe(config, graph)


ARCHITECTURES: dict[str, Callable[[ModelConfig, Graph], None]] = {
    "a2d-qwen2": _described_by("qwen2"),
    "a2d-qwen3": _described_by("qwen3"),
    "dream": _described_by("qwen2"),
    "gemma2": _described_by("gemma2"),
    "gemma3": _described_by("gemma3"),
    "gemma4": _described_by("gemma4"),
    "glm4": _described_by("glm4"),
    "granite": _described_by("granite"),
    "granitemoe": _described_by("granite"),
    "lfm2": _described_by("lfm2"),
    "llada": _described_by("llama"),
    "llama": _described_by("llama"),
    "olmo2": _described_by("olmo2"),
    "olmoe": _described_by("olmoe"),
    "phi3": _described_by("phi3"),
    "qwen2": _described_by("qwen2"),
    "qwen3": _described_by("qwen3"),
    "qwen35": _described_by("qwen35"),
    "smollm3": _described_by("smollm3"),
}


def refuse_adapters(header: GGUFHeader) -> None:
    """Raises AdapterFileError if the file is an adapter or another file that only changes a model."""
    if header.metadata.get("general.type") == "adapter":
        raise AdapterFileError(
            "model.is-adapter",
            "This file is an adapter, not a model: it changes how a model answers. `sonata adapters import` "
            "keeps it, and `--adapter` answers with it; in the page, open it in Settings, Model.",
        )


def describe_model(
    header: GGUFHeader, context: int | None = None, rope_factors: Mapping[str, np.ndarray] | None = None
) -> tuple[ModelConfig, Graph]:
    """A model file's sizes and forward pass; the arguments are those of `config_from_gguf`.

    Raises GGUFError for an unknown architecture and as `check_weights`, AdapterFileError for an adapter.
    """
    refuse_adapters(header)
    architecture = header.metadata.get("general.architecture")
    if not isinstance(architecture, str) or architecture not in ARCHITECTURES:
        known = ", ".join(sorted(ARCHITECTURES))
        raise GGUFError(
            "model.architecture",
            "The model file has the architecture {name}; Sonata runs {known}.",
            name=shown(architecture),
            known=known,
        )
    config = config_from_gguf(header, context, rope_factors)
    graph = Graph(header.tensors, read_elsewhere=set(ROPE_FACTORS))
    ARCHITECTURES[architecture](config, graph)
    graph.check_weights(header.tensors)
    return config, graph
