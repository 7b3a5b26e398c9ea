"""`sonata models`, against a hub on this machine."""

from __future__ import annotations

import hashlib
import json
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from app.models.cache import ModelCache
from app.models.catalog import read_catalog
from app.models.template_renderer import native_renderer
from tests.cli.command_line import SONATA, assert_sentence, printed, sonata
from tests.formats.split_gguf import split_gguf
from tests.models.local_hub import LocalHub, running_hub

QWEN = "qwen2.5-0.5b"


@pytest.fixture(scope="module")
def model(write_model: Callable[..., Path]) -> Path:
    return write_model(ffn=2048, tied=False)


@pytest.fixture
def hub(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalHub]:
    """A hub that has one model of the list; the folder of models is empty."""
    entry = read_catalog().find(QWEN)
    assert entry
    with running_hub() as hub:
        hub.files[entry.repository] = {entry.file: model.read_bytes()}
        native_renderer()  # of the cache that has one: this process keeps it
        monkeypatch.setenv("SONATA_CACHE", str(tmp_path))
        monkeypatch.setenv("SONATA_HUB", hub.url)
        monkeypatch.setenv("SONATA_MODEL_HOSTS", " ".join(hub.hosts))
        yield hub


def listed() -> dict:
    return json.loads(printed(sonata("models", "list", "--json")))


def test_a_model_is_pulled_used_by_its_name_and_deleted(hub: LocalHub, model: Path) -> None:
    said = printed(sonata("models", "pull", QWEN))
    assert f"{QWEN} (Qwen2.5 0.5B, 0.5 MB) is now kept" in said
    assert "kept already" in printed(sonata("models", "pull", QWEN))
    (kept,) = listed()["models"]
    assert (kept["name"], kept["licence"], kept["size"]) == (QWEN, "Apache-2.0", model.stat().st_size)
    by_name = sonata("generate", "hello", "--model", QWEN, "--backend", "numpy", "--max-tokens", "6", "--json")
    by_path = sonata("generate", "hello", "--model", model, "--backend", "numpy", "--max-tokens", "6", "--json")
    assert json.loads(printed(by_name))["tokens"] == json.loads(printed(by_path))["tokens"]
    assert f"Deleted {QWEN}: 0.5 MB." in printed(sonata("models", "rm", QWEN))
    assert listed()["models"] == []


def test_the_list_says_what_the_hub_has_and_what_is_gone(hub: LocalHub, model: Path) -> None:
    offered = {entry["name"]: entry for entry in listed()["offered"]}
    assert (offered[QWEN]["size"], offered[QWEN]["gone"]) == (model.stat().st_size, False)
    assert (offered["phi-4-mini"]["size"], offered["phi-4-mini"]["gone"]) == (None, True)
    table = printed(sonata("models", "list"))
    rows = {line.split()[0]: line for line in table.splitlines()}
    assert rows[QWEN].split()[1:3] == ["0.5", "MB"]
    assert rows["phi-4-mini"].split()[1:3] == ["?", "gone"]
    assert len(rows) == len(table.splitlines()) == len(offered) + 3, "a line each, and three more"
    assert "free." in table


def test_the_list_needs_no_hub(hub: LocalHub, monkeypatch: pytest.MonkeyPatch) -> None:
    printed(sonata("models", "list", "--offline"))
    told = printed(sonata("models", "info", "phi-4-mini"))
    assert hub.listings == []
    assert "MIT" in told
    assert "sonata models pull phi-4-mini" in told
    monkeypatch.setenv("SONATA_HUB", "http://localhost:9")
    monkeypatch.setenv("SONATA_MODEL_HOSTS", "http://localhost:9")
    result = sonata("models", "list")
    assert QWEN in printed(result)
    assert "Check the network." in result.stderr


def test_a_file_is_imported(hub: LocalHub, model: Path) -> None:
    assert "mine (Tiny, 0.5 MB) is now kept" in printed(sonata("models", "import", model, "--name", "mine"))
    assert "mine" in printed(sonata("models", "list", "--offline"))


def test_a_model_in_several_files_is_one(hub: LocalHub, model: Path, tmp_path: Path) -> None:
    parts = split_gguf(model, tmp_path, 3, "Big")
    hub.files["someone/Big-GGUF"] = {f"Q8/{part.name}": part.read_bytes() for part in parts}
    size = sum(part.stat().st_size for part in parts)
    second = f"Q8/{parts[1].name}"
    asked = f"someone/Big-GGUF/{second}"
    hub.listed[second] = {"lfs": {"oid": "0" * 64, "size": parts[1].stat().st_size}}
    assert_sentence(sonata("models", "pull", asked), "is not the file that the hub lists")
    (broken_off,) = json.loads(printed(sonata("models", "list", "--offline", "--json")))["parts"]
    assert broken_off == {
        "name": "big",
        "have": parts[0].stat().st_size,
        "size": size,
    }  # the first was correct, and stays
    row = next(line for line in printed(sonata("models", "list", "--offline")).splitlines() if "big" in line)
    assert "0.5 MB" in row
    hub.listed.clear()
    hub.asked.clear()
    assert "big (Big, 0.5 MB) is now kept" in printed(sonata("models", "pull", asked))
    assert [file for file, _ in hub.asked] == [second, f"Q8/{parts[2].name}"]
    (kept,) = listed()["models"]
    sums = "".join(hashlib.sha256(part.read_bytes()).hexdigest() for part in parts)
    assert (kept["size"], kept["sha256"]) == (size, hashlib.sha256(sums.encode()).hexdigest())
    words = ["generate", "hello", "--backend", "numpy", "--max-tokens", "6", "--json"]
    expected = json.loads(printed(sonata(*words, "--model", model)))["tokens"]
    assert json.loads(printed(sonata(*words, "--model", "big")))["tokens"] == expected

    assert "is kept already" in printed(sonata("models", "import", parts[2]))
    assert "Deleted big: 0.5 MB." in printed(sonata("models", "rm", "big"))
    assert list(ModelCache().folder.iterdir()) == []
    assert "mine (Big, 0.5 MB) is now kept" in printed(sonata("models", "import", parts[2], "--name", "mine"))
    assert json.loads(printed(sonata(*words, "--model", "mine")))["tokens"] == expected
    parts[0].unlink()
    assert_sentence(sonata("models", "import", parts[1]), f"put {parts[0].name} into the folder")


def test_a_model_in_several_files_comes_from_any_address(hub: LocalHub, model: Path, tmp_path: Path) -> None:
    parts = split_gguf(model, tmp_path, 2, "Big")
    hub.files["a/b"] = {part.name: part.read_bytes() for part in parts}
    hub.cuts = [1000]
    said = printed(sonata("models", "pull", f"{hub.files_url}/a/b/{parts[1].name}"))
    assert "big (Big, 0.5 MB) is now kept" in said
    assert not ModelCache().parts()


def test_what_cannot_be_done_is_a_sentence(hub: LocalHub, model: Path, tmp_path: Path) -> None:
    (tmp_path / "x.gguf").write_bytes(b"no model")
    assert_sentence(sonata("models", "pull", "phi-4-mini"), "no longer has")
    assert_sentence(sonata("models", "pull", "nothing"), "Sonata knows no model 'nothing'")
    assert_sentence(sonata("models", "pull", "http://example.org/x.gguf"), "https only")
    assert_sentence(sonata("models", "pull", "https://example.org/x.gguf"), "--allow-host example.org")
    assert_sentence(sonata("models", "pull", QWEN, "--name", "x-00001-of-00002"), "cannot be the name of a model")
    assert_sentence(sonata("models", "import", tmp_path / "x.gguf"), "not a GGUF file")
    assert_sentence(sonata("models", "import", tmp_path / "none.gguf"), "does not exist.")
    assert_sentence(sonata("models", "rm", "nothing"), "No model nothing is kept")
    assert_sentence(sonata("generate", "x", "--model", "nothing"), "called nothing.", "sonata models list")


def test_ctrl_c_keeps_what_has_come(hub: LocalHub, model: Path) -> None:
    hub.gate, hub.gate_at = threading.Event(), 300_000
    program = subprocess.Popen([str(SONATA), "models", "pull", QWEN], stderr=subprocess.PIPE, encoding="utf-8")
    try:
        part = ModelCache().folder / f"{QWEN}.gguf.part"
        while not part.is_file() or not part.stat().st_size:
            assert program.poll() is None
        program.send_signal(signal.SIGINT)
        _, said = program.communicate(timeout=60)
    finally:
        hub.gate.set()
        program.kill()
    assert program.returncode == 130
    assert "the same command continues from there" in said
    have = part.stat().st_size
    assert 0 < have <= 300_000
    assert [part["have"] for part in listed()["parts"]] == [have]
    printed(sonata("models", "pull", QWEN))
    assert hub.asked[-1][1] == f"bytes={have}-"
