"""The site's server, over real connections."""

from __future__ import annotations

import http.client
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import uvicorn
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from app.building import headers
from app.building.common import ROOT
from app.server.guard import ClientLimits
from app.server.headers import POLICIES
from app.server.site import ServerError, create_app, listen, server_config

MODEL = bytes(range(256)) * 1000


@pytest.fixture(scope="module")
def small_site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    dist = tmp_path_factory.mktemp("dist")
    (dist / "models").mkdir()
    for name in ("a.js", "a.mjs", "a.wasm", "a.whl", "a.css", "a.zip", "a.json", "a.svg", "index.html", "models.json"):
        (dist / name).write_text("content of " + name)
    (dist / "models" / "model.gguf").write_bytes(MODEL)
    return dist


@pytest.fixture(scope="module")
def port(small_site: Path, start_server) -> Iterator[int]:
    server, address = start_server(small_site)
    yield int(address.rsplit(":", 1)[1])
    server.terminate()
    server.communicate(timeout=10)


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes


def ask(port: int, path: str, method: str = "GET", **headers: str) -> Answer:
    connection = http.client.HTTPConnection("localhost", port, timeout=10)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, path, headers=named)
    response = connection.getresponse()
    lower = {name.lower(): value for name, value in response.getheaders()}
    answer = Answer(response.status, lower, response.read())
    connection.close()
    return answer


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/", {}, 200),
        ("/models/model.gguf", {"Range": "bytes=0-9"}, 206),
        ("/models/model.gguf", {"Range": "bytes=99999999-"}, 416),
        ("/nothing", {}, 404),
    ],
)
def test_every_answer_isolates_the_page(port, path, headers, status):
    answer = ask(port, path, **headers)
    assert answer.status == status
    assert answer.headers["cross-origin-opener-policy"] == "same-origin"
    assert answer.headers["cross-origin-embedder-policy"] == "require-corp"
    assert answer.headers["cross-origin-resource-policy"] == "same-origin"
    assert answer.headers["cache-control"] == "no-cache"


@pytest.mark.parametrize(
    ("path", "end"),
    [
        ("/", ""),
        ("/index.html", ""),
        ("/nothing", ""),
        ("/models/model.gguf", ""),
        ("/sw.js", "sw.js"),
        ("/engine/worker.js", "worker.js"),
        ("/routing/embedder_worker.js", "worker.js"),
        ("/downloads/model_worker.js", "downloads/model_worker.js"),
    ],
)
def test_every_answer_says_what_its_scripts_may_do(port, path, end):
    headers = ask(port, path).headers
    assert headers["content-security-policy"] == dict(POLICIES)[end]
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert "require-trusted-types-for 'script'" in headers["content-security-policy"]
    assert "'unsafe-inline'" not in headers["content-security-policy"]
    assert "'unsafe-eval'" not in headers["content-security-policy"]
    assert "camera=()" in headers["permissions-policy"]


@pytest.mark.parametrize("path", [headers.SERVICE_WORKER, headers.PAGE, headers.DEPLOY])
def test_the_headers_stand_everywhere_as_they_are_defined(path):
    assert path.read_text("utf-8") == headers.written(path), "run: python -m app.building.headers"


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1234", "127.0.0.1", "192.168.1.5:8000", "[::1]:8000"])
def test_its_own_names_are_answered(port, host):
    assert ask(port, "/index.html", Host=host).status == 200


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example:8000", "127.0.0.1.evil.example", "box.local"])
def test_a_site_that_points_its_own_name_here_gets_nothing(port, host):
    answer = ask(port, "/models.json", Host=host)
    assert answer.status == 421
    assert answer.body.decode().startswith(f"This server does not answer to {host.split(':')[0]}. If that is a name of")
    assert b"--allow-name" in answer.body


def test_a_name_that_was_listed_is_answered(small_site):
    with TestClient(create_app(small_site, names=["box.local"]), "http://box.local:8000") as client:
        assert client.get("/models.json").status_code == 200


@dataclass
class Running:
    """A server in this process with limits that the test chooses."""

    port: int
    release: threading.Event
    """Ends the answer to /held."""
    begun: threading.Event
    """Set once that answer was requested."""

    def connect(self, sent: bytes = b"") -> socket.socket:
        opened = socket.create_connection(("127.0.0.1", self.port), timeout=60)
        opened.sendall(sent)
        return opened

    def answer(self, path: str = "/a.js") -> bytes:
        with self.connect(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()) as opened:
            return everything(opened)


def everything(opened: socket.socket) -> bytes:
    """The bytes until the other side ends the connection. Fails if it does not end it."""
    with opened, opened.makefile("rb") as file:
        return file.read()


@contextmanager
def limited(dist: Path, limits: ClientLimits) -> Iterator[Running]:
    release, begun = threading.Event(), threading.Event()

    def held(request: Request) -> PlainTextResponse:
        begun.set()
        release.wait(60)
        return PlainTextResponse("at last")

    listener = listen("127.0.0.1", 0)
    server = uvicorn.Server(server_config(create_app(dist, [Route("/held", held)]), limits))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield Running(listener.getsockname()[1], release, begun)
    finally:
        release.set()
        server.should_exit = True
        thread.join()
        listener.close()


@pytest.fixture
def hasty(small_site: Path) -> Iterator[Running]:
    with limited(small_site, ClientLimits(head_seconds=0.3)) as running:
        yield running


def test_a_connection_that_sends_nothing_is_ended(hasty):
    assert everything(hasty.connect()) == b""


@pytest.mark.parametrize("before", [b"", b"GET /a.js HTTP/1.1\r\nHost: localhost\r\n\r\n"], ids=["first", "second"])
def test_a_request_that_never_gets_whole_is_ended_with_a_sentence(hasty, before):
    part = b"GET /index.html HTTP/1.1\r\nHo"
    while True:
        opened = hasty.connect(before or part)
        if not before or opened.recv(12) == b"HTTP/1.1 200":
            if before:
                opened.sendall(part)
            if said := everything(opened):
                break
        # The first byte came too late: the machine is busy.
    *_, last = said.rpartition(b"HTTP/1.1 ")
    assert last.startswith(b"408 ")
    assert last.endswith(b"The request did not arrive in time: send it at once.\n")


def test_an_answer_that_takes_long_is_not_ended(hasty):
    request = b"GET /held HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    asked = hasty.connect(request)
    while not hasty.begun.wait(1):
        asked = hasty.connect(request)  # the previous one came too late: the machine is busy
    assert everything(hasty.connect()) == b""  # this much time has passed
    hasty.release.set()
    assert everything(asked).endswith(b"at last")


GET = b"GET /a.js HTTP/1.1\r\nHost: localhost\r\n"
CHUNKED = GET.replace(b"GET", b"POST") + b"Transfer-Encoding: chunked\r\n\r\n"


def answers(said: bytes) -> list[tuple[int, bytes]]:
    """The status and the body of each answer on a connection, which carries nothing else."""
    found = []
    while said:
        head, _, said = said.partition(b"\r\n\r\n")
        first, *lines = head.split(b"\r\n")
        (length,) = (int(line[15:]) for line in lines if line.lower().startswith(b"content-length:"))
        found.append((int(first.removeprefix(b"HTTP/1.1 ")[:3]), said[:length]))
        said = said[length:]
    return found


def test_requests_in_a_row_are_answered_in_their_order_however_long_one_takes(hasty):
    asked = hasty.connect(b"%b\r\n%b\r\n%bConnection: close\r\n\r\n" % (GET, GET.replace(b"a.js", b"held"), GET))
    assert hasty.begun.wait(60)
    assert everything(hasty.connect()) == b""  # this much time has passed
    hasty.release.set()
    assert [body for _, body in answers(everything(asked))] == [b"content of a.js", b"at last", b"content of a.js"]


@pytest.fixture(scope="module")
def patient(small_site: Path) -> Iterator[Running]:
    with limited(small_site, ClientLimits()) as running:
        yield running


@pytest.mark.parametrize(
    ("sent", "statuses"),
    [
        (GET + b"\r\n" + GET + b"\r\n", [200, 200]),
        (GET + b"\r\n" + GET, [200, 400]),
        (GET + b"\r\nNONSENSE\r\n\r\n" + GET, [200, 400]),
        (CHUNKED + b"5\r\nhello\r\n0\r\n\r\n" + GET + b"\r\n", [405, 200]),
        (CHUNKED.replace(b"POST /a.js", b"GET /held") + b"5\r\nhel", [400]),
        (CHUNKED + b"broken\r\nhello\r\n", [400]),
        (CHUNKED + b"-5\r\nhello\r\n" + b"x" * 1_000_000, [400]),
        (CHUNKED + b"5\r\nhello much\r\n", [400]),
        (GET.replace(b"a.js", b"held") + b"Content-Length: 10\r\n\r\nhello", [400]),
        (GET + b"Content-Length: many\r\n\r\n", [400]),
        (GET + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n", [400]),
        (GET + b"Transfer-Encoding: gzip\r\n\r\n", [501]),
        (GET + b"X: " + b"x" * 1_000_000 + b"\r\n\r\n", [431]),
        (GET + b"X: 1\r\n" * 50_000 + b"\r\n", [431]),
        (b"GET /" + b"a" * 1_000_000, [431]),
        (b"GET /a.js HTTP/1.1\r\n\r\n", [400]),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", [421, 400]),
        (b"\x16\x03\x01\x02\x00\x01\x00", [400]),
        (GET + b"Connection: upgrade\r\nUpgrade: websocket\r\n\r\n", [200]),
        (b"CONNECT a:1 HTTP/1.1\r\nHost: localhost\r\n\r\n", [404]),
    ],
)
def test_what_is_no_request_gets_a_status_and_ends_the_connection(patient, capfd, sent, statuses):
    opened = patient.connect(sent)
    opened.shutdown(socket.SHUT_WR)
    assert [status for status, _ in answers(everything(opened))] == statuses
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.parametrize(
    "after", [b"broken\r\n", b"5\r\nhello much\r\n", b"x" * 1_000_000], ids=["size", "chunk", "flood"]
)
def test_a_body_that_breaks_after_the_answer_adds_nothing_to_it(patient, capfd, after):
    opened = patient.connect(CHUNKED)
    said = opened.recv(12)
    opened.sendall(after)
    assert [status for status, _ in answers(said + everything(opened))] == [405]
    assert "Traceback" not in capfd.readouterr().err


def test_a_body_that_breaks_while_the_answer_is_made_gets_one_status(small_site, capfd):
    with limited(small_site, ClientLimits()) as running:
        asked = running.connect(CHUNKED.replace(b"POST /a.js", b"GET /held"))
        assert running.begun.wait(60)
        asked.sendall(b"broken\r\n")
        assert [status for status, _ in answers(everything(asked))] == [400]
    assert "Traceback" not in capfd.readouterr().err


def test_more_connections_than_the_limit_are_refused_with_a_sentence_until_one_ends(small_site):
    with limited(small_site, ClientLimits(per_address=3)) as running:
        first, *others = [running.connect() for _ in range(3)]
        refused = everything(running.connect())
        assert refused.startswith(b"HTTP/1.1 503 ")
        assert refused.endswith(b"There are too many connections to this server: close some of them, then try again.\n")
        first.close()
        while (answer := running.answer()).startswith(b"HTTP/1.1 503 "):
            pass  # the server does not know yet
        assert answer.startswith(b"HTTP/1.1 200 ")
        for other in others:
            other.close()


@pytest.mark.parametrize(
    ("asked", "start", "stop"),
    [
        ("bytes=0-0", 0, 1),
        ("bytes=1000-1999", 1000, 2000),
        ("bytes=255990-", 255_990, 256_000),
        ("bytes=-10", 255_990, 256_000),
        ("bytes=255999-999999", 255_999, 256_000),
    ],
)
def test_byte_ranges(port, asked, start, stop):
    answer = ask(port, "/models/model.gguf", Range=asked)
    assert answer.status == 206
    assert answer.body == MODEL[start:stop]
    assert answer.headers["content-range"] == f"bytes {start}-{stop - 1}/{len(MODEL)}"
    assert answer.headers["content-length"] == str(stop - start)


def test_a_range_after_the_end_is_416_with_the_size(port):
    answer = ask(port, "/models/model.gguf", Range=f"bytes={len(MODEL)}-")
    assert (answer.status, answer.headers["content-range"]) == (416, f"bytes */{len(MODEL)}")


def test_a_range_of_a_file_that_changed_gives_the_whole_file(port):
    answer = ask(port, "/models/model.gguf", Range="bytes=0-9", If_Range='"another"')
    assert (answer.status, answer.body) == (200, MODEL)


def test_head_tells_the_size_without_the_bytes(port):
    answer = ask(port, "/models/model.gguf", method="HEAD")
    assert (answer.status, answer.headers["content-length"], answer.body) == (200, str(len(MODEL)), b"")
    assert answer.headers["accept-ranges"] == "bytes"


def test_what_the_browser_has_is_not_sent_again(port):
    etag = ask(port, "/index.html").headers["etag"]
    again = ask(port, "/index.html", If_None_Match=etag)
    assert (again.status, again.body) == (304, b"")
    assert ask(port, "/index.html", If_None_Match='"old"').status == 200


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("", "text/html"),
        ("a.js", "text/javascript"),
        ("a.mjs", "text/javascript"),
        ("a.wasm", "application/wasm"),
        ("a.css", "text/css"),
        ("a.json", "application/json"),
        ("a.svg", "image/svg+xml"),
        ("a.whl", "application/zip"),
        ("models/model.gguf", "application/octet-stream"),
    ],
)
def test_mime_types(port, name, kind):
    assert ask(port, f"/{name}").headers["content-type"].split(";")[0] == kind


@pytest.mark.parametrize("path", ["/../pyproject.toml", "/%2e%2e/%2e%2e/etc/passwd", "//etc/passwd", "/models/%00"])
def test_nothing_outside_the_site_is_served(port, path):
    assert ask(port, path).status in (400, 404)


def test_only_reading_is_allowed(port):
    assert ask(port, "/index.html", method="POST").status == 405


def test_other_routes_come_before_the_files(small_site):
    route = Route("/v1/models", lambda request: PlainTextResponse("api"))
    with TestClient(create_app(small_site, [route]), "http://localhost") as client:
        assert client.get("/v1/models").text == "api"
        assert client.get("/index.html").text == "content of index.html"


def run_server(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "app.server.site", "--no-open", *options]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=20)


def test_a_site_that_is_not_built_is_a_sentence(tmp_path):
    result = run_server("--dist", str(tmp_path))
    assert result.returncode == 1
    assert result.stderr == f"There is no site in {tmp_path}: run `python build.py site` first.\n"


def test_a_port_that_is_taken_is_a_sentence_with_the_option(small_site):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = other.getsockname()[1]
        result = run_server("--dist", str(small_site), "--port", str(taken))
    assert result.returncode == 1
    assert result.stderr.startswith(f"Port {taken} is used by another program: choose another one, for example --port")
    assert "Traceback" not in result.stderr


def test_a_host_that_is_not_here_is_a_sentence():
    with pytest.raises(ServerError, match="--host 127"):
        listen("203.0.113.1", 0)


def test_a_port_that_is_no_port_is_a_sentence():
    with pytest.raises(ServerError, match="between 0 and 65535"):
        listen("127.0.0.1", 99999)


def test_ctrl_c_ends_it_quietly_even_with_a_connection_open(small_site, start_server):
    server, address = start_server(small_site)
    with socket.create_connection(("127.0.0.1", int(address.rsplit(":", 1)[1]))) as idle:
        idle.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert idle.recv(12) == b"HTTP/1.1 200"
        server.send_signal(signal.SIGINT)
        _, said = server.communicate(timeout=60)  # it does not wait for the connection
    assert (server.returncode, said) == (0, "")
