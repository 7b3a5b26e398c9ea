"""A host for single kernels, with either build."""

from __future__ import annotations

import asyncio

import pytest

from py_core.backends.wasm.host_wasmtime import WasmtimeHost


@pytest.fixture(scope="module", params=[True, False], ids=["relaxed", "plain"])
def host(request: pytest.FixtureRequest, kernel_wasm) -> WasmtimeHost:
    host = WasmtimeHost(kernel_wasm(request.param))
    asyncio.run(host.reserve(64 << 20))
    return host
