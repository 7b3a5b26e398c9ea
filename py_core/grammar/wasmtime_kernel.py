"""The kernel of web/kernels/grammar natively, in wasmtime."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import wasmtime
from wasmtime import _ffi

_FUNCTIONS = (
    *(
        "set_vocabulary",
        "allocate",
        "give",
        "add_automaton",
        "drop_automaton",
        "open_grammar",
        "close_grammar",
        "begin",
        "has_failed",
    ),
    *("may_end", "state_count", "after_bytes", "after_tokens", "mask", "moves", "forced", "closing", "memory_pages"),
)
_MOST_NUMBERS = 6
"""A function has so many parameters at most."""


class WasmtimeGrammarHost:
    """See `KernelHost`."""

    def __init__(self, wasm: Path) -> None:
        """`wasm`: web/kernels/grammar, compiled (app/models/build_outputs.py)."""
        config = wasmtime.Config()
        config.cranelift_opt_level = "speed"
        engine = wasmtime.Engine(config)
        self._store = wasmtime.Store(engine)
        instance = wasmtime.Instance(self._store, wasmtime.Module(engine, wasm.read_bytes()), [])
        exports = instance.exports(self._store)
        memory = exports["memory"]
        assert isinstance(memory, wasmtime.Memory)
        self._memory = memory
        self.exports = SimpleNamespace(**{name: self._bound(exports[name]) for name in _FUNCTIONS})

    def write(self, address: int, data: bytes | memoryview) -> None:
        ctypes.memmove(self._base() + address, bytes(data), len(data))

    def read(self, address: int, nbytes: int) -> bytes:
        return ctypes.string_at(self._base() + address, nbytes)

    def _base(self) -> int:
        return ctypes.addressof(self._memory.data_ptr(self._store).contents)

    def _bound(self, function: Any) -> Callable[..., int]:
        """A function of numbers. wasmtime's own call asks for the types each time, which takes ten times as long as
        most of the kernel's functions."""
        context, address = self._store._context(), ctypes.byref(function._func)
        values = (_ffi.wasmtime_val_raw_t * _MOST_NUMBERS)()
        cells = (ctypes.c_uint32 * (ctypes.sizeof(values) // 4)).from_buffer(values)
        stride = ctypes.sizeof(_ffi.wasmtime_val_raw_t) // 4
        trap = ctypes.POINTER(_ffi.wasm_trap_t)()
        trap_address = ctypes.byref(trap)

        def call(*numbers: int) -> int:
            for at, number in enumerate(numbers):
                cells[at * stride] = number
            error = _ffi.wasmtime_func_call_unchecked(context, address, values, _MOST_NUMBERS, trap_address)
            if error or trap:
                raise RuntimeError("The kernel of grammars has failed.")
            return cells[0]

        return call
