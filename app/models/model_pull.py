"""Downloads a model into the cache: resumes partial files, checks the sha256, and keeps the partial file if it
breaks off."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote, unquote, urlsplit

from app.models.cache import (
    CacheError,
    ModelCache,
    StoredModel,
    part_names,
    read_part_facts,
    stem_of,
    sum_of_parts,
    write_json,
)
from app.models.catalog import Catalog, Entry, GoneError
from app.models.http_range import ConnectionBroken, NoRanges, NotThere, SourceError, Unreachable, open_range
from py_core.display import shown
from py_core.formats.gguf import GGUFError, GGUFHeader, read_header
from py_core.formats.source import FileSource, SplitSource, parts_of
from py_core.models.config import name_of
from py_core.models.names import licence_of, title_of

OnProgress = Callable[[int, int | None], None]
"""Called with the bytes so far, and those of the whole file if known."""

PATIENCE = 5
"""Broken connections in a row, without a new byte, after which a download is given up. Its part stays."""

MOST_BYTES = 1 << 40
"""The largest file whose server does not state its size."""

_READ = 1 << 20
_ADDRESS = re.compile(r"([\w.-]+/[\w.-]+)/resolve/[\w.-]+/(.+)")
_HUB_FILE = re.compile(r"([\w.-]+/[\w.-]+)/(.+\.gguf)")


class PullError(Exception):
    """A model could not be downloaded; the message is a sentence that says what to do."""


@dataclass(frozen=True)
class Wanted:
    """A model to download, or one of its files. If the hub lists it, its size and sha256 are known in advance."""

    name: str
    title: str
    url: str
    licence: str = ""
    size: int | None = None
    sha256: str | None = None
    parts: tuple[Wanted, ...] = ()
    """The files of a model in several; `url` is that of the first."""
    whole: int | None = None
    """For one of several files, the bytes of all of them, if known."""


def wanted_model(catalog: Catalog, cache: ModelCache, text: str, name: str | None = None) -> Wanted:
    """Resolves the user's choice of a model: a name of the list, OWNER/REPOSITORY/FILE.gguf on the hub, or an address.

    Asks the hub for the size and the sha256. Raises PullError, HubError, HostError.
    """
    if entry := catalog.find(text):
        return _of_hub(catalog, entry.repository, entry.file, name or entry.name, entry)
    address = urlsplit(text)
    on_hub = _HUB_FILE.fullmatch(text)
    if address.scheme in ("http", "https"):
        catalog.hosts.check(text)
        there = _ADDRESS.fullmatch(text.removeprefix(f"{catalog.hub}/").split("?")[0])
        if not text.startswith(f"{catalog.hub}/") or not there:
            file = Path(unquote(address.path)).name
            folder = text.split("?")[0].rpartition("/")[0]
            urls = [f"{folder}/{quote(part)}" for part in parts_of(file)] or [text]
            title = stem_of(file)
            return _together(name or cache.new_name(title), [Wanted("", title, url) for url in urls])
        on_hub = there
    if not on_hub:
        names = ", ".join(entry.name for entry in catalog.entries)
        raise PullError(
            f"Sonata knows no model {shown(text)}. Choose one of {names}, "
            "or give OWNER/REPOSITORY/FILE.gguf on the hub, or an address."
        )
    file = unquote(on_hub[2])
    return _of_hub(catalog, on_hub[1], file, name or cache.new_name(stem_of(Path(file).name)), None)


def _of_hub(catalog: Catalog, repository: str, file: str, name: str, entry: Entry | None) -> Wanted:
    folder, slash, last = file.rpartition("/")
    title, licence = (entry.title, entry.licence) if entry else (stem_of(last), "")
    listed = [catalog.hub_file(repository, f"{folder}{slash}{part}") for part in parts_of(last) or [last]]
    return _together(name, [Wanted("", title, one.url, licence, one.size, one.sha256) for one in listed])


def _together(name: str, files: list[Wanted]) -> Wanted:
    """A model made of these files, in their order."""
    parts = tuple(replace(file, name=own) for file, own in zip(files, part_names(name, len(files)), strict=True))
    if len(parts) == 1:
        return parts[0]
    sizes, sums = [part.size for part in parts], [part.sha256 for part in parts]
    known = None not in sizes and None not in sums
    whole = sum(size or 0 for size in sizes) if known else None
    return replace(
        parts[0], name=name, parts=tuple(replace(part, whole=whole) for part in parts), size=whole,
        sha256=sum_of_parts([one or "" for one in sums]) if known else None,
    )  # fmt: skip


def pull(
    catalog: Catalog, cache: ModelCache, wanted: Wanted, on_progress: OnProgress = lambda done, total: None,
    pause: Callable[[float], None] = time.sleep,
) -> StoredModel:  # fmt: skip
    """Download a model, or the missing part of it. If it breaks off, also by Ctrl-C, the part is kept.

    Raises PullError, CacheError, GGUFError, HostError; `pause` waits between attempts (seconds).
    """
    files = wanted.parts or (wanted,)
    for file in files:
        catalog.hosts.check(file.url)
    if same := next((model for model in cache.models() if model.sha256 == wanted.sha256), None):
        return same
    cache.check_name(wanted.name)
    cache.folder.mkdir(parents=True, exist_ok=True)
    cache.check_room((wanted.size or 0) - cache.bytes_of(wanted.name), wanted.name)
    sums, before = [], 0
    for file in files:

        def told(done: int, total: int | None, before: int = before) -> None:
            on_progress(before + done, wanted.size or (None if wanted.parts else total))

        sums.append(_bring(catalog, cache, file, told, pause))
        before += cache.part_path(file.name).stat().st_size
    sha256 = sum_of_parts(sums)
    try:
        header = _check_parts(cache, files)
    except (GGUFError, ValueError):
        for file in files:
            cache.discard_part(file.name)
        raise
    title = wanted.title if wanted.sha256 else title_of(name_of(header.metadata), wanted.title)
    licence = wanted.licence or licence_of(header.metadata)
    path = cache.part_path(files[0].name)
    kept = cache.keep(StoredModel(wanted.name, title, wanted.url, before, sha256, licence, path, len(files)))
    for file in files:
        cache.part_facts(file.name).unlink(missing_ok=True)
    return kept


def _check_parts(cache: ModelCache, files: Sequence[Wanted]) -> GGUFHeader:
    """The header of complete files. Raises GGUFError."""
    paths = [cache.part_path(file.name) for file in files]
    return asyncio.run(read_header(SplitSource(paths) if len(paths) > 1 else FileSource(paths[0])))


def _bring(
    catalog: Catalog, cache: ModelCache, wanted: Wanted, on_progress: OnProgress, pause: Callable[[float], None]
) -> str:
    """Download a file, or the missing part of it, into its part. Returns the sha256, which equals that of the hub."""
    part = cache.part_path(wanted.name)
    with part.open("a+b") as file, _alone(file, wanted.name):
        try:
            sha256, resumed = _complete(catalog, cache, wanted, file, on_progress, pause)
            if resumed and wanted.sha256 not in (None, sha256):
                # The part may have been damaged, or the file replaced: start over from the beginning.
                file.truncate(0)
                sha256, _ = _complete(catalog, cache, wanted, file, on_progress, pause)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            raise CacheError(
                f"The disk of {cache.folder} is full. Delete a model (sonata models rm NAME), then try again."
            ) from error
        finally:
            if not part.stat().st_size:  # nothing arrived: there is nothing to resume
                cache.discard_part(wanted.name)
    if wanted.sha256 not in (None, sha256):
        cache.discard_part(wanted.name)
        raise PullError(
            f"What came from {urlsplit(wanted.url).netloc} is not the file that the hub lists: its sha256 is "
            f"{sha256[:16]}..., not {str(wanted.sha256)[:16]}... It was deleted. Try again later."
        )
    return sha256


def _complete(
    catalog: Catalog, cache: ModelCache, wanted: Wanted, file: IO[bytes], on_progress: OnProgress,
    pause: Callable[[float], None],
) -> tuple[str, bool]:  # fmt: skip
    """Download the rest of a part. Returns its sha256, and whether it contains bytes of an earlier connection."""
    facts = read_part_facts(cache, wanted.name)
    if any(facts.get(key) != getattr(wanted, key) for key in ("url", "sha256")):
        file.truncate(0)  # it is a part of another file
        facts = {}
    state = hashlib.sha256()
    have, version, total = _hash_part(file, state), str(facts.get("version", "")), wanted.size
    resumed, failures = have > 0, 0
    while total is None or have < total:
        before = have
        try:
            reply = open_range(wanted.url, have, None, catalog.hosts.allows, version)
            if reply.start != have:  # no ranges, or a different file: from the beginning
                file.truncate(0)
                state, have = hashlib.sha256(), 0
            version, total = reply.version, total or reply.total
            _note(cache, wanted, version, total)
            cache.check_room((total or 0) - have, wanted.name)
            on_progress(have, total)
            for chunk in reply.chunks():
                if have + len(chunk) > (total or MOST_BYTES):
                    raise PullError(f"{wanted.url} is longer than it should be, so it is not the file you asked for.")
                if have == 0 and not chunk.startswith(b"GGUF"[: len(chunk)]):
                    raise PullError(f"{wanted.url} is not a GGUF file. Choose a file that ends in .gguf.")
                file.write(chunk)
                state.update(chunk)
                have += len(chunk)
                on_progress(have, total)
            file.flush()
            break
        except NoRanges:
            break  # there is nothing behind the part; the checksum decides whether it is the file
        except NotThere as error:
            raise GoneError(f"{wanted.url} is not there any more ({error}).") from error
        except (ConnectionBroken, Unreachable) as error:
            file.flush()
            resumed |= have > 0
            failures = 0 if have > before else failures + 1
            if failures >= (PATIENCE if have else 2):
                raise PullError(
                    f"{wanted.name} could not be downloaded: {error}. {have / 1e6:.1f} MB are kept: "
                    "the same command continues from there."
                ) from error
            pause(min(0.5 * 2**failures, 10.0))
        except SourceError as error:
            raise PullError(f"{wanted.name} could not be downloaded: {error}.") from error
    if total is not None and have != total and wanted.sha256 is None:
        raise PullError(f"{wanted.url} ended after {have} of {total} bytes: run the same command again.")
    return state.hexdigest(), resumed


def _hash_part(file: IO[bytes], state: Any) -> int:
    """Add the existing bytes to a checksum; returns their number."""
    file.seek(0)
    have = 0
    while chunk := file.read(_READ):
        state.update(chunk)
        have += len(chunk)
    return have


def _note(cache: ModelCache, wanted: Wanted, version: str, total: int | None) -> None:
    facts = {"url": wanted.url, "sha256": wanted.sha256, "version": version, "size": total, "whole": wanted.whole}
    write_json(cache.part_facts(wanted.name), facts)


@contextlib.contextmanager
def _alone(file: IO[bytes], name: str) -> Iterator[None]:
    """A lock: no other process writes this part (not on Windows)."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise CacheError(f"{name} is being downloaded by another program already.") from error
    yield
