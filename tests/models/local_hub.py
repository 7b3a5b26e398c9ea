"""A hub on this machine that speaks huggingface.co's API: listings of repositories, and files behind a redirect.

The files themselves are on a second server, as there.
"""

from __future__ import annotations

import hashlib
import http.server
import json
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import unquote


@dataclass
class LocalHub:
    """`files[repository][file]` are the contents. The test sets the errors, between or during requests."""

    files: dict[str, dict[str, bytes]] = field(default_factory=dict)
    listed: dict[str, Mapping[str, object]] = field(default_factory=dict)
    """The listing's claim about a file, instead of the truth."""
    cuts: list[int] = field(default_factory=list)
    """The number of bytes after which each next answer with a file is cut off."""
    gate: threading.Event | None = None
    """While it is not set, a file stops after `gate_at` bytes of its answer, and continues once it is set."""
    gate_at: int = 0
    ranges: bool = True
    redirect_to: str = ""
    """The address to which the hub redirects for files, instead of its second server."""
    asked: list[tuple[str, str | None]] = field(default_factory=list)
    """Path and range of each request for a file."""
    listings: list[str] = field(default_factory=list)
    url: str = ""
    files_url: str = ""

    @property
    def hosts(self) -> list[str]:
        """The entries of an allow list for both servers."""
        return [self.url, self.files_url]

    def listing(self, repository: str) -> list[dict[str, object]]:
        found = []
        for path, data in self.files[repository].items():
            truth = {"size": len(data), "lfs": {"oid": hashlib.sha256(data).hexdigest(), "size": len(data)}}
            found.append({"type": "file", "oid": "0" * 40, "path": path} | truth | self.listed.get(path, {}))
        return [{"type": "file", "oid": "1" * 40, "size": 12, "path": "README.md"}, *found]


class _Handler(http.server.BaseHTTPRequestHandler):
    hub: LocalHub

    def do_OPTIONS(self) -> None:
        self._answer(204, b"", {"Access-Control-Allow-Headers": "range, if-range"})

    def log_message(self, format: str, *args: object) -> None:
        pass

    def _answer(self, status: int, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        self._head(status, len(body), headers)
        self.wfile.write(body)

    def _head(self, status: int, length: int, headers: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(length))
        self.send_header("Access-Control-Allow-Origin", "*")
        self.send_header("Access-Control-Expose-Headers", "ETag, Content-Range, Content-Length")
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()


class _HubHandler(_Handler):
    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = unquote(self.path.split("?")[0])
        if match := re.fullmatch(r"/api/models/([^/]+/[^/]+)/tree/main", path):
            self.hub.listings.append(match[1])
            known = match[1] in self.hub.files
            self._answer(200 if known else 404, json.dumps(self.hub.listing(match[1]) if known else {}).encode())
        elif match := re.fullmatch(r"/([^/]+/[^/]+)/resolve/main/(.+)", path):
            target = self.hub.redirect_to or self.hub.files_url
            self._answer(302, b"", {"Location": f"{target}/{match[1]}/{match[2]}"})
        else:
            self._answer(404, b"")


class _FileHandler(_Handler):
    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        owner, repository, file = unquote(self.path).lstrip("/").split("/", 2)
        data = self.hub.files.get(f"{owner}/{repository}", {}).get(file)
        wanted = self.headers["Range"]
        self.hub.asked.append((file, wanted))
        if data is None:
            self._answer(404, b"")
            return
        tag = f'"{hashlib.sha256(data).hexdigest()[:20]}"'
        start, end = 0, len(data)
        if self.hub.ranges and wanted and self.headers.get("If-Range", tag) == tag:
            first, last = re.fullmatch(r"bytes=(\d+)-(\d*)", wanted).groups()
            start, end = int(first), min(int(last) + 1, end) if last else end
            if start >= len(data):
                self._answer(416, b"")
                return
        headers = {"ETag": tag}
        is_part = end - start < len(data)
        if is_part:
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{len(data)}"
        self._head(206 if is_part else 200, end - start, headers)
        if self.command == "HEAD":
            return
        stop = min(end, start + self.hub.cuts.pop(0)) if self.hub.cuts else end
        if gate := self.hub.gate:
            held = min(stop, start + self.hub.gate_at)
            self.wfile.write(data[start:held])
            self.wfile.flush()
            gate.wait(60)
            start = held
        self.wfile.write(data[start:stop])
        self.close_connection = True


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        pass  # clients that go away are part of the tests


@contextmanager
def running_hub() -> Iterator[LocalHub]:
    """A hub without files, while the block runs."""
    hub = LocalHub()
    servers = [
        _Server(("127.0.0.1", 0), type("Handler", (kind,), {"hub": hub})) for kind in (_HubHandler, _FileHandler)
    ]
    hub.url, hub.files_url = (f"http://localhost:{server.server_port}" for server in servers)
    for server in servers:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield hub
    finally:
        for server in servers:
            server.shutdown()
            server.server_close()
