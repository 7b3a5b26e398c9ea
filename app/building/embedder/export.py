"""all-MiniLM-L6-v2 as two ONNX graphs over the same 8-bit weights, 25 MB. files.py runs it in .venv.

multilingual.py writes its model in the same way.

    python -m app.building.embedder.export MODEL.safetensors TOKENIZER.json OUTPUT.onnx [--adapter FILE]

Notable here:
- one text a run, without padding: a text's vector does not depend on the other texts
- linears are com.microsoft's DynamicQuantizeMatMul: weights of 8 bits with a scale a column, activations of 8 bits with
  one scale. Weights are unsigned, because x86 without VNNI saturates products of signed and unsigned bytes
- before that, channels of large activations are made small and their weights large by the same factor (SmoothQuant,
  https://arxiv.org/abs/2211.10438): the error of a vector's direction falls to a fifth
- two graphs read the same weights: "vector" is the model with the adapter (merged into the weights), "states" subtracts
  the adapter's part again. So the vectors that every message needs cost nothing extra, and the states of the plain
  model take 0.7 MB instead of a second file. One runs while the page starts, the other is opened when it is needed
- the file is: the weights; the rest of "vector"; the rest of "states"; the offsets of the ends of the first two, each
  in four bytes, little-endian. The weights followed by either rest are an ONNX file
- a graph's input is `ids`, int32 (1, tokens); "vector" gives `vector`, float32 (1, 384), of length 1, and "states"
  `states`, float32 (tokens, 384)
"""

from __future__ import annotations

import argparse
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from app.building.embedder.minilm import (
    HEADS,
    HIDDEN,
    LAYER_NORM_EPSILON,
    STATES_CENTRE,
    WHITENING,
    Weights,
    layers,
    merge_adapter,
    positions,
    token_states,
)
from app.building.embedder.onnx_writer import OnnxGraph
from py_core.formats.safetensors import read_safetensors
from py_core.tokenizers.unigram import Unigram
from py_core.tokenizers.wordpiece import MAX_TOKENS, WordPiece

CALIBRATION = Path(__file__).with_name("calibration.txt")
"""Sentences, one a line, of the kinds that will be embedded."""
OPERATOR_SETS = {"": 20, "com.microsoft": 1}
SMOOTHING = 0.7
"""The share of an outlier that moves into the weights, from 0 to 1."""
_SMALL = 1e-3
_PARTS = ("query", "key", "value")


@dataclass(frozen=True)
class PackedWords:
    """The embeddings of words as in GGUF's Q4_0. codes: uint8 (words, 192), for 32 numbers each the first 16 in the low
    halves of 16 bytes, 8 for 0. scales: float16 (words, 12)."""

    codes: np.ndarray
    scales: np.ndarray


def export(
    weights: Weights, adapter: Weights, calibration: Sequence[Sequence[int]], words: PackedWords | None = None
) -> bytes:
    """The file. weights: the published model's. calibration: ids of texts, [CLS] and [SEP] included. words: the
    embeddings of words, if they are already of 4 bits.

    Raises ValueError if the adapter does not fit the model.
    """
    merged = merge_adapter(weights, adapter)
    return _Exporter(merged, adapter, _largest_inputs(merged, calibration), words).file()


@dataclass(frozen=True)
class _Linear:
    """Linears that read the same input: the names of their constants."""

    shrink: str
    """The factor that is applied to the input first; "" for none."""
    matrix: tuple[str, ...]
    """Codes, scales and zero points of all linears, side by side, and their biases, if any."""
    parts: int
    adapter: tuple[np.ndarray, np.ndarray] | None
    """A (ranks, inputs) and B (outputs, ranks) of all linears: B A x is in the result, x after `shrink`."""


@dataclass(frozen=True)
class _Norm:
    scale: str
    shift: str
    bias: str
    """The bias of the linear before it."""


@dataclass(frozen=True)
class _EncoderLayer:
    query_key_value: _Linear
    output: _Linear
    output_norm: _Norm
    inner: _Linear
    inner_bias: str
    outer: _Linear
    outer_norm: _Norm


class _Exporter:
    def __init__(
        self, weights: Weights, adapter: Weights, largest: Mapping[str, np.ndarray], words: PackedWords | None
    ) -> None:
        """weights: already merged with the adapter."""
        self._weights = weights
        self._adapter = adapter
        self._largest = largest
        self._words = words
        self._graph = OnnxGraph("embedder")

    def file(self) -> bytes:
        graph = self._graph
        x = self._embeddings(graph.input("ids", np.int32, [1, "tokens"]))
        blocks = [self._block(f"encoder.layer.{layer}") for layer in range(layers(self._weights))]
        vector, states = graph.fork("vector"), graph.fork("states")
        vector.output(self._vector(vector, _states(vector, blocks, x, adapted=True)), "vector", np.float32, [1, HIDDEN])
        plain = states.node("Squeeze", _states(states, blocks, x, adapted=False), states.constant(np.array([0])))
        if STATES_CENTRE in self._adapter:
            plain = states.node("Sub", plain, states.constant(self._weights[STATES_CENTRE]))
        states.output(plain, "states", np.float32, ["tokens", HIDDEN])
        constants, to_vector, to_states = graph.constants(OPERATOR_SETS), vector.rest(), states.rest()
        ends = struct.pack("<II", len(constants), len(constants) + len(to_vector))
        return b"".join([constants, to_vector, to_states, ends])

    def _vector(self, graph: OnnxGraph, states: str) -> str:
        mean = graph.node("ReduceMean", states, graph.constant(np.array([1])), keepdims=0)
        vector = graph.node("LpNormalization", mean, axis=-1, p=2)
        if WHITENING[0] in self._adapter:
            centre, matrix = (graph.constant(self._weights[name]) for name in WHITENING)
            moved = graph.node("MatMul", graph.node("Sub", vector, centre), matrix)
            vector = graph.node("LpNormalization", moved, axis=-1, p=2)
        return vector

    def _embeddings(self, ids: str) -> str:
        """Words plus the positions."""
        graph, constant, weights = self._graph, self._graph.constant, self._weights
        x = self._packed_words(ids, self._words) if self._words else self._word_bytes(ids)
        zero = constant(np.array([0]))
        count = graph.node("Shape", ids, start=1, end=2)
        places = graph.node("Slice", constant(positions(weights)[:MAX_TOKENS]), zero, count, zero)
        x = graph.node("Add", x, graph.node("Unsqueeze", places, zero))
        scale, shift = (constant(weights[f"embeddings.LayerNorm.{part}"]) for part in ("weight", "bias"))
        return graph.node("LayerNormalization", x, scale, shift, axis=-1, epsilon=LAYER_NORM_EPSILON)

    def _word_bytes(self, ids: str) -> str:
        """Words of 8 bits with a scale each."""
        graph, constant = self._graph, self._graph.constant
        words = self._weights["embeddings.word_embeddings.weight"]
        scales = np.maximum(np.abs(words).max(1, keepdims=True), _SMALL) / 127
        codes = graph.node("Gather", constant(np.rint(words / scales).astype(np.int8)), ids)
        return graph.node("Mul", graph.node("Cast", codes, to=1), graph.node("Gather", constant(scales), ids))

    def _packed_words(self, ids: str, words: PackedWords) -> str:
        """Words of 4 bits with a scale for each 32 numbers."""
        graph, constant = self._graph, self._graph.constant
        blocks = words.scales.shape[1]
        codes = graph.node("Gather", constant(words.codes), ids)
        codes = graph.node("Reshape", codes, constant(np.array([0, 0, blocks, -1])))
        low = graph.node("BitwiseAnd", codes, constant(np.array([15], np.uint8)))
        high = graph.node("BitShift", codes, constant(np.array([4], np.uint8)), direction="RIGHT")
        values = graph.node("Cast", graph.node("Concat", low, high, axis=-1), to=1)
        values = graph.node("Sub", values, constant(np.array([8], np.float32)))
        scales = graph.node("Cast", graph.node("Gather", constant(words.scales), ids), to=1)
        scaled = graph.node("Mul", values, graph.node("Unsqueeze", scales, constant(np.array([-1]))))
        return graph.node("Reshape", scaled, constant(np.array([0, 0, HIDDEN])))

    def _block(self, block: str) -> _EncoderLayer:
        weights, names = self._weights, [f"{block}.attention.self.{part}" for part in _PARTS]
        output, inner, outer = (f"{block}.{part}.dense" for part in ("attention.output", "intermediate", "output"))
        # what smooths the output's input needs no operation: it goes into the rows of `value`
        smooth = self._smoothing(output, weights[f"{output}.weight"])
        whole = np.ones_like(smooth)
        parts = list(zip(names, [whole, whole, smooth], strict=True))
        matrix = np.concatenate([weights[f"{name}.weight"] / by[:, None] for name, by in parts])
        bias = np.concatenate([weights[f"{name}.bias"] / by for name, by in parts])
        first = self._smoothing(names[0], matrix)
        return _EncoderLayer(
            _Linear(
                self._graph.constant(1 / first),
                (*self._codes(matrix * first), self._graph.constant(bias)),
                len(parts),
                self._low_rank(names, first, [1, 1, smooth]),
            ),
            _Linear("", self._codes(weights[f"{output}.weight"] * smooth), 1, self._low_rank([output], smooth)),
            self._norm(output),
            self._linear(inner),
            self._graph.constant(weights[f"{inner}.bias"]),
            self._linear(outer),
            self._norm(outer),
        )

    def _smoothing(self, name: str, matrix: np.ndarray) -> np.ndarray:
        """(inputs,): the divisor of each input of a linear."""
        inputs, columns = np.maximum(self._largest[name], _SMALL), np.maximum(np.abs(matrix).max(0), _SMALL)
        return (inputs**SMOOTHING / columns ** (1 - SMOOTHING)).astype(np.float32)

    def _linear(self, name: str) -> _Linear:
        matrix = self._weights[f"{name}.weight"]
        smooth = self._smoothing(name, matrix)
        low_rank = self._low_rank([name], smooth)
        return _Linear(self._graph.constant(1 / smooth), self._codes(matrix * smooth), 1, low_rank)

    def _codes(self, matrix: np.ndarray) -> tuple[str, ...]:
        return tuple(map(self._graph.constant, quantize_columns(matrix.T)))

    def _low_rank(
        self, names: Sequence[str], inputs: np.ndarray, outputs: Sequence[np.ndarray | int] = (1,)
    ) -> tuple[np.ndarray, np.ndarray] | None:
        """A and B of linears whose input was divided by `inputs` and whose results are divided by `outputs`."""
        if any(f"{name}.lora_A" not in self._adapter for name in names):
            return None
        pairs = [[self._adapter[f"{name}.lora_{part}"].astype(np.float32) for part in "AB"] for name in names]
        ranks, rows = [0, *np.cumsum([len(a) for a, _ in pairs])], [0, *np.cumsum([len(b) for _, b in pairs])]
        joined = np.zeros((rows[-1], ranks[-1]), np.float32)
        for at, ((_, b), by) in enumerate(zip(pairs, outputs, strict=True)):
            joined[rows[at] : rows[at + 1], ranks[at] : ranks[at + 1]] = (b.T / by).T
        return np.concatenate([a for a, _ in pairs]) * inputs, joined

    def _norm(self, name: str) -> _Norm:
        """Normalizes the sum of a linear and its residual."""
        norm = f"{name.removesuffix('.dense')}.LayerNorm"
        scale, shift, bias = (
            self._graph.constant(self._weights[part]) for part in (f"{norm}.weight", f"{norm}.bias", f"{name}.bias")
        )
        return _Norm(scale, shift, bias)


def _states(graph: OnnxGraph, blocks: Sequence[_EncoderLayer], x: str, *, adapted: bool) -> str:
    """The last layer's states, (1, tokens, 384), from the embeddings. adapted: with the adapter's part."""

    def product(x: str, *matrix: str) -> str:
        return graph.node("DynamicQuantizeMatMul", x, *matrix, domain="com.microsoft")

    def linear(x: str, linear: _Linear) -> list[str]:
        small = graph.node("Mul", x, linear.shrink) if linear.shrink else x
        y = product(small, *linear.matrix)
        if linear.adapter and not adapted:
            a, b = (tuple(map(graph.constant, quantize_columns(matrix.T))) for matrix in linear.adapter)
            y = graph.node("Sub", y, product(product(small, *a), *b))
        return graph.nodes("Split", linear.parts, y, axis=-1, num_outputs=linear.parts) if linear.parts > 1 else [y]

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


def calibration_ids(tokenizer: WordPiece | Unigram) -> list[list[int]]:
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
