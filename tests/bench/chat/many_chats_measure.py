"""The data and the measurements of many_chats.py, on this machine and in the page."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import numpy as np

from app.records.conversation_list import ConversationList
from app.records.conversation_text import ConversationText
from app.records.conversation_vectors import ConversationVectors
from app.records.memory import Memory
from py_core.store.background import Background
from py_core.store.records import Record
from py_core.store.store import Store

BATCH = 20  # conversations that are written at once
TIMES = 10
DIMENSIONS = 384
OpenStore = Callable[[str], Awaitable[Store]]


class Hurry(Background):
    """Background work at full share, since nothing else waits meanwhile."""

    def step(self, share: float = 1.0) -> AbstractAsyncContextManager[None]:
        return super().step(1.0)


async def fill(open_store: OpenStore, conversations: int, turns: int) -> None:
    """The store "full": messages of 60 and 600 characters in turn, with vectors, and their kept text."""
    rng = np.random.default_rng(0)
    letters = list("abcdefghijklmnopqrstuvwxyz")
    words = np.array(["".join(rng.choice(letters, length)) for length in rng.integers(2, 12, 5000)])
    store = await open_store("full")
    for start in range(0, conversations, BATCH):
        async with store.transaction() as transaction:
            for number in range(start, min(start + BATCH, conversations)):
                id = f"s{number:05d}"
                body = {
                    "title": " ".join(rng.choice(words, 4)), "turns": turns, "adapter": None, "state": {},
                    "leaf": turns - 1, "pinned": False, "archived": False, "titled": "model", "said": float(number),
                }  # fmt: skip
                transaction.put(Record("session", id, body))
                for turn in range(turns):
                    said: dict[str, Any] = {"session": id, "role": "assistant" if turn % 2 else "user", "details": {}}
                    said |= {
                        "content": " ".join(rng.choice(words, 80 if turn % 2 else 8)),
                        "after": turn - 1 if turn else None,
                    }
                    vector = rng.standard_normal(DIMENSIONS, np.float32)
                    transaction.put(Record("turn", f"{id}/{turn:06d}", said, vector))
    background = Hurry()
    listed = ConversationList(store)
    await ConversationText(store, listed, background).refresh()
    await ConversationVectors(store, listed, background).refresh()
    await background.settled()
    await store.close()


async def measure(open_store: OpenStore) -> dict[str, float]:
    """Return the times in milliseconds."""
    figures: dict[str, float] = {}
    for which in ["empty", "full"] * 3:
        begin = time.perf_counter()
        memory = await Memory.open(await open_store(which))
        took = (time.perf_counter() - begin) * 1000
        figures[f"start, {which}"] = min(took, figures.get(f"start, {which}", took))
        await memory.close()
    store = await open_store("full")
    background = Background()
    conversations = ConversationList(store)
    text = ConversationText(store, conversations, background)
    queries = [record.body["title"].split()[0] for record in (await store.query("session"))[:TIMES]]
    figures["list, first"] = await _median(1, lambda n: conversations.newest_first())
    figures["list, then"] = await _median(TIMES, lambda n: conversations.newest_first())
    figures["search for a word, first"] = await _median(1, lambda n: text.search(queries[n]))
    figures["search for a word, then"] = await _median(TIMES, lambda n: text.search(queries[n]))
    figures["search for two words, then"] = await _median(
        TIMES, lambda n: text.search(f"{queries[n]} {queries[n - 1]}")
    )
    meaning = ConversationVectors(store, conversations, background)
    vectors = np.random.default_rng(1).standard_normal((TIMES, DIMENSIONS), np.float32)
    figures["search by meaning, first"] = await _median(1, lambda n: meaning.search(vectors[n], 20, 0.15))
    figures["search by meaning, then"] = await _median(TIMES, lambda n: meaning.search(vectors[n], 20, 0.15))
    figures["open one"] = await _median(TIMES, lambda n: store.starting_with("turn", f"s{n:05d}/"))
    await store.close()
    return figures


async def _median(times: int, work: Callable[[int], Awaitable[Any]]) -> float:
    taken = []
    for number in range(times):
        begin = time.perf_counter()
        await work(number)
        taken.append((time.perf_counter() - begin) * 1000)
    return float(np.median(taken))
