"""The kernel of web/kernels/hnsw/hnsw.c natively, in wasmtime. numpy arrays are views of its memory."""

from __future__ import annotations

import ctypes
import weakref
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import wasmtime

from py_core.hnsw.hnsw_graph import KernelBlock
from py_core.hnsw.wasm_kernel import STACK_BYTES, WasmHnswKernel

_PAGE = 65536
_MOST_PAGES = 65535
_HEAP_BASE = 1024 + STACK_BYTES
_FUNCTIONS = ("prepare", "search", "scan", "link", "bridge")


class WasmtimeHnswKernel(WasmHnswKernel):
    """One memory for all indexes that use it; memory that one frees is reused by another of the same sizes."""

    def __init__(self, wasm: Path) -> None:
        """`wasm`: web/kernels/hnsw, compiled (app/models/build_outputs.py)."""
        config = wasmtime.Config()
        config.cranelift_opt_level = "speed"
        # Reserve the whole address range at once, so that the memory does not move when it grows.
        config.memory_reservation = 1 << 32
        config.memory_may_move = False
        engine = wasmtime.Engine(config)
        self._store = wasmtime.Store(engine)
        self._memory = wasmtime.Memory(self._store, wasmtime.MemoryType(wasmtime.Limits(1, _MOST_PAGES)))
        instance = wasmtime.Instance(self._store, wasmtime.Module(engine, wasm.read_bytes()), [self._memory])
        exports = instance.exports(self._store)
        stack = exports["__stack_pointer"]
        assert isinstance(stack, wasmtime.Global)
        stack.set_value(self._store, wasmtime.Val.i32(_HEAP_BASE))
        super().__init__(SimpleNamespace(**{name: self._bound(exports[name]) for name in _FUNCTIONS}))
        self._base = ctypes.addressof(self._memory.data_ptr(self._store).contents)
        self._end = _HEAP_BASE
        self._free: defaultdict[int, list[int]] = defaultdict(list)

    @property
    def memory_bytes(self) -> int:
        """All memory taken so far, in use or free again."""
        return self._end

    def allocate(self, nbytes: int) -> KernelBlock:
        nbytes = -(-nbytes // 16) * 16
        address = self._free[nbytes].pop() if self._free[nbytes] else self._extend(nbytes)
        memory = (ctypes.c_uint8 * nbytes).from_address(self._base + address)
        memory.kernel = self  # type: ignore[attr-defined] # the memory lives as long as there is a view of it
        view = np.frombuffer(memoryview(memory).cast("B"), np.uint8)
        view[:] = 0
        weakref.finalize(memory, self._free[nbytes].append, address)
        return KernelBlock(address, view)

    def _extend(self, nbytes: int) -> int:
        address, self._end = self._end, self._end + nbytes
        lacking = -(-self._end // _PAGE) - self._memory.size(self._store)
        if lacking > 0:
            try:
                self._memory.grow(self._store, lacking)
            except wasmtime.WasmtimeError as error:
                self._end = address
                raise MemoryError("The indexes need more memory than there can be (4 GiB).") from error
        return address

    def _bound(self, function: Any) -> Any:
        store = self._store
        # wasmtime expects signed numbers.
        return lambda *numbers: function(store, *(number - (number >> 31 << 32) for number in numbers))
