"""`sonata bench memory`: the contents of a model's memory, by owner and tier."""

from __future__ import annotations

import asyncio
import json
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from app.bench.memory import OWNERS, measure_memory
from app.cli.loading import DEFAULTS, ModelOptions, model_options
from app.cli.models import size_words
from app.cli.terminal import console
from py_core.backends.memory_use import MemoryUse


@model_options("autotune", "tiers", "draft", "max_memory")
def bench_memory(
    conversations: Annotated[int, typer.Option(min=0, help="How many conversations to open.")] = 1,
    tokens: Annotated[int, typer.Option(min=1, help="Tokens in each.")] = 1024,
    options: ModelOptions = DEFAULTS,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object, sizes in bytes.")] = False,
) -> None:
    """Open conversations and print what is in memory: bytes by owner, and by tier for keys and values."""

    async def run() -> tuple[str, MemoryUse]:
        loaded = await options.load()
        try:
            return loaded.config.name, await measure_memory(loaded, conversations, tokens)
        finally:
            loaded.close()

    name, use = asyncio.run(run())
    if as_json:
        print(json.dumps(use.facts()))
    else:
        console().print(memory_table(name, use, f"{conversations} x {tokens} tokens"))


def memory_table(name: str, use: MemoryUse, of: str) -> Table:
    limit = "" if use.limit is None else f", {size_words(use.limit)} at most"
    table = Table(title=f"{escape(name)}: {size_words(use.total)} with {of}{limit}")
    table.add_column("owner")
    table.add_column("tier")
    for heading in ("size", "share"):
        table.add_column(heading, justify="right")
    for owner, tier, nbytes in use.rows():
        table.add_row(OWNERS[owner], tier, size_words(nbytes), f"{nbytes / use.total:.1%}")
    return table
