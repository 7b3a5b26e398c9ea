"""The heaps of a page and its workers, by Chromium's DevTools protocol: objects and array buffers, garbage included."""

from __future__ import annotations

import json
from typing import Any

from playwright.sync_api import Error, Page

CALL_WAIT_MS, CALL_WAITS = 5, 12_000
_ATTACH = {"autoAttach": True, "waitForDebuggerOnStart": False, "flatten": False}


class Heaps:
    """Attaches to the current workers and to those that start later, also to workers of workers."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self._session = page.context.new_cdp_session(page)
        self._session.on("Target.attachedToTarget", lambda event: self._attached((), event))
        self._session.on("Target.detachedFromTarget", lambda event: self._ended((event["sessionId"],)))
        self._session.on("Target.receivedMessageFromTarget", lambda event: self._received((), event))
        self._workers: dict[tuple[str, ...], int] = {}
        """Path of sessions that leads to a worker -> the bytes of its heap when it was asked last."""
        self._names: dict[tuple[str, ...], str] = {}
        self._answers: dict[int, dict[str, Any]] = {}  # of `call`, by the number of the request
        self._wanted = set[int]()
        self._asked = 0
        self._peak = 0
        self._session.send("Target.setAutoAttach", _ATTACH)

    def sample_while(self, condition: str) -> None:
        """Sample all heaps repeatedly while an expression is true on the page."""
        while self._page.evaluate(condition):
            own = self._session.send("Runtime.getHeapUsage")
            for path in list(self._workers):
                self._send(path, "Runtime.getHeapUsage")
            self._page.wait_for_timeout(100)
            self._peak = max(self._peak, _bytes(own) + sum(self._workers.values()))

    def take_peak(self) -> int:
        """The largest sum since the last call, in bytes."""
        peak, self._peak = self._peak, 0
        return peak

    @property
    def workers(self) -> dict[tuple[str, ...], str]:
        """Return the current workers: the file that each runs, by its path."""
        return dict(self._names)

    def call(self, path: tuple[str, ...], method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        """Call a protocol method in a worker, or in the page for (), and return its result. Raises TimeoutError."""
        if not path:
            return self._session.send(method, params or {})
        asked = self._send(path, method, params)
        self._wanted.add(asked)
        for _ in range(CALL_WAITS):
            if asked in self._answers:
                return self._answers.pop(asked)
            self._page.wait_for_timeout(CALL_WAIT_MS)
        raise TimeoutError(f"{self._names.get(path, path)} has not answered {method}")

    def _send(self, path: tuple[str, ...], method: str, params: dict[str, Any] | None = None) -> int:
        self._asked += 1
        asked = self._asked
        message = json.dumps({"id": self._asked, "method": method, "params": params or {}})
        for session in reversed(path[1:]):
            sent = {"sessionId": session, "message": message}
            message = json.dumps({"id": self._asked, "method": "Target.sendMessageToTarget", "params": sent})
        try:
            self._session.send("Target.sendMessageToTarget", {"sessionId": path[0], "message": message})
        except Error:  # it has just ended
            self._ended(path)
        return asked

    def _ended(self, path: tuple[str, ...]) -> None:
        """Forget a worker that has ended, and the workers that it started."""
        self._workers = {known: size for known, size in self._workers.items() if known[: len(path)] != path}
        self._names = {known: name for known, name in self._names.items() if known[: len(path)] != path}

    def _attached(self, path: tuple[str, ...], event: dict[str, Any]) -> None:
        self._workers[(*path, event["sessionId"])] = 0
        self._names[(*path, event["sessionId"])] = event["targetInfo"]["url"].rpartition("/")[2].partition("?")[0]
        self._send((*path, event["sessionId"]), "Target.setAutoAttach", _ATTACH)

    def _received(self, path: tuple[str, ...], event: dict[str, Any]) -> None:
        path = (*path, event["sessionId"])
        message = json.loads(event["message"])
        params = message.get("params", {})
        if message.get("method") == "Target.attachedToTarget":
            self._attached(path, params)
        elif message.get("method") == "Target.receivedMessageFromTarget":
            self._received(path, params)
        elif message.get("method") == "Target.detachedFromTarget":
            self._ended((*path, params["sessionId"]))
        elif message.get("id") in self._wanted:
            self._wanted.discard(message["id"])
            self._answers[message["id"]] = message.get("result", {})
        elif "usedSize" in message.get("result", {}) and path in self._workers:
            self._workers[path] = _bytes(message["result"])


def _bytes(usage: dict[str, float]) -> int:
    return int(usage["usedSize"] + usage.get("embedderHeapUsedSize", 0) + usage.get("backingStorageSize", 0))
