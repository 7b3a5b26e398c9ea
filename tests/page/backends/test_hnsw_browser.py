"""The index in Pyodide, on the kernel as the page loads it, gives the native results."""

from __future__ import annotations

import base64
import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from playwright.async_api import Browser, Page

from app.building.kernels import hnsw_kernel_path
from py_core.hnsw.hnsw_kernel import HnswKernel
from py_core.hnsw.wasmtime_kernel import WasmtimeHnswKernel

pytestmark = pytest.mark.asyncio(loop_scope="session")

STORY = '''
import base64, hashlib, json
import numpy as np
from py_core.hnsw.index import HnswIndex, HnswSettings
from py_core.hnsw.index_file import load, save

def story(kernel, vectors, metric):
    """Inserts, twins, replaced ids, deletes and compaction, with searches in between. JSON."""
    index = HnswIndex(HnswSettings(vectors.shape[1], metric, m=8, ef_construction=60, brute_force_below=100), kernel)
    told = []
    def ask():
        for query in vectors[::97]:
            told.append(index.search(query, 10))
            told.append(index.search(query, 5, where=lambda id: id % 3 == 0))
    for id, vector in enumerate(vectors):
        index.insert(id, vector)
        if id in (50, 120, 400):
            ask()
    for id in range(0, len(vectors), 5):
        index.insert(id, vectors[7])
    ask()
    for id in range(0, len(vectors), 2):
        index.delete(id)
    ask()
    index.compact()
    ask()
    saved = save(index, {id: str(id) for id in index})
    # what the store has: of one vector it lost the last number, and 100 are gone
    there = {str(id): vectors[7 if id % 5 == 0 else id] for id in index if id > 200}
    there["899"] = vectors[0]
    loaded = load(saved, index.settings, there, kernel)
    assert loaded.lacking == ["899"], loaded.lacking
    index = loaded.index
    ask()
    return json.dumps([told, hashlib.sha256(saved).hexdigest(), index.graph.rows])
'''

PAGE = """
from py_core.hnsw.wasm_kernel import PyodideHnswKernel
vectors = np.frombuffer(base64.b64decode('{vectors}'), np.float32).reshape({shape})
story(PyodideHnswKernel(hnsw_exports), vectors, '{metric}')
"""


def natively(kernel: HnswKernel, vectors: np.ndarray, metric: str) -> Any:
    space: dict[str, Any] = {}
    exec(STORY, space)  # the same source that the page runs
    return json.loads(SimpleNamespace(**space).story(kernel, vectors, metric))


@pytest.mark.parametrize("metric", ["cosine", *(pytest.param(one, marks=pytest.mark.all) for one in ("dot", "l2"))])
async def test_the_page_finds_the_same_ids_as_natively(python_page: Page, metric: str) -> None:
    """With the compiled kernel; tests/hnsw shows that numpy's makes the same index."""
    rng = np.random.default_rng(3)
    centres = rng.standard_normal((12, 20))
    vectors = (centres[rng.integers(0, 12, 900)] + 0.5 * rng.standard_normal((900, 20))).astype(np.float32)
    encoded = base64.b64encode(vectors.tobytes()).decode()
    source = STORY + PAGE.format(vectors=encoded, shape=vectors.shape, metric=metric)
    in_page = json.loads(await python_page.evaluate("(source) => runPython(source)", source))

    assert in_page == natively(WasmtimeHnswKernel(hnsw_kernel_path()), vectors, metric)


@pytest.mark.all
async def test_indexes_that_are_dropped_give_the_page_its_memory_back(python_page: Page) -> None:
    source = """
import gc
import numpy as np
import pyodide_js
from py_core.hnsw.index import HnswIndex, HnswSettings
from py_core.hnsw.wasm_kernel import PyodideHnswKernel
kernel = PyodideHnswKernel(hnsw_exports)
vectors = np.random.default_rng(0).standard_normal((3000, 384)).astype(np.float32)
def heap_after_one():
    index = HnswIndex(HnswSettings(384, ef_construction=20), kernel)
    for id, vector in enumerate(vectors):
        index.insert(id, vector)
    assert index.search(vectors[5], 1)[0][0] == 5
    del index
    gc.collect()
    return pyodide_js._module.HEAPU8.length
first = heap_after_one()
max(heap_after_one() for _ in range(12)) - first
"""
    grown = await python_page.evaluate("(source) => runPython(source)", source)
    assert grown < 12 * 5e6 / 2  # an index takes 5 MB


async def test_a_kernel_that_cannot_be_had_is_a_sentence(browser: Browser, site: str) -> None:
    page = await browser.new_page(bypass_csp=True)
    await page.route("**/kernels/hnsw.wasm", lambda route: route.fulfill(status=404))
    await page.goto(f"{site}/THIRD_PARTY.txt")
    said = await page.evaluate(
        """async () => {
          const { loadHnswKernel } = await import('./routing/hnsw_kernel.js');
          return loadHnswKernel({ _module: {} }).catch((error) => error.message);
        }"""
    )
    await page.close()
    assert said == "The index's kernel could not be loaded (HTTP 404). Check your connection, then load again."
