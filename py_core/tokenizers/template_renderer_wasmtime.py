"""Chat templates natively: web/kernels/jinja in wasmtime, stopped by a watchdog."""

from __future__ import annotations

import math
import struct
import threading
import time
import unicodedata
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import wasmtime

from py_core.tokenizers.template_renderer import COSTLY, FAILED, error_of, too_slow

_STACK_BYTES = 1 << 20
_LEAST_WAIT = 0.005


class WasmtimeTemplateRenderer:
    """`run` blocks the caller's event loop until the template ends, at most for its limit of CPU time."""

    def __init__(self, wasm: Path) -> None:
        """`wasm`: web/kernels/jinja, compiled (app/models/build_outputs.py)."""
        self.spent = 0.0
        config = wasmtime.Config()
        config.epoch_interruption = True
        config.max_wasm_stack = _STACK_BYTES
        self._engine = wasmtime.Engine(config)
        content = wasm.read_bytes()
        self._linker = _host_functions(self._engine)
        self._watchdog = _Watchdog(self._engine.increment_epoch)
        # wasmtime's compiler takes some 100 ms; it runs beside other work until a template is needed.
        self._compiling = ThreadPoolExecutor(1, "templates").submit(wasmtime.Module, self._engine, content)

    async def run(self, request: bytes, check: bool, seconds: float) -> bytes:
        instance = _Instance(self._engine, self._linker, self._compiling.result())
        try:
            with self._watchdog.watching(seconds) as spent:
                try:
                    return instance.run(request, check)
                finally:
                    self.spent = spent()
        except wasmtime.Trap as trap:
            if trap.trap_code == wasmtime.TrapCode.INTERRUPT:
                raise too_slow() from None
            if trap.trap_code == wasmtime.TrapCode.STACK_OVERFLOW:
                raise error_of(COSTLY, "it nests too deep") from None
            raise error_of(FAILED, "the renderer came upon a mistake of its own") from None
        finally:
            instance.close()


class _Watchdog:
    """A thread that stops what takes too long. It is kept, as starting a thread takes longer than a rendering."""

    def __init__(self, end: Callable[[], None]) -> None:
        self._end = end
        self._changed = threading.Condition()
        self._left: Callable[[], float] = lambda: math.inf
        self._wakes_up = math.inf
        threading.Thread(target=self._watch, name="template watchdog", daemon=True).start()

    @contextmanager
    def watching(self, seconds: float) -> Iterator[Callable[[], float]]:
        """Call `end` if the body takes longer. Yields a function that returns the seconds used so far."""
        clock = _clock_of_this_thread()
        begin = clock()
        with self._changed:
            self._left = lambda: begin + seconds - clock()
            if time.monotonic() + seconds < self._wakes_up:
                self._changed.notify()
        try:
            yield lambda: clock() - begin
        finally:
            with self._changed:
                self._left = lambda: math.inf

    def _watch(self) -> None:
        with self._changed:
            while True:
                left = self._left()
                if left <= 0:
                    self._left = lambda: math.inf
                    self._end()
                    continue
                # If the thread did not have the CPU all the time, some of its time is left.
                wait = max(left, _LEAST_WAIT)
                self._wakes_up = time.monotonic() + wait
                self._changed.wait(None if wait == math.inf else wait)


def _clock_of_this_thread() -> Callable[[], float]:
    """A clock of this thread's CPU time that any thread can read; wall-clock time if the system does not support it."""
    clock_of = getattr(time, "pthread_getcpuclockid", None)
    if clock_of is None:
        return time.monotonic
    clock = clock_of(threading.get_ident())
    return lambda: time.clock_gettime(clock)


class _Instance:
    """The module with its own memory, for one rendering."""

    def __init__(self, engine: wasmtime.Engine, linker: wasmtime.Linker, module: wasmtime.Module) -> None:
        self._store = wasmtime.Store(engine)
        self._store.set_epoch_deadline(1)
        self._exports: Any = linker.instantiate(self._store, module).exports(self._store)

    def run(self, request: bytes, check: bool) -> bytes:
        memory = self._exports["memory"]
        memory.write(self._store, request, self._call("request", len(request)))
        if check:
            self._call("check")
            return b""
        count = self._call("render")
        begin = self._call("output_bytes")
        return bytes(memory.read(self._store, begin, begin + count))

    def close(self) -> None:
        """Release the memory now: an exception that was raised keeps the rest alive for a while."""
        self._store.close()

    def _call(self, name: str, *numbers: int) -> Any:
        return self._exports[name](self._store, *numbers)


# --- the module's imports: functions on the caller's memory ---


def _host_functions(engine: wasmtime.Engine) -> wasmtime.Linker:
    i32, f64 = wasmtime.ValType.i32(), wasmtime.ValType.f64()
    linker = wasmtime.Linker(engine)
    for function, takes, gives in (
        (_refuse, [i32, i32, i32], []), (_traits, [i32], [i32]), (_recase, [i32, i32, i32], [i32]),
        (_number_text, [f64, i32], [i32]), (_text_number, [i32, i32], [f64]),
    ):  # fmt: skip
        name = function.__name__.removeprefix("_")
        linker.define_func("env", name, wasmtime.FuncType(takes, gives), function, access_caller=True)
    return linker


def _read(caller: wasmtime.Caller, begin: int, count: int) -> bytes:
    memory: Any = caller["memory"]
    return bytes(memory.read(caller, begin, begin + count))


def _write(caller: wasmtime.Caller, begin: int, content: bytes) -> None:
    memory: Any = caller["memory"]
    memory.write(caller, content, begin)


def _refuse(caller: wasmtime.Caller, kind: int, begin: int, count: int) -> None:
    raise error_of(kind, _read(caller, begin, count).decode("utf-8", "replace"))


def _recase(caller: wasmtime.Caller, code: int, to: int, out: int) -> int:
    letter = chr(code)
    others = [ord(other) for other in (letter.lower(), letter.upper(), letter.title())[to]]
    _write(caller, out, struct.pack(f"<{len(others)}I", *others))
    return len(others)


def _number_text(caller: wasmtime.Caller, number: float, out: int) -> int:
    text = repr(number).encode()
    _write(caller, out, text)
    return len(text)


def _text_number(caller: wasmtime.Caller, begin: int, count: int) -> float:
    return float(_read(caller, begin, count))


def _traits(caller: wasmtime.Caller, code: int) -> int:
    """The bits of jinja.h: ALPHA, DIGIT, UPPER, LOWER, PRINTABLE, NUMERIC, DECIMAL."""
    letter = chr(code)
    has = (
        letter.isalpha(), letter.isdigit(), letter.isupper() or unicodedata.category(letter) == "Lt", letter.islower(),
        letter.isprintable(), letter.isnumeric(), letter.isdecimal(),
    )  # fmt: skip
    return sum(1 << bit for bit, is_so in enumerate(has) if is_so)
