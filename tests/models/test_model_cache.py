"""The models that are kept natively: downloads from a real hub on this machine, imports, names, room."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from app.models.cache import CacheError, ModelCache
from app.models.catalog import Catalog, Entry, GoneError, HubError, HubFile, read_catalog
from app.models.hosts import HostError, Hosts
from app.models.model_pull import PullError, pull, wanted_model
from py_core.formats.gguf import GGUFError
from tests.models.local_hub import LocalHub, running_hub

REPOSITORY = "someone/Tiny-GGUF"
FILE = "Tiny-Q4_K_M.gguf"
TINY = Entry("tiny", "Tiny", REPOSITORY, FILE, "MIT", "nothing")


@pytest.fixture
def model(write_model: Callable[..., Path]) -> bytes:
    return write_model(ffn=2048).read_bytes()  # more than the buffers of a connection


@pytest.fixture
def hub(model: bytes) -> Iterator[LocalHub]:
    with running_hub() as hub:
        hub.files[REPOSITORY] = {FILE: model}
        yield hub


@pytest.fixture
def catalog(hub: LocalHub) -> Catalog:
    return Catalog(hub.url, Hosts(hub.hosts), (TINY,))


@pytest.fixture
def cache(tmp_path: Path) -> ModelCache:
    return ModelCache(tmp_path / "models")


def fetch(catalog: Catalog, cache: ModelCache, text: str = "tiny", **options: object) -> Path:
    wanted = wanted_model(catalog, cache, text)
    return pull(catalog, cache, wanted, pause=lambda seconds: None, **options).path


def files_in(cache: ModelCache) -> list[str]:
    return sorted(path.name for path in cache.folder.glob("*"))


# ---- the list, and the hub's listing ----


def test_the_list_names_every_model_with_its_licence_and_no_size() -> None:
    catalog = read_catalog(environment={})
    assert len({entry.name for entry in catalog.entries}) == len(catalog.entries) == 15
    for entry in catalog.entries:
        assert entry.file.lower().endswith("q4_k_m.gguf")
        assert all((entry.title, entry.licence, entry.good_at))
        assert catalog.hosts.allows(f"{catalog.hub}/{entry.repository}/resolve/main/{entry.file}")


def test_the_hub_tells_the_size_and_the_checksum(catalog: Catalog, model: bytes) -> None:
    said = catalog.hub_files([TINY])["tiny"]
    assert isinstance(said, HubFile)
    assert (said.size, said.sha256) == (len(model), hashlib.sha256(model).hexdigest())


def test_an_entry_that_is_gone_from_the_hub_says_so(catalog: Catalog, hub: LocalHub) -> None:
    gone = replace(TINY, name="gone", file="Gone.gguf")
    away = replace(TINY, name="away", repository="someone/away")
    said = catalog.hub_files([TINY, gone, away])
    assert isinstance(said["tiny"], HubFile)
    assert isinstance(said["gone"], GoneError)
    assert "no longer has Gone.gguf" in str(said["gone"])
    assert isinstance(said["away"], GoneError)
    assert "no longer has someone/away" in str(said["away"])


def test_a_hub_that_does_not_answer_is_not_a_model_that_is_gone(hub: LocalHub) -> None:
    nobody = Catalog("http://localhost:9", Hosts(["http://localhost:9"]), (TINY,))
    said = nobody.hub_files([TINY])["tiny"]
    assert isinstance(said, HubError)
    assert not isinstance(said, GoneError)
    assert "Check the network" in str(said)


@pytest.mark.parametrize(
    "lie", [{"lfs": None}, {"lfs": {"oid": "no checksum"}}, {"size": "big"}, {"size": -1}, {"path": 7}], ids=str
)
def test_a_listing_without_a_size_or_a_checksum_is_not_believed(
    catalog: Catalog, hub: LocalHub, lie: dict[str, object]
) -> None:
    hub.listed[FILE] = lie
    with pytest.raises(GoneError):
        catalog.hub_file(REPOSITORY, FILE)


# ---- hosts ----


@pytest.mark.parametrize(
    ("url", "allowed"),
    [
        ("https://huggingface.co/a/b", True),
        ("https://HuggingFace.co:443/a", True),
        ("https://cdn-lfs-us-1.hf.co/x", True),
        ("https://us.aws.cdn.hf.co/x", True),
        ("https://hf.co/x", False),
        ("http://huggingface.co/a", False),
        ("https://huggingface.co:8443/a", False),
        ("https://huggingface.co.evil.example/a", False),
        ("https://evilhf.co/a", False),
        ("https://user@huggingface.co/a", False),
        ("https://huggingface.co@evil.example/a", False),
        ("ftp://huggingface.co/a", False),
        ("file:///etc/passwd", False),
        ("https://[bad/", False),
        ("http://localhost:8000/a", False),
    ],
)
def test_models_come_over_https_from_listed_hosts_only(url: str, allowed: bool) -> None:
    assert read_catalog(environment={}).hosts.allows(url) is allowed


def test_the_user_adds_hosts() -> None:
    hosts = read_catalog(environment={"SONATA_MODEL_HOSTS": "models.example.org, http://localhost:8123"}).hosts
    assert hosts.allows("https://models.example.org/x.gguf")
    assert hosts.allows("http://localhost:8123/x.gguf")
    assert not hosts.allows("http://localhost:8124/x.gguf")


@pytest.mark.parametrize("entry", ["", "*", "*.", "https://huggingface.co", "http://example.org:80", "a b.org", "com"])
def test_an_entry_that_is_no_host_is_refused(entry: str) -> None:
    with pytest.raises(HostError, match="not a host"):
        Hosts([entry])


def test_an_address_elsewhere_is_refused_before_it_is_asked(catalog: Catalog, cache: ModelCache) -> None:
    with pytest.raises(HostError, match=r"evil\.example is not on the list.*--allow-host evil\.example"):
        wanted_model(catalog, cache, "https://evil.example/x.gguf")


def test_a_redirect_to_another_host_is_refused(catalog: Catalog, cache: ModelCache, hub: LocalHub) -> None:
    with running_hub() as other:
        other.files[REPOSITORY] = hub.files[REPOSITORY]
        hub.redirect_to = other.files_url
        with pytest.raises(PullError, match=r"sends on to localhost:.*not on the list of hosts"):
            fetch(catalog, cache)
        assert not other.asked
        assert files_in(cache) == []
        assert fetch(catalog.allowing(other.hosts), cache).is_file()


# ---- downloads ----


def test_a_download_is_kept_with_what_is_known_of_it(catalog: Catalog, cache: ModelCache, model: bytes) -> None:
    seen: list[tuple[int, int | None]] = []
    path = fetch(catalog, cache, on_progress=lambda done, total: seen.append((done, total)))
    assert path.read_bytes() == model
    assert files_in(cache) == ["tiny.gguf", "tiny.json"]
    (kept,) = cache.models()
    assert (kept.name, kept.title, kept.licence, kept.size) == ("tiny", "Tiny", "MIT", len(model))
    assert kept.sha256 == hashlib.sha256(model).hexdigest()
    assert kept.source == f"{catalog.hub}/{REPOSITORY}/resolve/main/{FILE}"
    assert seen == sorted(seen)
    assert seen[-1] == (len(model), len(model))


def test_a_download_goes_on_after_broken_connections(
    catalog: Catalog, cache: ModelCache, hub: LocalHub, model: bytes
) -> None:
    hub.cuts = [100_000, 50_000]
    assert fetch(catalog, cache).read_bytes() == model
    assert [asked for _, asked in hub.asked] == [None, "bytes=100000-", "bytes=150000-"]


def test_a_download_that_was_stopped_goes_on_another_day(
    catalog: Catalog, cache: ModelCache, hub: LocalHub, model: bytes
) -> None:
    def stop(done: int, total: int | None) -> None:
        if done >= 100_000:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch(catalog, cache, on_progress=stop)
    (part,) = cache.parts()
    assert part.name == "tiny"
    assert 100_000 <= part.have < part.size == len(model)
    assert cache.models() == []
    assert fetch(catalog, ModelCache(cache.folder)).read_bytes() == model
    assert hub.asked[-1][1] == f"bytes={part.have}-"
    assert files_in(cache) == ["tiny.gguf", "tiny.json"]


def test_a_part_stays_where_the_network_goes_away(catalog: Catalog, cache: ModelCache, hub: LocalHub) -> None:
    hub.cuts = [100_000] + [0] * 20
    with pytest.raises(PullError, match=r"0\.1 MB are kept: the same command continues"):
        fetch(catalog, cache)
    assert [part.have for part in cache.parts()] == [100_000]


def test_a_damaged_part_is_fetched_again(catalog: Catalog, cache: ModelCache, hub: LocalHub, model: bytes) -> None:
    hub.cuts = [100_000] + [0] * 20
    with pytest.raises(PullError):
        fetch(catalog, cache)
    hub.cuts = []
    with cache.part_path("tiny").open("r+b") as file:
        file.seek(5000)
        file.write(b"damage")
    assert fetch(catalog, cache).read_bytes() == model


def test_a_part_of_another_version_is_not_gone_on_with(
    catalog: Catalog, cache: ModelCache, hub: LocalHub, model: bytes
) -> None:
    url = f"{hub.files_url}/{REPOSITORY}/{FILE}"  # no listing: the server's ETag distinguishes the versions
    hub.cuts = [100_000] + [0] * 20
    with pytest.raises(PullError):
        fetch(catalog, cache, url)
    hub.cuts = []
    changed = bytearray(model)
    changed[-1] ^= 1
    hub.files[REPOSITORY][FILE] = bytes(changed)
    assert fetch(catalog, cache, url).read_bytes() == bytes(changed)


def test_a_server_without_ranges_begins_again(catalog: Catalog, cache: ModelCache, hub: LocalHub, model: bytes) -> None:
    hub.ranges, hub.cuts = False, [100_000]
    assert fetch(catalog, cache).read_bytes() == model


def test_a_file_that_is_not_the_listed_one_is_thrown_away(catalog: Catalog, cache: ModelCache, hub: LocalHub) -> None:
    hub.listed[FILE] = {"lfs": {"oid": "ab" * 32}}
    with pytest.raises(PullError, match=r"not the file that the hub lists.*It was deleted"):
        fetch(catalog, cache)
    assert files_in(cache) == []


def test_a_file_that_is_longer_than_listed_is_not_written_to_its_end(
    catalog: Catalog, cache: ModelCache, hub: LocalHub, model: bytes
) -> None:
    hub.listed[FILE] = {"size": len(model) // 4}
    with pytest.raises(PullError, match="longer than it should be"):
        fetch(catalog, cache)
    assert cache.models() == []
    assert cache.usage()[0] < len(model) // 2


def test_what_is_no_model_file_is_refused_at_its_first_bytes(
    catalog: Catalog, cache: ModelCache, hub: LocalHub
) -> None:
    page = b"<!doctype html>" * 100_000
    hub.files[REPOSITORY][FILE] = page
    with pytest.raises(PullError, match="not a GGUF file"):
        fetch(catalog, cache)
    assert files_in(cache) == []


def test_a_damaged_model_file_is_not_kept(catalog: Catalog, cache: ModelCache, hub: LocalHub, model: bytes) -> None:
    hub.files[REPOSITORY][FILE] = model[:-5000]  # as the hub lists it, but some of its tensors are missing
    with pytest.raises(GGUFError, match="truncated"):
        fetch(catalog, cache)
    assert files_in(cache) == []


def test_two_downloads_of_one_model_do_not_mix(catalog: Catalog, cache: ModelCache, hub: LocalHub) -> None:
    hub.gate, hub.gate_at = threading.Event(), 100_000
    began, done = threading.Event(), []
    report = lambda have, total: began.set() if have else None  # noqa: E731
    first = threading.Thread(target=lambda: done.append(fetch(catalog, cache, on_progress=report)))
    first.start()
    try:
        assert began.wait(30)
        with pytest.raises(CacheError, match="already"):
            fetch(catalog, cache)
    finally:
        hub.gate.set()
        first.join()
    assert done
    assert done[0].is_file()


def test_what_is_kept_is_not_downloaded_again(catalog: Catalog, cache: ModelCache, hub: LocalHub) -> None:
    first = fetch(catalog, cache)
    assert fetch(catalog, cache) == first
    assert len(hub.asked) == 1


@pytest.mark.parametrize("text", [f"{REPOSITORY}/{FILE}", "HUB"])
def test_any_file_of_the_hub_can_be_asked_for(catalog: Catalog, cache: ModelCache, text: str, model: bytes) -> None:
    text = text.replace("HUB", f"{catalog.hub}/{REPOSITORY}/resolve/main/{FILE}?download=true")
    wanted = wanted_model(catalog, cache, text)
    assert (wanted.name, wanted.sha256) == ("tiny-q4-k-m", hashlib.sha256(model).hexdigest())


def test_a_name_that_is_nowhere_names_those_that_are(catalog: Catalog, cache: ModelCache) -> None:
    with pytest.raises(PullError, match=r"Sonata knows no model 'huge'.*Choose one of tiny"):
        wanted_model(catalog, cache, "huge")


def test_a_model_for_which_there_is_no_room_is_refused_with_numbers(
    catalog: Catalog, cache: ModelCache, hub: LocalHub
) -> None:
    hub.listed[FILE] = {"size": 1 << 50}
    with pytest.raises(CacheError, match=r"needs 1125899\.91 GB more, but only .* GB are free"):
        fetch(catalog, cache)
    assert not cache.parts()


# ---- imports, names, deleting ----


def test_an_import_is_a_link_where_the_disk_allows_it(cache: ModelCache, tiny_path: Path, tmp_path: Path) -> None:
    file = tmp_path / "My Model.Q4.gguf"
    file.write_bytes(tiny_path.read_bytes())
    kept = cache.import_file(file)
    assert (kept.name, kept.title, kept.source) == ("my-model-q4", "My Model", str(file))
    assert os.path.samefile(kept.path, file)
    assert cache.import_file(file) == kept  # once is enough
    copied = cache.import_file(file, "copied", copy=True) if cache.remove(kept.name) else None
    assert copied
    assert not os.path.samefile(copied.path, file)
    assert file.is_file()


@pytest.mark.parametrize("contents", [b"", b"PK\x03\x04" + bytes(5000), b"GGUF" + bytes(3)])
def test_a_file_that_is_no_model_is_not_imported(cache: ModelCache, tmp_path: Path, contents: bytes) -> None:
    file = tmp_path / "x.gguf"
    file.write_bytes(contents)
    with pytest.raises(ValueError, match=r"empty|not a GGUF file|truncated"):
        cache.import_file(file)
    assert not cache.folder.exists() or files_in(cache) == []


def test_a_model_is_found_by_its_name_or_checksum(cache: ModelCache, tiny_path: Path) -> None:
    kept = cache.import_file(tiny_path, "Mine")
    assert cache.path_of("mine") == cache.path_of("MINE") == cache.path_of(kept.sha256[:8]) == kept.path
    with pytest.raises(CacheError, match=r"No file or kept model is called other\. .*: mine\."):
        cache.path_of("other")


@pytest.mark.parametrize("name", ["../up", "a/b", ".hidden", "", "x" * 200, "a b"])
def test_a_name_cannot_leave_the_folder(cache: ModelCache, tiny_path: Path, name: str) -> None:
    with pytest.raises(CacheError, match="cannot be the name of a model"):
        cache.check_name(name)
    with pytest.raises(CacheError, match="No model"):
        cache.remove(name)


def test_deleting_gives_the_room_back(catalog: Catalog, cache: ModelCache, hub: LocalHub, model: bytes) -> None:
    fetch(catalog, cache)
    assert cache.usage()[0] > len(model)
    name, freed = cache.remove("TINY")
    assert (name, files_in(cache)) == ("tiny", [])
    assert freed > len(model)
    hub.cuts = [100_000] + [0] * 20
    with pytest.raises(PullError):
        fetch(catalog, cache)
    assert cache.remove("tiny")[1] > 100_000
    assert files_in(cache) == []


def test_a_file_that_somebody_changed_is_not_listed(catalog: Catalog, cache: ModelCache) -> None:
    path = fetch(catalog, cache)
    path.write_bytes(path.read_bytes()[:-1])
    assert cache.models() == []
    facts = path.with_suffix(".json")
    facts.write_text("[" * 100_000)
    assert cache.models() == []
    facts.write_text(json.dumps({"name": "../x"}))
    assert cache.models() == []
