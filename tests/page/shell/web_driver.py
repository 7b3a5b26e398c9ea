"""Browsers that Playwright cannot drive here, by WebDriver: Firefox by Marionette, WebKitGTK by its own driver.

Both come from Debian and understand the same commands; only the transport differs. Standard library only.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

ENTER = "\ue007"
_ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
_START_SECONDS = 60.0


DROPPED = "JavaScript error: , line 0: uncaught exception: undefined"
"""Firefox writes this, now and then, in the tenth of a second after a page is left for another: about an internal
promise that ended with the page. No listener for rejections gets it, in the page, its workers or the service worker."""


class DriverError(Exception):
    """The browser's message about a failed command."""


class _Way(Protocol):
    def ask(self, marionette: str, method: str, path: str, given: dict[str, Any]) -> Any: ...


class Tab:
    """One tab of a browser."""

    def __init__(self, way: _Way, console: Path | None) -> None:
        self._way, self._console = way, console

    def open(self, url: str) -> None:
        """WebDriver's Refresh is not a way to reload a page: in Firefox it bypasses the service worker."""
        self._way.ask("Navigate", "POST", "url", {"url": url})

    def evaluate(self, expression: str, *given: Any) -> Any:
        """The value of a JavaScript function, also an async one, that is called with `given`."""
        script = f"""const done = arguments[arguments.length - 1];
            Promise.resolve().then(() => ({expression})(...Array.prototype.slice.call(arguments, 0, -1)))
              .then((value) => done({{ value: value ?? null }}), (error) => done({{ error: String(error) }}));"""
        answer = self._way.ask("ExecuteAsyncScript", "POST", "execute/async", {"script": script, "args": list(given)})
        if answer is None:
            raise DriverError("the page went away")
        if "error" in answer:
            raise DriverError(answer["error"])
        return answer["value"]

    def wait_for(self, condition: str, seconds: float = 120.0) -> Any:
        """Wait until a JavaScript function returns something; a page that is being reloaded is asked again."""
        end = time.monotonic() + seconds
        while True:
            try:
                if found := self.evaluate(condition):
                    return found
            except DriverError:
                if time.monotonic() > end:
                    raise
            if time.monotonic() > end:
                state = self.evaluate("() => [document.documentElement?.dataset.state, document.body.innerText]")
                raise TimeoutError(f"{condition} was not so within {seconds} s: {state}")
            time.sleep(0.1)

    def type(self, selector: str, text: str) -> None:
        """Type like a keyboard."""
        found = self._way.ask("FindElement", "POST", "element", {"using": "css selector", "value": selector})
        found = found.get("value", found)[_ELEMENT]
        self._way.ask("ElementSendKeys", "POST", f"element/{found}/value", {"id": found, "text": text})

    def screenshot(self) -> str:
        """A PNG in base64."""
        answer = self._way.ask("TakeScreenshot", "GET", "screenshot", {"full": False})
        return answer["value"] if isinstance(answer, dict) else answer

    def console_errors(self) -> list[str]:
        """The page's errors on the console. Firefox only, without its own errors."""
        lines = self._console.read_text("utf-8", "replace").splitlines() if self._console else []
        errors = [line for line in lines if line.startswith(("console.error", "JavaScript error"))]
        signs = ("RSLoader", "resource://", "chrome://")
        return [line for line in errors if line != DROPPED and not any(sign in line for sign in signs)]


class _Marionette:
    """Firefox's own protocol: length:[0, number, command, parameters] both ways."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=300)
        self._rest, self._number = b"", 0
        self._receive()  # who speaks
        self.ask("NewSession", "", "", {"strictFileInteractability": True})
        self.ask("SetTimeouts", "", "", {"script": 300_000, "pageLoad": 60_000})

    def ask(self, marionette: str, method: str, path: str, given: dict[str, Any]) -> Any:
        self._number += 1
        message = json.dumps([0, self._number, f"WebDriver:{marionette}", given]).encode()
        self._socket.sendall(str(len(message)).encode() + b":" + message)
        _, _, error, result = self._receive()
        if error:
            raise DriverError(f"{error['error']}: {error['message']}")
        return result["value"] if set(result) == {"value"} else result

    def _receive(self) -> Any:
        while b":" not in self._rest:
            self._more()
        length, _, self._rest = self._rest.partition(b":")
        while len(self._rest) < int(length):
            self._more()
        message, self._rest = self._rest[: int(length)], self._rest[int(length) :]
        return json.loads(message)

    def _more(self) -> None:
        got = self._socket.recv(1 << 16)
        if not got:
            raise DriverError("the browser has gone")
        self._rest += got


class _Http:
    """WebDriver according to the standard."""

    def __init__(self, port: int, capabilities: dict[str, Any]) -> None:
        self._base = f"http://127.0.0.1:{port}/session"
        answer = self._send("POST", "", {"capabilities": {"alwaysMatch": capabilities}})
        self._base += f"/{answer['sessionId']}"
        self._send("POST", "/timeouts", {"script": 300_000, "pageLoad": 60_000})

    def ask(self, marionette: str, method: str, path: str, given: dict[str, Any]) -> Any:
        return self._send(method, f"/{path}", given)

    def end(self) -> None:
        self._send("DELETE", "", {})

    def _send(self, method: str, path: str, given: dict[str, Any]) -> Any:
        data = None if method in ("GET", "DELETE") else json.dumps(given).encode()
        request = urllib.request.Request(self._base + path, data, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=300) as response:
                return json.load(response)["value"]
        except urllib.error.HTTPError as error:
            said = json.load(error)["value"]
            raise DriverError(f"{said['error']}: {said['message']}") from None


FIREFOX_SETTINGS = {
    "app.update.enabled": False,
    "browser.shell.checkDefaultBrowser": False,
    "browser.startup.homepage_override.mstone": "ignore",
    "datareporting.policy.dataSubmissionEnabled": False,
    "devtools.console.stdout.chrome": False,
    "devtools.console.stdout.content": True,
    "marionette.port": 0,
    "toolkit.telemetry.reportingpolicy.firstRun": False,
}


@contextmanager
def firefox(program: Path, settings: dict[str, Any] | None = None) -> Iterator[Tab]:
    """A fresh Firefox without a window. settings: further ones of about:config."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        profile, console = Path(folder), Path(folder) / "console.txt"
        lines = (FIREFOX_SETTINGS | (settings or {})).items()
        (profile / "user.js").write_text("".join(f"user_pref({json.dumps(k)}, {json.dumps(v)});\n" for k, v in lines))
        command = [program, "--headless", "--no-remote", "--marionette", "--profile", profile, "about:blank"]
        with console.open("wb") as output:
            running = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=_environment(profile))
        try:
            yield Tab(_Marionette(_port_of(profile / "MarionetteActivePort", running)), console)
        finally:
            _end(running)


@contextmanager
def webkit(driver: Path, browser: Path) -> Iterator[Tab]:
    """WebKitGTK's small browser, on a virtual display."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        home = Path(folder)
        display, screen = _screen()
        environment = _environment(home) | {"DISPLAY": display, "WEBKIT_DISABLE_DMABUF_RENDERER": "1"}
        environment |= {"GDK_BACKEND": "x11", "LIBGL_ALWAYS_SOFTWARE": "1"}
        port = _free_port()
        console = home / "console.txt"
        with console.open("wb") as output:
            running = subprocess.Popen(
                [driver, f"--port={port}"], stdout=output, stderr=subprocess.STDOUT, env=environment
            )
        way = None
        try:
            _wait_until(lambda: _answers(port), "WebKitWebDriver")
            options = {"binary": str(browser), "args": ["--automation"]}
            way = _Http(port, {"webkitgtk:browserOptions": options})
            yield Tab(way, None)
        finally:
            if way:
                way.end()
            _end(running)
            _end(screen)


def _environment(home: Path) -> dict[str, str]:
    return os.environ | {
        "HOME": str(home),
        "XDG_RUNTIME_DIR": str(home),
        "XDG_CACHE_HOME": str(home / "cache"),
        "MOZ_CRASHREPORTER_DISABLE": "1",
    }


def _screen() -> tuple[str, subprocess.Popen[bytes]]:
    reading, writing = os.pipe()
    command = [
        shutil.which("Xvfb") or "Xvfb",
        "-displayfd",
        str(writing),
        "-screen",
        "0",
        "1280x800x24",
        "-nolisten",
        "tcp",
    ]
    running = subprocess.Popen(command, pass_fds=(writing,), stderr=subprocess.DEVNULL)
    os.close(writing)
    with os.fdopen(reading) as number:
        return f":{number.readline().strip()}", running


def _port_of(file: Path, running: subprocess.Popen[bytes]) -> int:
    def is_there() -> bool:
        if running.poll() is not None:
            raise DriverError(f"the browser ended with {running.returncode}")
        return file.is_file() and bool(file.read_text())

    _wait_until(is_there, "Firefox")
    return int(file.read_text())


def _wait_until(holds: Any, what: str) -> None:
    end = time.monotonic() + _START_SECONDS
    while not holds():
        if time.monotonic() > end:
            raise TimeoutError(f"{what} did not start within {_START_SECONDS} s")
        time.sleep(0.05)


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _end(running: subprocess.Popen[bytes]) -> None:
    running.terminate()
    try:
        running.wait(10)
    except subprocess.TimeoutExpired:
        running.kill()
        running.wait()
