"""`sonata convert`: the tensors and settings that llama.cpp's converter writes, and a sentence if it cannot."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gguf
import numpy as np
import pytest
import tokenizers

from app.generation.completion import last_logits
from app.models.converting import converter
from app.models.converting.converter import convert_folder
from app.models.converting.folder import ConvertError
from app.models.converting.vocabulary import pre_tokenizer_name
from app.models.template_renderer import native_renderer
from py_core.backends.numpy.backend import load_numpy
from py_core.formats.gguf import GGUFHeader, read_header
from py_core.formats.quantization import dequantize
from py_core.formats.safetensors import SafetensorsError
from py_core.formats.source import FileSource
from py_core.loading import load_model
from tests.cli.command_line import assert_sentence, printed, sonata
from tests.models.converting.folders import FOLDERS, PATTERNS, SPECIAL, byte_level, pre_tokenizer, write_shard
from tests.models.converting.make_expected import EXPECTED, described

CASES = {case.name: case for case in FOLDERS}
WITH_SENTENCEPIECE = ("mistral", "phi-3", "gemma-2", "gemma-3", "gemma-3-vision")
SENTENCEPIECE_ONLY = ("tokens", "scores", "token_type")
"""Keys that llama.cpp cannot know without SentencePiece's own file: it gives all tokens the same score."""


def silent(done: int, total: int) -> None:
    pass


@pytest.fixture(scope="module")
def converted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The GGUF file of each folder, beside the folder."""
    base = tmp_path_factory.mktemp("folders")
    for name, case in CASES.items():
        convert_folder(case.write(base), base / f"{name}.gguf", silent)
    return {name: base / f"{name}.gguf" for name in CASES}


@pytest.fixture
def llama(tmp_path: Path) -> Path:
    return CASES["llama"].write(tmp_path)


def header_of(path: Path) -> GGUFHeader:
    return asyncio.run(read_header(FileSource(path)))


def test_tensors_and_settings_are_those_of_llama_cpps_converter(converted: dict[str, Path]) -> None:
    expected = json.loads(EXPECTED.read_text(encoding="utf-8"))
    misses = {}
    for name in CASES:
        try:
            compare(name, described(converted[name]), expected[name])
        except AssertionError as error:
            misses[name] = str(error)
    assert misses == {}


def compare(name: str, made: dict[str, Any], expected: dict[str, Any]) -> None:
    if "gemma-3" in name:  # llama.cpp omits rows without a token; here they are tokens that are never used
        embedding, shape = made["tensors"].pop("token_embd.weight"), expected["tensors"].pop("token_embd.weight")[1]
        assert embedding[1] == [288, shape[1]]
    assert made["tensors"] == expected["tensors"]
    other = {f"tokenizer.ggml.{key}" for key in SENTENCEPIECE_ONLY} if name in WITH_SENTENCEPIECE else set()
    if "head_dim" not in CASES[name].config:  # heads are hidden / heads wide, as readers assume
        other |= {"llama.attention.key_length", "llama.attention.value_length"}
    wanted = {key: value for key, value in expected["keys"].items() if key not in other}
    assert {key: made["keys"].get(key) for key in wanted} == wanted
    more = {key for key in set(made["keys"]) - set(expected["keys"]) if not key.startswith("tokenizer.")}
    assert not more


def test_rows_that_the_tokenizer_lacks_are_never_used(converted: dict[str, Path]) -> None:
    metadata = header_of(converted["llama"]).metadata
    tokens, types = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.token_type"].tolist()
    assert len(tokens) == len(types) == 288
    known = len(CASES["llama"].tokenizer["model"]["vocab"]) + 1
    assert tokens[known:] == [f"[PAD{index}]" for index in range(known, 288)]
    assert types == [3, 3, 3] + [1] * (known - 4) + [4] + [5] * (288 - known)


def test_sentencepiece_gets_types_and_the_scores_of_its_merges(converted: dict[str, Path]) -> None:
    for name, prefix in (("mistral", True), ("gemma-2", False)):
        metadata = header_of(converted[name]).metadata
        assert (metadata["tokenizer.ggml.model"], metadata["tokenizer.ggml.pre"]) == ("llama", "default")
        assert metadata["tokenizer.ggml.add_space_prefix"] is prefix
        tokens = metadata["tokenizer.ggml.tokens"]
        scores = dict(zip(tokens, metadata["tokenizer.ggml.scores"].tolist(), strict=True))
        types = dict(zip(tokens, metadata["tokenizer.ggml.token_type"].tolist(), strict=True))
        assert [types[token] for token in ("<unk>", "<s>", "<0x41>", "▁the", "t", "  ")] == [2, 3, 6, 1, 1, 4]
        assert scores["▁t"] > scores["he"] > scores["▁the"] > scores["▁w"] > scores["t"]
        assert "▁▁" not in tokens  # the user's token is spelled with plain spaces


def test_the_name_of_phi_3_tells_readers_of_its_special_tokens(converted: dict[str, Path], tmp_path: Path) -> None:
    assert header_of(converted["phi-3"]).metadata["general.name"] == "phi-3"
    folder = CASES["phi-3"].write(tmp_path).rename(tmp_path / "mine")
    convert_folder(folder, tmp_path / "mine.gguf", silent)
    assert header_of(tmp_path / "mine.gguf").metadata["general.name"] == "Phi-3 mine"


def test_the_rule_that_cuts_words_is_told_by_its_pattern() -> None:
    rules = [*PATTERNS, "smaug-bpe", "gpt-2", "smollm"]
    assert [pre_tokenizer_name(byte_level(rule)) for rule in rules] == rules


@pytest.mark.parametrize(
    "strange", [None, {"type": "Whitespace"}, {**pre_tokenizer("gpt-2"), "use_regex": False},
                {"type": "Sequence", "pretokenizers": [{"type": "Split", "pattern": {"Regex": r"\p{N}{1,3}"}}]}]
)  # fmt: skip
def test_an_unknown_rule_is_refused(strange: dict[str, Any] | None) -> None:
    with pytest.raises(
        ConvertError, match="splits words by a rule that Sonata does not know; it knows the rules of gpt-2"
    ):
        pre_tokenizer_name(byte_level("gpt-2") | {"pre_tokenizer": strange})


def test_several_chat_templates_are_kept_by_name(llama: Path, tmp_path: Path) -> None:
    config = json.loads((llama / "tokenizer_config.json").read_text())
    config["chat_template"] = [{"name": "default", "template": "plain"}, {"name": "tool_use", "template": "tools"}]
    (llama / "tokenizer_config.json").write_text(json.dumps(config))
    convert_folder(llama, tmp_path / "out.gguf", silent)
    metadata = header_of(tmp_path / "out.gguf").metadata
    assert metadata["tokenizer.chat_template"] == "plain"
    assert metadata["tokenizer.chat_template.tool_use"] == "tools"
    assert metadata["tokenizer.chat_templates"] == ["tool_use"]


async def test_the_model_runs_and_its_tokens_are_those_of_the_folder(converted: dict[str, Path]) -> None:
    path = converted["llama"]
    model = await load_model(FileSource(path), load_numpy, native_renderer())
    original = tokenizers.Tokenizer.from_file(str(path.with_suffix("") / "tokenizer.json"))
    for text in ("the word in 1234 words", "Über  the\n\nword", "wording 12 the"):
        assert model.tokenizer.encode(text) == original.encode(text, add_special_tokens=False).ids
    assert model.tokenizer.encode(SPECIAL[1], special=True) == [1]
    assert "<|im_start|>hello" in model.tokenizer.decode(
        await model.encode_chat([{"role": "user", "content": "hello"}])
    )
    assert np.isfinite(await last_logits(model, "the word", raw=True)).all()
    model.close()


def test_numbers_are_those_of_the_folder(converted: dict[str, Path]) -> None:
    header, source = header_of(converted["qwen3"]), FileSource(converted["qwen3"])
    weights = CASES["qwen3"].weights()
    info = header.tensors["blk.1.ffn_up.weight"]
    assert info.format.name == "BF16"
    stored = dequantize(source.view(info.offset, info.nbytes), info.format, info.shape)
    np.testing.assert_array_equal(stored, weights["model.layers.1.mlp.up_proj.weight"])


def test_the_command_says_what_it_made(llama: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.gguf"
    said = printed(sonata("convert", llama, out))
    assert said == f"{out}: llama, 21 tensors, {out.stat().st_size / 1e6:.1f} MB\n"
    assert_sentence(sonata("convert", llama, out), "There is already a file", "choose another name")
    assert_sentence(sonata("convert", tmp_path / "nothing", tmp_path / "new.gguf"), "There is no folder")


def changed(path: Path, **values: Any) -> None:
    """Change keys of a JSON file; None removes one."""
    content = json.loads(path.read_text()) | values
    path.write_text(json.dumps({key: value for key, value in content.items() if value is not None}))


def test_what_is_no_models_folder_is_told_so(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(ConvertError, match=r"has no config\.json: give a model's folder from Hugging Face"):
        convert_folder(tmp_path / "folder", tmp_path / "out.gguf", silent)


BROKEN = {
    "another architecture": ("config.json", {"architectures": ["MambaForCausalLM"]},
                             "MambaForCausalLM cannot be converted; models of a2d-qwen2, .* and qwen35 can"),
    "no architecture": ("config.json", {"architectures": None}, "the architecture none cannot be converted"),
    "no width": ("config.json", {"hidden_size": None}, "has no 'hidden_size', which a model of llama needs"),
    "quantized already": ("config.json", {"quantization_config": {"quant_method": "awq"}}, r"already \('awq'\)"),
    "an unknown rope": ("config.json", {"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "of the kind 'dynamic'"),
    "a tokenizer of words": ("tokenizer.json", {"model": {"type": "WordPiece", "vocab": {}}}, "the kind 'WordPiece'"),
    "a tokenizer without a model": ("tokenizer.json", {"model": None}, "of the kind None"),
    "fewer layers": ("config.json", {"num_hidden_layers": 1},
                     r"no use for the tensor 'model\.layers\.1\.\S+': is config\.json this model's\?"),
}  # fmt: skip


def test_what_cannot_be_converted_is_one_sentence_and_leaves_no_file(llama: Path, tmp_path: Path) -> None:
    for file, values, said in BROKEN.values():
        right = (llama / file).read_text(encoding="utf-8")
        changed(llama / file, **values)
        with pytest.raises(ConvertError, match=said):
            convert_folder(llama, tmp_path / "out.gguf", silent)
        assert [path.name for path in tmp_path.iterdir()] == ["llama"]
        (llama / file).write_text(right, encoding="utf-8")


def test_a_smollm3_whose_other_layers_rotate_is_refused(tmp_path: Path) -> None:
    folder = CASES["smollm-3"].write(tmp_path)
    changed(folder / "config.json", no_rope_layers=[1, 1])
    convert_folder(folder, tmp_path / "usual.gguf", silent)
    changed(folder / "config.json", no_rope_layers=[1, 0])
    with pytest.raises(ConvertError, match="other layers than every fourth have no rotation"):
        convert_folder(folder, tmp_path / "out.gguf", silent)


def test_an_lfm2_says_its_layers_in_either_way_and_not_biases_of_convolutions(tmp_path: Path) -> None:
    folder = CASES["lfm-2"].write(tmp_path)
    changed(
        folder / "config.json", layer_types=None, full_attn_idxs=[1], block_auto_adjust_ff_dim=False, block_ff_dim=96
    )
    convert_folder(folder, tmp_path / "older.gguf", silent)
    made = header_of(tmp_path / "older.gguf").metadata
    assert made["lfm2.attention.head_count_kv"].tolist() == [0, 2]
    assert made["lfm2.feed_forward_length"] == 96
    changed(folder / "config.json", conv_bias=True)
    with pytest.raises(ConvertError, match="biases in its convolutions"):
        convert_folder(folder, tmp_path / "out.gguf", silent)


def test_a_tokenizer_with_more_tokens_than_the_embedding_has_rows_is_refused(llama: Path, tmp_path: Path) -> None:
    tokenizer = json.loads((llama / "tokenizer.json").read_text())
    tokenizer["added_tokens"].append({**tokenizer["added_tokens"][-1], "id": 300, "content": "<more>"})
    (llama / "tokenizer.json").write_text(json.dumps(tokenizer))
    with pytest.raises(ConvertError, match=r"'<more>' has the number 300, but the embedding has 288 rows"):
        convert_folder(llama, tmp_path / "out.gguf", silent)


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json"])
def test_damaged_json_is_named(llama: Path, tmp_path: Path, name: str) -> None:
    (llama / name).write_text("{")
    with pytest.raises(ConvertError, match=rf"{name} is not JSON .*: download it again"):
        convert_folder(llama, tmp_path / "out.gguf", silent)
    (llama / name).write_text("[]")
    with pytest.raises(ConvertError, match=rf"{name} is not a JSON object"):
        convert_folder(llama, tmp_path / "out.gguf", silent)


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    folder = CASES["llama-3"].write(tmp_path)
    (folder / "model-00002-of-00003.safetensors").unlink()
    with pytest.raises(ConvertError, match=r"model-00002-of-00003\.safetensors is missing, one of the model's 3 files"):
        convert_folder(folder, tmp_path / "out.gguf", silent)


def test_weights_of_other_kinds_are_refused(llama: Path, tmp_path: Path) -> None:
    (llama / "model.safetensors").rename(tmp_path / "elsewhere")
    with pytest.raises(ConvertError, match=r"has no model\.safetensors"):
        convert_folder(llama, tmp_path / "out.gguf", silent)
    (llama / "pytorch_model.bin").write_bytes(b"x")
    with pytest.raises(ConvertError, match=r"has its weights in pytorch_model\.bin only"):
        convert_folder(llama, tmp_path / "out.gguf", silent)


def test_a_truncated_shard_is_named(llama: Path, tmp_path: Path) -> None:
    shard = llama / "model.safetensors"
    shard.write_bytes(shard.read_bytes()[:-100])
    with pytest.raises(SafetensorsError, match=r"model\.safetensors: The safetensors file is damaged"):
        convert_folder(llama, tmp_path / "out.gguf", silent)


def test_a_model_without_an_embedding_is_refused(llama: Path, tmp_path: Path) -> None:
    write_shard(llama / "model.safetensors", {"model.norm.weight": np.ones(64, np.float32)}, "F32")
    with pytest.raises(ConvertError, match="have no embedding"):
        convert_folder(llama, tmp_path / "out.gguf", silent)


def test_a_full_disk_is_told_and_leaves_nothing(llama: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=1000))
    with pytest.raises(OSError, match=r"and the disk has 0\.00 GB left: make room"):
        convert_folder(llama, tmp_path / "out.gguf", silent)
    assert [path.name for path in tmp_path.iterdir()] == ["llama"]


def test_without_the_package_gguf_the_way_to_get_it_is_told(llama: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(converter.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConvertError, match="install it with `pip install gguf`"):
        convert_folder(llama, tmp_path / "out.gguf", silent)


def test_ggmls_reader_knows_every_type_that_is_written(converted: dict[str, Path]) -> None:
    kinds = {tensor.tensor_type for path in converted.values() for tensor in gguf.GGUFReader(path).tensors}
    assert {kind.name for kind in kinds} == {"F32", "F16", "BF16"}
