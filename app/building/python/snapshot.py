"""The snapshot of the page's Python, made in Chromium if the machine has it (docs/develop/start.md).

The page works without it. The latest one is kept in node_modules/, as long as its inputs are unchanged.
"""

from __future__ import annotations

import hashlib
import queue
import subprocess
import tempfile
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from app.building.common import heading, write_atomically
from app.building.node import NODE_MODULES
from app.building.python.archives import packed
from app.building.system import CHROMIUM_FLAGS, find_chromium

SNAPSHOT = "pyodide/snapshot.packed"
MAKER = Path(__file__).with_name("snapshot_maker.js")
LIMIT_SECONDS = 180
_KEPT = NODE_MODULES / ".sonata.snapshot"
_PAGE = b'<!doctype html><script>new Worker("engine/snapshot_maker.js", {type: "module"})</script>'
_INPUTS = ("pyodide/", "engine/", "common/", "sonata.packed")
_TYPES = {".js": "text/javascript", ".mjs": "text/javascript", ".wasm": "application/wasm"}


def python_snapshot(site: Mapping[str, Path | bytes], chromium: Path | None = None) -> bytes | None:
    """The packed snapshot of a site's Python; None if there is no Chromium, or if it fails to make one.

    site: path -> content. chromium: its program; None to find it.
    """
    inputs = {name: content for name, content in site.items() if name.startswith(_INPUTS)} | {MAKER.name: MAKER}
    files = {name: value if isinstance(value, bytes) else value.read_bytes() for name, value in inputs.items()}
    fingerprint = _fingerprint(files)
    kept = _KEPT.read_bytes() if _KEPT.is_file() else b""
    if kept.startswith(fingerprint):
        return kept[len(fingerprint) :]
    chromium = chromium or find_chromium()
    if chromium is None:
        heading("No snapshot of the page's Python: there is no Chromium here (the page starts in twice the time)")
        return None
    heading("A snapshot of the page's Python")
    memory = _made_by(chromium, files)
    if isinstance(memory, str):
        heading(f"No snapshot of the page's Python ({memory}): the page starts without it")
        return None
    snapshot = packed(_without_zeros(memory))
    write_atomically(_KEPT, fingerprint + snapshot)
    return snapshot


def _fingerprint(files: Mapping[str, bytes]) -> bytes:
    digests = (f"{name} {hashlib.sha256(files[name]).hexdigest()}" for name in sorted(files))
    return hashlib.sha256("\n".join(digests).encode()).digest()


def _without_zeros(memory: bytes) -> bytes:
    """Cuts the zeros off its end, which new memory has anyway; still whole words."""
    return memory[: -(-len(memory.rstrip(b"\0")) // 16) * 16]


def _made_by(chromium: Path, files: Mapping[str, bytes]) -> bytes | str:
    """The data that Chromium sends when it opens a page of these files, or why it sent nothing."""
    answers: queue.Queue[bytes | str] = queue.Queue()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.removeprefix("/")
            content = {"": _PAGE, "engine/snapshot_maker.js": files[MAKER.name]}.get(path) or files.get(path)
            self.send_response(404 if content is None else 200)
            kind = _TYPES.get(Path(path).suffix, "application/octet-stream") if path else "text/html"
            self.send_header("Content-Type", kind)
            self.end_headers()
            self.wfile.write(content or b"")

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.end_headers()
            answers.put(body if self.path == "/snapshot" else body.decode("utf-8", "replace")[:300])

        def log_message(self, format: str, *args: object) -> None:
            pass

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_address[1]}/"
        flags = [*CHROMIUM_FLAGS, "--headless", "--disable-gpu", "--remote-debugging-port=0"]
        browser = None
        try:
            browser = subprocess.Popen(
                [str(chromium), *flags, f"--user-data-dir={profile}", address],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            return answers.get(timeout=LIMIT_SECONDS)
        except queue.Empty:
            return f"Chromium has not made it in {LIMIT_SECONDS} seconds"
        except OSError as error:
            return str(error)
        finally:
            if browser:
                browser.terminate()
                browser.wait(10)
            server.shutdown()
            server.server_close()
