"""all-MiniLM-L6-v2 as an ONNX file of 8-bit weights, 23 MB. Run by app/building/embedder.py in .venv: it needs numpy.

    python -m app.building.embedder_export MODEL.safetensors TOKENIZER.json OUTPUT.onnx [--adapter FILE]

Notable here:
- one text a run, without padding: a text's vector does not depend on what else is embedded with it
- linears are com.microsoft's DynamicQuantizeMatMul: weights of 8 bits with a scale a column, activations of 8 bits with
  one scale. Weights are unsigned, because x86 without VNNI saturates products of signed and unsigned bytes
- before that, channels of large activations are made small and their weights large by the same factor (SmoothQuant,
  https://arxiv.org/abs/2211.10438): the error of a vector's direction falls to a fifth
- the graph's input is `ids`, int32 (1, tokens), its output `embedding`, float32 (1, 384), of length 1
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from app.building.minilm import (
    HEADS,
    HIDDEN,
    LAYER_NORM_EPSILON,
    LAYERS,
    WHITENING,
    Weights,
    check_adapter,
    positions,
    token_states,
    widened,
)
from app.building.onnx_writer import OnnxGraph
from py_core.formats.safetensors import read_safetensors
from py_core.tokenizers.wordpiece import MAX_TOKENS, WordPiece

CALIBRATION = Path(__file__).with_name("calibration.txt")
"""Sentences, one a line, of the kinds that will be embedded."""
OPERATOR_SETS = {"": 20, "com.microsoft": 1}
SMOOTHING = 0.7
"""How much of an outlier goes into the weights, from 0 to 1."""
_SMALL = 1e-3
_PARTS = ("query", "key", "value")

_Factors = np.ndarray | int


def export(weights: Weights, adapter: Weights, calibration: Sequence[Sequence[int]]) -> bytes:
    """The ONNX file. weights: the published model's. calibration: ids of texts, [CLS] and [SEP] included.

    Raises ValueError when the adapter does not fit the model.
    """
    check_adapter(weights, adapter)
    weights = widened(weights)
    return _Exporter(weights, adapter, _largest_inputs(weights, calibration)).file()


@dataclass(frozen=True)
class _Linear:
    """The constants of linears that read the same, by their names in the file."""

    shrink: str
    """What the input is multiplied by first; "" for nothing."""
    matrix: tuple[str, ...]
    """Codes, scales and zero points of all linears, side by side, and perhaps their biases."""
    adapter: Sequence[tuple[str, str] | None]
    """Each linear's A' and B': x A' B' is added to its result."""


@dataclass(frozen=True)
class _Norm:
    scale: str
    shift: str
    bias: str
    """Of the linear before it."""


@dataclass(frozen=True)
class _Block:
    query_key_value: _Linear
    output: _Linear
    output_norm: _Norm
    inner: _Linear
    inner_bias: str
    outer: _Linear
    outer_norm: _Norm


class _Exporter:
    def __init__(self, weights: Weights, adapter: Weights, largest: Mapping[str, np.ndarray]) -> None:
        self._weights = weights
        self._adapter = adapter
        self._largest = largest
        self._graph = OnnxGraph("all-MiniLM-L6-v2")

    def file(self) -> bytes:
        graph = self._graph
        ids, adapted = graph.input("ids", np.int32, [1, "tokens"]), graph.input("adapted", np.bool_, [])
        x = self._embeddings(ids)
        blocks = [self._block(f"encoder.layer.{layer}") for layer in range(LAYERS)]
        vector, states = graph.branch("vector"), graph.branch("states")
        vector.output(self._vector(vector, _states(vector, blocks, x, adapted=True)), "vector", np.float32, [1, HIDDEN])
        plain = states.node("Squeeze", _states(states, blocks, x, adapted=False), graph.constant(np.array([0])))
        states.output(plain, "states", np.float32, ["tokens", HIDDEN])
        graph.output(graph.choose(adapted, vector, states), "rows", np.float32, ["rows", HIDDEN])
        return graph.to_bytes(OPERATOR_SETS)

    def _vector(self, graph: OnnxGraph, states: str) -> str:
        mean = graph.node("ReduceMean", states, graph.constant(np.array([1])), keepdims=0)
        vector = graph.node("LpNormalization", mean, axis=-1, p=2)
        if WHITENING[0] in self._adapter:
            centre, matrix = (self._half(self._adapter[name]) for name in WHITENING)
            moved = graph.node("MatMul", graph.node("Sub", vector, centre), matrix)
            vector = graph.node("LpNormalization", moved, axis=-1, p=2)
        return vector

    def _embeddings(self, ids: str) -> str:
        """Words of 8 bits with a scale each, plus the positions."""
        graph, constant, weights = self._graph, self._graph.constant, self._weights
        words = weights["embeddings.word_embeddings.weight"]
        scales = np.maximum(np.abs(words).max(1, keepdims=True), _SMALL) / 127
        codes = graph.node("Gather", constant(np.rint(words / scales).astype(np.int8)), ids)
        x = graph.node("Mul", graph.node("Cast", codes, to=1), graph.node("Gather", constant(scales), ids))
        zero = constant(np.array([0]))
        count = graph.node("Shape", ids, start=1, end=2)
        places = graph.node("Slice", constant(positions(weights)[:MAX_TOKENS]), zero, count, zero)
        x = graph.node("Add", x, graph.node("Unsqueeze", places, zero))
        scale, shift = (constant(weights[f"embeddings.LayerNorm.{part}"]) for part in ("weight", "bias"))
        return graph.node("LayerNormalization", x, scale, shift, axis=-1, epsilon=LAYER_NORM_EPSILON)

    def _block(self, block: str) -> _Block:
        weights, names = self._weights, [f"{block}.attention.self.{part}" for part in _PARTS]
        output, inner, outer = (f"{block}.{part}.dense" for part in ("attention.output", "intermediate", "output"))
        # what smooths the output's input needs no operation: it goes into the rows of `value`
        smooth = self._smoothing(output, weights[f"{output}.weight"])
        whole = np.ones_like(smooth)
        parts = list(zip(names, [whole, whole, smooth], strict=True))
        matrix = np.concatenate([weights[f"{name}.weight"] / by[:, None] for name, by in parts])
        bias = np.concatenate([weights[f"{name}.bias"] / by for name, by in parts])
        first = self._smoothing(names[0], matrix)
        return _Block(
            _Linear(
                self._graph.constant(1 / first),
                (*self._codes(matrix * first), self._graph.constant(bias)),
                [self._low_rank(name, outputs=by) for name, by in parts],
            ),
            _Linear("", self._codes(weights[f"{output}.weight"] * smooth), [self._low_rank(output, inputs=smooth)]),
            self._norm(output),
            self._linear(inner),
            self._graph.constant(weights[f"{inner}.bias"]),
            self._linear(outer),
            self._norm(outer),
        )

    def _smoothing(self, name: str, matrix: np.ndarray) -> np.ndarray:
        """(inputs,): what each input of a linear is divided by."""
        inputs, columns = np.maximum(self._largest[name], _SMALL), np.maximum(np.abs(matrix).max(0), _SMALL)
        return (inputs**SMOOTHING / columns ** (1 - SMOOTHING)).astype(np.float32)

    def _linear(self, name: str) -> _Linear:
        matrix = self._weights[f"{name}.weight"]
        smooth = self._smoothing(name, matrix)
        return _Linear(self._graph.constant(1 / smooth), self._codes(matrix * smooth), [self._low_rank(name)])

    def _codes(self, matrix: np.ndarray) -> tuple[str, ...]:
        return tuple(map(self._graph.constant, quantize_columns(matrix.T)))

    def _low_rank(self, name: str, inputs: _Factors = 1, outputs: _Factors = 1) -> tuple[str, str] | None:
        """A' and B' of a linear whose input is divided by `inputs` before, and whose result by `outputs`."""
        if f"{name}.lora_A" not in self._adapter:
            return None
        a, b = (self._adapter[f"{name}.lora_{part}"].astype(np.float32) for part in "AB")
        return self._half((a * inputs).T), self._half(b.T / outputs)

    def _half(self, value: np.ndarray) -> str:
        """A constant that takes half of the bytes in the file; the runtime widens it once, as it loads."""
        return self._graph.node("Cast", self._graph.constant(value.astype(np.float16)), to=1)

    def _norm(self, name: str) -> _Norm:
        """Of the sum of a linear and what it is added to."""
        norm = f"{name.removesuffix('.dense')}.LayerNorm"
        scale, shift, bias = (
            self._graph.constant(self._weights[part]) for part in (f"{norm}.weight", f"{norm}.bias", f"{name}.bias")
        )
        return _Norm(scale, shift, bias)


def _states(graph: OnnxGraph, blocks: Sequence[_Block], x: str, *, adapted: bool) -> str:
    """The last layer's states, (1, tokens, 384), from the embeddings. adapted: with the adapter's part."""

    def linear(x: str, linear: _Linear) -> list[str]:
        small = graph.node("Mul", x, linear.shrink) if linear.shrink else x
        parts = [graph.node("DynamicQuantizeMatMul", small, *linear.matrix, domain="com.microsoft")]
        if len(linear.adapter) > 1:
            parts = graph.nodes("Split", len(linear.adapter), *parts, axis=-1, num_outputs=len(linear.adapter))
        if not adapted:
            return parts
        return [plus(part, x, low_rank) for part, low_rank in zip(parts, linear.adapter, strict=True)]

    def plus(y: str, x: str, low_rank: tuple[str, str] | None) -> str:
        if low_rank is None:
            return y
        return graph.node("Add", y, graph.node("MatMul", graph.node("MatMul", x, low_rank[0]), low_rank[1]))

    def add_and_norm(x: str, norm: _Norm, y: str) -> str:
        return graph.node(
            "SkipLayerNormalization", y, x, norm.scale, norm.shift, norm.bias,
            domain="com.microsoft", epsilon=LAYER_NORM_EPSILON,
        )  # fmt: skip

    for block in blocks:
        parts = linear(x, block.query_key_value)
        mixed = graph.node("MultiHeadAttention", *parts, domain="com.microsoft", num_heads=HEADS)
        x = add_and_norm(x, block.output_norm, *linear(mixed, block.output))
        inner = graph.node("BiasGelu", *linear(x, block.inner), block.inner_bias, domain="com.microsoft")
        x = add_and_norm(x, block.outer_norm, *linear(inner, block.outer))
    return x


def quantize_columns(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(inputs, outputs) -> codes uint8 of that shape, scales float32 (outputs,), zero points uint8 (outputs,)."""
    scales = (np.maximum(np.abs(matrix).max(0), 1e-10) / 127).astype(np.float32)
    codes = np.rint(matrix / scales).astype(np.int16) + 128
    return codes.astype(np.uint8), scales, np.full(len(scales), 128, np.uint8)


def _largest_inputs(weights: Weights, calibration: Sequence[Sequence[int]]) -> dict[str, np.ndarray]:
    """The largest absolute value of each input of each linear, over all texts."""
    largest: dict[str, np.ndarray] = {}

    def observe(name: str, x: np.ndarray) -> None:
        found = np.abs(x).max(0)
        largest[name] = np.maximum(largest[name], found) if name in largest else found

    for ids in calibration:
        token_states(weights, ids, observe)
    return largest


def calibration_ids(tokenizer: WordPiece) -> list[list[int]]:
    return [tokenizer.encode(line) for line in CALIBRATION.read_text(encoding="utf-8").splitlines() if line.strip()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("tokenizer", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--adapter", type=Path)
    options = parser.parse_args()
    weights, _ = read_safetensors(options.model.read_bytes())
    adapter = read_safetensors(options.adapter.read_bytes())[0] if options.adapter else {}
    tokenizer = WordPiece.from_json(options.tokenizer.read_bytes())
    options.output.write_bytes(export(weights, adapter, calibration_ids(tokenizer)))


if __name__ == "__main__":
    main()
