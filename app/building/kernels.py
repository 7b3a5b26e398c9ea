"""The SIMD kernels: web/kernels/*.c -> kernels-relaxed.wasm and kernels-simd.wasm, kept in <cache>/kernels/.

The folder there is named after the sources, the flags and the compiler's version, so that the compiler (PyPI's
ziglang, 100 MB) is installed only when a state of the sources is compiled for the first time on this machine.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from app.building.common import ROOT, VENV_PYTHON, BuildError, heading, one_build_at_a_time, write_atomically
from app.building.download import Downloader
from app.building.python_env import LOCKS, ensure_venv, pypi_address
from app.models import cache_dir

SOURCES = ROOT / "web" / "kernels"

BUILDS = {
    "kernels-relaxed.wasm": ("-mrelaxed-simd",),
    "kernels-simd.wasm": ("-DPLAIN_SIMD",),  # for browsers without relaxed SIMD
}
FLAGS = (
    *("-target", "wasm32-freestanding", "-O3", "-nostdlib"),
    *("-Wall", "-Wextra", "-Werror"),
    *("-msimd128", "-mbulk-memory", "-matomics"),
    *("-Wl,--no-entry", "-Wl,--strip-all"),
    # The workers share one memory. 65,535 pages: one less than there can be, since zig reads this number into 32 bits.
    *("-Wl,--import-memory", "-Wl,--shared-memory", f"-Wl,--max-memory={65535 << 16}"),
    # Constants lie in the last 64 KiB below HEAP_BASE (py_core/backends/wasm/host.py). Each worker sets its own stack.
    *("-Wl,--export=__stack_pointer", "-Wl,-z,stack-size=65536", f"-Wl,--global-base={(2 << 20) - (64 << 10)}"),
)

Compiler = Callable[[], Sequence[str | Path]]
"""Makes sure that there is a C compiler and returns the command that runs it."""


def ensure_kernels(cache: Path, downloader: Downloader) -> dict[str, Path]:
    """Both builds, compiled if need be: file name -> path in the cache. BuildError: what the compiler says."""
    return compile_kernels(cache, lambda: install_zig(cache, downloader))


def install_zig(cache: Path, downloader: Downloader) -> Sequence[str | Path]:
    """Have ziglang in .venv; returns the command that runs its C compiler."""
    ensure_venv(cache, downloader, ("runtime", "build"))
    return VENV_PYTHON, "-m", "ziglang", "cc"


def compile_kernels(cache: Path, compiler: Compiler, sources: Path = SOURCES) -> dict[str, Path]:
    """What of kernel_files() is missing is compiled; the compiler is asked for only then."""
    if not _c_files(sources, "*.c"):
        raise BuildError(f"There are no C files in {sources}: get the whole repository and run this command again.")
    files = kernel_files(cache, sources)
    missing = [name for name, path in files.items() if not path.is_file()]
    if missing:
        command = compiler()
        heading("Kernels (C to WebAssembly)")
        # All or nothing: a build that fails leaves no half of a state.
        made = {name: _compile(command, name, sources) for name in missing}
        for name, wasm in made.items():
            write_atomically(files[name], wasm)
    return files


def kernel_files(cache: Path, sources: Path = SOURCES) -> dict[str, Path]:
    """Where both builds of the sources as they are now lie, or will lie once compiled."""
    state = hashlib.sha256(repr((FLAGS, BUILDS, _zig_version())).encode())
    for path in _c_files(sources, "*.[ch]"):
        content = path.read_bytes()
        state.update(f"\n{path.name} {len(content)}\n".encode() + content)
    return {name: cache / "kernels" / state.hexdigest()[:16] / name for name in BUILDS}


def kernel_path(relaxed: bool = True) -> Path:
    """One build, compiled if need be, for the tests and benchmarks."""
    cache = cache_dir()
    with one_build_at_a_time(cache):
        files = ensure_kernels(cache, Downloader(cache, pypi_address))
    return files["kernels-relaxed.wasm" if relaxed else "kernels-simd.wasm"]


def _compile(command: Sequence[str | Path], name: str, sources: Path) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        wasm = Path(folder, name)
        names = [path.name for path in _c_files(sources, "*.c")]
        words = [str(word) for word in (*command, *FLAGS, *BUILDS[name], *names, "-o", wasm)]
        env: Mapping[str, str] = os.environ | {"ZIG_GLOBAL_CACHE_DIR": folder, "ZIG_LOCAL_CACHE_DIR": folder}
        result = subprocess.run(words, cwd=sources, env=env, capture_output=True, text=True, errors="replace")
        if result.returncode:
            said = (result.stdout + result.stderr).strip() or f"The compiler ended with {result.returncode}."
            raise BuildError(
                f"{said}\n\n{name} cannot be compiled from {sources}: correct what is said above and run this again."
            )
        return wasm.read_bytes()


def _c_files(sources: Path, pattern: str) -> list[Path]:
    return sorted(sources.glob(pattern), key=lambda path: path.name)


def _zig_version() -> str:
    version = re.search(r"^ziglang==(\S+)", (LOCKS / "build.lock").read_text(), re.MULTILINE)
    assert version, "requirements/build.lock names no ziglang"
    return version[1]
