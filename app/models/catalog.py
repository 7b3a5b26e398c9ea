"""The chat models that can be downloaded (models.toml), and what the hub lists about their files. Standard library
only.

Sizes and checksums are the hub's: its listing has them for each file of a repository.
Source: https://huggingface.co/docs/hub/api (GET /api/models/REPOSITORY/tree/REVISION)
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import quote

from app.models.hosts import Hosts
from app.models.http_range import NotThere, SourceError, open_range
from py_core.display import shown
from py_core.limits import MAX_FILE_BYTES

MODELS = Path(__file__).with_name("models.toml")

_MOST_LISTING = 8 << 20
"""Bytes of a listing, at most: a repository has a few dozen files."""
_AT_ONCE = 8
_REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+")
_SHA256 = re.compile(r"[0-9a-f]{64}")


class HubError(Exception):
    """The hub has no such file, or cannot be reached; the message is a sentence."""


class GoneError(HubError):
    """The hub answers, but no longer has the repository or the file."""


@dataclass(frozen=True)
class Entry:
    """A model of the list. `name` is what the user types; `file` lies in `repository` on the hub."""

    name: str
    title: str
    repository: str
    file: str
    licence: str
    good_at: str


@dataclass(frozen=True)
class HubFile:
    """A file as the hub lists it: its address, its size in bytes and its sha256."""

    repository: str
    file: str
    url: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Catalog:
    """The list, the address of the hub, and the hosts that models may come from."""

    hub: str
    hosts: Hosts
    entries: tuple[Entry, ...]

    def find(self, name: str) -> Entry | None:
        """The entry of this name, ignoring case."""
        return next((entry for entry in self.entries if entry.name == name.lower()), None)

    def allowing(self, hosts: Iterable[str]) -> Catalog:
        """The same catalog with more hosts."""
        return replace(self, hosts=self.hosts + hosts)

    def hub_file(self, repository: str, file: str) -> HubFile:
        """The hub's listing of a file. Raises GoneError, HubError, HostError."""
        files = self._listing(repository)
        if file not in files:
            raise GoneError(f"{self.hub} no longer has {file} in {repository}.")
        size, sha256 = files[file]
        url = f"{self.hub}/{repository}/resolve/main/{quote(file)}"
        return HubFile(repository, file, url, size, sha256)

    def hub_files(self, entries: Iterable[Entry]) -> dict[str, HubFile | HubError]:
        """The hub's listing of each entry, by its name; the requests run in parallel."""
        asked = list(entries)

        def ask(entry: Entry) -> HubFile | HubError:
            try:
                return self.hub_file(entry.repository, entry.file)
            except HubError as error:
                return error

        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return {entry.name: said for entry, said in zip(asked, pool.map(ask, asked), strict=True)}

    def _listing(self, repository: str) -> dict[str, tuple[int, str]]:
        """The size and the sha256 of each large file of a repository."""
        if not _REPOSITORY.fullmatch(repository):
            raise HubError(f"{shown(repository)} is no repository: it is written OWNER/NAME.")
        url = f"{self.hub}/api/models/{repository}/tree/main"
        self.hosts.check(url)
        try:
            reply = open_range(url, 0, None, self.hosts.allows)
            data = bytearray()
            for chunk in reply.chunks():
                data += chunk
                if len(data) > _MOST_LISTING:
                    raise HubError(f"What {self.hub} says of {repository} is too long to be a list of files.")
        except NotThere as error:
            raise GoneError(f"{self.hub} no longer has {repository}.") from error
        except SourceError as error:
            raise HubError(f"{self.hub} could not be asked for {repository} ({error}). Check the network.") from error
        return _files(bytes(data), f"What {self.hub} says of {repository} is no list of files.")


def _files(data: bytes, otherwise: str) -> dict[str, tuple[int, str]]:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise HubError(otherwise) from error
    if not isinstance(found, list):
        raise HubError(otherwise)
    files: dict[str, tuple[int, str]] = {}
    for item in found:
        item = item if isinstance(item, Mapping) else {}
        lfs, path, size = item.get("lfs"), item.get("path"), item.get("size")
        sha256 = lfs.get("oid") if isinstance(lfs, Mapping) else None
        if not isinstance(path, str) or type(size) is not int or not isinstance(sha256, str):
            continue
        if 0 < size <= MAX_FILE_BYTES and _SHA256.fullmatch(sha256):
            files[path] = (size, sha256)
    return files


def read_catalog(path: Path = MODELS, environment: Mapping[str, str] = os.environ) -> Catalog:
    """models.toml. $SONATA_HUB is the address of another hub, $SONATA_MODEL_HOSTS lists more hosts."""
    table = tomllib.loads(path.read_text(encoding="utf-8"))
    hub = environment.get("SONATA_HUB") or table["hub"]
    hosts = Hosts([*table["hosts"], *environment.get("SONATA_MODEL_HOSTS", "").replace(",", " ").split()])
    entries = tuple(Entry(**entry) for entry in table["models"])
    return Catalog(hub.rstrip("/"), hosts, entries)
