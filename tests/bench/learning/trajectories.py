"""The cost of recording an answer: at the answer, when a person may wait, and later in the background.

    python -m tests.bench trajectories [--answers N] [--tokens N] [--prompt N] [--json FILE]

"at the answer" is all that stands between an answer's last token and its end: the log entry was there before, the rest
is the trajectory's. The background reads the first of the answer's tokens again, and stops when the next message comes.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from functools import partial
from operator import truediv
from pathlib import Path
from statistics import median, quantiles

import numpy as np
from rich.table import Table

from app.building.kernels import kernel_path
from app.chat.answer import Answer
from app.chat.trajectory_recorder import TrajectoryRecorder
from app.generation.assistant import Assistant
from app.models.downloads import default_model_path
from app.models.template_renderer import native_renderer
from app.protocol import Done
from app.runtime import Runtime, RuntimeConfig
from py_core.backends.wasm.backend import load_wasm
from py_core.backends.wasm.host_wasmtime import WasmtimeHost
from py_core.engine.engine import Timings
from py_core.formats.source import FileSource
from py_core.loading import load_model
from py_core.sampling import SamplingParams
from py_core.store.passphrase import set_passphrase
from py_core.store.sqlite import SQLiteRows
from tests.bench.reporting import options_of, print_tables, write_figures

NEXT, DURING = "a next message, first token", "the same in the midst of the reading"


async def main() -> None:
    parser = options_of(__doc__)
    parser.add_argument("--answers", type=int, default=500)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--prompt", type=int, default=1000)
    parser.add_argument("--long", type=int, default=800, help="tokens of a long answer")
    parser.add_argument("--rounds", type=int, default=12, help="next messages")
    options = parser.parse_args()
    model = await load_model(FileSource(default_model_path()), partial(load_wasm, WasmtimeHost(kernel_path())),
                             native_renderer())  # fmt: skip
    assistant = Assistant(model)
    ids = [int(token) for token in np.random.default_rng(0).integers(100, 20_000, options.prompt + options.tokens)]
    model.backend.append(assistant.sequence, ids)
    found = {}
    for encrypted in (False, True):
        with tempfile.TemporaryDirectory() as folder:
            runtime = await Runtime.open(
                RuntimeConfig(lambda folder=folder: SQLiteRows.open(Path(folder) / "memory.sqlite"))
            )
            if encrypted:
                await set_passphrase(runtime.memory.store, "a benchmark")
            name = "encrypted" if encrypted else "plain"
            found |= await at_the_answer(assistant, runtime, options.answers, options.prompt, options.tokens, name)
            await runtime.close()
    assistant.model.engine.truncate(assistant.sequence, options.prompt)
    long = [*ids[: options.prompt], *ids[: options.long]]
    await model.engine.prefill(assistant.sequence, long, Timings())
    found |= await in_the_background(assistant, long, [options.prompt, len(long) - 256, len(long) - options.tokens])
    messages = await next_message(assistant, ids, options.prompt, options.rounds)
    found |= messages
    model.close()
    write_figures(options, found)
    table = Table("", "median, ms", "90%, ms", title=f"{options.tokens} tokens behind {options.prompt}")
    for name, ms in found.items():
        table.add_row(name, f"{median(ms):.3f}", f"{quantiles(ms, n=10)[8]:.3f}" if len(ms) > 20 else "")
    print_tables(table)
    ratio = median(map(truediv, messages[DURING], messages[NEXT]))
    print(f"a next message in the midst of the reading: {ratio:.3f} of the time to its first token (pairs in turns)")


async def at_the_answer(
    assistant: Assistant, runtime: Runtime, answers: int, prompt: int, tokens: int, name: str
) -> dict[str, list[float]]:
    recorder, memory = TrajectoryRecorder(assistant, runtime, idle_seconds=3600.0), runtime.memory
    done = Done("end", "word " * tokens, prompt, tokens, prefill_seconds=1.0, decode_seconds=2.0)
    times = []
    for number in range(answers):
        answer = Answer("What is the boat called? " * 4, assistant.give("", done), said=done.text, done=done)
        begin = time.perf_counter()
        recorder.answered(memory, answer.trajectory("session", "model", {}), None)
        times.append(1000 * (time.perf_counter() - begin))
        if number % 50 == 0:
            await memory.writer.flush()
    return {f"at the answer, {name} memory": times}


async def in_the_background(assistant: Assistant, ids: list[int], prompts: list[int]) -> dict[str, list[float]]:
    """Return the milliseconds of CPU time (one thread) for reading the text behind each of the prompts."""
    found: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        runtime, recorder = await recording(assistant, Path(folder))
        for turn in range(3):
            for prompt in prompts:
                begin = time.process_time()
                await recorder._logprob(runtime.memory, tuple(ids), prompt)
                if turn:
                    name = f"background, CPU: an answer of {len(ids) - prompt} tokens"
                    found.setdefault(name, []).append(1000 * (time.process_time() - begin))
        await runtime.close()
    return found


async def next_message(assistant: Assistant, ids: list[int], prompt: int, rounds: int) -> dict[str, list[float]]:
    """Return the milliseconds until the first token of a next message of 24 tokens: alone, and in the middle of reading
    the previous answer, in turns."""
    engine, sequence = assistant.model.engine, assistant.sequence
    found: dict[str, list[float]] = {NEXT: [], DURING: []}
    draw = np.random.default_rng(1)
    with tempfile.TemporaryDirectory() as folder:
        runtime, recorder = await recording(assistant, Path(folder))
        for turn in range(2 * rounds + 2):
            name = (NEXT, DURING)[(turn + turn // 2) % 2]
            await engine.prefill(sequence, ids, Timings())
            reading = None
            if name == DURING:
                reading = asyncio.ensure_future(recorder._logprob(runtime.memory, tuple(ids), prompt))
            await asyncio.sleep(draw.uniform(0.05, 0.2))
            message = [int(token) for token in draw.integers(100, 20_000, 24)]
            begin = time.perf_counter()
            with runtime.memory.background.paused():
                await engine.prefill(sequence, [*ids, *message], Timings())
                async for _ in engine.generate(sequence, 1, SamplingParams(), Timings(), ignore_end=True):
                    taken = 1000 * (time.perf_counter() - begin)
            if turn > 1:
                found[name].append(taken)
            if reading is not None:
                assert await reading is None  # it was in the midst of it
        await runtime.close()
    return found


async def recording(assistant: Assistant, folder: Path) -> tuple[Runtime, TrajectoryRecorder]:
    runtime = await Runtime.open(RuntimeConfig(lambda: SQLiteRows.open(folder / "memory.sqlite")))
    return runtime, TrajectoryRecorder(assistant, runtime)
