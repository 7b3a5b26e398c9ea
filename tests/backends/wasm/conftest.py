"""A host for single kernels, with each build."""

from __future__ import annotations

import asyncio

import pytest

from app.models.build_outputs import MODEL_BUILDS
from py_core.backends.wasm.host_wasmtime import WasmtimeHost


@pytest.fixture(scope="module", params=MODEL_BUILDS)
def host(request: pytest.FixtureRequest, kernel_wasm) -> WasmtimeHost:
    host = WasmtimeHost(kernel_wasm(request.param))
    asyncio.run(host.reserve(64 << 20))
    return host
