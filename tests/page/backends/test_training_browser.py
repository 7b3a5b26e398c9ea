"""Training in the page's Python: a worker that is killed in the middle changes no number."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
from playwright.async_api import Page

from tests.training.cases import CASES

pytestmark = pytest.mark.asyncio(loop_scope="session")

TRAIN = """
import asyncio, base64, json
from pyodide.ffi import to_js
from py_core.adapters.parameters import parameter_layout
from py_core.backends.browser_source import BrowserSource
from py_core.backends.wasm.backend import load_wasm
from py_core.backends.wasm.host_browser import BrowserKernelHost
from py_core.engine.engine import Engine
from py_core.training.batches import shuffled
from py_core.training.checkpoint import Origin, write_checkpoint
from py_core.training.packing import answer_example, base_example
from py_core.training.schedule import Schedule
from py_core.training.trainer import TrainerSettings, Trainer, fresh_start
from py_core.loading import read_description

async def trained(file, killed):
    pool = await devices.pool(3000)
    await pool.setWorkers(2)
    source = BrowserSource(await devices.stream(to_js(base64.b64decode(file))))
    header, config, graph = await read_description(source, None, lambda *described: None)
    engine = Engine(await load_wasm(BrowserKernelHost(pool), source, header, config, graph), ())
    layout, settings = parameter_layout(graph, 2, 2.0), TrainerSettings(Schedule(0.02, 4, warm_up=1), save_every=2)
    examples = [answer_example([7, 8, 9, 10, one], [20 + one, 30 + one]) for one in range(5)]
    examples.append(base_example([1, 2], list(range(40, 90))))
    troubles = []

    def kill(report):
        # Between two steps, and in the middle of one.
        if killed and report.step == 0:
            pool.kill(1)
        if killed and report.step == 2:
            asyncio.get_running_loop().call_later(0.002, pool.kill, 0)

    training = await engine.open_training(layout)
    batches = shuffled(examples, 4, 1)
    trainer = Trainer(training, batches, settings, fresh_start(layout, 1), kill, troubles.append)
    file = write_checkpoint(await trainer.run(), Origin(layout, "", settings.recipe(1)))
    engine.close()
    return json.dumps([base64.b64encode(file).decode(), len(troubles)])

await trained(*json.loads('ARGUMENTS'))
"""


@pytest.mark.all
async def test_killed_workers_change_no_number(python_page: Page, tmp_path: Path) -> None:
    file = base64.b64encode(CASES["llama"].write(tmp_path / "tiny.gguf").read_bytes()).decode()
    made = []
    for killed in (False, True):
        source = TRAIN.replace("ARGUMENTS", json.dumps([file, killed]))
        made.append(json.loads(await python_page.evaluate("(source) => runPython(source)", source)))
    (alone, _), (interrupted, troubles) = made
    assert troubles > 0
    assert interrupted == alone
