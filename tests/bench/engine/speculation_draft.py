"""The measurements of `speculation.py --draft`: natively, each task without guesses, with guesses from the text, and
with a draft's guesses as well, in turns over the same loaded models."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

from rich.table import Table

from app.models.build_outputs import kernel_path
from app.models.template_renderer import native_renderer
from py_core.backends.wasm.backend import load_wasm
from py_core.backends.wasm.host_wasmtime import WasmtimeHost
from py_core.draft_loading import check_draft, load_draft, read_draft
from py_core.engine.engine import Timings
from py_core.engine.scheduler import Priority
from py_core.formats.gguf import read_header
from py_core.formats.source import FileSource
from py_core.loading import BackendLoader, Model, load_model
from py_core.sampling import SamplingParams

WAYS = ("plain", "lookup", "draft")


@dataclass(frozen=True)
class Answer:
    """`passes` of the draft's guesses, how many of these there were, and how many were right."""

    kind: str
    way: str
    tokens: list[int]
    tok_s: float
    passes: int
    guessed: int
    right: int


def _loader(backend: str, precision: str) -> BackendLoader:
    if backend == "webgpu":
        from app.models.autotune_cache import AutotuneCache
        from py_core.backends.webgpu.backend import load_webgpu
        from py_core.backends.webgpu.host_wgpu import WgpuHost

        return partial(load_webgpu, WgpuHost(), tuning=AutotuneCache())
    return partial(load_wasm, WasmtimeHost(kernel_path()), precision=precision)


async def open_both(path: Path, draft_path: Path, backend: str, precision: str) -> Model:
    source, draft = FileSource(path), await read_draft(FileSource(draft_path))
    model = await load_model(source, _loader(backend, precision), native_renderer())
    check_draft(await read_header(source), model.config, draft)
    await load_draft(model.engine, draft, _loader(backend, precision))
    await model.engine.tune(Priority.INTERACTIVE)
    return model


async def ask(model: Model, task: dict[str, str], tokens: int, way: str, sampling: SamplingParams) -> Answer:
    engine = model.engine
    draft = engine.draft
    assert draft is not None
    engine.speculates = way != "plain"
    engine.draft = draft if way == "draft" else None
    before, timings = (draft.passes, draft.guessed, draft.right), Timings()
    sequence = engine.new_sequence()
    await engine.prefill(sequence, await model.encode_chat([{"role": "user", "content": task["prompt"]}]), timings)
    stream = engine.generate(sequence, tokens, sampling, timings)
    said = [one async for some in stream for one in some]
    engine.draft = draft
    engine.free(sequence)
    used = [now - then for now, then in zip((draft.passes, draft.guessed, draft.right), before, strict=True)]
    return Answer(task["kind"], way, said, timings.decode_tok_s, *used)


async def measure_draft(
    model: Model, tasks: Sequence[dict[str, str]], rounds: int, tokens: int, sampling: SamplingParams
) -> list[list[Answer]]:
    """Return, for each round and task, an answer each way, in turns."""
    for way in WAYS:
        await ask(model, tasks[0], 16, way, sampling)  # so that kernels are compiled
    found = []
    for turn in range(rounds):
        for task in tasks:
            ways = WAYS[turn % len(WAYS) :] + WAYS[: turn % len(WAYS)]
            found.append([await ask(model, task, tokens, way, sampling) for way in ways])
            words = [f"{one.way} {one.tok_s:.1f} ({one.passes} passes, {one.right}/{one.guessed})" for one in found[-1]]
            print(f"{task['kind']}: {len(found[-1][0].tokens)} tokens, {', '.join(words)}", file=sys.stderr)
    return found


def draft_table(found: list[list[Answer]], title: str) -> Table:
    """A row for each kind of task. "by draft" is the share of tokens that came of passes with the draft's guesses: next
    to nothing if the draft was switched off."""
    table = Table(title=title)
    columns = ("", "plain tok/s", "lookup, times", "draft, times", "right", "tokens a pass", "by draft", "same answers")
    for column in columns:
        table.add_column(column, justify="right" if column else "left")
    for kind in dict.fromkeys(turn[0].kind for turn in found):
        turns = [{one.way: one for one in turn} for turn in found if turn[0].kind == kind]
        times = {way: median(turn[way].tok_s / turn["plain"].tok_s for turn in turns) for way in WAYS}
        passes, guessed, right = (
            sum(getattr(turn["draft"], name) for turn in turns) for name in ("passes", "guessed", "right")
        )
        tokens = sum(len(turn["draft"].tokens) for turn in turns)
        table.add_row(
            kind, f"{median(turn['plain'].tok_s for turn in turns):.1f}", f"{times['lookup']:.2f}",
            f"{times['draft']:.2f}", f"{right / guessed:.0%}" if guessed else "-",
            f"{1 + right / passes:.2f}" if passes else "-", f"{(passes + right) / max(tokens, 1):.0%}",
            "yes" if all(len({tuple(one.tokens) for one in turn.values()}) == 1 for turn in turns) else "no",
        )  # fmt: skip
    return table
