"""`sonata perplexity`: how well a model predicts the texts of a file."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from app.bench.perplexity import MeasuredText, Score, joined, read_texts, score_texts
from app.chat.asker import head_of_lesson
from app.cli.adapters import AdapterOption, adapter_at
from app.cli.home import HomeOption, NoMemoryOption, home_memory, notes, opened_runtime
from app.cli.loading import DEFAULTS, ModelOptions, model_options
from app.cli.model_file import NoBosOption
from app.cli.terminal import console, progress_bar
from app.generation.assistant import Assistant
from py_core.loading import Model


@model_options("autotune", "context")
def perplexity(
    file: Annotated[
        Path, typer.Argument(metavar="FILE.jsonl", help='Texts, one JSON object a line: {"text": "Once upon a time"}.')
    ],
    options: ModelOptions = DEFAULTS,
    adapter: AdapterOption = None,
    home: HomeOption = None,
    no_memory: NoMemoryOption = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object, with each text's figures.")] = False,
    no_bos: NoBosOption = False,
) -> None:
    """Measure how well the model predicts texts: perplexity is exp(nats per token), and lower is better.

    Texts are read unchanged, each by itself; a text's first token is scored only if the model begins texts with a token
    of its own. A text longer than the context is read in windows of the context, each half a context after the previous
    one. A window scores the tokens that the previous one did not reach, so half a context comes before each of them.
    Learning counts: the adapter that `sonata consolidate` trained, and a lesson if a text asks for it.
    """
    texts = read_texts(file)
    learned = not no_memory and home_memory(home).is_file()

    async def run() -> tuple[dict[str, Any], list[Score]]:
        loaded = await options.load()
        loaded.bos = not no_bos
        async with AsyncExitStack() as opened:
            opened.callback(loaded.close)
            facts = {"model": loaded.config.name, "backend": loaded.engine.capabilities.backend}
            assistant = Assistant(loaded)
            await assistant.use_adapter(adapter_at(adapter, options.model, loaded, home))
            if not learned:
                return facts, await _scored(loaded, texts, await assistant.adapter_number(), None)
            runtime = await opened.enter_async_context(opened_runtime(home, loaded, options.model, assistant.adapters))
            if assistant.leaves_out:
                notes.print(assistant.leaves_out, markup=False, soft_wrap=True)
            assert runtime.learning is not None
            head_of = head_of_lesson(runtime.learning)
            return facts, await _scored(loaded, texts, await assistant.adapter_number(), head_of)

    facts, scores = asyncio.run(run())
    whole = joined(scores)
    if as_json:
        each = [{"line": text.line, **score.facts()} for text, score in zip(texts, scores, strict=True)]
        print(json.dumps({**facts, **whole.facts(), "texts": each}))
        return
    table = Table(show_header=False, title=escape(f"{facts['model']} on {facts['backend']}, {file}"))
    table.add_row("perplexity", f"{whole.perplexity:.4f}")
    table.add_row("tokens", f"{whole.tokens:,} of {len(texts):,} {'text' if len(texts) == 1 else 'texts'}")
    table.add_row("nats", f"{whole.nats:,.2f}, {whole.nats / whole.tokens:.4f} a token")
    console().print(table)


async def _scored(
    loaded: Model, texts: list[MeasuredText], adapter: int, head_of: Callable[[str], Awaitable[int]] | None
) -> list[Score]:
    """Shows a progress bar on stderr while that is a terminal."""
    with progress_bar("Reading") as bar:
        task = bar.add_task("", total=None)
        return await score_texts(
            loaded, texts, adapter, lambda done, total: bar.update(task, completed=done, total=total), head_of
        )
