"""The supported architectures: maps a GGUF's `general.architecture` to the function that describes its forward pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from py_core.display import shown
from py_core.formats.gguf import GGUFError, GGUFHeader
from py_core.formats.gguf_types import AdapterFileError
from py_core.models import (
    gemma2,
    gemma3,
    gemma4,
    glm4,
    granite,
    lfm2,
    llama,
    olmo2,
    olmoe,
    phi3,
    qwen2,
    qwen3,
    qwen35,
    smollm3,
)
from py_core.models.config import ROPE_FACTORS, ModelConfig, config_from_gguf
from py_core.models.graph import Graph

ARCHITECTURES: dict[str, Callable[[ModelConfig, Graph], None]] = {
    "gemma2": gemma2.describe,
    "gemma3": gemma3.describe,
    "gemma4": gemma4.describe,
    "glm4": glm4.describe,
    "granite": granite.describe,
    "granitemoe": granite.describe,
    "lfm2": lfm2.describe,
    "llama": llama.describe,
    "olmo2": olmo2.describe,
    "olmoe": olmoe.describe,
    "phi3": phi3.describe,
    "qwen2": qwen2.describe,
    "qwen3": qwen3.describe,
    "qwen35": qwen35.describe,
    "smollm3": smollm3.describe,
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
