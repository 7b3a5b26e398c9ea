"""The kernel of web/kernels/grammar natively, in wasmtime."""

from __future__ import annotations

import ctypes
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import wasmtime

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
    *("may_end", "state_count", "after_bytes", "after_token", "mask", "forced", "memory_pages"),
)


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

    def _bound(self, function: Any) -> Any:
        store = self._store
        # wasmtime expects signed numbers.
        return lambda *numbers: function(store, *(number - (number >> 31 << 32) for number in numbers))
