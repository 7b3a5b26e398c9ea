"""The measurements of memory.py on one store, natively and in the page, which gets this file's text."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import numpy as np

from app.records.conversation_list import ConversationList
from app.records.conversation_text import ConversationText
from app.records.kinds import KINDS
from py_core.hnsw.hnsw_kernel import HnswKernel
from py_core.hnsw.vector_index import VectorIndex
from py_core.store.background import Background
from py_core.store.kinds import Kinds
from py_core.store.records import Record
from py_core.store.store import Store
from py_core.store.vectors import VectorSearch

DIMENSIONS = 384
INNER = 32
BATCH = 100
READS, SEARCHES = 500, 30
_UNCHECKED: dict[str, Any] = {"fields": None, "vector": "optional", "problem": lambda record: None}
UNCHECKED = Kinds([replace(kind, **_UNCHECKED) for kind in KINDS])
"""The kinds of Sonata with their indexes, for records that have only what is measured."""


async def measure(store: Store, count: int, kernel: HnswKernel | None) -> dict[str, float]:
    """Fill an empty store with `count` records of 384 dimensions and some 250 bytes, and use it.

    Searches first compare each vector; then the graph is built, written, and read by another search.
    """
    rng = np.random.default_rng(0)
    directions = rng.standard_normal((INNER, DIMENSIONS), np.float32)  # an embedder's vectors do not fill their space
    batches = [range(start, min(start + BATCH, count)) for start in range(0, count, BATCH)]

    def record(number: int) -> Record:
        vector = rng.standard_normal(INNER, np.float32) @ directions
        return Record("pattern", f"p{number}", {"agent": f"agent {number % 13}", "text": "x" * 200}, vector)

    figures: dict[str, float] = {"records": count}
    spent = 0.0
    for numbers in batches:
        records = [record(number) for number in numbers]
        begin = time.perf_counter()
        await store.put_many(records)
        spent += time.perf_counter() - begin
    figures["writes_per_s"] = count / spent
    singles = [record(count + number) for number in range(50)]
    figures["single_write_ms"] = await _median_ms(len(singles), lambda n: store.put(singles[n]))
    ids = [f"p{number}" for number in rng.integers(0, count, READS)]
    figures["read_ms"] = await _median_ms(READS, lambda n: store.get("pattern", ids[n]))
    begin = time.perf_counter()
    seen = 0
    async for _ in store.scan("pattern"):
        seen += 1
    figures["scanned_per_s"] = seen / (time.perf_counter() - begin)
    begin = time.perf_counter()
    found = await store.query("pattern", {"agent": "agent 3"}, newest_first=True, limit=20)
    figures["query_ms"] = (time.perf_counter() - begin) * 1000
    assert len(found) == 20
    queries = rng.standard_normal((SEARCHES, INNER), np.float32) @ directions
    background = Background()
    search = VectorSearch(store, lambda: kernel, background)
    with background.paused():
        figures["open_scan_ms"] = await _search_ms(search, queries[:1])
        figures["search_scan_ms"] = await _search_ms(search, queries)
        (stored,) = search._indexes["pattern"].values()
        figures["index_scan_ms"] = _index_ms(stored.index, queries)
        begin = time.perf_counter()
        while stored.index.behind:
            stored.index.link(1.0)
        figures["build_graph_s"] = time.perf_counter() - begin
        begin = time.perf_counter()
        await stored.save()
        figures["write_graph_ms"] = (time.perf_counter() - begin) * 1000
        again = VectorSearch(store, lambda: kernel, background)
        figures["open_graph_ms"] = await _search_ms(again, queries[:1])
        figures["search_graph_ms"] = await _search_ms(again, queries)
        (stored,) = again._indexes["pattern"].values()
        figures["index_graph_ms"] = _index_ms(stored.index, queries)
    return figures


async def _search_ms(search: VectorSearch, queries: np.ndarray) -> float:
    """Return the milliseconds of one search, including the ten records that it finds."""
    return await _median_ms(len(queries), lambda n: search.search("pattern", queries[n], 10))


def _index_ms(index: VectorIndex, queries: np.ndarray) -> float:
    taken = []
    for query in queries:
        begin = time.perf_counter()
        index.search(query, 10)
        taken.append((time.perf_counter() - begin) * 1000)
    return float(np.median(taken))


async def measure_conversations(store: Store, count: int, kernel: HnswKernel) -> dict[str, float]:
    """Fill an empty store with conversations of 8 messages with vectors, 60 and 600 characters in turn, and search."""
    rng = np.random.default_rng(0)
    vocabulary = [
        "".join(rng.choice(list("abcdefghijklmnopqrstuvwxyz"), length)) for length in rng.integers(2, 12, 5000)
    ]
    for start in range(0, count, BATCH):
        async with store.transaction() as transaction:
            for number in range(start, min(start + BATCH, count)):
                id = f"s{number}"
                body = {"title": f"Conversation {number}", "turns": 8, "adapter": None, "state": {}, "said": 0.0}
                transaction.put(Record("session", id, body))
                for turn in range(8):
                    words = rng.choice(vocabulary, 80 if turn % 2 else 8)
                    said = {"session": id, "role": "assistant" if turn % 2 else "user", "content": " ".join(words)}
                    vector = rng.standard_normal(DIMENSIONS, np.float32)
                    transaction.put(Record("turn", f"{id}/{turn:06d}", {**said, "details": {}}, vector))
    text = ConversationText(store, ConversationList(store), Background())
    meaning = VectorSearch(store, lambda: kernel)
    queries = [" ".join(rng.choice(vocabulary, 2)) for _ in range(SEARCHES)]
    vectors = rng.standard_normal((SEARCHES, DIMENSIONS), np.float32)
    figures: dict[str, float] = {"conversations": count}
    figures["first_text_ms"] = await _median_ms(1, lambda n: text.search(queries[n]))
    figures["text_ms"] = await _median_ms(SEARCHES, lambda n: text.search(queries[n]))
    figures["first_meaning_ms"] = await _median_ms(1, lambda n: meaning.search("turn", vectors[n], 200))
    figures["meaning_ms"] = await _median_ms(SEARCHES, lambda n: meaning.search("turn", vectors[n], 200))
    return figures


async def _median_ms(times: int, work: Callable[[int], Awaitable[Any]]) -> float:
    taken = []
    for number in range(times):
        begin = time.perf_counter()
        await work(number)
        taken.append((time.perf_counter() - begin) * 1000)
    return float(np.median(taken))
