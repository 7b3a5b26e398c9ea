"""Shared by the benchmarks: their options, the printing of tables and the writing of figures."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from rich.console import Console, RenderableType

WIDTH = 125
"""The width of an output that is not a terminal."""


def options_of(doc: str | None) -> argparse.ArgumentParser:
    """A parser with the options that all benchmarks take; doc: the benchmark's docstring."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog=f"python -m tests.bench {sys.argv[0]}", description=doc, formatter_class=form)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures here")
    return parser


def write_figures(options: argparse.Namespace, figures: Any) -> None:
    """Write the figures to the file of --json, if it is given."""
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n", "utf-8")


def print_tables(*tables: RenderableType) -> None:
    for table in tables:
        Console(width=None if sys.stdout.isatty() else WIDTH).print(table)
