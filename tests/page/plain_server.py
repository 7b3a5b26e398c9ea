"""The site as a plain file server serves it: without the headers that isolate a page. It records requests, and
breaks in the way that the test sets."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType

from app.server.headers import headers_of


@dataclass(frozen=True)
class Asked:
    path: str
    start: int
    """First byte of a requested range."""


class PlainServer:
    """Serves a folder at `url`, on `host`, any name of this machine. `port` restarts the same server."""

    def __init__(self, folder: Path, host: str = "localhost", port: int = 0) -> None:
        self.folder = folder
        self.asked: list[Asked] = []
        self.ranges = True
        """True if it serves byte ranges."""
        self.guards = False
        """True if it sends the site's headers, as app/server/site.py does: the page then needs no service worker."""
        self.headers: dict[str, str] = {}
        """Extra headers of every answer."""
        self.breaks: dict[str, int] = {}
        """path -> bytes of the file before which the connection breaks."""
        self.instead: dict[str, bytes] = {}
        """path -> content that is sent instead of the file."""
        self.told: dict[str, int] = {}
        """path -> the length to state in answers to HEAD."""
        self.holds: dict[str, int] = {}
        """path -> bytes of the file before which it waits until the entry is gone."""
        handler = type("Handler", (_Handler,), {"files": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", port), handler)
        self.port = self._server.server_port
        self.url = f"http://{host}:{self.port}"

    def paths(self) -> list[str]:
        """The requests since the last call."""
        paths = [asked.path for asked in self.asked]
        self.asked.clear()
        return paths

    def stop(self) -> None:
        """From now on the port does not answer."""
        self._server.shutdown()
        self._server.server_close()

    def __enter__(self) -> PlainServer:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


class _Handler(SimpleHTTPRequestHandler):
    files: PlainServer
    extensions_map = SimpleHTTPRequestHandler.extensions_map | {
        ".js": "text/javascript",
        ".mjs": "text/javascript",
        ".wasm": "application/wasm",
        ".svg": "image/svg+xml",
        ".webmanifest": "application/manifest+json",
    }

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        files = self.files
        path = self.path.split("?")[0].lstrip("/") or "index.html"
        wanted = self.headers.get("Range", "")
        start = int(wanted.removeprefix("bytes=").split("-")[0]) if wanted and files.ranges else 0
        files.asked.append(Asked(path, start))
        file = files.folder / path
        if path not in files.instead and not file.is_file():
            self.send_error(404)
            return
        data = files.instead[path] if path in files.instead else file.read_bytes()
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        self.send_header("Content-Type", self.guess_type(path))
        length = len(data) - start
        self.send_header("Content-Length", str(files.told.get(path, length) if self.command == "HEAD" else length))
        guards = headers_of(path) if files.guards else {}
        for name, value in (guards | files.headers).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        with suppress(BrokenPipeError, ConnectionResetError):  # the page closed the connection
            held = max(start, files.holds.get(path, start))
            self.wfile.write(data[start:held])
            while path in files.holds:
                time.sleep(0.02)
            self.wfile.write(data[held : files.breaks.get(path, len(data))])

    def log_message(self, format: str, *args: object) -> None:
        pass
