"""The site over HTTP, with everything that the page needs: its headers (app/server/headers.py), byte ranges, MIME
types.
"""

from __future__ import annotations

import argparse
import errno
import mimetypes
import os
import socket
import sys
import threading
import webbrowser
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import uvicorn
from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.routing import BaseRoute, Mount
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.paths import ROOT
from app.server.guard import LIMITS, ClientLimits, GuardedProtocol, KnownNames
from app.server.headers import headers_of

DIST = ROOT / "dist"

ALLOW_NAME = "a name that other machines call this one by, such as box.local (may be repeated)"
"""The help text of the option of this name."""

MIME_TYPES = {
    ".js": "text/javascript",
    ".mjs": "text/javascript",
    ".css": "text/css",
    ".html": "text/html",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".wasm": "application/wasm",
    ".webmanifest": "application/manifest+json",
    ".wgsl": "text/plain",
    ".gguf": "application/octet-stream",
    ".whl": "application/zip",
    ".zip": "application/zip",
}


class ServerError(Exception):
    """The server cannot start; the message is a sentence that says what to do."""


class _WithHeaders:
    """Adds the site's headers to every response, including errors."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(headers_of(scope["path"]))
            await send(message)

        await self._app(scope, receive, send_with_headers if scope["type"] == "http" else send)


def create_app(dist: Path, routes: Sequence[BaseRoute] = (), names: Sequence[str] = ("localhost",)) -> Starlette:
    """The site in `dist`; `routes` take precedence over its files. `names`: its host names, besides IP addresses.

    Raises FileNotFoundError, with what to do, if the site has not been built.
    """
    if not (dist / "models.json").is_file():
        raise FileNotFoundError(f"There is no site in {dist}: run `python build.py site` first.")
    for suffix, kind in MIME_TYPES.items():  # the system's own table differs from machine to machine
        mimetypes.add_type(kind, suffix)
    app = Starlette(routes=[*routes, Mount("/", StaticFiles(directory=dist, html=True))])
    app.add_middleware(KnownNames, names=names)
    app.add_middleware(_WithHeaders)
    return app


def server_config(
    app: ASGIApp, limits: ClientLimits = LIMITS, lifespan: Literal["on", "off"] = "off"
) -> uvicorn.Config:
    protocol: Any = partial(GuardedProtocol, limits=limits)
    return uvicorn.Config(
        app, http=protocol, ws="none", log_level="warning", access_log=False, timeout_graceful_shutdown=1,
        lifespan=lifespan,
    )  # fmt: skip


def listen(host: str, port: int) -> socket.socket:
    """A listening socket. Raises ServerError if the port or the address is not available."""
    if not 0 <= port <= 65535:
        raise ServerError(f"{port} is no port: choose one between 0 and 65535, for example --port 8000.")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise ServerError(f"{host} is no address of this machine: use --host 127.0.0.1 or --host 0.0.0.0.") from error
    listener = socket.socket(family, kind, protocol)
    if os.name == "posix":  # elsewhere this option would let two programs have the same port
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(address)
        listener.listen(128)
    except OSError as error:
        listener.close()
        if error.errno in (errno.EADDRINUSE, errno.EACCES):
            why = "is used by another program" if error.errno == errno.EADDRINUSE else "is not open to this user"
            other = port + 1 if 1024 <= port < 65535 else 8000
            raise ServerError(f"Port {port} {why}: choose another one, for example --port {other}.") from error
        raise ServerError(f"{host} is no address of this machine: use --host 127.0.0.1 or --host 0.0.0.0.") from error
    return listener


def listen_at(host: str, port: int) -> tuple[socket.socket, str]:
    """A listening socket, and the address of its server for a person. Raises ServerError."""
    listener = listen("127.0.0.1" if host == "localhost" else host, port)
    shown = "localhost" if host in ("localhost", "127.0.0.1", "0.0.0.0", "::", "::1") else host
    return listener, f"http://{shown}:{listener.getsockname()[1]}"


class Server(uvicorn.Server):
    """Prints its address once it is reachable."""

    def __init__(self, config: uvicorn.Config, address: str, open_browser: bool) -> None:
        super().__init__(config)
        self._address = address
        self._open_browser = open_browser

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        print(f"Sonata is at {self._address} (Ctrl-C ends it)", flush=True)
        if self._open_browser:
            threading.Thread(target=webbrowser.open, args=(self._address,), daemon=True).start()


def serve(
    dist: Path = DIST,
    host: str = "localhost",
    port: int = 8000,
    open_browser: bool = True,
    names: Sequence[str] = (),
) -> None:
    """Serve the site until Ctrl-C. Port 0 takes a free one. Prints the address once it is reachable.

    names: further host names of this machine, besides `host` and its IP addresses.

    Raises FileNotFoundError if there is no site, ServerError if the port is not available.
    """
    app = create_app(dist, names=("localhost", host, *names))
    listener, address = listen_at(host, port)
    try:
        Server(server_config(app), address, open_browser).run(sockets=[listener])
    except KeyboardInterrupt:
        pass  # Ctrl-C is how a user ends the server
    finally:
        listener.close()


def main(arguments: Sequence[str] | None = None) -> int:
    """`python -m app.server.site`: the command that build.py runs in the .venv."""
    parser = argparse.ArgumentParser(prog="app.server.site", description="Serve the site in dist/.")
    add_options(parser)
    options = parser.parse_args(arguments)
    try:
        serve(options.dist, options.host, options.port, not options.no_open, options.allow_name)
    except (ServerError, FileNotFoundError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--host", default="localhost", help="address to listen on (default: localhost)")
    parser.add_argument("--port", type=int, default=8000, help="port to listen on (default: 8000)")
    parser.add_argument("--no-open", action="store_true", help="do not open the browser")
    parser.add_argument("--allow-name", action="append", default=[], metavar="NAME", help=ALLOW_NAME)
    parser.add_argument("--dist", type=Path, default=DIST, help=argparse.SUPPRESS)


if __name__ == "__main__":
    sys.exit(main())
