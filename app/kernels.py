"""Where the compiled SIMD kernels lie on this machine. Standard library only."""

from __future__ import annotations

from pathlib import Path

from app.building.kernels import HNSW, MODEL, KernelModule, kernel_files
from app.models import cache_dir


def kernel_path(relaxed: bool = True) -> Path:
    """The build with relaxed SIMD, or the plain one, of the model's kernels as they are now.

    Raises FileNotFoundError, with what to do, when it has not been compiled.
    """
    return _compiled(MODEL, "kernels-relaxed.wasm" if relaxed else "kernels-simd.wasm")


def hnsw_kernel_path() -> Path:
    """The kernel that searches indexes of vectors. Raises FileNotFoundError, as kernel_path does."""
    return _compiled(HNSW, "hnsw.wasm")


def _compiled(module: KernelModule, name: str) -> Path:
    path = kernel_files(cache_dir(), module)[name]
    if not path.is_file():
        raise FileNotFoundError(f"{path} is not there: run `python build.py site` once to compile it.")
    return path
