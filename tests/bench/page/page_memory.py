"""The memory of an open page after a garbage collection: JavaScript's heaps, WASM, Python, the document, the disk."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from playwright.sync_api import Page

from tests.bench.page.heaps import Heaps
from tests.page.small_site import SmallSite

MB = 1024 * 1024
PYTHON = """
import gc, js, json
from collections import Counter
gc.collect()
kinds = Counter(f"{type(one).__module__}.{type(one).__qualname__}" for one in gc.get_objects())
js.globalThis.pythonHolds = json.dumps([kinds.total(), kinds.most_common(400)])
"""
HOOK = Path(__file__).with_name("page_memory_hook.js")
ATTACHED = """() => {
  const walk = document.createTreeWalker(document, NodeFilter.SHOW_ALL);
  let count = 1;
  while (walk.nextNode()) count += 1;
  return [count, document.querySelectorAll('#chats *').length];
}"""
STORED = """() => new Promise((resolve, reject) => {
  const opening = indexedDB.open('sonata-memory');
  opening.onerror = () => reject(opening.error);
  opening.onsuccess = () => {
    const sizes = {};
    opening.result.transaction('rows').objectStore('rows').openCursor().onsuccess = ({ target: { result } }) => {
      if (!result) { opening.result.close(); return resolve(sizes); }
      const { kind, body, vector } = result.value;
      sizes[kind] = (sizes[kind] ?? 0) + body.length + (vector?.length ?? 0);
      result.continue();
    };
  };
})"""
CONVERSATIONS = ("session", "turn", "index", "file", "passage")
"""Kinds of rows that belong to conversations: the conversations and the data beside them."""


class PageMemory:
    """Attach before the page is opened, of a site with `put_hook`. tests/page must be in the path."""

    def __init__(self, page: Page) -> None:
        self._page, self._heaps = page, Heaps(page)
        page.context.new_cdp_session(page).send("Performance.enable")
        self._session = page.context.new_cdp_session(page)
        self._session.send("Performance.enable")

    def sample(self) -> dict[str, Any]:
        """Sizes in MB; "python kinds" has objects by their types."""
        sample: dict[str, Any] = {}
        paths = {(): "page"} | self._heaps.workers
        for _ in range(2):  # a collection in one heap may free objects in another
            for path in paths:
                self._heaps.call(path, "HeapProfiler.collectGarbage")
        shared = 0.0
        wasm = 0.0
        for path, name in paths.items():
            heap = self._heaps.call(path, "Runtime.getHeapUsage")["usedSize"] / MB
            sample[f"JavaScript, {name}"] = sample.get(f"JavaScript, {name}", 0.0) + heap
            for size, is_shared in self._evaluated(path, "globalThis.pageMemory?.sizes()") or []:
                shared, wasm = (max(shared, size / MB), wasm) if is_shared else (shared, wasm + size / MB)
        sample["JavaScript, all"] = sum(size for name, size in sample.items() if name.startswith("JavaScript"))
        sample["WASM memories"] = wasm + shared
        for path in paths:
            if told := self._evaluated(path, f"globalThis.pageMemory?.ask({json.dumps(PYTHON)})"):
                objects, kinds = json.loads(told)
                sample["Python objects, thousands"] = objects / 1000
                sample["python kinds"] = dict(kinds)
        metrics = {one["name"]: one["value"] for one in self._session.send("Performance.getMetrics")["metrics"]}
        attached, in_list = self._page.evaluate(ATTACHED)
        sample["nodes"], sample["nodes in the document"] = metrics["Nodes"], attached
        sample["nodes of the chats' list"] = in_list
        sample["nodes not in the document"] = metrics["Nodes"] - attached
        sample["event listeners"] = metrics["JSEventListeners"]
        stored = self._page.evaluate(STORED)
        sample["stored, conversations"] = sum(stored.get(kind, 0) for kind in CONVERSATIONS) / MB
        sample["stored, other"] = sum(size for kind, size in stored.items() if kind not in CONVERSATIONS) / MB
        sample["stored kinds"] = stored
        return sample

    def _evaluated(self, path: tuple[str, ...], expression: str) -> Any:
        told = self._heaps.call(path, "Runtime.evaluate", {"expression": expression, "returnByValue": True})
        if "exceptionDetails" in told:
            raise RuntimeError(told["exceptionDetails"]["exception"].get("description", "no description"))
        return told["result"].get("value")


def put_hook(site: SmallSite) -> None:
    """Add the hook to the site: the engine's worker then knows the memory of WASM modules."""
    site.write("engine/page_memory_hook.js", HOOK.read_text("utf-8"))
    site.write("engine/worker.js", "import './page_memory_hook.js';\n" + site.read("engine/worker.js"))
    site.publish()
