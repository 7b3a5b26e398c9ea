"""Downloads a model into the cache: goes on where it stopped, checks the sha256, keeps what there is when it breaks."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from urllib.parse import unquote, urlsplit

from app.http_range import ConnectionBroken, NoRanges, NotThere, SourceError, Unreachable, open_range
from app.model_cache import (
    CacheError,
    ModelCache,
    StoredModel,
    check_model_file,
    read_part_facts,
    title_of,
    write_json,
)
from app.model_catalog import Catalog, Entry, GoneError, HubFile
from py_core.formats.gguf import GGUFError
from py_core.formats.source import parts_of

OnProgress = Callable[[int, int | None], None]
"""Called with the bytes that are there, and those of the whole file where that is known."""

PATIENCE = 5
"""Broken connections in a row, without a new byte, after which a download is given up. Its part stays."""

MOST_BYTES = 1 << 40
"""Of a file whose server does not say how long it is."""

_READ = 1 << 20
_ADDRESS = re.compile(r"([\w.-]+/[\w.-]+)/resolve/[\w.-]+/(.+)")
_HUB_FILE = re.compile(r"([\w.-]+/[\w.-]+)/(.+\.gguf)")


class PullError(Exception):
    """A model could not be downloaded; the message is a sentence that says what to do."""


@dataclass(frozen=True)
class Wanted:
    """A file to download. Where the hub lists it, its size and sha256 are known before."""

    name: str
    title: str
    url: str
    licence: str = ""
    size: int | None = None
    sha256: str | None = None


def wanted_model(catalog: Catalog, cache: ModelCache, text: str, name: str | None = None) -> Wanted:
    """What a user asks for: a name of the list, OWNER/REPOSITORY/FILE.gguf on the hub, or an address.

    Asks the hub for the size and the sha256. Raises PullError, HubError, HostError.
    """
    if parts_of(Path(unquote(urlsplit(text).path)).name):
        raise PullError(
            f"{text} is one of several files of a model, which only the page downloads (under Models). For the "
            "terminal download all of them into one folder, and give any of them to --model."
        )
    if entry := catalog.find(text):
        return _of_hub(catalog.hub_file(entry.repository, entry.file), name or entry.name, entry)
    parts = urlsplit(text)
    on_hub = _HUB_FILE.fullmatch(text)
    if parts.scheme in ("http", "https"):
        catalog.hosts.check(text)
        address = _ADDRESS.fullmatch(text.removeprefix(f"{catalog.hub}/").split("?")[0])
        if not text.startswith(f"{catalog.hub}/") or not address:
            stem = Path(unquote(parts.path)).stem
            return Wanted(name or cache.new_name(stem), stem, text)
        on_hub = address
    if not on_hub:
        names = ", ".join(entry.name for entry in catalog.entries)
        raise PullError(
            f"{text!r} is no model that Sonata knows. Choose one of {names}, "
            "or give OWNER/REPOSITORY/FILE.gguf on the hub, or an address."
        )
    file = catalog.hub_file(on_hub[1], unquote(on_hub[2]))
    return _of_hub(file, name or cache.new_name(Path(file.file).stem), None)


def _of_hub(file: HubFile, name: str, entry: Entry | None) -> Wanted:
    title, licence = (entry.title, entry.licence) if entry else (Path(file.file).stem, "")
    return Wanted(name, title, file.url, licence, file.size, file.sha256)


def pull(
    catalog: Catalog, cache: ModelCache, wanted: Wanted, on_progress: OnProgress = lambda done, total: None,
    pause: Callable[[float], None] = time.sleep,
) -> StoredModel:  # fmt: skip
    """Download a model, or what is missing of it. When it is broken off, also by Ctrl-C, the part is kept.

    Raises PullError, CacheError, GGUFError, HostError; `pause` waits between attempts (seconds).
    """
    catalog.hosts.check(wanted.url)
    if same := next((model for model in cache.models() if model.sha256 == wanted.sha256), None):
        return same
    cache.check_name(wanted.name)
    cache.folder.mkdir(parents=True, exist_ok=True)
    part = cache.part_path(wanted.name)
    with part.open("a+b") as file, _alone(file, wanted.name):
        try:
            sha256, resumed = _complete(catalog, cache, wanted, file, on_progress, pause)
            if resumed and wanted.sha256 not in (None, sha256):
                # The part may have been damaged, or the file replaced: once more from the beginning.
                file.truncate(0)
                sha256, _ = _complete(catalog, cache, wanted, file, on_progress, pause)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            raise CacheError(
                f"The disk of {cache.folder} is full. Delete a model (sonata models rm NAME), then try again."
            ) from error
        finally:
            if not part.stat().st_size:  # nothing came: there is nothing to go on with
                part.unlink()
                cache.part_facts(wanted.name).unlink(missing_ok=True)
    size = part.stat().st_size
    try:
        if wanted.sha256 not in (None, sha256):
            raise PullError(
                f"What came from {urlsplit(wanted.url).netloc} is not the file that the hub lists: its sha256 is "
                f"{sha256[:16]}..., not {str(wanted.sha256)[:16]}... It was thrown away. Try again later."
            )
        header = check_model_file(part)
    except (PullError, GGUFError, ValueError):
        part.unlink()
        cache.part_facts(wanted.name).unlink(missing_ok=True)
        raise
    title = wanted.title if wanted.sha256 else title_of(header, wanted.title)
    licence = wanted.licence or str(header.metadata.get("general.license", ""))
    kept = cache.keep(StoredModel(wanted.name, title, wanted.url, size, sha256, licence, part))
    cache.part_facts(wanted.name).unlink(missing_ok=True)
    return kept


def _complete(
    catalog: Catalog, cache: ModelCache, wanted: Wanted, file: IO[bytes], on_progress: OnProgress,
    pause: Callable[[float], None],
) -> tuple[str, bool]:  # fmt: skip
    """Bring the rest of a part; its sha256, and whether bytes of an earlier connection are in it."""
    facts = read_part_facts(cache, wanted.name)
    if any(facts.get(key) != getattr(wanted, key) for key in ("url", "sha256")):
        file.truncate(0)  # a part of another file
        facts = {}
    state = hashlib.sha256()
    have, version, total = _hash_part(file, state), str(facts.get("version", "")), wanted.size
    resumed, failures = have > 0, 0
    while total is None or have < total:
        before = have
        try:
            reply = open_range(wanted.url, have, None, catalog.hosts.allows, version)
            if reply.start != have:  # no ranges, or another file there: from the beginning
                file.truncate(0)
                state, have = hashlib.sha256(), 0
            version, total = reply.version, total or reply.total
            _note(cache, wanted, version, total)
            cache.check_room((total or 0) - have, wanted.name)
            on_progress(have, total)
            for chunk in reply.chunks():
                if have + len(chunk) > (total or MOST_BYTES):
                    raise PullError(
                        f"{wanted.url} is longer than it should be, so it is not the file that was asked for."
                    )
                if have == 0 and not chunk.startswith(b"GGUF"[: len(chunk)]):
                    raise PullError(f"{wanted.url} is no GGUF file. Choose a file that ends in .gguf.")
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
                    "the same command goes on from there."
                ) from error
            pause(min(0.5 * 2**failures, 10.0))
        except SourceError as error:
            raise PullError(f"{wanted.name} could not be downloaded: {error}.") from error
    if total is not None and have != total and wanted.sha256 is None:
        raise PullError(f"{wanted.url} ended after {have} of {total} bytes: run the same command again.")
    return state.hexdigest(), resumed


def _hash_part(file: IO[bytes], state: Any) -> int:
    """Add what is there to a checksum; how many bytes that are."""
    file.seek(0)
    have = 0
    while chunk := file.read(_READ):
        state.update(chunk)
        have += len(chunk)
    return have


def _note(cache: ModelCache, wanted: Wanted, version: str, total: int | None) -> None:
    facts = {"url": wanted.url, "sha256": wanted.sha256, "version": version, "size": total}
    write_json(cache.part_facts(wanted.name), facts)


@contextlib.contextmanager
def _alone(file: IO[bytes], name: str) -> Iterator[None]:
    """Nobody else writes this part (not on Windows)."""
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
