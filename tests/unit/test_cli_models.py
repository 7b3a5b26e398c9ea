"""`sonata models`, against a hub on this machine."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from local_hub import LocalHub, running_hub
from test_cli import SONATA, assert_sentence, printed, sonata

from app.model_cache import ModelCache
from app.model_catalog import read_catalog

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
        monkeypatch.setenv("SONATA_CACHE", str(tmp_path))
        monkeypatch.setenv("SONATA_HUB", hub.url)
        monkeypatch.setenv("SONATA_MODEL_HOSTS", " ".join(hub.hosts))
        yield hub


def listed() -> dict:
    return json.loads(printed(sonata("models", "list", "--json")))


def test_a_model_is_pulled_used_by_its_name_and_deleted(hub: LocalHub, model: Path) -> None:
    said = printed(sonata("models", "pull", QWEN))
    assert f"{QWEN} (Qwen2.5 0.5B, 0.5 MB) is kept now" in said
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
    assert "0.5 MB" in table
    assert "gone from the" in table
    assert "free." in table


def test_the_list_needs_no_hub(hub: LocalHub, monkeypatch: pytest.MonkeyPatch) -> None:
    printed(sonata("models", "list", "--offline"))
    assert hub.listings == []
    monkeypatch.setenv("SONATA_HUB", "http://localhost:9")
    monkeypatch.setenv("SONATA_MODEL_HOSTS", "http://localhost:9")
    result = sonata("models", "list")
    assert QWEN in printed(result)
    assert "Check the network." in result.stderr


def test_a_file_is_imported(hub: LocalHub, model: Path) -> None:
    assert "mine (tiny, 0.5 MB) is kept now" in printed(sonata("models", "import", model, "--name", "mine"))
    assert "mine" in printed(sonata("models", "list", "--offline"))


def test_what_cannot_be_done_is_a_sentence(hub: LocalHub, model: Path, tmp_path: Path) -> None:
    (tmp_path / "x.gguf").write_bytes(b"no model")
    assert_sentence(sonata("models", "pull", "phi-4-mini"), "no longer has")
    assert_sentence(sonata("models", "pull", "nothing"), "'nothing' is no model that Sonata knows")
    assert_sentence(sonata("models", "pull", "http://example.org/x.gguf"), "https only")
    assert_sentence(sonata("models", "pull", "https://example.org/x.gguf"), "--allow-host example.org")
    part = "someone/Other-GGUF/Other-00001-of-00003.gguf"
    assert_sentence(sonata("models", "pull", part), f"{part} is one of several files of a model")
    assert_sentence(sonata("models", "import", tmp_path / "x.gguf"), "not a GGUF file")
    assert_sentence(sonata("models", "import", tmp_path / "none.gguf"), "There is no file")
    assert_sentence(sonata("models", "rm", "nothing"), "No model nothing is kept")
    assert_sentence(sonata("generate", "x", "--model", "nothing"), "There is no file nothing.", "sonata models list")


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
    assert "the same command goes on from there" in said
    have = part.stat().st_size
    assert 0 < have <= 300_000
    assert [part["have"] for part in listed()["parts"]] == [have]
    printed(sonata("models", "pull", QWEN))
    assert hub.asked[-1][1] == f"bytes={have}-"
