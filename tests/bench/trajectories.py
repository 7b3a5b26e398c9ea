"""What recording an answer costs: at the answer, where a person may wait, and later in the background.

    python tests/bench/trajectories.py [--answers N] [--tokens N] [--prompt N] [--json FILE]

"at the answer" is all that stands between an answer's last token and its end: the log entry was there before, the rest
is the trajectory's. The background reads the answer's tokens again: once for log-probabilities, once for states.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from statistics import median, quantiles

import numpy as np
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from app.answer_records import Answer
from app.assistant import Assistant, Done
from app.building.kernels import kernel_path
from app.downloads import default_model_path
from app.services import Services
from app.template_renderer import native_renderer
from app.trajectory_recorder import TrajectoryRecorder
from py_core.backends.wasm.backend import load_wasm
from py_core.backends.wasm.host_wasmtime import WasmtimeHost
from py_core.formats.source import FileSource
from py_core.loading import load_model
from py_core.memory.encryption import NativeCrypto
from py_core.memory.passphrase import set_passphrase
from py_core.memory.sqlite import SQLiteRows


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--answers", type=int, default=500)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--prompt", type=int, default=1000)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    model = await load_model(FileSource(default_model_path()), partial(load_wasm, WasmtimeHost(kernel_path())),
                             native_renderer())  # fmt: skip
    assistant = Assistant(model)
    ids = [int(token) for token in np.random.default_rng(0).integers(100, 20_000, options.prompt + options.tokens)]
    model.backend.append(assistant.sequence, ids)
    found = {}
    for encrypted in (False, True):
        with tempfile.TemporaryDirectory() as folder:
            services = Services(NativeCrypto())
            await services.open(lambda folder=folder: SQLiteRows.open(Path(folder) / "memory.sqlite"))
            if encrypted:
                await set_passphrase(services.memory.store, "a benchmark")
            name = "encrypted" if encrypted else "plain"
            found |= await at_the_answer(assistant, services, options.answers, options.prompt, options.tokens, name)
            await services.close()
    found |= await in_the_background(assistant, options.prompt, ids)
    model.close()
    if options.json:
        options.json.write_text(json.dumps(found))
    table = Table("", "median, ms", "90%, ms", title=f"{options.tokens} tokens behind {options.prompt}")
    for name, ms in found.items():
        table.add_row(name, f"{median(ms):.3f}", f"{quantiles(ms, n=10)[8]:.3f}" if len(ms) > 20 else "")
    Console().print(table)


async def at_the_answer(
    assistant: Assistant, services: Services, answers: int, prompt: int, tokens: int, name: str
) -> dict[str, list[float]]:
    recorder, memory = TrajectoryRecorder(assistant, services, idle_seconds=3600.0), services.memory
    done = Done("end", "word " * tokens, prompt, tokens, prefill_seconds=1.0, decode_seconds=2.0)
    times = []
    for number in range(answers):
        answer = Answer(f"a{number}", "What is the boat called? " * 4, None, done.text, done)
        begin = time.perf_counter()
        recorder.answered(memory, answer.trajectory("session", "model", {}), None)
        times.append(1000 * (time.perf_counter() - begin))
        if number % 50 == 0:
            await memory.writer.flush()
    return {f"at the answer, {name} memory": times}


async def in_the_background(assistant: Assistant, prompt: int, ids: list[int]) -> dict[str, list[float]]:
    engine, sequence = assistant.model.engine, assistant.sequence
    layers = [assistant.model.config.residual_at(depth) for depth in (0.25, 0.5, 0.75)]
    await engine.logits(sequence)  # as after an answer: all is in the pages
    found: dict[str, list[float]] = {"background, log-probabilities": [], "background, states": []}
    for _ in range(5):
        for name, read in (
            ("log-probabilities", lambda: engine.token_logprobs(sequence, ids, prompt)),
            ("states", lambda: engine.hidden(sequence, layers, prompt - 1)),
        ):
            begin = time.perf_counter()
            await read()
            found[f"background, {name}"].append(1000 * (time.perf_counter() - begin))
    return found


if __name__ == "__main__":
    asyncio.run(main())
