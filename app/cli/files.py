"""`sonata quantize` and `sonata convert`: model files into model files."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from app.cli.terminal import console, progress_bar, say
from app.models.converting.converter import convert_folder
from app.models.quantization import quantize_file
from py_core.models.diffusion import LONGEST_BLOCK

notes = console(stderr=True)


class Mixture(StrEnum):
    q4_k_m = "Q4_K_M"
    q5_k_m = "Q5_K_M"
    q8_0 = "Q8_0"
    mixed = "mixed"


def quantize(
    source: Annotated[Path, typer.Argument(metavar="IN.gguf", help="The model's file, or the first of several.")],
    out: Annotated[Path, typer.Argument(metavar="OUT.gguf", help="The file to write.")],
    mixture: Annotated[
        Mixture, typer.Option("--type", help="mixed keeps attention in F16 and uses 4 bits for the MLP.")
    ],
) -> None:
    """Make a smaller model file: each matrix gets the format that llama.cpp would give it."""
    with progress_bar("Quantizing") as bar:
        task = bar.add_task("", total=None)
        made = quantize_file(
            source, out, mixture.value, lambda done, total: bar.update(task, completed=done, total=total)
        )
    table = Table("format", "tensors", "MB", title=escape(f"{out} ({out.stat().st_size / 1e6:.1f} MB)"))
    for name, (count, size) in sorted(made.formats.items(), key=lambda item: -item[1][1]):
        table.add_row(name, str(count), f"{size / 1e6:.1f}")
    console().print(table)
    if made.again:
        notes.print(
            f"Weights in {' and '.join(made.again)} were quantized already, so their precision does not come back."
        )


def convert(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="FOLDER", help="The model's folder, with config.json, tokenizer.json and safetensors files."
        ),
    ],
    out: Annotated[Path, typer.Argument(metavar="OUT.gguf", help="The file to write.")],
    block: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=LONGEST_BLOCK,
            help="Places that a model of diffusion writes at a time, 0 for all. Usually the folder says it.",
        ),
    ] = None,
) -> None:
    """Make a model file from a Hugging Face folder. `sonata quantize` then makes it smaller."""
    with progress_bar("Converting") as bar:
        task = bar.add_task("", total=None)
        made = convert_folder(folder, out, lambda done, total: bar.update(task, completed=done, total=total), block)
    say(f"{out}: {made.architecture}, {made.tensors} tensors, {made.nbytes / 1e6:.1f} MB")
