"""ONNX files written by hand are read by onnxruntime, and compute the intended results."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.building.embedder.onnx_writer import ELEMENT_TYPES, OnnxGraph, varint

OPERATORS = {"": 20, "com.microsoft": 1}


def run(graph: OnnxGraph, **inputs: np.ndarray) -> list[np.ndarray]:
    session = onnxruntime.InferenceSession(graph.to_bytes(OPERATORS), providers=["CPUExecutionProvider"])
    return session.run(None, inputs)


def test_a_linear_with_a_size_that_differs_from_run_to_run() -> None:
    matrix = np.arange(12, dtype=np.float32).reshape(4, 3)
    graph = OnnxGraph("linear")
    x = graph.input("x", np.float32, ["rows", 4])
    graph.output(graph.node("MatMul", x, graph.constant(matrix)), "y", np.float32, ["rows", 3])
    for rows in (1, 5):
        values = np.random.default_rng(rows).normal(size=(rows, 4)).astype(np.float32)
        np.testing.assert_allclose(run(graph, x=values)[0], values @ matrix, rtol=1e-6)


def test_attributes_of_each_type_and_several_outputs() -> None:
    graph = OnnxGraph("attributes")
    x = graph.input("x", np.float32, [2, 4])
    first, second = graph.nodes("Split", 2, x, axis=-1, num_outputs=2)
    leaky = graph.node("LeakyRelu", graph.node("Transpose", first, perm=[1, 0]), alpha=0.25)
    graph.output(leaky, "leaky", np.float32, [2, 2])
    graph.output(graph.node("Gelu", second, approximate="tanh"), "gelu", np.float32, [2, 2])
    values = np.array([[-4, 2, 0, 1], [8, -8, -1, 3]], np.float32)
    leaky_values, gelu_values = run(graph, x=values)
    np.testing.assert_allclose(leaky_values, [[-1, 8], [2, -2]])
    z = values[:, 2:]
    expected = 0.5 * z * (1 + np.tanh(np.sqrt(2 / np.pi) * (z + 0.044715 * z**3)))
    np.testing.assert_allclose(gelu_values, expected, atol=1e-6)


def test_other_domains_and_inputs_left_out() -> None:
    """DynamicQuantizeMatMul has an optional zero point between scale and bias."""
    graph = OnnxGraph("quantized")
    x = graph.input("x", np.float32, [1, 2])
    codes, scales = np.array([[100, -50], [27, 127]], np.int8), np.array([0.01, 0.02], np.float32)
    bias = np.array([1, -1], np.float32)
    inputs = [graph.constant(codes), graph.constant(scales), "", graph.constant(bias)]
    y = graph.node("DynamicQuantizeMatMul", x, *inputs, domain="com.microsoft")
    graph.output(y, "y", np.float32, [1, 2])
    values = np.array([[1, 0.5]], np.float32)
    np.testing.assert_allclose(run(graph, x=values)[0], values @ (codes * scales) + bias, atol=0.02)


def test_two_graphs_share_the_constants_of_the_one_that_they_begin_with() -> None:
    shared = OnnxGraph("shared")
    two = shared.constant(np.float32(2))
    doubled = shared.node("Mul", shared.input("x", np.float32, ["rows", 2]), two)
    squares, sums = shared.fork("squares"), shared.fork("sums")
    squares.output(squares.node("Mul", doubled, doubled), "y", np.float32, ["rows", 2])
    sums.output(
        sums.node("Add", sums.node("Add", doubled, sums.constant(np.float32(5))), two), "z", np.float32, ["n", 2]
    )
    values = np.array([[1, 2], [3, 4]], np.float32)
    constants = shared.constants(OPERATORS)
    for graph, name, expected in ((squares, "y", [[4, 16], [36, 64]]), (sums, "z", [[9, 11], [13, 15]])):
        session = onnxruntime.InferenceSession(constants + graph.rest(), providers=["CPUExecutionProvider"])
        assert [output.name for output in session.get_outputs()] == [name]
        np.testing.assert_array_equal(session.run(None, {"x": values})[0], expected)


@pytest.mark.parametrize("kind", list(ELEMENT_TYPES), ids=str)
def test_constants_of_each_type_come_back(kind: np.dtype) -> None:
    value = np.array([[0, 1, 1], [1, 0, 1]]).astype(kind)
    graph = OnnxGraph("constant")
    graph.output(graph.constant(value), "y", kind.type, value.shape)
    (found,) = run(graph)
    assert found.dtype == kind
    np.testing.assert_array_equal(found, value)


def test_scalars_and_empty_arrays_are_constants() -> None:
    graph = OnnxGraph("small")
    graph.output(graph.constant(np.float32(2.5)), "scalar", np.float32, [])
    graph.output(graph.constant(np.zeros((0, 3), np.int64)), "empty", np.int64, [0, 3])
    scalar, empty = run(graph)
    assert scalar.shape == ()
    assert scalar == 2.5
    assert empty.shape == (0, 3)


def test_a_type_that_the_writer_lacks_is_refused() -> None:
    with pytest.raises(ValueError, match="complex64"):
        OnnxGraph("no").constant(np.zeros(2, np.complex64))


@given(st.integers(-(1 << 63), (1 << 64) - 1))
def test_numbers_are_varints(value: int) -> None:
    content = varint(value)
    assert all(byte & 0x80 for byte in content[:-1])
    assert not content[-1] & 0x80
    assert sum((byte & 0x7F) << 7 * place for place, byte in enumerate(content)) == value % (1 << 64)


@given(st.lists(st.integers(0, 1 << 40), max_size=4))
def test_negative_and_large_attributes(perm: list[int]) -> None:
    """A reshape to [-1] takes any shape: negative numbers arrive as they are."""
    graph = OnnxGraph("reshape")
    x = graph.input("x", np.float32, ["n", 2])
    graph.output(graph.node("Softmax", x, axis=-2), "y", np.float32, ["n", 2])
    rows = len(perm) + 1
    found = run(graph, x=np.ones((rows, 2), np.float32))[0]
    np.testing.assert_allclose(found, np.full((rows, 2), 1 / rows), rtol=1e-6)
