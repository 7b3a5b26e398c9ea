"""The compiled kernels, and how they are compiled and kept."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from wasmtime import Config, Engine, Instance, Limits, Memory, MemoryType, Module, SharedMemory, Store, WasmtimeError
from wasmtime import _ffi as ffi

from app.building import kernels
from app.building.common import BuildError, one_build_at_a_time
from app.building.download import Downloader
from app.building.python_env import pypi_address
from app.models import build_outputs
from app.paths import cache_dir
from py_core.backends.wasm.host import HEAP_BASE

EACH = pytest.mark.parametrize("build", build_outputs.MODEL_BUILDS)
KernelWasm = Callable[..., Path]

SMALL_KERNELS = """
#include "shared.h"
static const float table[4] = {1, 2, 3, 4};
static int calls = 0;
EXPORT(run) int run(void) { return __atomic_add_fetch(&calls, 1, __ATOMIC_SEQ_CST); }
EXPORT(repack) float repack(const float *a, int n) {
  v128_t sum = wasm_v128_load(table);
  for (int i = 0; i < n; i += 4) sum = MULTIPLY_ADD(wasm_v128_load(a + i), wasm_v128_load(a + i), sum);
  return wasm_f32x4_extract_lane(sum, 3);
}
"""
SHARED_HEADER = """
#include <wasm_simd128.h>
#define EXPORT(name) __attribute__((visibility("default"), export_name(#name)))
#ifdef PLAIN_SIMD
#define MULTIPLY_ADD(a, b, c) wasm_f32x4_add(wasm_f32x4_mul(a, b), c)
#else
#define MULTIPLY_ADD wasm_f32x4_relaxed_madd
#endif
"""


def engine(relaxed: bool) -> Engine:
    config = Config()
    config.wasm_threads = True
    config.shared_memory = True
    config.wasm_relaxed_simd = relaxed
    return Engine(config)


def module(wasm: Path) -> Module:
    return Module(engine(relaxed=True), wasm.read_bytes())


def no_compiler() -> list[str]:
    raise AssertionError("the compiler was asked for")


@pytest.fixture
def small(tmp_path: Path) -> build_outputs.KernelModule:
    """The model's flags and builds, with small sources."""
    folder = tmp_path / "sources"
    folder.mkdir()
    (folder / "small.c").write_text(SMALL_KERNELS)
    (folder / "shared.h").write_text(SHARED_HEADER)
    return replace(build_outputs.MODEL_KERNELS, sources=folder)


@pytest.fixture(scope="module")
def compiler() -> kernels.Compiler:
    """The real compiler, installed if needed."""
    cache = cache_dir()
    with one_build_at_a_time(cache):
        command = kernels.install_zig(cache, Downloader(cache, pypi_address))
    return lambda: command


# --- the shipped files ---


@EACH
def test_they_import_nothing_but_their_memory(kernel_wasm: KernelWasm, build: str) -> None:
    assert [(i.module, i.name) for i in module(kernel_wasm(build)).imports] == [("env", "memory")]


@EACH
def test_they_export_what_the_hosts_call(kernel_wasm: KernelWasm, build: str) -> None:
    assert {"run", "repack", "__stack_pointer"} <= {export.name for export in module(kernel_wasm(build)).exports}


@EACH
def test_they_are_small_and_carry_nothing_for_debuggers(kernel_wasm: KernelWasm, build: str) -> None:
    wasm = kernel_wasm(build).read_bytes()
    assert len(wasm) < 195_000
    for section in (b"producers", b".debug_", b"target_features", b"sourceMappingURL"):
        assert section not in wasm


def test_only_the_plain_build_runs_without_relaxed_simd(kernel_wasm: KernelWasm) -> None:
    without = engine(relaxed=False)
    Module.validate(without, kernel_wasm("simd").read_bytes())
    for build in ("dot", "pairs"):
        with pytest.raises(WasmtimeError, match="relaxed SIMD"):
            Module.validate(without, kernel_wasm(build).read_bytes())


@EACH
def test_their_constants_end_below_what_the_backend_gives_out(kernel_wasm: KernelWasm, build: str) -> None:
    (memory,) = (imported.type for imported in module(kernel_wasm(build)).imports)
    assert isinstance(memory, MemoryType)
    assert memory.limits.min << 16 <= HEAP_BASE


def test_the_command_line_finds_them(kernel_wasm: KernelWasm, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert build_outputs.kernel_path("simd") == kernel_wasm("simd")
    monkeypatch.setenv("SONATA_CACHE", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"run `python build\.py site` once to compile it"):
        build_outputs.kernel_path()


def test_the_site_ships_the_kernels_without_their_sources(dist: Path, kernel_wasm: KernelWasm) -> None:
    shipped = {path.name: path.read_bytes() for path in (dist / "kernels").iterdir()}
    compiled = {f"kernels-{build}.wasm": kernel_wasm(build) for build in build_outputs.MODEL_BUILDS}
    compiled |= {"hnsw.wasm": kernels.hnsw_kernel_path(), "jinja.wasm": kernels.jinja_kernel_path()}
    compiled["grammar.wasm"] = kernels.grammar_kernel_path()
    assert shipped == {name: path.read_bytes() for name, path in compiled.items()}


@pytest.mark.all
def test_kernels_that_were_damaged_in_the_cache_are_compiled_again(
    small: build_outputs.KernelModule, compiler: kernels.Compiler, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = kernels.compile_kernels(tmp_path, compiler, small)
    made = {name: path.read_bytes() for name, path in files.items()}
    assert kernels.compile_kernels(tmp_path, no_compiler, small) == files
    files["kernels-simd.wasm"].write_bytes(made["kernels-simd.wasm"][:-1] + b"!")
    kernels.compile_kernels(tmp_path, compiler, small)
    assert {name: path.read_bytes() for name, path in files.items()} == made
    assert "kernels-simd.wasm in the cache is damaged; it is made again" in capsys.readouterr().err


def test_the_renderer_of_templates_has_little_memory_and_asks_its_host_for_letters_and_numbers_only() -> None:
    renderer = module(kernels.jinja_kernel_path())
    (memory,) = (exported.type for exported in renderer.exports if exported.name == "memory")
    assert isinstance(memory, MemoryType)
    assert memory.limits.max == (128 << 20) // 65536
    asked = {imported.name for imported in renderer.imports}
    assert asked == {"refuse", "traits", "recase", "number_text", "text_number"}


def test_the_kernel_of_indexes_fits_into_any_memory() -> None:
    wasm = kernels.hnsw_kernel_path().read_bytes()
    without = engine(relaxed=False)
    searching = Module(without, wasm)
    assert [(i.module, i.name) for i in searching.imports] == [("env", "memory")]
    (memory,) = (imported.type for imported in searching.imports)
    assert isinstance(memory, MemoryType)
    assert memory.limits.max is None
    assert len(wasm) < 20_000
    # It has no data: an instance leaves the memory unchanged.
    store = Store(without)
    filled = Memory(store, MemoryType(Limits(1, None)))
    before = b"\xa5" * 65536
    filled.write(store, before)
    Instance(store, searching, [filled])
    assert filled.read(store) == before


# --- how they are compiled ---


@pytest.mark.all
def test_what_was_compiled_before_needs_no_compiler(
    tmp_path: Path, small: build_outputs.KernelModule, compiler: kernels.Compiler
) -> None:
    first = kernels.compile_kernels(tmp_path, compiler, small)
    assert set(first) == set(build_outputs.MODEL_KERNELS.builds)
    assert kernels.compile_kernels(tmp_path, no_compiler, small) == first


@pytest.mark.parametrize("changed", ["small.c", "shared.h"])
def test_another_state_of_the_sources_is_compiled_anew(
    tmp_path: Path, small: build_outputs.KernelModule, compiler: kernels.Compiler, changed: str
) -> None:
    first = kernels.compile_kernels(tmp_path, compiler, small)
    before = (small.sources / changed).read_text()
    (small.sources / changed).write_text(before + "// more\n")
    second = kernels.compile_kernels(tmp_path, compiler, small)
    assert not set(second.values()) & set(first.values())
    (small.sources / changed).write_text(before)
    assert kernels.compile_kernels(tmp_path, no_compiler, small) == first


def test_the_same_sources_give_the_same_bytes(
    tmp_path: Path, small: build_outputs.KernelModule, compiler: kernels.Compiler
) -> None:
    elsewhere = tmp_path / "elsewhere"
    small.sources.rename(elsewhere)
    second = kernels.compile_kernels(tmp_path / "2", compiler, replace(small, sources=elsewhere))
    elsewhere.rename(small.sources)
    first = kernels.compile_kernels(tmp_path / "1", compiler, small)
    for name in small.builds:
        assert first[name].read_bytes() == second[name].read_bytes()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("int f(void) { return missing_name; }", "small.c:11:22: error: use of undeclared identifier 'missing_name'"),
        ("static int unused(void) { return 1; }", "error: unused function 'unused'"),
        ("int g(int); EXPORT(h) int h(void) { return g(1); }", "undefined symbol: g"),
        ("#ifdef PLAIN_SIMD\n#error only here\n#endif", "error: only here"),
    ],
)
def test_a_mistake_in_c_is_shown_and_leaves_nothing(
    tmp_path: Path, small: build_outputs.KernelModule, compiler: kernels.Compiler, line: str, said: str
) -> None:
    with (small.sources / "small.c").open("a") as file:
        file.write(line + "\n")
    listed = sorted(small.sources.iterdir())
    with pytest.raises(BuildError) as error:
        kernels.compile_kernels(tmp_path / "cache", compiler, small)
    assert said in str(error.value)
    assert str(error.value).endswith("fix the error above and run this again.")
    assert sorted(small.sources.iterdir()) == listed
    assert not (tmp_path / "cache").exists()


def test_no_c_files_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match=r"There are no C files in .*: get the whole repository"):
        kernels.compile_kernels(tmp_path, no_compiler, replace(build_outputs.MODEL_KERNELS, sources=tmp_path))


# --- that they run ---


class Shared(SharedMemory):
    """wasmtime 50.0.1 wraps the pointer once too often, and then no module can import the memory."""

    def _as_extern(self) -> ffi.wasmtime_extern_t:
        union = ffi.wasmtime_extern_union(sharedmemory=self.ptr())
        return ffi.wasmtime_extern_t(ffi.WASMTIME_EXTERN_SHAREDMEMORY, union)


@EACH
def test_workers_share_one_memory(
    tmp_path: Path, small: build_outputs.KernelModule, compiler: kernels.Compiler, build: str
) -> None:
    files = kernels.compile_kernels(tmp_path, compiler, small)
    with_or_without = engine(build != "simd")
    compiled = Module(with_or_without, files[f"kernels-{build}.wasm"].read_bytes())
    memory = Shared(with_or_without, MemoryType(Limits(HEAP_BASE >> 16, 65535), shared=True))
    for call in (1, 2):
        store = Store(with_or_without)
        exports = Instance(store, compiled, [memory]).exports(store)
        assert exports["run"](store) == call  # constants are written by the first instance only
    ctypes.memmove(ctypes.addressof(memory.data_ptr().contents) + 4096, (ctypes.c_float * 8)(*range(8)), 32)
    assert exports["repack"](store, 4096, 8) == 4 + 3 * 3 + 7 * 7
