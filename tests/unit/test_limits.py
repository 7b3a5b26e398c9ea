"""Files larger than any real model are refused by their counts, before they are read; settings that would change the
answers are refused by name."""

from __future__ import annotations

import asyncio
import json
import struct
import threading
from collections.abc import Callable
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.models.catalog import _files
from app.models.http_range import SourceError, open_range
from app.models.template_renderer import native_renderer
from py_core import limits
from py_core.formats.gguf import GGUFError, GGUFHeader, NeedMoreData, parse_header, read_header
from py_core.formats.quantization import UnsupportedFormatError
from py_core.formats.safetensors import SafetensorsError, read_safetensors
from py_core.formats.source import FileSource
from py_core.models.config import config_from_gguf
from py_core.models.registry import describe_model
from py_core.tokenizers.base import TokenizerError
from py_core.tokenizers.chat_template import ChatTemplate, ChatTemplateError
from py_core.tokenizers.registry import tokenizer_from_gguf
from tests.formats.gguf_fields import ARRAY, STRING, U32, gguf, key_value
from tests.fuzz.harness import check_sentence
from tests.models.architectures.variants import QUANTIZED
from tests.tiny.models import metadata

NESTED = 9


def array(element_type: int, count: int) -> tuple[bytes, ...]:
    """A metadata value that claims to be a list of this length, without any items."""
    return (key_value("k", ARRAY, struct.pack("<IQ", element_type, count)),)


@pytest.mark.parametrize(
    ("begin", "said"),
    [
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 10_001), "10001 metadata keys, but a model file may have at most 10000"),
        (b"GGUF" + struct.pack("<IQQ", 3, 100_001, 0), "100001 tensors, but a model file may have at most 100000"),
        (gguf(array(STRING, 2_000_001)), "2000001 strings in the metadata value 'k'"),
        (gguf(array(NESTED, 1)), "'k' is a list of lists"),
        (gguf(array(U32, 16 << 20)), "'k' would make its header larger than 64 MiB"),
        (gguf((key_value("k", STRING, struct.pack("<Q", 64 << 20)),)), "'k' would make its header larger than 64 MiB"),
    ],
    ids=["keys", "tensors", "strings", "nested lists", "numbers", "a long text"],
)
def test_a_count_that_no_model_has_is_refused_before_more_of_the_file_is_asked_for(begin: bytes, said: str) -> None:
    for size in (None, 1 << 40):
        with pytest.raises(GGUFError, match=said) as refused:
            parse_header(begin, size)
        assert not isinstance(refused.value, NeedMoreData)


def test_as_many_as_the_limits_allow_are_read() -> None:
    keys = tuple(key_value(f"k{n}", U32, struct.pack("<I", n)) for n in range(limits.MAX_KEYS))
    assert len(parse_header(gguf(keys)).metadata) == limits.MAX_KEYS
    with pytest.raises(NeedMoreData):
        parse_header(gguf(array(STRING, limits.MAX_STRINGS)))
    with pytest.raises(NeedMoreData):
        parse_header(b"GGUF" + struct.pack("<IQQ", 3, limits.MAX_TENSORS, 0))


def test_lists_of_strings_are_counted_together() -> None:
    empty = key_value("a", ARRAY, struct.pack("<IQ", STRING, 50_000) + bytes(8 * 50_000))
    with pytest.raises(GGUFError, match="1960000 strings in the metadata value 'k', but all lists together"):
        parse_header(gguf((empty, *array(STRING, 1_960_000))), 1 << 40)


@pytest.mark.parametrize(
    ("header", "said"),
    [
        (b"[" + b"[]," * 300_001, "more than 100000 tensors"),
        (b"[" + b"{}," * 300_001, "more than 100000 tensors"),
        (b"[" + b"1," * 1_000_001, "more than 100000 tensors"),
        (struct.pack("<Q", 0) * 3, "is not a JSON object"),
    ],
    ids=["lists", "objects", "numbers", "zeros"],
)
def test_what_no_safetensors_header_holds_is_refused_before_it_is_built(header: bytes, said: str) -> None:
    with pytest.raises(SafetensorsError, match=said):
        read_safetensors(struct.pack("<Q", len(header)) + header)


# --- vocabularies ---------------------------------------------------------------------------------------------------


def vocabulary(tokens: list[str], **changes: Any) -> dict[str, Any]:
    values = {"model": "gpt2", "pre": "gpt-2", "tokens": tokens, "merges": [], **changes}
    return {f"tokenizer.ggml.{key}": value for key, value in values.items()}


def test_more_tokens_than_any_model_has_are_refused() -> None:
    with pytest.raises(TokenizerError, match="1000001 tokens, more than the 1000000"):
        tokenizer_from_gguf(vocabulary(["a"] * (limits.MAX_TOKENS + 1)))


@pytest.mark.parametrize("kind", [2, 3, 4], ids=["unknown", "control", "user-defined"])
def test_more_special_tokens_than_any_model_has_are_refused(kind: int) -> None:
    tokens = [f"<{n}>" for n in range(limits.MAX_SPECIAL_TOKENS + 1)]
    with pytest.raises(TokenizerError, match="20001 of its tokens are special, more than the 20000"):
        tokenizer_from_gguf(vocabulary(tokens, token_type=np.full(len(tokens), kind)))
    types = np.full(len(tokens), kind)
    types[0] = 1
    assert len(tokenizer_from_gguf(vocabulary(tokens, token_type=types)).special_tokens) == limits.MAX_SPECIAL_TOKENS


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"token_type": [1, 1]}, "3 tokens, but 2 entries in tokenizer.ggml.token_type"),
        ({"token_type": [1, 1, 1, 1]}, "3 tokens, but 4 entries in tokenizer.ggml.token_type"),
        ({"model": "llama", "scores": [0.0, 0.0]}, "3 tokens, but 2 entries in tokenizer.ggml.scores"),
        ({"model": "llama", "scores": [0.0] * 4}, "3 tokens, but 4 entries in tokenizer.ggml.scores"),
        ({"model": "llama", "scores": [0.0, float("nan"), 0.0]}, "no usable list tokenizer.ggml.scores"),
        ({"token_type": np.zeros(limits.MAX_TOKENS + 1, np.uint8)}, "no usable list tokenizer.ggml.token_type"),
    ],
    ids=["few types", "many types", "few scores", "many scores", "a score that is not a number", "a million types"],
)
def test_types_and_scores_belong_to_the_tokens(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(TokenizerError, match=said):
        tokenizer_from_gguf(vocabulary(["a", "b", "c"], **changes))


# --- settings -------------------------------------------------------------------------------------------------------

OPEN = (GGUFError, UnsupportedFormatError, TokenizerError, ChatTemplateError)


@pytest.fixture(scope="module")
def headers(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], GGUFHeader]:
    """headers("qwen2") -> the header of a tiny model of that kind"""
    folder = tmp_path_factory.mktemp("limits")
    read: dict[str, GGUFHeader] = {}

    def header(name: str) -> GGUFHeader:
        if name not in read:
            path = QUANTIZED[name].write(folder / f"{len(read)}.gguf")
            read[name] = asyncio.run(read_header(FileSource(path)))
        return read[name]

    return header


def described(header: GGUFHeader, changes: dict[str, Any]) -> None:
    """The tiny model with other settings, up to the part that is read before the weights."""
    factors = {name: np.ones(info.shape) for name, info in header.tensors.items() if name.startswith("rope_f")}
    describe_model(replace(header, metadata={**header.metadata, **changes}), None, factors)


LLAMA, GEMMA3 = "llama with biases of q and v", "gemma3"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("attention.key_length", 65_536),
        ("attention.head_count", 2048),
        ("block_count", 4096),
        ("embedding_length", 1 << 20),
        ("feed_forward_length", 1 << 20),
        ("context_length", 1 << 31),
        ("rope.dimension_count", 1 << 16),
        ("rope.freq_base", 1e300),
        ("rope.freq_base", float("inf")),
        ("rope.freq_base", float("nan")),
        ("rope.freq_base", 10**400),
        ("rope.scaling.factor", 1e9),
        ("attention.layer_norm_rms_epsilon", float("nan")),
        ("block_count", 10**400),
        ("block_count", -1),
    ],
)
def test_a_setting_beyond_what_any_model_has_is_named(
    headers: Callable[[str], GGUFHeader], key: str, value: float
) -> None:
    with pytest.raises(GGUFError, match=rf"llama\.{key} = .*, which no model has") as refused:
        described(headers(LLAMA), {f"llama.{key}": value})
    check_sentence(str(refused.value))


@pytest.mark.parametrize("key", ["embedding_scale", "residual_scale", "attention.scale", "logit_scale"])
def test_a_multiplier_that_no_model_has_is_named(headers: Callable[[str], GGUFHeader], key: str) -> None:
    for value in (1e-200, 1e9, -1.0, float("nan")):
        with pytest.raises(GGUFError, match=rf"granite\.{key} = .*, which no model has"):
            described(headers("granite"), {f"granite.{key}": value})


@pytest.mark.parametrize(("key", "value"), [("expert_count", 4096), ("expert_count", 0), ("expert_used_count", 9)])
def test_a_number_of_experts_that_no_model_has_is_named(
    headers: Callable[[str], GGUFHeader], key: str, value: int
) -> None:
    with pytest.raises(GGUFError, match=rf"granitemoe\.{key} = {value}, which no model has"):
        described(headers("granitemoe"), {f"granitemoe.{key}": value})


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"ssm.time_step_rank": 3}, "ssm.time_step_rank = 3"),
        ({"ssm.conv_kernel": 9}, "ssm.conv_kernel = 9"),
        ({"ssm.state_size": 0}, "ssm.state_size = 0"),
        ({"attention.recurrent_layers": np.array([True] * 3)}, "full_attention_interval = 4"),
        ({"attention.recurrent_layers": None}, "full_attention_interval = 4"),
        ({"nextn_predict_layers": -1}, "nextn_predict_layers = -1"),
    ],
)
def test_delta_rules_that_no_model_has_are_named(
    headers: Callable[[str], GGUFHeader], changes: dict[str, object], said: str
) -> None:
    with pytest.raises(GGUFError, match=f"qwen35.{said}, which no model has"):
        described(headers("qwen35"), {f"qwen35.{key}": value for key, value in changes.items()})


@pytest.mark.parametrize(
    ("model", "key", "value"),
    [
        (LLAMA, "expert_count", 8),
        (LLAMA, "attention.causal", False),
        (LLAMA, "attention.value_length", 24),
        (LLAMA, "attention.scale", 0.5),
        (LLAMA, "attention.max_alibi_bias", 8.0),
        (LLAMA, "logit_scale", 0.0625),
        (LLAMA, "final_logit_softcapping", 30.0),
        (LLAMA, "attn_logit_softcapping", 50.0),
        (LLAMA, "rope.scaling.yarn_log_multiplier", 0.1),
        (LLAMA, "rope.scaling.yarn_attn_factor", 1.5),
        (LLAMA, "rope.scaling.attn_factor", 1.5),
        (LLAMA, "rope.scaling.type", "longrope"),
        (LLAMA, "rope.scaling.type", "dynamic"),
        (LLAMA, "rope.dimension_sections", np.array([16, 24, 24, 0])),
        (LLAMA, "rope.freq_base_swa", 5e5),
        (LLAMA, "hidden_activation", "relu2"),
        (LLAMA, "use_parallel_residual", True),
        (LLAMA, "expert_count", ["many"]),
        ("qwen3", "attention.shared_kv_layers", 2),
        (GEMMA3, "attn_logit_softcapping", 50.0),
        (GEMMA3, "attention.sliding_window_pattern", 3),
        (GEMMA3, "attention.sliding_window_pattern", np.array([True] * 7)),
        (GEMMA3, "rope.dimension_count_swa", 8),
        ("gemma2", "attention.key_length_swa", 16),
        ("olmo2", "attention.sliding_window", 4096),
        ("glm4", "nextn_predict_layers", 1),
        ("granite", "rope.scaling.finetuned", False),
        ("granite", "expert_count", 8),
        ("qwen35", "ssm.inner_size", 96),
        ("granitemoe", "expert_gating_func", 2),
        ("granitemoe", "expert_group_count", 2),
        ("granitemoe", "expert_weights_norm", False),
        ("olmoe", "expert_weights_norm", True),
        ("olmoe", "attention.clamp_kqv", 8.0),
        ("lfm2", "attention.sliding_window", 4096),
        ("lfm2", "attention.head_count_kv", np.array([0, 2, 4])),
        ("qwen3", "attention.head_count_kv", np.array([0, 2, 2])),
    ],
)
def test_a_setting_that_changes_the_answers_and_is_not_followed_is_named(
    headers: Callable[[str], GGUFHeader], model: str, key: str, value: object
) -> None:
    header = headers(model)
    architecture = header.metadata["general.architecture"]
    with pytest.raises(GGUFError, match=rf"{architecture}\.{key} = .* Its answers would be wrong") as refused:
        described(header, {f"{architecture}.{key}": value})
    check_sentence(str(refused.value))


@pytest.mark.parametrize(
    ("model", "settings"),
    [
        (
            LLAMA,
            {
                "expert_count": 0, "expert_used_count": 0, "attention.causal": True, "attention.value_length": 16,
                "attention.scale": 0.25, "attention.sliding_window": 4096, "logit_scale": 1.0, "vocab_size": 32000,
                "final_logit_softcapping": 0.0, "rope.scaling.type": "none", "rope.scaling.attn_factor": 1.0,
                "tensor_data_layout": "Meta AI original pth", "hidden_activation": "silu", "pooling_type": 3,
                "rope.scaling.finetuned": False, "rope.freq_base_swa": 10000.0, "use_parallel_residual": False,
                "some.setting.of.tomorrow": 7,
            },
        ),
        (
            "qwen2",
            {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0, "rope.scaling.yarn_ext_factor": 1.0,
             "rope.scaling.yarn_attn_factor": 1.0, "rope.scaling.original_context_length": 32768},
        ),
        (GEMMA3, {"attention.sliding_window_pattern": 6, "hidden_activation": "gelu_pytorch_tanh"}),
        (GEMMA3, {"attention.sliding_window_pattern": np.array([*[True] * 5, False, True])}),
        ("gemma2", {"attention.sliding_window_pattern": 2, "attn_logit_softcapping": 50.0}),
        ("phi3", {"rope.scaling.attn_factor": 1.19, "attention.sliding_window": 262144}),
        ("granite", {"ssm.state_size": 128, "ssm.conv_kernel": 4, "rope.scaling.finetuned": True, "expert_count": 0}),
    ],
    ids=["llama", "qwen2", "gemma3", "gemma3 layer by layer", "gemma2", "phi3", "granite"],
)  # fmt: skip
def test_settings_that_change_nothing_are_no_obstacle(
    headers: Callable[[str], GGUFHeader], model: str, settings: dict[str, Any]
) -> None:
    header = headers(model)
    architecture = header.metadata["general.architecture"]
    described(header, {f"{architecture}.{key}": value for key, value in settings.items()})


def test_a_factor_without_a_type_stretches_linearly_as_in_llama_cpp(headers: Callable[[str], GGUFHeader]) -> None:
    header = headers(LLAMA)

    def rope(**settings: Any) -> object:
        changes = {f"llama.rope.scaling.{key}": value for key, value in settings.items()}
        return config_from_gguf(replace(header, metadata={**header.metadata, **changes})).rope

    assert rope(factor=4.0) == rope(type="linear", factor=4.0) != rope()


@pytest.mark.parametrize("change", [-1, 1])
def test_the_vocabulary_has_a_token_for_each_row_of_the_embedding(
    headers: Callable[[str], GGUFHeader], change: int
) -> None:
    header = headers("qwen2")
    tokens = [*header.metadata["tokenizer.ggml.tokens"], "one more"][: 259 + change]
    with pytest.raises(GGUFError, match=f"has {259 + change} tokens, but an embedding of 259 rows"):
        described(header, {"tokenizer.ggml.tokens": tokens})


# --- sentences ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    ["\x1b]0;owned\x07" * 20_000, ["x" * 50_000] * 4, np.arange(1 << 16), 10**4000],
    ids=["text", "texts", "numbers", "number"],
)
def test_no_sentence_shows_a_long_value_in_full_or_a_control_character(
    headers: Callable[[str], GGUFHeader], value: object
) -> None:
    header = headers(GEMMA3)
    refused = 0
    for key in sorted(metadata(QUANTIZED[GEMMA3])):
        changed = {**header.metadata, key: value}
        try:
            config, _ = describe_model(replace(header, metadata=changed))
            assert len(config.name) <= 80
            check_sentence(f"The model is called {config.name}.")
            tokenizer = tokenizer_from_gguf(changed)
            ChatTemplate.from_gguf(changed, tokenizer, native_renderer())
        except OPEN as error:
            refused += 1
            check_sentence(str(error))
    assert refused > 15


def test_parts_of_a_model_that_count_with_something_else_than_numbers_are_refused(tmp_path: Path) -> None:
    for key in ("split.count", "split.tensors.count"):
        for value in (np.arange(3), "x" * 2000, 1.5):
            path = QUANTIZED["qwen2"].write(tmp_path / "x.gguf", {key: value})
            with pytest.raises(GGUFError, match=rf"{key} is .*, not a number") as refused:
                asyncio.run(read_header(FileSource(path)))
            check_sentence(str(refused.value))


@pytest.mark.parametrize(
    "size", [10**400, 1 << 60, True, float("inf"), float("nan"), 1.5, -1, "9", None], ids=lambda size: str(size)[:9]
)
def test_a_size_that_no_file_has_is_not_taken_from_the_hub(size: object) -> None:
    sizes = {"a.gguf": size, "b.gguf": 7}
    listed = [{"path": path, "size": size, "lfs": {"oid": "0" * 64}} for path, size in sizes.items()]
    assert list(_files(json.dumps(listed).encode(), "no list")) == ["b.gguf"]


@pytest.mark.parametrize(
    "told", ["9" * 401, "9" * 5000, "-1", "1e3", "many"], ids=lambda told: told[:5] + str(len(told))
)
def test_a_length_that_no_file_has_is_refused(told: str) -> None:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", told)
            self.end_headers()

        def log_message(self, *words: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.handle_request, daemon=True)
        thread.start()
        with pytest.raises(SourceError, match="a length that no file has"):
            open_range(f"http://127.0.0.1:{server.server_port}/x.gguf", 0, None)
        thread.join()
