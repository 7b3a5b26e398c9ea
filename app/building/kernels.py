"""The SIMD kernels, compiled from C to WebAssembly and kept in <cache>/kernels/: a module that runs the model
(web/kernels/*.c), in three builds, one that searches indexes of vectors (web/kernels/hnsw/*.c), and one that renders
chat templates (web/kernels/jinja/*.c).

The folders there are named after the sources, the flags and the compiler's version, so that the compiler (PyPI's
ziglang, 100 MB) is installed only when a state of the sources is compiled for the first time on this machine.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from app.building.common import VENV_PYTHON, BuildError, heading, one_build_at_a_time, write_atomically
from app.building.download import Downloader
from app.building.made_files import is_whole, note
from app.building.python_env import ensure_venv, pypi_address
from app.models.build_outputs import KERNEL_MODULES, MODEL_BUILDS, KernelModule, kernel_files, sources_in
from app.paths import cache_dir

BUILDS = tuple(name for module in KERNEL_MODULES for name in module.builds)
"""All files of the kernels."""

Compiler = Callable[[], Sequence[str | Path]]
"""Makes sure that there is a C compiler and returns the command that runs it."""


def ensure_kernels(cache: Path, downloader: Downloader) -> dict[str, Path]:
    """All builds, compiled if needed: file name -> path in the cache. Raises BuildError with the compiler's message."""

    def zig() -> Sequence[str | Path]:
        return install_zig(cache, downloader)

    return {name: path for module in KERNEL_MODULES for name, path in compile_kernels(cache, zig, module).items()}


def install_zig(cache: Path, downloader: Downloader) -> Sequence[str | Path]:
    """Install ziglang in .venv; returns the command that runs its C compiler."""
    ensure_venv(cache, downloader, ("runtime", "build"))
    return VENV_PYTHON, "-m", "ziglang", "cc"


def compile_kernels(cache: Path, compiler: Compiler, module: KernelModule) -> dict[str, Path]:
    """Compile the missing files of kernel_files(); the compiler is installed only if any is missing."""
    if not sources_in(module.sources, "*.c"):
        raise BuildError(
            f"There are no C files in {module.sources}: get the whole repository and run this command again."
        )
    files = kernel_files(cache, module)
    missing = [name for name, path in files.items() if not is_whole(path)]
    if missing:
        command = compiler()
        heading(f"Kernels (C to WebAssembly): {', '.join(missing)}")
        # All or nothing: a build that fails leaves nothing behind.
        made = {name: _compile(command, name, module) for name in missing}
        for name, wasm in made.items():
            write_atomically(files[name], wasm)
            note(files[name])
    return files


def kernel_path(build: str = MODEL_BUILDS[0]) -> Path:
    """One build of the model's kernels, compiled if needed, for the tests and benchmarks."""
    return _compiled()[f"kernels-{build}.wasm"]


def hnsw_kernel_path() -> Path:
    """The index's kernel, likewise."""
    return _compiled()["hnsw.wasm"]


def grammar_kernel_path() -> Path:
    """The kernel that follows grammars, likewise."""
    return _compiled()["grammar.wasm"]


def jinja_kernel_path() -> Path:
    """The renderer of chat templates, likewise."""
    return _compiled()["jinja.wasm"]


def _compiled() -> dict[str, Path]:
    cache = cache_dir()
    with one_build_at_a_time(cache):
        return ensure_kernels(cache, Downloader(cache, pypi_address))


def _compile(command: Sequence[str | Path], name: str, module: KernelModule) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        wasm = Path(folder, name)
        names = [path.name for path in sources_in(module.sources, "*.c")]
        words = [str(word) for word in (*command, *module.flags, *module.builds[name], *names, "-o", wasm)]
        env: Mapping[str, str] = os.environ | {"ZIG_GLOBAL_CACHE_DIR": folder, "ZIG_LOCAL_CACHE_DIR": folder}
        result = subprocess.run(words, cwd=module.sources, env=env, capture_output=True, text=True, errors="replace")
        if result.returncode:
            said = (result.stdout + result.stderr).strip() or f"The compiler ended with {result.returncode}."
            raise BuildError(
                f"{said}\n\n{name} cannot be compiled from {module.sources}: fix the error above and run this again."
            )
        return wasm.read_bytes()
