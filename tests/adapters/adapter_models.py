"""Models without weights, and adapters for them: as much of a model as reading and writing adapters needs."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

import numpy as np

from py_core.adapters.lora import LoraAdapter, LoraPair
from py_core.formats.gguf import parse_header
from py_core.models.config import ROPE_FACTORS, ModelConfig
from py_core.models.graph import Graph
from py_core.models.registry import describe_model
from tests.models.architectures.variants import VARIANTS

SHA256 = "ab" * 32


@cache
def described(name: str) -> tuple[ModelConfig, Graph]:
    """A variant of tests/models/architectures as its file describes it."""
    variant = VARIANTS[name]
    if any(key in variant.config["rope_parameters"] for key in ("short_factor",)):
        raise ValueError(f"{name} has to be opened with its factors")
    with tempfile.TemporaryDirectory() as folder:
        data = variant.write(Path(folder) / "tiny.gguf").read_bytes()
    header = parse_header(data, len(data))
    tensors = [header.tensors[name] for name in ROPE_FACTORS if name in header.tensors]
    factors = {one.name: np.frombuffer(data, np.float32, one.shape[0], one.offset) for one in tensors}
    return describe_model(header, None, factors)


def drawn(graph: Graph, seed: int, rank: int = 4, only: str = "", scale: float = 0.5) -> LoraAdapter:
    """A pair for each linear whose name contains `only`. Numbers are uniform, so every machine draws the same."""
    rng = np.random.default_rng(seed)

    def matrix(*shape: int) -> np.ndarray:
        return (2 * rng.random(shape) - 1).astype(np.float32)

    pairs = {}
    for name in sorted(graph.linear_weights):
        rows, columns = graph.weights[name]
        if only in name:
            pairs[name] = LoraPair(matrix(rank, columns), matrix(rows, rank) / np.float32(4), scale)
    return LoraAdapter(f"drawn {seed}", pairs, SHA256, {"trained on": "nothing"})


def same(ours: LoraAdapter, other: LoraAdapter) -> None:
    """Asserts that the matrices are equal to the bit, and so is everything else."""
    assert (ours.name, ours.base_sha256, ours.metadata) == (other.name, other.base_sha256, other.metadata)
    assert ours.pairs.keys() == other.pairs.keys()
    for name, pair in ours.pairs.items():
        np.testing.assert_array_equal(pair.a, other.pairs[name].a, err_msg=name)
        np.testing.assert_array_equal(pair.b, other.pairs[name].b, err_msg=name)
        np.testing.assert_allclose(pair.scale, other.pairs[name].scale, rtol=1e-15)
