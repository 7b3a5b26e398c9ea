"""Where the compiled SIMD kernels lie on this machine. Standard library only."""

from __future__ import annotations

from pathlib import Path

from app.building.kernels import kernel_files
from app.models import cache_dir


def kernel_path(relaxed: bool = True) -> Path:
    """The build with relaxed SIMD, or the plain one, of web/kernels as it is now.

    Raises FileNotFoundError, with what to do, when it has not been compiled.
    """
    path = kernel_files(cache_dir())["kernels-relaxed.wasm" if relaxed else "kernels-simd.wasm"]
    if not path.is_file():
        raise FileNotFoundError(f"{path} is not there: run `python build.py site` once to compile it.")
    return path
