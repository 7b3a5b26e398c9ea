"""What keys and values take of models whose layers have windows, beside the same model without windows.

    python tests/bench/window_memory.py

By py_core/fit.py, which tests compare with what is allocated: nothing is loaded, the shapes stand here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from rich.console import Console
from rich.table import Table

from py_core.backends.wasm.layout import Mode, head_page_bytes
from py_core.fit import Need
from py_core.paging.page_table import PAGE


@dataclass(frozen=True)
class Shape:
    name: str
    kv_heads: int
    head_dim: int
    windows: tuple[int, ...]
    """Of its layers; 0 sees everything."""
    contexts: tuple[int, ...]


SHAPES = (
    Shape("Gemma 3 1B", 1, 256, tuple(0 if layer % 6 == 5 else 512 for layer in range(26)), (8192, 32768)),
    Shape("Gemma 2 2B", 4, 256, (4096, 0) * 13, (8192,)),
)


def need_of(shape: Shape, backend: str) -> Need:
    """Of keys and values alone."""
    if backend == "wasm":
        page = shape.kv_heads * head_page_bytes(shape.head_dim, Mode.PRECISE)
    else:
        page = 2 * shape.kv_heads * PAGE * shape.head_dim * 4
    return Need(
        name=shape.name, backend=backend, weights=0, layer_page=page, scratch=0, token_scratch=0, read=0,
        trained=max(shape.contexts), windows=shape.windows, smaller={},
    )  # fmt: skip


def main() -> None:
    table = Table("model", "context", "backend", "with windows, MB", "without, MB", title="Keys and values")
    for shape in SHAPES:
        for context in shape.contexts:
            for backend in ("webgpu", "wasm"):
                need = need_of(shape, backend)
                whole = replace(need, windows=(0,) * len(shape.windows))
                sizes = (f"{given.at(context).pages / 1e6:.0f}" for given in (need, whole))
                table.add_row(shape.name, f"{context:,}", backend, *sizes)
    Console().print(table)


if __name__ == "__main__":
    main()
