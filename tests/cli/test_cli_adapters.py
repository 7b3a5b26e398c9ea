"""`sonata adapters`, and `--adapter` on the commands that answer: real files of adapters for a tiny model."""

from __future__ import annotations

import asyncio
import json
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from app.cli import adapters as cli_adapters
from app.models import adapter_folder
from app.models.adapter_folder import AdapterFolder, files_at
from app.models.adapter_import import BaseModel, adapter_of_files
from py_core.adapters.files import export_peft, write_adapter
from py_core.adapters.lora import LoraAdapter
from py_core.adapters.merging import merge
from py_core.loading import Model
from tests.cli.command_line import assert_sentence, printed, sonata
from tests.tiny.adapters import drawn, write_gguf_adapter

pytestmark = pytest.mark.usefixtures("fast_routing")


@pytest.fixture(scope="module")
def base(tiny_path: Path) -> BaseModel:
    return cli_adapters.base_at(tiny_path)


@pytest.fixture(scope="module")
def pirate(base: BaseModel) -> LoraAdapter:
    """An adapter that changes every answer."""
    return replace(drawn(base.graph, 1, rank=4), name="pirate")


@pytest.fixture(scope="module")
def peft(base: BaseModel, pirate: LoraAdapter, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in PEFT's format."""
    return folder_of(export_peft(pirate, base.config, base.graph), tmp_path_factory.mktemp("peft") / "Pirate talk")


@pytest.fixture(autouse=True)
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the kept adapters; there are none yet."""
    monkeypatch.setenv("SONATA_MEMORY", str(tmp_path / "data" / "memory.sqlite"))
    return tmp_path / "data" / "adapters"


@pytest.fixture
def tiny(tiny_path: Path) -> list[str]:
    return ["--model", str(tiny_path)]


def folder_of(files: dict[str, bytes], folder: Path) -> Path:
    folder.mkdir(parents=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return folder


def listed() -> list[dict]:
    return json.loads(printed(sonata("adapters", "list", "--json")))["adapters"]


def tokens(tiny: list[str], *options: str | Path) -> list[int]:
    words = ["generate", "hello", *tiny, "--backend", "numpy", "--max-tokens", "8", "--json"]
    return json.loads(printed(sonata(*words, *options)))["tokens"]


def test_an_adapter_from_peft_is_kept_answers_is_exported_and_deleted(
    tiny: list[str], peft: Path, base: BaseModel, kept: Path, tmp_path: Path
) -> None:
    assert "No adapter is kept" in printed(sonata("adapters", "list"))
    plain, changed = tokens(tiny), tokens(tiny, "--adapter", peft)
    assert changed != plain
    said = printed(sonata("adapters", "import", peft, *tiny))
    assert "pirate-talk (rank 4, 14 linears," in said
    assert "`sonata chat --adapter pirate-talk` uses it" in said
    (facts,) = listed()
    assert (facts["name"], facts["model"], facts["model_sha256"]) == ("pirate-talk", "tiny", base.sha256)
    assert (facts["rank"], facts["linears"], facts["lost"], facts["problem"]) == (4, 14, 0, "")
    assert facts["size"] == Path(facts["file"]).stat().st_size
    assert [stat.S_IMODE(path.stat().st_mode) for path in (kept, Path(facts["file"]))] == [0o700, 0o600]
    assert "pirate-talk" in printed(sonata("adapters", "list"))
    assert tokens(tiny, "--adapter", "pirate-talk") == changed

    one, folder = tmp_path / "one.safetensors", tmp_path / "for peft"
    printed(sonata("adapters", "export", "pirate-talk", one))
    printed(sonata("adapters", "export", "pirate-talk", folder, *tiny, "--base-model", "someone/tiny"))
    assert json.loads((folder / "adapter_config.json").read_text())["base_model_name_or_path"] == "someone/tiny"
    assert (folder / "adapter_model.safetensors").read_bytes() == (peft / "adapter_model.safetensors").read_bytes()
    assert tokens(tiny, "--adapter", one) == tokens(tiny, "--adapter", folder) == changed
    assert tokens(tiny, "--adapter", folder / "adapter_model.safetensors") == changed

    assert_sentence(sonata("adapters", "rm", "pirate-talk"), "confirm with --yes")
    assert len(listed()) == 1
    assert "Deleted pirate-talk: " in printed(sonata("adapters", "rm", "pirate-talk", "--yes"))
    assert list(kept.iterdir()) == []
    assert_sentence(
        sonata("generate", "x", *tiny, "--adapter", "pirate-talk"), "No file or kept adapter is called pirate-talk."
    )


def test_an_adapter_of_llama_cpp_is_kept_under_the_name_that_is_given(
    tiny: list[str], pirate: LoraAdapter, peft: Path, tmp_path: Path
) -> None:
    file = write_gguf_adapter(pirate, tmp_path / "x.gguf")
    for command in (["models", "import", file], ["generate", "hello", "--model", file], ["info", "--model", file]):
        assert_sentence(sonata(*command), "This file is an adapter", "`--adapter` answers with it")
    assert "pirate (rank 4" in printed(sonata("adapters", "import", file, "--name", "pirate", *tiny))
    assert tokens(tiny, "--adapter", "pirate") == tokens(tiny, "--adapter", peft)


def test_a_name_that_exists_is_overwritten_only_where_that_is_said(
    tiny: list[str], peft: Path, pirate: LoraAdapter, base: BaseModel, tmp_path: Path
) -> None:
    printed(sonata("adapters", "import", peft, *tiny, "--name", "a"))
    other = replace(drawn(base.graph, 2, rank=2), name="a")
    file = write_gguf_adapter(other, tmp_path / "a.gguf")
    before = Path(listed()[0]["file"]).read_bytes()
    assert_sentence(sonata("adapters", "import", file, *tiny), "a.safetensors exists already", "--replace")
    assert Path(listed()[0]["file"]).read_bytes() == before
    printed(sonata("adapters", "import", file, *tiny, "--replace"))
    assert listed()[0]["rank"] == 2
    for out in (tmp_path / "out.safetensors", tmp_path / "out"):
        printed(sonata("adapters", "export", "a", out, *tiny))
        assert_sentence(sonata("adapters", "export", "a", out, *tiny), "already", "--replace")
        printed(sonata("adapters", "export", "a", out, *tiny, "--replace"))


def test_an_adapter_of_another_model_is_refused_with_what_to_do(
    tiny: list[str], peft: Path, write_model: Callable[..., Path]
) -> None:
    other, wider = write_model(tied=False, seed=5), write_model(ffn=128)  # the same shapes, and different ones
    printed(sonata("adapters", "import", peft, *tiny, "--name", "a"))
    words = "was made for another model: for tiny with the sha256"
    for path in (other, wider):
        answer = sonata("generate", "x", "--model", path, "--backend", "numpy", "--adapter", "a")
        assert_sentence(answer, words, "Choose that model, or another adapter")
    assert_sentence(sonata("adapters", "export", "a", "out", "--model", other), words)
    assert_sentence(sonata("adapters", "export", "a", "out"), "which is not kept here: give --model FILE")
    assert_sentence(sonata("adapters", "import", peft, "--model", wider), "it was made for another model")


def test_what_is_no_adapter_is_a_sentence(tiny: list[str], peft: Path, tmp_path: Path, tiny_path: Path) -> None:
    weights, config = (peft / name for name in ("adapter_model.safetensors", "adapter_config.json"))
    cut = folder_of({weights.name: weights.read_bytes()[:900], config.name: config.read_bytes()}, tmp_path / "cut")
    alone = folder_of({weights.name: weights.read_bytes()}, tmp_path / "alone")
    bare = tmp_path / "bare.safetensors"
    bare.write_bytes(weights.read_bytes())
    assert_sentence(sonata("adapters", "import", cut, *tiny), "is damaged", "Download it again")
    assert_sentence(sonata("adapters", "import", alone, *tiny), "has no adapter_config.json")
    assert_sentence(sonata("adapters", "import", bare, *tiny), "give the folder that also has")
    assert_sentence(sonata("adapters", "import", tiny_path, *tiny), "is not an adapter")
    assert_sentence(sonata("adapters", "import", tmp_path / "none", *tiny), "does not exist.")
    assert_sentence(sonata("adapters", "import", peft, *tiny, "--name", "../up"), "cannot be the name of an adapter")
    assert_sentence(sonata("adapters", "rm", "none", "--yes"), "is called none. Kept adapters: none.")
    assert listed() == []


def test_at_a_terminal_deleting_asks_first(tiny: list[str], peft: Path) -> None:
    printed(sonata("adapters", "import", peft, *tiny, "--name", "a"))
    assert "Delete a for good?" in printed(sonata("adapters", "rm", "a", stdin="n\n", terminal=True))
    assert len(listed()) == 1
    assert "Deleted a: " in printed(sonata("adapters", "rm", "a", stdin="y\n", terminal=True))
    assert listed() == []


def test_a_kept_file_that_is_damaged_is_listed_with_its_problem_and_can_be_deleted(
    tiny: list[str], peft: Path, kept: Path
) -> None:
    for name in ("good", "bad"):
        printed(sonata("adapters", "import", peft, *tiny, "--name", name))
    bad = kept / "bad.safetensors"
    bad.write_bytes(bad.read_bytes()[:-7])
    assert [(facts["name"], bool(facts["problem"])) for facts in listed()] == [("bad", True), ("good", False)]
    assert "bad: The safetensors file is " in printed(sonata("adapters", "list"))
    assert_sentence(sonata("generate", "x", *tiny, "--adapter", "bad"), "bad: The safetensors file is ")
    printed(sonata("adapters", "rm", "bad", "--yes"))
    assert [facts["name"] for facts in listed()] == ["good"]


def test_a_write_that_does_not_come_to_its_end_leaves_what_was_there(
    base: BaseModel, pirate: LoraAdapter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = AdapterFolder(tmp_path / "kept")
    before = folder.keep(pirate, base)

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(adapter_folder.os, "fsync", full)
        with pytest.raises(ValueError, match=r"There is no room for the adapter pirate \(0\.\d MB\)"):
            folder.keep(replace(drawn(base.graph, 2), name="pirate"), base, instead=True)
    assert folder.adapters() == [before]
    assert [path.name for path in folder.folder.iterdir()] == ["pirate.safetensors"]
    with pytest.raises(ValueError, match=r"pirate\.safetensors exists already"):
        folder.keep(pirate, base)


def test_logits_of_ids_come_with_an_adapter_or_with_several_that_are_merged(
    tiny: list[str], peft: Path, base: BaseModel, tmp_path: Path, tiny_path: Path, open_model: Callable
) -> None:
    job, out = tmp_path / "job.json", tmp_path / "logits.npy"
    job.write_text('{"ids": [5, 9, 60, 3], "positions": [1, 3]}')
    words = ["logits", "--ids", job, "--out", out, *tiny, "--backend", "numpy", "--adapter", peft]
    one = adapter_of_files(files_at(peft), base)
    two = write_gguf_adapter(drawn(base.graph, 2, rank=4), tmp_path / "two.gguf")
    both = merge("ties", [one, adapter_of_files(files_at(two), base)], [0.7, 0.3]).adapter

    async def expected(adapter: LoraAdapter) -> np.ndarray:
        model: Model = await open_model(tiny_path)
        sequence = model.engine.new_sequence()
        model.engine.use_adapter(sequence, await model.engine.add_adapter(adapter))
        model.engine.backend.append(sequence, [5, 9, 60, 3])
        return (await model.engine.last_logits(sequence, 3))[[0, 2]]

    printed(sonata(*words))
    np.testing.assert_allclose(np.load(out), asyncio.run(expected(one)), rtol=1e-5, atol=1e-5)
    said = sonata(*words, "--adapter", two, "--merge", "ties", "--weights", "0.7,0.3")
    assert "Merged by ties: reducing it to rank 16 costs " in printed(said) + said.stderr
    np.testing.assert_allclose(np.load(out), asyncio.run(expected(both)), rtol=1e-5, atol=1e-5)

    assert_sentence(sonata(*words, "--adapter", two), "--merge METHOD", "slerp")
    assert_sentence(sonata(*words, "--merge", "ties"), "give --adapter more than once")
    assert_sentence(sonata(*words, "--adapter", two, "--merge", "sum"), "There is no merge method 'sum'")
    assert_sentence(
        sonata(*words, "--adapter", two, "--merge", "ties", "--weights", "a"), "'a' is not a list of weights"
    )


def test_a_rank_that_is_too_large_is_made_smaller_where_that_is_asked_for(
    tiny: list[str], base: BaseModel, tmp_path: Path
) -> None:
    drawn_large = drawn(base.graph, 6, rank=24)
    # The last eight are small: a rank of 16 loses little, one of 4 much.
    sizes = np.where(np.arange(24) < 16, 1, 0.01)[:, None].astype(np.float32)
    pairs = {name: replace(pair, a=pair.a * sizes) for name, pair in drawn_large.pairs.items()}
    file = write_gguf_adapter(replace(drawn_large, pairs=pairs), tmp_path / "large.gguf")
    assert_sentence(sonata("adapters", "import", file, *tiny), "rank 24", "sonata adapters import --rank 16")
    said = printed(sonata("adapters", "import", file, *tiny, "--rank", "16"))
    assert "The smaller rank costs " in said
    assert "large (rank 16" in said
    printed(sonata("adapters", "import", file, *tiny, "--rank", "4", "--name", "small"))
    lost = {facts["name"]: facts["lost"] for facts in listed()}
    assert 0 < lost["large"] < 0.02 < 0.5 < lost["small"] < 1
    # The costs of smaller ranks add up: two steps cost the same as one.
    own = tmp_path / "own.safetensors"
    printed(sonata("adapters", "export", "large", own))
    printed(sonata("adapters", "import", own, *tiny, "--rank", "4", "--name", "again"))
    assert {facts["name"]: facts["lost"] for facts in listed()}["again"] == pytest.approx(lost["small"], abs=1e-5)


def test_sonatas_own_file_says_whose_it_is(base: BaseModel, pirate: LoraAdapter) -> None:
    data = write_adapter(replace(pirate, base_sha256="ab" * 32), base.config, base.graph)
    with pytest.raises(ValueError, match="made for another model: for"):
        adapter_of_files({"x.safetensors": data}, base)
