"""The index of py_core/hnsw/index.py beside hnswlib: recall@10, times, memory; natively and in Pyodide in Chromium.

    python -m tests.bench hnsw [--size 1000 --size 10000] [--kind clustered] [--where native] [--wait S] [--json FILE]

Same data, metric (cosine), M, ef_construction, ef for both, one thread each. Recall is the share of the ten true
nearest vectors that are found, over all queries. The peer is left out, with a line that says so, if it is not
installed: `pip install hnswlib==0.8.0` (it needs a C++ compiler).
"""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from playwright.sync_api import Page
from rich.table import Table

from app.building.kernels import hnsw_kernel_path
from py_core.hnsw.numpy_kernel import NumpyHnswKernel
from py_core.hnsw.wasmtime_kernel import WasmtimeHnswKernel
from tests.bench.in_browser import chromium, local_server, python_page, run_python, wait_for_quiet
from tests.bench.memory.hnsw_measure import _milliseconds, dataset, measure
from tests.bench.reporting import options_of, print_tables, write_figures

try:
    import hnswlib
except ImportError:
    hnswlib = None

K = 10
SIZES = (1_000, 10_000, 50_000)
KINDS = ("clustered", "uniform")
MEASURE = Path(__file__).with_name("hnsw_measure.py")
IN_PAGE = """
import json
from py_core.hnsw.wasm_kernel import PyodideHnswKernel
json.dumps(measure(PyodideHnswKernel(hnsw_exports), {settings!r}, *dataset({kind!r}, {size}, {dimension}, {queries}),
                   {k}))
"""


def main() -> None:
    assert __doc__
    parser = options_of(__doc__)
    parser.add_argument("--size", type=int, action="append", help=f"vectors; default: {SIZES}")
    parser.add_argument("--kind", action="append", choices=KINDS, help="default: both")
    parser.add_argument(
        "--where", action="append", choices=["native", "browser", "numpy"], help="default: native, browser"
    )
    parser.add_argument("--dimension", type=int, default=384)
    parser.add_argument("--queries", type=int, default=500)
    parser.add_argument("--m", type=int, default=16)
    parser.add_argument("--ef-construction", type=int, default=200)
    parser.add_argument("--ef-search", type=int, default=50)
    parser.add_argument("--expansion", type=int, help="default: as the index has it")
    parser.add_argument("--scan-below", type=int, default=0, help="brute_force_below; 0 measures the graph at any size")
    parser.add_argument(
        "--wait", type=float, default=0, metavar="S", help="wait so long for other programs to be quiet"
    )
    options = parser.parse_args()
    where = options.where or ["native", "browser"]
    settings = {
        "m": options.m,
        "ef_construction": options.ef_construction,
        "ef_search": options.ef_search,
        "brute_force_below": options.scan_below,
    } | ({"expansion": options.expansion} if options.expansion else {})
    if hnswlib is None:
        print(
            "hnswlib is not installed, so there is nothing to compare with: pip install hnswlib==0.8.0", file=sys.stderr
        )
    rows = []
    with ExitStack() as stack:
        page = None
        if "browser" in where:
            address, browser = stack.enter_context(local_server()), stack.enter_context(chromium())
            page = stack.enter_context(python_page(browser, address, MEASURE))
        for kind in options.kind or KINDS:
            for size in options.size or SIZES:
                vectors, queries = dataset(kind, size, options.dimension, options.queries)
                true = true_neighbours(vectors, queries)

                def add(
                    engine: str,
                    figures: dict[str, Any],
                    kind: str = kind,
                    size: int = size,
                    true: list[set[int]] = true,
                ) -> None:
                    found = figures.pop("found")
                    recall = float(np.mean([len(t & set(f)) / K for t, f in zip(true, found, strict=True)]))
                    rows.append({"kind": kind, "size": size, "engine": engine, "recall": recall, **figures})
                    print(f"{kind} {size} {engine}: recall {recall:.4f}", file=sys.stderr)

                wait_for_quiet(options.wait)
                if hnswlib is not None:
                    add("hnswlib", of_peer(settings, vectors, queries))
                if "native" in where:
                    add(
                        "sonata, native", measure(WasmtimeHnswKernel(hnsw_kernel_path()), settings, vectors, queries, K)
                    )
                if "numpy" in where:
                    add("sonata, numpy", measure(NumpyHnswKernel(), settings, vectors, queries, K))
                if page:
                    add("sonata, Pyodide", in_page(page, settings, kind, size, options.dimension, options.queries))
    result = {"machine": machine(), "dimension": options.dimension, "settings": settings, "k": K, "rows": rows}
    write_figures(options, result)
    show(result)


def true_neighbours(vectors: np.ndarray, queries: np.ndarray) -> list[set[int]]:
    vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    nearest = np.argpartition(-(queries @ vectors.T), K - 1, axis=1)[:, :K]
    return [set(row) for row in nearest.tolist()]


def of_peer(settings: dict[str, Any], vectors: np.ndarray, queries: np.ndarray) -> dict[str, Any]:
    index = hnswlib.Index("cosine", vectors.shape[1])
    index.init_index(len(vectors), ef_construction=settings["ef_construction"], M=settings["m"], random_seed=1)
    index.set_num_threads(1)
    index.set_ef(settings["ef_search"])
    inserts = []
    for id in range(len(vectors)):
        start = time.perf_counter()
        index.add_items(vectors[id : id + 1], [id])
        inserts.append(time.perf_counter() - start)
    found = [index.knn_query(query, K)[0][0].tolist() for query in queries]
    searches = []
    for query in queries:
        start = time.perf_counter()
        index.knn_query(query, K)
        searches.append(time.perf_counter() - start)
    return {
        "insert_ms": _milliseconds(inserts[len(inserts) // 2 :]),
        "search_ms": _milliseconds(searches),
        "mb": index.index_file_size() / 1e6,
        "found": found,
    }


def in_page(page: Page, settings: dict[str, Any], kind: str, size: int, dimension: int, queries: int) -> dict[str, Any]:
    source = IN_PAGE.format(settings=settings, kind=kind, size=size, dimension=dimension, queries=queries, k=K)
    return json.loads(run_python(page, source))


def machine() -> dict[str, Any]:
    return {"processor": platform.processor(), "cores": len(os.sched_getaffinity(0)), "load": os.getloadavg()[0]}


def show(result: dict[str, Any]) -> None:
    settings = result["settings"]
    table = Table(
        title=f"{result['dimension']}-d, k {K}, {settings}. Wanted in Pyodide at 10,000: search 0.3, insert 2 ms"
    )
    for name in ("data", "vectors", "engine"):
        table.add_column(name)
    for name in ("recall@10", "search ms (p95)", "insert ms (p99)", "scan ms", "MB"):
        table.add_column(name, justify="right")
    for row in result["rows"]:
        search, insert, scan = row["search_ms"], row["insert_ms"], row.get("scan_ms")
        table.add_row(
            row["kind"],
            f"{row['size']:,}",
            row["engine"],
            f"{row['recall']:.4f}",
            f"{search['p50']:.3f} ({search['p95']:.3f})",
            f"{insert['p50']:.3f} ({insert['p99']:.3f})",
            f"{scan['p50']:.3f}" if scan else "",
            f"{row['mb']:.1f}",
        )
    print_tables(table)
