"""Parts of the page's Python that the page itself does not show: its backends on a tiny model, against native numpy,
and precompiled modules (app/building/python/bytecode.py)."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import numpy as np
import pytest
from playwright.async_api import Page

from app.models.template_renderer import native_renderer
from py_core.adapters.head import NeighbourAdapter
from py_core.backends.numpy.backend import load_numpy
from py_core.formats.gguf import read_header
from py_core.formats.source import FileSource
from py_core.loading import load_model
from py_core.models.registry import describe_model
from tests.backends.backend_pairs import prompt
from tests.models.architectures.variants import DELTA_RULES, QUANTIZED
from tests.tiny import adapters as tiny_adapters
from tests.tiny.llama import TinyLlama
from tests.tiny.models import Variant

pytestmark = pytest.mark.asyncio(loop_scope="session")

DRAWN = Path(tiny_adapters.__file__).read_text("utf-8")
NAMES = ["residual.1", "residual.2", "final_norm"]

IN_PAGE = """
import base64, json
from functools import partial
import numpy as np
from pyodide.ffi import to_js
from py_core.adapters.head import NeighbourAdapter
from py_core.backends.browser_source import BrowserSource
from py_core.backends.wasm.backend import load_wasm
from py_core.backends.wasm.host_browser import BrowserKernelHost
from py_core.backends.webgpu.backend import load_webgpu
from py_core.backends.webgpu.host_browser import BrowserHost
from py_core.loading import load_model
from py_core.tokenizers.template_renderer_browser import BrowserTemplateRenderer

async def hidden_and_logits(backend, file, tokens, names, start):
    if backend == "webgpu":
        load = partial(load_webgpu, BrowserHost(await devices.executor()))
    else:
        load = partial(load_wasm, BrowserKernelHost(await devices.pool()))
    source = BrowserSource(await devices.stream(to_js(base64.b64decode(file))))
    model = await load_model(source, load, BrowserTemplateRenderer(devices.templates()))
    sequence = model.engine.new_sequence()
    await model.backend.prefill(sequence, tokens)
    states = await model.engine.hidden(sequence, names, start)
    logits = await model.engine.last_logits(sequence, 5)
    near = NeighbourAdapter(states["final_norm"][:20], np.array(tokens[:20]), tau=0.5)
    model.engine.use_head_adapter(sequence, await model.engine.put_head_adapter(near))
    changed = [(await model.engine.logits(sequence)).tolist()]
    changed.append((await model.engine.token_logprobs(sequence, tokens)).tolist())
    model.close()
    return json.dumps([{name: values.tolist() for name, values in states.items()}, logits.tolist(), changed])

await hidden_and_logits(*json.loads('ARGUMENTS'))
"""


LLAMA = TinyLlama(formats=("F32",), embedding_format="F32")


@pytest.mark.parametrize(
    ("backend", "tiny"),
    [
        pytest.param("webgpu", LLAMA, marks=pytest.mark.all, id="webgpu"),
        pytest.param("wasm", LLAMA, id="wasm"),
        pytest.param("webgpu", DELTA_RULES, marks=pytest.mark.all, id="webgpu-delta rules"),
        pytest.param("wasm", DELTA_RULES, marks=pytest.mark.all, id="wasm-delta rules"),
    ],
)
async def test_hidden_states_logits_and_scores_equal_numpy(
    python_page: Page, tmp_path: Path, backend: str, tiny: TinyLlama | Variant
) -> None:
    path = tiny.write(tmp_path / "tiny.gguf")
    tokens, start = prompt(70), 3
    arguments = [backend, base64.b64encode(path.read_bytes()).decode(), tokens, NAMES, start]
    source = IN_PAGE.replace("ARGUMENTS", json.dumps(arguments))
    states, logits, changed = json.loads(await python_page.evaluate("(source) => runPython(source)", source))

    model = await load_model(FileSource(path), load_numpy, native_renderer())
    sequence = model.engine.new_sequence()
    await model.backend.prefill(sequence, tokens)
    for name, expected in (await model.backend.hidden(sequence, NAMES, start)).items():
        assert expected.shape == (67, 64)
        np.testing.assert_allclose(states[name], expected, atol=2e-3 * np.abs(expected).max())
    expected = await model.backend.last_logits(sequence, 5)
    np.testing.assert_allclose(logits, expected, atol=2e-3 * np.abs(expected).max())
    near = NeighbourAdapter(np.array(states["final_norm"], np.float32)[:20], np.array(tokens[:20]), tau=0.5)
    model.engine.use_head_adapter(sequence, await model.engine.put_head_adapter(near))
    for ours, expected in zip(
        changed, (await model.backend.logits(sequence), await model.backend.token_logprobs(sequence, 1)), strict=True
    ):
        np.testing.assert_allclose(ours, expected, atol=2e-3 * np.abs(expected).max())


GENERATE = """
import base64, json
from functools import partial
from pyodide.ffi import to_js
from app.generation.completion import complete
from py_core.backends.browser_source import BrowserSource
from py_core.backends.wasm.backend import load_wasm
from py_core.backends.wasm.host_browser import BrowserKernelHost
from py_core.loading import load_model
from py_core.sampling import SamplingParams
from py_core.tokenizers.template_renderer_browser import BrowserTemplateRenderer

async def drawn_tokens(file, worker_counts):
    pool = await devices.pool()
    source = BrowserSource(await devices.stream(to_js(base64.b64decode(file))))
    renderer = BrowserTemplateRenderer(devices.templates())
    model = await load_model(source, partial(load_wasm, BrowserKernelHost(pool)), renderer)
    made = []
    for count in worker_counts:
        await pool.setWorkers(count)
        # Drawn at random: the likeliest tokens of a tiny model soon repeat themselves.
        rules = SamplingParams(temperature=1.0, seed=5)
        answer = await complete(model, "Once upon a time", raw=True, max_tokens=200, sampling=rules)
        made.append([pool.workers, answer.tokens])
    model.close()
    return json.dumps(made)

await drawn_tokens(*json.loads('ARGUMENTS'))
"""


@pytest.mark.parametrize(
    "model", [*(pytest.param(name, marks=pytest.mark.all) for name in ("gemma2", "gemma4")), "gemma3"]
)
async def test_every_kind_of_operation_gives_the_same_tokens_with_any_number_of_workers(
    python_page: Page, tmp_path: Path, model: str
) -> None:
    path = QUANTIZED[model].write(tmp_path / "tiny.gguf")
    arguments = [base64.b64encode(path.read_bytes()).decode(), [1, 3, 2]]
    source = GENERATE.replace("ARGUMENTS", json.dumps(arguments))
    made = json.loads(await python_page.evaluate("(source) => runPython(source)", source))
    (_, of_one), *others = made
    assert len(set(of_one)) > 30
    assert others == [[3, of_one], [2, of_one]]


ADAPTED = """
import base64, json
from pyodide.ffi import to_js
from py_core.backends.browser_source import BrowserSource
from py_core.backends.wasm.backend import load_wasm
from py_core.backends.wasm.host_browser import BrowserKernelHost
from py_core.formats.gguf import read_header
from py_core.models.registry import describe_model
from py_core.sampling import SamplingParams

async def with_a_set(file, prompt, worker_counts, patience):
    pool = await devices.pool(patience)
    source = BrowserSource(await devices.stream(to_js(base64.b64decode(file))))
    header = await read_header(source)
    config, graph = describe_model(header)
    host = BrowserKernelHost(pool)
    backend = await load_wasm(host, source, header, config, graph)
    adapter = drawn(graph, 1)

    async def answer(number, kill=None):
        sequence, tokens = backend.new_sequence(), []
        backend.use_adapter(sequence, number)
        await backend.prefill(sequence, prompt)
        logits = await backend.last_logits(sequence, 5)
        async for ids in backend.decode(sequence, 120, SamplingParams(temperature=1.0, seed=5)):
            if kill is not None and not tokens:
                pool.kill(kill)
            tokens += ids
        backend.free(sequence)
        return logits, tokens

    number, made = await backend.add_adapter(adapter), []
    for count in worker_counts:
        await pool.setWorkers(count)
        logits, tokens = await answer(number)
        made.append(tokens)
    write = host.write
    def last_write(address, data):
        host.write = write
        write(address, data)
        pool.kill(0)
    host.write = last_write
    again = await backend.add_adapter(adapter)
    made.append((await answer(again))[1])
    made.append((await answer(again, kill=1))[1])
    backend.close()
    return json.dumps([logits.tolist(), made])

await with_a_set(*json.loads('ARGUMENTS'))
"""


async def test_a_set_gives_the_same_tokens_with_any_number_of_workers_and_when_one_dies(
    python_page: Page, tmp_path: Path
) -> None:
    """Also a worker that dies before it has written the set."""
    path, tokens = QUANTIZED["gemma2"].write(tmp_path / "tiny.gguf"), prompt(70)
    await python_page.evaluate("(source) => runPython(source)", DRAWN)
    arguments = [base64.b64encode(path.read_bytes()).decode(), tokens, [1, 3, 2], 800]
    source = ADAPTED.replace("ARGUMENTS", json.dumps(arguments))
    logits, made = json.loads(await python_page.evaluate("(source) => runPython(source)", source))
    assert len(set(made[0])) > 20
    assert made == made[:1] * 5

    model = await load_model(FileSource(path), load_numpy, native_renderer())
    sequence = model.backend.new_sequence()
    _, graph = describe_model(await read_header(FileSource(path)))
    model.backend.use_adapter(sequence, await model.backend.add_adapter(tiny_adapters.drawn(graph, 1)))
    await model.backend.prefill(sequence, tokens)
    expected = await model.backend.last_logits(sequence, 5)
    np.testing.assert_allclose(logits, expected, atol=2e-3 * np.abs(expected).max())


MODULES = """
import importlib, importlib.util, json, sys, traceback
from pathlib import Path

# A module that is imported from a zip has the path that was read, x.py or x.pyc; for others Python tells where to look.
def is_compiled(spec):
    kept = Path(spec.cached or "")
    return kept.is_file() and kept.read_bytes().startswith(importlib.util.MAGIC_NUMBER)

specs = [spec for name in imported_by_the_page if (spec := getattr(sys.modules[name], "__spec__", None))]
sources = [spec for spec in specs if (spec.origin or "").endswith(".py")]
not_compiled = [spec.name for spec in sources if not is_compiled(spec)]

foreign = Path(importlib.util.find_spec("py_core.engine.repetition").cached)
foreign.write_bytes(b"\\0\\0\\r\\n" + foreign.read_bytes()[4:])
del sys.modules["py_core.engine.repetition"]
again = importlib.import_module("py_core.engine.repetition")
try:
    importlib.import_module("py_core.tokenizers.registry").tokenizer_from_gguf(None)
except AttributeError:
    shown = traceback.format_exc()
json.dumps([len(sources), not_compiled, again.__file__, shown])
"""


async def test_the_page_compiles_no_module_and_tracebacks_show_the_source(python_page: Page) -> None:
    """A module that was compiled for another Python is compiled again."""
    count, not_compiled, again, shown = json.loads(await python_page.evaluate("(source) => runPython(source)", MODULES))
    assert count > 200
    assert not_compiled == []
    assert again.endswith("/py_core/engine/repetition.py")
    assert 'kind = metadata.get("tokenizer.ggml.model")' in shown


BEHIND_ONE_WORKER = """
import json, struct
from array import array
from pyodide.ffi import to_js
from py_core.backends.wasm.host import HEAP_BASE
from py_core.backends.wasm.layout import Barrier, Op, OpKind, program_bytes

STATE, A, B, SUM, PROGRAM, VECTORS = (HEAP_BASE + 1024 * place for place in range(6))
LONG = 64 << 20
BACKLOG, STAGING = HEAP_BASE + 8192, HEAP_BASE + 8192 + LONG

async def read(pool, address):
    return list(struct.unpack("8f", (await pool.read(address, 32)).to_bytes()))

async def behind_one_worker():
    pool = await devices.pool()
    await pool.setWorkers(2)
    await pool.reserve(STAGING + 4096)
    write = lambda address, data: pool.write(address, to_js(memoryview(data)))

    write(BACKLOG, bytes(LONG))
    write(VECTORS, bytes(64))
    vectors = [to_js(memoryview(struct.pack("8f", *range(first, first + 8)))) for first in (1, 11)]
    stream = await devices.stream(to_js(b"".join(bytes(vector.to_py()) for vector in vectors)))
    jobs = [[32 * at, 32, 0, VECTORS + 32 * at, 0, 8, 1] for at in range(2)]
    await pool.upload(stream, to_js(memoryview(array("d", sum(jobs, [])))), STAGING)
    uploaded = [await read(pool, VECTORS + 32 * at) for at in range(2)]

    write(BACKLOG, bytes(LONG))
    write(STATE, struct.pack("<4I", 2, 0, 0, 0))
    write(A, struct.pack("8f", *range(8)))
    write(B, struct.pack("8f", *[10] * 8))
    write(PROGRAM, program_bytes([Op(OpKind.ADD, (A, B, SUM, 4), Barrier.ALWAYS)], STATE))
    await pool.run(PROGRAM, 1)
    summed = await read(pool, SUM)
    pool.destroy()
    return json.dumps([uploaded, summed])

await behind_one_worker()
"""


async def test_what_was_written_comes_before_uploads_and_runs_on_every_worker(python_page: Page) -> None:
    """Writes go to the first worker; the other must wait for them, however far behind the first is."""
    source = BEHIND_ONE_WORKER
    uploaded, summed = json.loads(await python_page.evaluate("(source) => runPython(source)", source))
    assert uploaded == [list(range(1, 9)), list(range(11, 19))]
    assert summed == [10 + n for n in range(8)]
