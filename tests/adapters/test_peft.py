"""Adapters that PEFT trained on models in `transformers` give the same logits here, and ours do there."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from py_core.adapters.files import export_peft, read_adapter
from py_core.adapters.lora import AdapterError, LoraAdapter
from py_core.backends.numpy.backend import load_numpy
from py_core.formats.gguf import read_header
from py_core.formats.safetensors import read_safetensors, write_safetensors
from py_core.formats.source import FileSource
from py_core.models.transformers_names import transformers_module
from tests.adapters.adapter_models import described, drawn, same
from tests.adapters.peft_cases import CASES, LAST, Case
from tests.backends.backend_pairs import cosine

EXPECTED = Path(__file__).parent / "expected"
ARCHITECTURES = Path(__file__).parents[1] / "models" / "architectures" / "expected"


def files(name: str) -> tuple[bytes, bytes]:
    """adapter_model.safetensors and adapter_config.json, as PEFT wrote them."""
    folder = EXPECTED / name
    return (folder / "adapter_model.safetensors").read_bytes(), (folder / "adapter_config.json").read_bytes()


def peft_adapter(name: str, **changes: object) -> LoraAdapter:
    """`changes` are other values of adapter_config.json."""
    weights, settings = files(name)
    changed = json.dumps({**json.loads(settings), **changes}).encode()
    return read_adapter(weights, *described(name), peft_config=changed, name=name)


async def logits(case: Case, adapter: LoraAdapter, folder: Path) -> np.ndarray:
    """Logits of the last positions of the case's tokens, on the reference backend."""
    with np.load(ARCHITECTURES / f"{case.variant.name}.npz") as recorded:
        ids = recorded["ids"].tolist()
    source = FileSource(case.variant.write(folder / "tiny.gguf"))
    config, graph = described(case.variant.name)
    backend = await load_numpy(source, await read_header(source), config, graph, None)
    sequence = backend.new_sequence()
    backend.use_adapter(sequence, await backend.add_adapter(adapter))
    await backend.prefill(sequence, ids)
    return await backend.last_logits(sequence, LAST)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
async def test_an_adapter_of_peft_gives_the_logits_of_transformers(case: Case, tmp_path: Path) -> None:
    with np.load(EXPECTED / case.variant.name / "logits.npz") as recorded:
        ours = await logits(case, peft_adapter(case.variant.name), tmp_path)
        assert min(map(cosine, ours, recorded["theirs"])) > 0.9999


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
async def test_an_adapter_of_ours_gives_the_same_logits_in_peft(case: Case, tmp_path: Path) -> None:
    """make_expected.py loaded its export into PEFT."""
    with np.load(EXPECTED / case.variant.name / "logits.npz") as recorded:
        adapter = drawn(described(case.variant.name)[1], 5, rank=2)
        assert min(map(cosine, await logits(case, adapter, tmp_path), recorded["ours"])) > 0.9999


def products(arrays: dict[str, np.ndarray], settings: dict[str, object]) -> dict[str, np.ndarray]:
    """The change of each module's weights, as PEFT computes it from the files."""
    found = {}
    for name, a in arrays.items():
        if ".lora_A." not in name:
            continue
        module = name.removeprefix("base_model.model.").removesuffix(".lora_A.weight")
        rank = settings["rank_pattern"].get(get_pattern_key(settings["rank_pattern"], module), settings["r"])
        alpha = settings["alpha_pattern"].get(
            get_pattern_key(settings["alpha_pattern"], module), settings["lora_alpha"]
        )
        assert rank == len(a)
        scale = alpha / (rank**0.5 if settings["use_rslora"] else rank)
        found[module] = scale * arrays[name.replace("lora_A", "lora_B")].astype(np.float64) @ a.astype(np.float64)
    return found


def get_pattern_key(patterns: dict[str, float], module: str) -> str:
    """As the function of the same name in PEFT."""
    return next((key for key in patterns if re.match(rf"(.*\.)?({key})$", module)), module)


@pytest.mark.parametrize("name", CASES)
def test_what_is_exported_is_what_peft_saved(name: str) -> None:
    weights, settings = files(name)
    exported = export_peft(peft_adapter(name), *described(name), "some/model")
    ours, theirs = json.loads(exported["adapter_config.json"]), json.loads(settings)
    assert set(ours) <= set(theirs)
    written, _ = read_safetensors(exported["adapter_model.safetensors"])
    saved, _ = read_safetensors(weights)
    assert {tensor: values.shape for tensor, values in written.items()} == {
        tensor: values.shape for tensor, values in saved.items()
    }
    if name != "llama-fused-qkv":  # in which q and v have the same scale
        for tensor, values in written.items():
            np.testing.assert_array_equal(values, saved[tensor].astype(np.float32), err_msg=tensor)
    expected = products(saved, theirs)
    for module, product in products(written, ours).items():
        np.testing.assert_allclose(product, expected[module], rtol=1e-5, atol=1e-5 * np.abs(product).max())


def test_fan_in_fan_out_says_nothing_about_the_adapters_own_matrices() -> None:
    same(peft_adapter("qwen2", fan_in_fan_out=True), peft_adapter("qwen2"))


def test_rank_stabilized_adapters_are_divided_by_the_root_of_their_rank() -> None:
    plain, stabilized = (peft_adapter("mistral", use_rslora=one) for one in (False, True))
    for name, pair in plain.pairs.items():
        np.testing.assert_allclose(stabilized.pairs[name].scale, pair.scale * 3**0.5, rtol=1e-6)


SCALES = {
    "a name that ends so": ({"q_proj": 9}, {"blk.0.attn_q": 4.5, "blk.3.attn_q": 4.5, "blk.0.attn_v": 2.0}),
    "one module": ({"model.layers.1.self_attn.q_proj": 9}, {"blk.1.attn_q": 4.5, "blk.0.attn_q": 2.0}),
    "the first that matches": ({"q_proj": 9, "self_attn.q_proj": 7}, {"blk.0.attn_q": 4.5}),
    "part of a word is no match": ({"proj": 9, "_proj": 9, "layers.0": 9}, {"blk.0.attn_q": 2.0}),
    "layers by number": ({r"layers\.(1|2)\..*": 9}, {"blk.1.attn_q": 4.5, "blk.2.attn_v": 4.5, "blk.3.attn_q": 2.0}),
    "anchors": ({"^model.layers.0.self_attn.v_proj$": 9, "^q_proj": 9}, {"blk.0.attn_v": 4.5, "blk.1.attn_v": 2.0}),
}


@pytest.mark.parametrize("case", SCALES)
def test_alpha_patterns_are_read_as_peft_reads_them(case: str) -> None:
    patterns, scales = SCALES[case]
    adapter = peft_adapter("qwen2", alpha_pattern=patterns)
    for module, scale in scales.items():
        assert adapter.pairs[f"{module}.weight"].scale == scale
        theirs = transformers_module(module, "qwen2")
        assert patterns.get(get_pattern_key(patterns, theirs), 4) / 2 == scale


REFUSED = {
    "DoRA": ({"use_dora": True}, "has DoRA, which also scales"),
    "biases": ({"bias": "lora_only"}, "has trained biases"),
    "biases of LoRA": ({"lora_bias": True}, "has biases of LoRA"),
    "whole modules": ({"modules_to_save": ["lm_head"]}, "has whole modules besides LoRA"),
    "tokens": ({"trainable_token_indices": [1, 2]}, "has embeddings of tokens"),
    "an invocation": ({"alora_invocation_tokens": [1]}, "has activated LoRA"),
    "repeated layers": ({"layer_replication": [[0, 2], [1, 3]]}, "has repeated layers"),
    "a variant to come": ({"use_other": True}, "has use_other, a variant of LoRA"),
    "another method": ({"peft_type": "IA3"}, "is of the type 'IA3'; Sonata reads adapters of the type 'LORA'"),
    "no method": ({"peft_type": None}, "is of the type None"),
    "another base": ({"init_lora_weights": "pissa_niter_4"}, "a base whose weights 'pissa_niter_4' had changed"),
    "no alpha": ({"lora_alpha": None}, "lora_alpha is None"),
    "an alpha that is not a number": ({"lora_alpha": float("nan")}, "lora_alpha is nan"),
    "an endless alpha": ({"lora_alpha": 10**400}, "lora_alpha is a number of"),
    "a huge alpha": ({"lora_alpha": 1e8}, "The adapter multiplies by 50000000.0"),
    "a list of alphas": ({"alpha_pattern": [1]}, "alpha_pattern has another type"),
    "a costly pattern": ({"alpha_pattern": {"(a+)+(b+)+(c+)+": 1}}, "Write the names"),
    "many groups": ({"alpha_pattern": {"(l|l)(a|a)(y|y)": 1}}, "Write the names"),
    "a long pattern": ({"alpha_pattern": {"a" * 201: 1}}, "Write the names"),
    "a broken pattern": ({"alpha_pattern": {"(a": 1}}, "Write the names"),
    "many patterns": ({"alpha_pattern": {f"m{i}": 1 for i in range(2001)}}, "has 2001 names"),
    "a text": ({"use_rslora": "yes"}, "use_rslora or alpha_pattern has another type"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_not_plain_lora_is_refused_with_a_sentence(case: str) -> None:
    changes, words = REFUSED[case]
    with pytest.raises(AdapterError, match=words):
        peft_adapter("qwen2", **changes)


A, B = (f"base_model.model.model.layers.0.self_attn.q_proj.lora_{half}.weight" for half in "AB")
TENSORS = {
    "DoRA": ({A.replace("lora_A", "lora_magnitude_vector"): np.ones(4)}, "has DoRA"),
    "an embedding": ({"base_model.model.model.embed_tokens.lora_embedding_A": np.ones((2, 64))}, "on the embedding"),
    "the output matrix": ({"base_model.model.lm_head.lora_A.weight": np.ones((2, 64))}, "linears of a model's blocks"),
    "a norm": ({"base_model.model.model.norm.lora_A.weight": np.ones((2, 64))}, "the linears of a model's blocks"),
    "a bias": ({"base_model.model.model.layers.0.self_attn.q_proj.bias": np.ones(64)}, "has trained biases"),
    "a whole module": ({"base_model.model.lm_head.weight": np.ones((128, 64))}, "has whole modules"),
    "a named adapter": ({A.replace("lora_A", "lora_A.mine"): np.ones((2, 64))}, "has several adapters"),
    "another layer": ({A.replace(".0.", ".4."): np.ones((2, 64))}, "which this model of qwen2 does not have"),
    "another module": ({A.replace("q_proj", "qkv_proj"): np.ones((2, 64))}, "which this model of qwen2 does not have"),
    "one half": ({A.replace("q_proj", "k_proj"): np.ones((2, 64))}, r"no lora_B for 'model.layers.0.self_attn.k_proj'"),
    "the other half": ({B.replace("q_proj", "k_proj"): np.ones((32, 2))}, "no lora_A for"),
    "twice": ({A.replace("model.model", "model"): np.ones((2, 64))}, "twice"),
    "a wide A": ({A: np.ones((2, 65))}, r"of \(2, 65\) and \(64, 2\) for"),
    "a tall B": ({B: np.ones((65, 2))}, r"of \(2, 64\) and \(65, 2\) for"),
    "two ranks": ({A: np.ones((3, 64))}, r"of \(3, 64\) and \(64, 2\) for"),
    "no rank": ({A: np.ones((0, 64)), B: np.ones((64, 0))}, "the training saved empty matrices"),
    "an empty B": ({B: np.ones(0)}, "the training saved empty matrices"),
    "another trainer's names": ({A.replace("lora_A", "lora_down"): np.ones((2, 64))}, "names that are not PEFT's"),
    "MLX": ({"model.layers.0.self_attn.q_proj.lora_a": np.ones((64, 2))}, "in the format of MLX"),
    "a huge rank": ({A: np.ones((1025, 64)), B: np.ones((64, 1025))}, "has rank 1025"),
    "no matrix": ({A: np.ones(64)}, r"of \(64,\) and"),
    "whole numbers": ({A: np.ones((2, 64), np.int8)}, "of the type I8; Sonata reads F32, F16, BF16, F64"),
    "NaN": ({A: np.full((2, 64), np.nan)}, "not finite"),
    "an infinity": ({B: np.full((64, 2), -np.inf, np.float16)}, "not finite"),
    "what float32 cannot hold": ({B: np.full((64, 2), 1e300)}, "not finite"),
}  # fmt: skip


@pytest.mark.parametrize("case", TENSORS)
def test_tensors_that_do_not_belong_to_the_model_are_refused_with_a_sentence(case: str) -> None:
    changes, words = TENSORS[case]
    weights, settings = files("qwen2")
    stored, _ = read_safetensors(weights)
    with pytest.raises(AdapterError, match=words):
        read_adapter(write_safetensors({**stored, **changes}), *described("qwen2"), peft_config=settings)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (b"", "it is not a JSON object"),
        (b"[" * 100_000, "it is not a JSON object"),
        (b"[]", "it is not a JSON object"),
        (b" " * (1 << 20), "it has 1048576 bytes"),
        (b"\xff", "it is not a JSON object"),
        (b'{"fine_tune_type": "lora", "lora_parameters": {"rank": 8}}', "in the format of MLX"),
    ],
)
def test_settings_that_are_not_pefts_are_refused(settings: bytes, words: str) -> None:
    with pytest.raises(AdapterError, match=words):
        read_adapter(files("qwen2")[0], *described("qwen2"), peft_config=settings)


def test_settings_that_are_null_say_nothing() -> None:
    same(peft_adapter("qwen2", bias=None, use_rslora=None), peft_adapter("qwen2"))


def test_the_weights_alone_are_refused() -> None:
    with pytest.raises(AdapterError, match=r"give the folder that also has adapter_config\.json"):
        read_adapter(files("qwen2")[0], *described("qwen2"))


@pytest.mark.parametrize("begin", [b"PK\x03\x04" + bytes(26) + b"adapter_model/data.pkl", b"\x80\x02\x8a\nl\xfc\x9cF"])
def test_pytorchs_format_is_named(begin: bytes) -> None:
    with pytest.raises(AdapterError, match="save it with safe_serialization=True"):
        read_adapter(begin + bytes(900), *described("qwen2"), peft_config=files("qwen2")[1])


WRAPPED = {
    "the adapter's name": lambda name: name.replace(".weight", ".default.weight"),
    "another name": lambda name: name.replace(".weight", ".my adapter-2.weight"),
    "no prefix": lambda name: name.removeprefix("base_model.model."),
    "Lightning": lambda name: "model." + name,
    "a head for rewards": lambda name: "module.pretrained_model." + name,
    "twice in PEFT": lambda name: "base_model.model." + name,
    "torch.compile": lambda name: "_orig_mod." + name,
    "a compiled layer": lambda name: name.replace(".self_attn", "._orig_mod.self_attn"),
    "FSDP": lambda name: re.sub(r"(model\.model|q_proj)\.", r"\1._fsdp_wrapped_module.", name),
    "several": lambda name: "module._orig_mod." + re.sub(r"\.(?=self_attn)", "._checkpoint_wrapped_module.", name),
}


@pytest.mark.parametrize("case", WRAPPED)
def test_names_are_read_through_wrappers(case: str) -> None:
    weights, settings = files("qwen2")
    stored, _ = read_safetensors(weights)
    wrapped = write_safetensors({WRAPPED[case](name): one for name, one in stored.items()})
    same(read_adapter(wrapped, *described("qwen2"), peft_config=settings, name="qwen2"), peft_adapter("qwen2"))


def test_names_inside_a_model_of_text_and_images_are_found() -> None:
    weights, settings = files("gemma3")
    stored, _ = read_safetensors(weights)
    inside = {
        name.replace("model.model.layers", "model.model.language_model.layers"): one for name, one in stored.items()
    }
    read = read_adapter(write_safetensors(inside), *described("gemma3"), peft_config=settings, name="gemma3")
    same(read, peft_adapter("gemma3"))
