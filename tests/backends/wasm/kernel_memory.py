"""Runs single WASM kernels over memory that a test lays out."""

from __future__ import annotations

import asyncio

import numpy as np
from hypothesis import HealthCheck, settings

from py_core.backends.sampling_state import ROW_BYTES
from py_core.backends.wasm.host_wasmtime import WasmtimeHost
from py_core.backends.wasm.layout import Arena, Mode, Op, program_bytes

ROOM = 12
"""Number of rows for which the activations have room."""

few = settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


RELATIVE = {Mode.FAST: 0.03, Mode.PRECISE: 6e-4, Mode.FLOAT: 1e-5}
"""The largest error of all results together, relative to their size. A bound for each alone must allow for the
largest values, and the mean of many would always pass it."""


def put(host: WasmtimeHost, arena: Arena, data: bytes | np.ndarray) -> int:
    raw = data if isinstance(data, bytes) else np.ascontiguousarray(data).tobytes()
    address = arena.take(len(raw) + 16)
    host.write(address, raw)
    return address


def run(host: WasmtimeHost, arena: Arena, ops: list[Op], state: bytes) -> int:
    program = put(host, arena, program_bytes(ops, put(host, arena, state + bytes(ROW_BYTES * ROOM))))

    async def once() -> list[int]:
        return await host.run(program, 1)

    return asyncio.run(once())[0]


def read(host: WasmtimeHost, address: int, *shape: int) -> np.ndarray:
    raw = asyncio.run(host.read(address, int(np.prod(shape)) * 4))
    return np.frombuffer(raw, np.float32).reshape(shape)
