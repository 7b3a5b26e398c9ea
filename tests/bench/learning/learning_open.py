"""The cost of answers with learning open if no lesson answers, beside the same without learning, natively.

    python -m tests.bench learning_open [--rounds N] [--tokens N] [--json FILE]

Both in turns, on the WASM kernels, in new conversations: milliseconds to the first word, and of each token after it.
"""

from __future__ import annotations

import argparse
import time
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from rich.table import Table

from app.chat.conversation import Conversation
from app.generation.assistant import Assistant
from app.lessons.facts import facts
from app.models.build_outputs import kernel_path
from app.models.cache import sha256_of_model
from app.models.downloads import default_model_path
from app.models.template_renderer import native_renderer
from app.native_runtime import open_runtime
from app.protocol import Delta, Done
from app.records.lessons import Lesson
from py_core.backends.wasm.backend import load_wasm
from py_core.backends.wasm.host_wasmtime import WasmtimeHost
from py_core.formats.source import FileSource
from py_core.loading import load_model
from py_core.sampling import SamplingParams
from tests.bench.reporting import options_of, print_tables, write_figures

QUESTIONS = ("Write a short story about the sea.", "How do bees find their way home?", "Describe a quiet village.")
KINDS = ("with learning", "without")


async def main() -> None:
    parser = options_of(__doc__)
    parser.add_argument("--rounds", type=int, default=16, help="pairs")
    parser.add_argument("--tokens", type=int, default=48)
    options = parser.parse_args()
    with TemporaryDirectory() as folder:
        await measure(options, Path(folder))


async def measure(options: argparse.Namespace, folder: Path) -> None:
    path = default_model_path()
    loader = partial(load_wasm, WasmtimeHost(kernel_path()))
    model = await load_model(FileSource(path), loader, native_renderer())
    runtime = await open_runtime(folder / "memory.sqlite", model, sha256_of_model(path))
    learning = runtime.learning
    assert learning is not None
    for fact in facts("dev"):
        (meaning,) = await learning.embedder.meanings([fact.question])
        await learning.memory.lessons.keep(Lesson(fact.question, fact.answer, vector=meaning.vector))
    found: dict[str, dict[str, list[float]]] = {kind: {"first": [], "token": []} for kind in KINDS}
    for turn in range(-1, options.rounds):
        question = QUESTIONS[turn % len(QUESTIONS)]
        for kind in KINDS if turn % 2 else KINDS[::-1]:
            runtime.learning = learning if kind == KINDS[0] else None
            learning.embedder.forget()
            conversation = Conversation(Assistant(model, SamplingParams(), options.tokens), runtime)
            first, token = await answered(conversation, question)
            if turn >= 0:
                found[kind]["first"].append(first)
                found[kind]["token"].append(token)
    table = Table("", "first word, ms", "a token, ms", title=f"wasm, {options.rounds} pairs, {options.tokens} tokens")
    for kind, each in found.items():
        table.add_row(kind, f"{median(each['first']):.1f}", f"{median(each['token']):.2f}")
    ratios = {what: median(a / b for a, b in zip(found[KINDS[0]][what], found[KINDS[1]][what], strict=True))
              for what in ("first", "token")}  # fmt: skip
    table.add_row("ratio, median of pairs", f"{ratios['first']:.3f}", f"{ratios['token']:.3f}")
    print_tables(table)
    write_figures(options, {"milliseconds": found, "ratios": ratios})
    runtime.learning = learning
    await runtime.close()
    model.close()


async def answered(conversation: Conversation, question: str) -> tuple[float, float]:
    """Return the milliseconds to the first word, and per token."""
    conversation.recorder.idle_seconds = 3600.0  # reading answers again has its own benchmark
    begin, first, done = time.perf_counter(), 0.0, None
    async for event in conversation.respond(question):
        if isinstance(event, Delta) and not first:
            first = 1000 * (time.perf_counter() - begin)
        if isinstance(event, Done):
            done = event
    conversation.assistant.close()
    assert done is not None
    return first, 1000 * done.decode_seconds / done.new_tokens
