"""`sonata`: its output, its files, and one sentence for every failure."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tomllib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from app.cli import main as cli
from py_core.display import plain
from py_core.formats.gguf_writer import write_gguf
from tests.cli.command_line import SONATA, assert_sentence, printed, sonata, sonata_process
from tests.diffusion.tiny import write_diffusion
from tests.models.architectures.variants import VARIANTS
from tests.tiny.llama import TinyLlama
from tests.tiny.models import metadata

KEYS = {"prompt_tokens", "tokens", "text", "backend", "adapter", "prefill_tok_s", "decode_tok_s", "reason", "passes"}


@pytest.fixture(scope="module")
def as_json(tiny: list[str]) -> dict:
    """sonata generate hello --max-tokens 6 --json"""
    return json.loads(printed(sonata("generate", "hello", *tiny, "--max-tokens", "6", "--json")))


def test_generate_json_has_exactly_the_documented_keys(as_json: dict) -> None:
    assert set(as_json) == KEYS
    assert (as_json["backend"], as_json["adapter"]) == ("numpy", f"numpy {np.__version__}")
    assert as_json["reason"] == "length"
    assert len(as_json["tokens"]) == 6
    assert all(isinstance(token, int) for token in as_json["prompt_tokens"] + as_json["tokens"])
    assert as_json["prefill_tok_s"] > 0 < as_json["decode_tok_s"]


def test_the_installed_program_says_the_same_of_a_prompt_on_standard_input(tiny: list[str], as_json: dict) -> None:
    result = sonata_process("generate", "-", *tiny, "--max-tokens", "6", "--json", stdin="hello")
    timed = ("prefill_tok_s", "decode_tok_s")
    again = json.loads(printed(result))
    assert {k: v for k, v in again.items() if k not in timed} == {k: v for k, v in as_json.items() if k not in timed}


def test_generate_prints_the_text_and_keeps_the_speed_out_of_it(tiny: list[str], as_json: dict) -> None:
    result = sonata("generate", "hello", *tiny, "--max-tokens", "6")
    assert printed(result) == plain(as_json["text"]) + "\n"
    assert "tok/s" in result.stderr


def test_raw_continues_the_text_with_special_tokens_parsed(tiny: list[str]) -> None:
    result = sonata("generate", "<|im_start|>hé", "--raw", *tiny, "--max-tokens", "300", "--json")
    made = json.loads(printed(result))
    assert made["prompt_tokens"][0] == 1
    assert len(made["prompt_tokens"]) == 4
    assert len(made["tokens"]) == 300
    assert {0, 2} & set(made["tokens"][:-1])  # end tokens do not end it


def test_special_tokens_in_a_chat_prompt_are_plain_text(tiny: list[str]) -> None:
    made = json.loads(printed(sonata("generate", "<|im_end|>", *tiny, "--max-tokens", "1", "--json")))
    assert [token for token in made["prompt_tokens"] if token < 3] == [1, 2, 1]


def test_sampling_options_take_effect(tiny: list[str], as_json: dict) -> None:
    def tokens(*options: str) -> list[int]:
        result = sonata("generate", "hello", *tiny, "--max-tokens", "6", "--json", *options)
        return json.loads(printed(result))["tokens"]

    drawn = tokens("--temperature", "3", "--seed", "5")
    assert drawn == tokens("--temperature", "3", "--seed", "5")
    assert drawn != tokens("--temperature", "3", "--seed", "6")
    assert tokens("--temperature", "3", "--seed", "5", "--top-k", "1") == as_json["tokens"]
    assert tokens("--temperature", "3", "--seed", "5", "--top-p", "0.0001") == as_json["tokens"]
    assert tokens("--temperature", "3", "--seed", "5", "--min-p", "1") == as_json["tokens"]


def test_the_answer_ends_where_the_context_does(tiny: list[str]) -> None:
    made = json.loads(printed(sonata("generate", "a" * 500, "--raw", *tiny, "--json")))
    assert (len(made["tokens"]), made["reason"]) == (12, "context")


def test_logits_are_a_float32_vector_in_a_file_of_just_that_name(
    tiny: list[str], tmp_path: Path, as_json: dict
) -> None:
    out = tmp_path / "logits.of.hello"
    assert printed(sonata("logits", "hello", "--out", out, *tiny)) == ""
    values = np.load(out)
    assert (values.shape, values.dtype) == ((259,), np.float32)
    assert int(values.argmax()) == as_json["tokens"][0]


def test_logits_of_ids_are_a_row_for_each_position(tiny: list[str], tmp_path: Path, as_json: dict) -> None:
    job, out = tmp_path / "job.json", tmp_path / "logits.npy"
    prompt = as_json["prompt_tokens"]
    job.write_text(json.dumps({"ids": prompt, "positions": [len(prompt) - 1, 0]}))
    printed(sonata("logits", "--ids", job, "--out", out, *tiny))
    values = np.load(out)
    assert (values.shape, values.dtype) == ((2, 259), np.float32)
    assert int(values[0].argmax()) == as_json["tokens"][0]
    assert_sentence(sonata("logits", "--out", out, *tiny), "either a prompt or --ids")


def test_a_longer_context_than_the_model_was_trained_for_stretches_it(tiny: list[str]) -> None:
    made = json.loads(printed(sonata("generate", "a" * 500, "--raw", *tiny, "--context", "1024", "--json")))
    assert (len(made["tokens"]), made["reason"]) == (128, "length")
    assert_sentence(sonata("generate", "a", *tiny, "--context", "100000"), "trained for 512 tokens", "at most 32768")


def test_the_version_is_that_of_the_project() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8"))["project"]
    assert printed(sonata("--version")) == f"Sonata {project['version']}\n"


def test_tokenize_goes_both_ways(tiny_path: Path) -> None:
    texts = ["hello", "", "héllo 😀\n", "<|im_end|>"]
    ids = json.loads(printed(sonata("tokenize", "--model", tiny_path, stdin=json.dumps(texts))))
    assert [len(one) for one in ids] == [5, 0, 12, 10]
    back = sonata("tokenize", "--decode", "--model", tiny_path, stdin=json.dumps(ids))
    assert json.loads(printed(back)) == texts


def test_bos_is_added_where_the_file_says_so_and_no_bos_leaves_it_out(write_model: Callable[..., Path]) -> None:
    path = write_model({"tokenizer.ggml.add_bos_token": True})
    assert json.loads(printed(sonata("tokenize", "--model", path, stdin='["a", ""]'))) == [[1, 69], [1]]
    assert json.loads(printed(sonata("tokenize", "--no-bos", "--model", path, "a"))) == [69]
    shown = printed(sonata("tokenize", "--no-bos", "--model", path, "a", terminal=True))
    assert shown.splitlines() == ["     69  'a'", "1 token"]
    options = ["a", "--model", path, "--backend", "numpy", "--max-tokens", "2", "--json"]
    assert json.loads(printed(sonata("generate", "--raw", *options)))["prompt_tokens"] == [1, 69]
    assert json.loads(printed(sonata("generate", "--raw", "--no-bos", *options)))["prompt_tokens"] == [69]
    in_chat = json.loads(printed(sonata("generate", *options)))["prompt_tokens"]
    assert in_chat[0] == 1 != in_chat[1]  # the template's own instructions


def test_tokenize_special_parses_special_tokens(tiny_path: Path) -> None:
    texts = ["<|im_start|>a<|im_end|>"]
    ids = json.loads(printed(sonata("tokenize", "--special", "--model", tiny_path, stdin=json.dumps(texts))))
    assert ids[0][0::2] == [1, 2]
    assert len(ids[0]) == 3


@pytest.mark.parametrize(
    ("options", "stdin", "said"),
    [
        ([], '["a",', "Standard input is not JSON"),
        ([], "", "Standard input is not JSON"),
        ([], "[" * 100_000, "Standard input is not JSON"),
        ([], '{"a": 1}', "must be a JSON list of strings"),
        ([], '["a", 1]', "must be a JSON list of strings"),
        (["--decode", "hello"], "[[1]]", "leave out the text"),
        (["--decode"], "[1, 2]", "must be a JSON list of lists of token ids"),
        (["--decode"], "[[true]]", "must be a JSON list of lists of token ids"),
        (["--decode"], "[[1.0]]", "must be a JSON list of lists of token ids"),
        (["--decode"], "[[259]]", "token id 259 is outside of the vocabulary of 259 tokens"),
        (["--decode"], "[[-1]]", "token id -1 is outside"),
        (["--decode"], f"[[{'9' * 5000}]]", "Standard input is not JSON"),
    ],
    ids=[
        "cut",
        "nothing",
        "deep",
        "object",
        "number",
        "text",
        "flat",
        "bool",
        "float",
        "unknown id",
        "negative id",
        "huge id",
    ],
)
def test_bad_input_for_tokenize_is_a_sentence(tiny_path: Path, options: list[str], stdin: str, said: str) -> None:
    assert_sentence(sonata("tokenize", *options, "--model", tiny_path, stdin=stdin), said)


def test_info_says_what_a_file_holds(tiny_path: Path) -> None:
    facts = json.loads(printed(sonata("info", "--model", tiny_path, "--json")))
    assert (facts["architecture"], facts["num_hidden_layers"], facts["gguf_version"]) == ("llama", 2, 3)
    assert facts["parameters"] == 94_912
    assert facts["tensors"]["F32"] == {"count": 5, "bytes": 5 * 64 * 4}
    assert (facts["tokenizer"]["kind"], facts["tokenizer"]["rules"]) == ("gpt2", "smollm")
    assert facts["tokenizer"]["ends"] == ["<|endoftext|>", "<|im_end|>"]
    table = printed(sonata("info", "--model", tiny_path))
    for key in ("hidden_size", "num_key_value_heads", "Q4_1 tensors"):
        assert key in table
    for absent in ("sliding_window", "local_rope", "softcap"):
        assert absent not in table


def test_info_tells_of_the_embeddings_of_layers_and_of_pairs_that_stand_still(tmp_path: Path) -> None:
    path = VARIANTS["gemma4"].write(tmp_path / "tiny.gguf")
    facts = json.loads(printed(sonata("info", "--model", path, "--json")))
    assert facts["per_layer_embeddings"] == "F32, 0.1 MB"
    assert facts["local_layers"] == [0, 2, 4, 5]
    assert facts["rope"].startswith("8 values of a head")


def test_names_in_a_file_are_no_markup(write_model: Callable[..., Path], tmp_path: Path) -> None:
    path = write_model({"general.name": "[/red] [bold]x"})
    assert "[/red] [bold]x" in printed(sonata("info", "--model", path))
    assert_sentence(sonata("info", "--model", tmp_path / "[red] x"), "[red] x")
    assert_sentence(sonata("info", "--model", tmp_path / "[" / "red]"), "[/red]")


def test_a_file_of_a_vocabulary_only_can_be_described_and_used(tmp_path: Path) -> None:
    path = tmp_path / "vocabulary.gguf"
    write_gguf(path, {**metadata(TinyLlama()), "tokenizer.ggml.add_bos_token": True}, {})
    facts = json.loads(printed(sonata("info", "--model", path, "--json")))
    assert (facts["architecture"], facts["name"], facts["parameters"], facts["tensors"]) == ("llama", "tiny", 0, {})
    assert (facts["tokenizer"]["tokens"], facts["tokenizer"]["bos"]) == (259, "<|im_start|>")
    assert "only a vocabulary" in printed(sonata("info", "--model", path))
    ids = json.loads(printed(sonata("tokenize", "--model", path, "hi")))
    assert ids == [1, *json.loads(printed(sonata("tokenize", "--model", path, "--no-bos", "hi")))]
    assert_sentence(sonata("generate", "hello", "--backend", "numpy", "--model", path), "not a complete language model")


def test_info_tells_why_a_tokenizer_cannot_be_used(write_model: Callable[..., Path]) -> None:
    path = write_model({"tokenizer.ggml.model": "rwkv"})
    facts = json.loads(printed(sonata("info", "--model", path, "--json")))
    assert "of kind 'rwkv', which Sonata cannot read" in facts["tokenizer"]["problem"]


def test_a_model_of_diffusion_says_its_passes_and_its_answers_have_shapes(tmp_path: Path) -> None:
    model = ["--backend", "numpy", "--model", str(write_diffusion(tmp_path / "tiny.gguf", 8))]
    made = json.loads(printed(sonata("generate", "hello", *model, "--max-tokens", "20", "--passes", "2", "--json")))
    assert 0 < made["passes"] < len(made["tokens"])
    told = sonata("generate", "x", *model, "--max-tokens", "20", "--passes", "2")
    assert " passes" in told.stderr
    assert printed(sonata("generate", "x", *model, "--choice", "yes", "--quiet")) == "yes\n"


def test_a_model_that_writes_from_left_to_right_has_no_masks(tiny: list[str]) -> None:
    assert_sentence(sonata("generate", "x", *tiny, "--passes", "2"), "from left to right", "--passes")


def test_bench_json_has_exactly_the_documented_keys(tiny: list[str]) -> None:
    options = ["--prompt-tokens", "20", "--tokens", "6", "--position", "30", "--rounds", "2", "--json"]
    speed = json.loads(printed(sonata("bench", *tiny, *options)))
    asked = {"prompt_tokens": 20, "tokens": 6, "position": 30, "rounds": 2, "backend": "numpy", "model": "Tiny"}
    assert {key: speed[key] for key in asked} == asked
    assert set(speed) - set(asked) == {"adapter", "prefill_tok_s", "first_token_ms", "decode_tok_s"}
    assert min(speed["prefill_tok_s"], speed["decode_tok_s"]) > 10
    assert speed["first_token_ms"] >= 1000 * 20 / speed["prefill_tok_s"] > 0


def test_bench_prints_a_table(tiny: list[str]) -> None:
    words = printed(sonata("bench", *tiny, "--prompt-tokens", "9", "--tokens", "3", "--rounds", "1"))
    assert all(said in words for said in ("Tiny on numpy", "prefill", "9 tokens", "3 tokens from position 9"))


def test_bench_says_what_it_cannot_measure(tiny: list[str]) -> None:
    assert_sentence(sonata("bench", *tiny, "--profile"), "webgpu backend", "runs on numpy")
    assert_sentence(sonata("bench", *tiny, "--position", "500"), "room for 512 tokens")


def test_a_missing_file_is_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "none.gguf"
    for command in (
        ["generate", "hello", "--backend", "numpy", "--model"],
        ["info", "--model"],
        ["tokenize", "--model"],
    ):
        assert_sentence(sonata(*command, path, stdin="[]"), f"is called {path}.")


def test_a_directory_is_no_model(tmp_path: Path) -> None:
    assert_sentence(sonata("generate", "hello", "--backend", "numpy", "--model", tmp_path), str(tmp_path))


@pytest.mark.parametrize(
    ("ends_at", "said"),
    [(0, "is empty"), (3, "truncated"), (1000, "truncated"), (40_000, "missing, from tensor 'blk.")],
)
def test_a_file_that_was_cut_off_is_a_sentence(tiny_path: Path, tmp_path: Path, ends_at: int, said: str) -> None:
    path = tmp_path / "cut.gguf"
    path.write_bytes(tiny_path.read_bytes()[:ends_at])
    assert_sentence(sonata("generate", "hello", "--backend", "numpy", "--model", path), said, "ownload it again")


def test_a_file_of_another_kind_is_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "photo.gguf"
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(1000))
    assert_sentence(sonata("info", "--model", path), "not a GGUF file")


def test_an_unknown_architecture_is_a_sentence(write_model: Callable[..., Path]) -> None:
    path = write_model({"general.architecture": "mamba"})
    assert_sentence(sonata("generate", "x", "--backend", "numpy", "--model", path), "'mamba'; Sonata runs a2d-qwen2")


@pytest.mark.parametrize("prompt", ["", " \n\t"])
def test_an_empty_prompt_is_a_sentence(tiny: list[str], prompt: str) -> None:
    assert_sentence(sonata("generate", prompt, *tiny), "The prompt is empty")


def test_an_empty_standard_input_is_an_empty_prompt(tiny: list[str]) -> None:
    assert_sentence(sonata("generate", "-", "--raw", *tiny, stdin=""), "The prompt is empty")


def test_a_prompt_of_10_million_characters_is_a_sentence(tiny: list[str]) -> None:
    said = "has 10,000,000 characters, and the model reads at most 512 tokens. Shorten it"
    assert_sentence(sonata("generate", "-", *tiny, stdin="x" * 10_000_000), said)


def test_a_standard_input_that_does_not_end_is_a_sentence(tiny: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "MAX_PROMPT_CHARS", 1000)
    assert_sentence(sonata("generate", "-", *tiny, stdin="x" * 1001), "over 1,000 characters", "Give less.")


def test_a_prompt_longer_than_the_context_is_a_sentence(tiny: list[str]) -> None:
    result = sonata("generate", "a" * 513, "--raw", *tiny)
    assert_sentence(result, "The text is 513 tokens long, but the model reads at most 512.")


@pytest.mark.parametrize("option", [["--top-p", "0"], ["--temperature", "inf"]], ids=str)
def test_a_sampling_option_that_makes_no_sense_is_named(tiny: list[str], option: list[str]) -> None:
    assert_sentence(sonata("generate", "hello", *tiny, *option), option[0].strip("-").replace("-", "_") + " is")


def test_logits_that_cannot_be_written_are_a_sentence(tiny: list[str], tmp_path: Path) -> None:
    for out in (tmp_path / "no" / "such.npy", tmp_path):
        assert_sentence(sonata("logits", "hello", "--out", out, *tiny), str(out))


def test_a_wrong_option_explains_the_usage(tiny: list[str]) -> None:
    result = sonata("generate", "hello", *tiny, "--max-tokens", "0")
    assert result.returncode == 2
    assert "Usage: " in result.stderr
    assert "sonata generate [OPTIONS]" in result.stderr
    assert "--max-tokens" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_model_that_was_never_downloaded_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SONATA_CACHE", str(tmp_path))
    assert_sentence(sonata("generate", "hello", "--backend", "numpy"), "python build.py serve")


def test_ctrl_c_ends_it_without_a_traceback(tiny: list[str]) -> None:
    endless = ["--raw", "--context", "32768", "--max-tokens", "30000"]
    command = [str(SONATA), "generate", "Tell me a story.", *tiny, *endless]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert os.read(process.stdout.fileno(), 1)  # the answer has begun
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert b"Traceback" not in said


def test_the_real_model_answers_a_question(oracle: Callable) -> None:
    made = json.loads(printed(sonata("generate", "What is the capital of France?", "--backend", "numpy", "--json")))
    assert made["text"] == "The capital of France is Paris."
    assert made["reason"] == "end"
    assert made["prompt_tokens"] == oracle("p0").prompt_ids
    assert made["tokens"] == oracle("p0").greedy_ids[:8]  # the end token is the last


@pytest.mark.all
def test_raw_continues_the_oracles_prompt_with_the_oracles_ids(oracle: Callable) -> None:
    expected = oracle("p0")
    arguments = ("generate", "-", "--raw", "--backend", "numpy", "--max-tokens", "16", "--json")
    made = json.loads(printed(sonata(*arguments, stdin=expected.prompt)))
    assert made["prompt_tokens"] == expected.prompt_ids
    assert made["tokens"] == expected.greedy_ids[:16]
    assert expected.text.startswith(made["text"])


@pytest.mark.all
def test_logits_of_the_oracles_prompt_are_the_oracles(oracle: Callable, tmp_path: Path) -> None:
    expected, out = oracle("p0"), tmp_path / "p0.npy"
    printed(sonata("logits", expected.prompt, "--raw", "--backend", "numpy", "--out", out))
    assert np.abs(np.load(out) - expected.logits).max() < 0.02


def test_tokenize_gives_the_oracles_ids(oracle: Callable) -> None:
    oracles = [oracle(name) for name in ("p0", "p1", "p3")]
    ids = sonata("tokenize", "--special", stdin=json.dumps([one.prompt for one in oracles]))
    assert json.loads(printed(ids)) == [one.prompt_ids for one in oracles]
    texts = sonata("tokenize", "--decode", stdin=json.dumps([one.greedy_ids for one in oracles]))
    assert json.loads(printed(texts)) == [one.text for one in oracles]
