"""Writes ONNX files without a package: only the part of the format that a graph of operators with constants needs.

    graph = OnnxGraph("doubled")
    x = graph.input("x", np.float32, ["n", 4])
    graph.output(graph.node("Mul", x, graph.constant(np.float32(2))), "y", np.float32, ["n", 4])
    Path("doubled.onnx").write_bytes(graph.to_bytes({"": 20}))

Source: https://github.com/onnx/onnx/blob/main/onnx/onnx.proto (the numbers of fields and types are from there)
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

IR_VERSION = 9
ELEMENT_TYPES: dict[np.dtype[Any], int] = {
    np.dtype(kind): number
    for kind, number in (
        (np.float32, 1), (np.uint8, 2), (np.int8, 3), (np.int32, 6), (np.int64, 7), (np.bool_, 9), (np.float16, 10),
    )
}  # fmt: skip
_VARINT, _BYTES, _FIXED32 = 0, 2, 5
_FLOAT, _INT, _STRING, _INTS = 1, 2, 3, 7
"""Types of attributes."""

Attribute = int | float | str | Sequence[int]
Shape = Sequence[int | str]
"""Sizes of an input or output; a name is a size that may differ from run to run."""


class OnnxGraph:
    """A graph that grows node by node. Values are identified by their names, which the methods return."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._nodes: list[bytes] = []
        self._initializers: list[bytes] = []
        self._inputs: list[bytes] = []
        self._outputs: list[bytes] = []
        self._numbers = itertools.count(1)

    def fork(self, name: str) -> OnnxGraph:
        """A copy of this graph. Nodes and constants that are added later belong to the copy only."""
        made = OnnxGraph(name)
        made._numbers = self._numbers
        made._nodes, made._inputs = [*self._nodes], [*self._inputs]
        return made

    def input(self, name: str, kind: type[np.generic], shape: Shape) -> str:
        self._inputs.append(_value_info(name, kind, shape))
        return name

    def output(self, value: str, name: str, kind: type[np.generic], shape: Shape) -> None:
        """Make the value an output called `name`."""
        self._nodes.append(_node("Identity", [value], [name], "", {}))
        self._outputs.append(_value_info(name, kind, shape))

    def constant(self, value: np.ndarray | np.generic) -> str:
        """An initializer. Raises ValueError if ELEMENT_TYPES lacks its type."""
        array = np.ascontiguousarray(value) if np.ndim(value) else np.asarray(value)
        if array.dtype not in ELEMENT_TYPES:
            raise ValueError(f"this writer cannot store {array.dtype} in ONNX: convert it first")
        name = self._new_name("c")
        parts = [_number(1, size) for size in array.shape]
        parts += [_number(2, ELEMENT_TYPES[array.dtype]), _text(8, name), _field(9, array.tobytes())]
        self._initializers.append(b"".join(parts))
        return name

    def node(self, operator: str, *inputs: str, domain: str = "", **attributes: Attribute) -> str:
        """Adds an operator with one output and returns its name. An input "" is omitted."""
        return self.nodes(operator, 1, *inputs, domain=domain, **attributes)[0]

    def nodes(self, operator: str, outputs: int, *inputs: str, domain: str = "", **attributes: Attribute) -> list[str]:
        """Adds an operator with several outputs."""
        names = [self._new_name("v") for _ in range(outputs)]
        self._nodes.append(_node(operator, inputs, names, domain, attributes))
        return names

    def to_bytes(self, operator_sets: Mapping[str, int]) -> bytes:
        """The file. operator_sets: domain ("" is ONNX's own) -> version."""
        return self.constants(operator_sets) + self.nodes_only()

    def constants(self, operator_sets: Mapping[str, int]) -> bytes:
        """The part of a file that holds this graph's constants."""
        model = [_number(1, IR_VERSION), _text(2, "sonata")]
        model += [_field(8, _text(1, domain) + _number(2, version)) for domain, version in operator_sets.items()]
        return b"".join([*model, self._initializer_part()])

    def rest(self) -> bytes:
        """The part of a forked graph's file that comes after the `constants` of the graph it was forked from.

        Protocol buffers say that concatenated messages are merged:
        https://protobuf.dev/programming-guides/encoding/#last-one-wins
        """
        return self._initializer_part() + self.nodes_only()

    def nodes_only(self) -> bytes:
        """The part of a file that holds the graph without its constants."""
        parts = [_field(1, node) for node in self._nodes] + [_text(2, self._name)]
        parts += [_field(11, value) for value in self._inputs] + [_field(12, value) for value in self._outputs]
        return _field(7, b"".join(parts))

    def _initializer_part(self) -> bytes:
        return _field(7, b"".join(_field(5, tensor) for tensor in self._initializers))

    def _new_name(self, kind: str) -> str:
        return f"{kind}{next(self._numbers)}"


def _node(
    operator: str, inputs: Sequence[str], outputs: Sequence[str], domain: str, attributes: Mapping[str, Attribute]
) -> bytes:
    parts = [_text(1, name) for name in inputs] + [_text(2, name) for name in outputs] + [_text(4, operator)]
    parts += [_field(5, _attribute(name, value)) for name, value in attributes.items()]
    return b"".join([*parts, _text(7, domain)] if domain else parts)


def _attribute(name: str, value: Attribute) -> bytes:
    if isinstance(value, float):
        return _text(1, name) + _key(2, _FIXED32) + struct.pack("<f", value) + _number(20, _FLOAT)
    if isinstance(value, int):
        return _text(1, name) + _number(3, value) + _number(20, _INT)
    if isinstance(value, str):
        return _text(1, name) + _text(4, value) + _number(20, _STRING)
    return _text(1, name) + b"".join(_number(8, item) for item in value) + _number(20, _INTS)


def _value_info(name: str, kind: type[np.generic], shape: Shape) -> bytes:
    sizes = [_text(2, size) if isinstance(size, str) else _number(1, size) for size in shape]
    tensor = _number(1, ELEMENT_TYPES[np.dtype(kind)]) + _field(2, b"".join(_field(1, size) for size in sizes))
    return _text(1, name) + _field(2, _field(1, tensor))


# --- protocol buffers: https://protobuf.dev/programming-guides/encoding/ ---


def varint(value: int) -> bytes:
    """A whole number of 64 bits, seven to a byte; negative ones in two's complement."""
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _key(number: int, wire_type: int) -> bytes:
    return varint(number << 3 | wire_type)


def _number(number: int, value: int) -> bytes:
    return _key(number, _VARINT) + varint(value)


def _field(number: int, content: bytes) -> bytes:
    return _key(number, _BYTES) + varint(len(content)) + content


def _text(number: int, text: str) -> bytes:
    return _field(number, text.encode())
