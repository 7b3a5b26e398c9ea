"""The parts of a loaded model that training reads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from py_core.backends.webgpu.host import Binding, Host
from py_core.backends.webgpu.kernel_builder import KernelBuilder
from py_core.backends.webgpu.weights.arena import WeightArena
from py_core.backends.webgpu.weights.vectors import Vectors
from py_core.models.config import ModelConfig
from py_core.models.graph import Graph, Rope

PACK_ROWS = 512
"""The most tokens of a pack."""


@dataclass(frozen=True)
class ModelOnDevice:
    """Replaced by another after a lost device."""

    host: Host
    config: ModelConfig
    graph: Graph
    arena: WeightArena
    vectors: Vectors
    angles: Callable[[Rope], Binding]
    builder: KernelBuilder
    """Builds the kernels of training: its `max_rows` are those of a pack."""
