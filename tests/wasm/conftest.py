"""A host for single kernels, with each build."""

from __future__ import annotations

import asyncio

import pytest

from app.build_outputs import MODEL_BUILDS, MODEL_KERNELS
from app.building.common import VENV, VENV_PYTHON, one_build_at_a_time
from app.building.kernels import compile_kernels
from app.paths import cache_dir
from py_core.backends.wasm.host_wasmtime import WasmtimeHost


@pytest.fixture(scope="session", autouse=True)
def kernels_of_a_copy() -> None:
    """In a copy of the checkout (tests/mistakes) .venv is a link to the checkout's. Its compiler is used as it is:
    `install_zig` would make .venv anew, since it was made for another place."""
    if VENV.is_symlink():
        with one_build_at_a_time(cache_dir()):
            compile_kernels(cache_dir(), lambda: (VENV_PYTHON, "-m", "ziglang", "cc"), MODEL_KERNELS)


@pytest.fixture(scope="module", params=MODEL_BUILDS)
def host(request: pytest.FixtureRequest, kernel_wasm) -> WasmtimeHost:
    host = WasmtimeHost(kernel_wasm(request.param))
    asyncio.run(host.reserve(64 << 20))
    return host
