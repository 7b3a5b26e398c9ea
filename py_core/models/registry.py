"""The known architectures: maps a GGUF's `general.architecture` to the function that describes its forward pass."""

from __future__ import annotations

from collections.abc import Callable

from py_core.formats.gguf import GGUFError, GGUFHeader
from py_core.models import llama
from py_core.models.config import ModelConfig, config_from_gguf
from py_core.models.graph import Graph

ARCHITECTURES: dict[str, Callable[[ModelConfig], Graph]] = {"llama": llama.describe}


def describe_model(header: GGUFHeader) -> tuple[ModelConfig, Graph]:
    """A model file's sizes and forward pass. Raises GGUFError for an unknown architecture and as `check_weights`."""
    architecture = header.metadata.get("general.architecture")
    if not isinstance(architecture, str) or architecture not in ARCHITECTURES:
        raise GGUFError(
            f"The model file is of the architecture {architecture!r}; Sonata runs {', '.join(sorted(ARCHITECTURES))}."
        )
    config = config_from_gguf(header)
    graph = ARCHITECTURES[architecture](config)
    graph.check_weights(header.tensors)
    return config, graph
