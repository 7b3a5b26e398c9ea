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
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from app.building.minilm import (
    HEADS,
    HIDDEN,
    LAYER_NORM_EPSILON,
    LAYERS,
    WHITENING,
    Weights,
    merge_adapter,
    positions,
    sentence_vector,
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


def export(weights: Weights, calibration: Sequence[Sequence[int]]) -> bytes:
    """The ONNX file of a model (merged with its adapter). calibration: ids of texts, [CLS] and [SEP] included."""
    return _Exporter(weights, _largest_inputs(weights, calibration)).file()


class _Exporter:
    def __init__(self, weights: Weights, largest: dict[str, np.ndarray]) -> None:
        self._weights = weights
        self._largest = largest
        self._graph = OnnxGraph("all-MiniLM-L6-v2")

    def file(self) -> bytes:
        graph, constant = self._graph, self._graph.constant
        ids = graph.input("ids", np.int32, [1, "tokens"])
        x = self._embeddings(ids)
        for layer in range(LAYERS):
            x = self._block(f"encoder.layer.{layer}", x)
        mean = graph.node("ReduceMean", x, constant(np.array([1])), keepdims=0)
        vector = graph.node("LpNormalization", mean, axis=-1, p=2)
        if WHITENING[0] in self._weights:
            centre, matrix = (constant(self._weights[name]) for name in WHITENING)
            moved = graph.node("MatMul", graph.node("Sub", vector, centre), matrix)
            vector = graph.node("LpNormalization", moved, axis=-1, p=2)
        graph.output(vector, "embedding", np.float32, [1, HIDDEN])
        return graph.to_bytes(OPERATOR_SETS)

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

    def _block(self, block: str, x: str) -> str:
        graph, weights = self._graph, self._weights
        names = [f"{block}.attention.self.{part}" for part in _PARTS]
        matrices = [weights[f"{name}.weight"] for name in names]
        biases = [weights[f"{name}.bias"] for name in names]
        output = f"{block}.attention.output.dense"
        # what smooths the output's input needs no operation: it goes into the rows of `value`
        smooth = self._smoothing(output, weights[f"{output}.weight"])
        matrices[2], biases[2] = matrices[2] / smooth[:, None], biases[2] / smooth
        joined = self._linear(self._smoothed(x, names[0], np.concatenate(matrices)), np.concatenate(biases))
        parts = graph.nodes("Split", 3, joined, axis=-1, num_outputs=3)
        mixed = graph.node("MultiHeadAttention", *parts, domain="com.microsoft", num_heads=HEADS)
        x = self._residual((mixed, weights[f"{output}.weight"] * smooth), output, x)

        name = f"{block}.intermediate.dense"
        inner = self._linear(self._smoothed(x, name, weights[f"{name}.weight"]))
        bias = graph.constant(weights[f"{name}.bias"])
        inner = graph.node("BiasGelu", inner, bias, domain="com.microsoft")
        name = f"{block}.output.dense"
        return self._residual(self._smoothed(inner, name, weights[f"{name}.weight"]), name, x)

    def _smoothing(self, name: str, matrix: np.ndarray) -> np.ndarray:
        """(inputs,): what each input of a linear is divided by."""
        inputs, columns = np.maximum(self._largest[name], _SMALL), np.maximum(np.abs(matrix).max(0), _SMALL)
        return (inputs**SMOOTHING / columns ** (1 - SMOOTHING)).astype(np.float32)

    def _smoothed(self, x: str, name: str, matrix: np.ndarray) -> tuple[str, np.ndarray]:
        smooth = self._smoothing(name, matrix)
        return self._graph.node("Mul", x, self._graph.constant(1 / smooth)), matrix * smooth

    def _linear(self, smoothed: tuple[str, np.ndarray], bias: np.ndarray | None = None) -> str:
        x, matrix = smoothed
        codes, scales, zeros = quantize_columns(matrix.T)
        inputs = [x, *(self._graph.constant(value) for value in (codes, scales, zeros))]
        if bias is not None:
            inputs.append(self._graph.constant(bias))
        return self._graph.node("DynamicQuantizeMatMul", *inputs, domain="com.microsoft")

    def _residual(self, smoothed: tuple[str, np.ndarray], name: str, x: str) -> str:
        """LayerNorm(linear + x)"""
        norm = f"{name.removesuffix('.dense')}.LayerNorm"
        parts = (f"{norm}.weight", f"{norm}.bias", f"{name}.bias")
        constants = [self._graph.constant(self._weights[part]) for part in parts]
        return self._graph.node(
            "SkipLayerNormalization", self._linear(smoothed), x, *constants,
            domain="com.microsoft", epsilon=LAYER_NORM_EPSILON,
        )  # fmt: skip


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
        sentence_vector(weights, ids, observe)
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
    options.output.write_bytes(export(merge_adapter(weights, adapter), calibration_ids(tokenizer)))


if __name__ == "__main__":
    main()
