"""A small server of one model file that can be damaged in several ways, for another origin than the site's."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BufferedIOBase
from pathlib import Path
from types import TracebackType

CHUNK = 1 << 20


class DamagedServer:
    """Serves `path` at `url`. Set `length` (the file ends there), `breaks_at` (the connection does), `flip_byte_at`
    or `damage`. `compresses`: it sends the file compressed, without the compressed length."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = path.stat().st_size
        self.heal()
        handler = type("Handler", (_Handler,), {"files": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/{path.name}"

    def heal(self) -> None:
        """From now on the file is served undamaged."""
        self.length = self.size
        self.compresses = False
        self.breaks_at: int | None = None
        self.flip_byte_at: int | None = None
        self.damage: Callable[[bytearray], None] = lambda start: None
        """A function that changes the first bytes of the file; it gets up to a mebibyte of them."""

    def send(self, out: BufferedIOBase) -> None:
        end = self.length if self.breaks_at is None else self.breaks_at
        with open(self.path, "rb") as file:
            while (left := end - file.tell()) > 0:
                at, piece = file.tell(), bytearray(file.read(min(CHUNK, left)))
                if at == 0:
                    self.damage(piece)
                if self.flip_byte_at is not None and at <= self.flip_byte_at < at + len(piece):
                    piece[self.flip_byte_at - at] ^= 0x10
                out.write(piece)

    def __enter__(self) -> DamagedServer:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    files: DamagedServer

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/octet-stream")
        if self.files.compresses:
            self.send_header("Content-Encoding", "gzip")
        else:
            self.send_header("Content-Length", str(self.files.length))
        self.send_header("Access-Control-Allow-Origin", "*")
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        with suppress(BrokenPipeError, ConnectionResetError):  # the page closed the connection
            if not self.files.compresses:
                self.files.send(self.wfile)
                return
            with gzip.GzipFile(fileobj=self.wfile, mode="wb", compresslevel=1) as out:
                self.files.send(out)

    def log_message(self, format: str, *args: object) -> None:
        pass
