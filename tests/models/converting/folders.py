"""Tiny models as Hugging Face's folders have them, one for each way in which such folders differ."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from py_core.formats.quantization import FORMATS, quantize
from py_core.tokenizers.byte_bpe import BYTE_TO_CHAR

TEMPLATE = "{% for message in messages %}<|im_start|>{{ message['content'] }}<|im_end|>{% endfor %}"
SIZES = {
    "vocab_size": 288, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 256, "rms_norm_eps": 1e-5, "tie_word_embeddings": False,
}  # fmt: skip

LETTERS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
LETTERS_AND_MARKS = r"[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+"
CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
OTHERS = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
CASED = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+%s"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*%s"
)
CASED_OTHERS = r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
PATTERNS = {
    "llama-bpe": f"{CONTRACTIONS}|{LETTERS}|\\p{{N}}{{1,3}}{OTHERS}",
    "qwen2": f"{CONTRACTIONS}|{LETTERS}|\\p{{N}}{OTHERS}",
    "qwen35": f"{CONTRACTIONS}|{LETTERS_AND_MARKS}|\\p{{N}}{OTHERS}".replace(r"[^\s\p{L}", r"[^\s\p{L}\p{M}"),
    "gpt-4o": CASED % (f"{CONTRACTIONS}?", f"{CONTRACTIONS}?") + r"|\p{N}{1,3}" + CASED_OTHERS,
    "tekken": CASED % ("", "") + r"|\p{N}" + CASED_OTHERS,
}
"""As in the tokenizer.json of Llama 3, Qwen 2, Qwen 3.5, Phi-4-mini and Mistral Nemo."""

MERGES = ["t h", "th e", "Ġ the", "i n", "Ġ w", "o r", "or d", "Ġw ord", "e r", "1 2", "12 3"]
SPM_MERGES = ["▁ t", "h e", "▁t he", "▁ w", "o r", "or d", "▁w ord", "e r"]
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def pre_tokenizer(rule: str) -> dict[str, Any]:
    byte_level = {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": rule in ("gpt-2", "smollm"),
    }
    if rule == "gpt-2":
        return byte_level
    first: dict[str, Any] = {"type": "Digits", "individual_digits": True}
    if rule != "smollm":
        pattern = PATTERNS[{"smaug-bpe": "llama-bpe"}.get(rule, rule)]
        first = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    return {"type": "Sequence", "pretokenizers": [first, byte_level]}


def added(index: int, content: str, special: bool = True, **more: Any) -> dict[str, Any]:
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return {"id": index, "content": content, "special": special} | flags | more


def byte_level(rule: str, adds_bos: bool = False) -> dict[str, Any]:
    """tokenizer.json of a byte-level BPE with special tokens first and an added token at the end."""
    texts = [*SPECIAL, *BYTE_TO_CHAR.values(), *(merge.replace(" ", "") for merge in MERGES)]
    bos = {"SpecialToken": {"id": SPECIAL[1], "type_id": 0}}
    words = {"Sequence": {"id": "A", "type_id": 0}}
    template = {
        "type": "TemplateProcessing", "single": [bos, words], "pair": [bos, words],
        "special_tokens": {SPECIAL[1]: {"id": SPECIAL[1], "ids": [1], "tokens": [SPECIAL[1]]}},
    }  # fmt: skip
    return {
        "version": "1.0", "truncation": None, "padding": None, "normalizer": None,
        "added_tokens": [*(added(i, text) for i, text in enumerate(SPECIAL)), added(len(texts), "<think>", False)],
        "pre_tokenizer": pre_tokenizer(rule),
        "post_processor": template if adds_bos else None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {
            "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
            "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
            "ignore_merges": rule in ("llama-bpe", "tekken"),
            "vocab": {text: i for i, text in enumerate(texts)}, "merges": MERGES,
        },
    }  # fmt: skip


def sentencepiece(prefix: bool, strips: bool = False) -> dict[str, Any]:
    """tokenizer.json of Llama 2 (prefix) or of Gemma, whose runs of spaces are user-defined tokens."""
    merged = [merge.replace(" ", "") for merge in SPM_MERGES]
    letters = ["▁", *"thewordin"]
    texts = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *merged, *dict.fromkeys(letters)]
    replace = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    prepend = {"type": "Prepend", "prepend": "▁"}
    specials = [added(i, text, rstrip=strips) for i, text in enumerate(texts[:3])]
    return {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [*specials, added(len(texts), "▁▁", False)],
        "normalizer": {"type": "Sequence", "normalizers": [prepend, replace]} if prefix else replace,
        "pre_tokenizer": None, "post_processor": None,
        "decoder": {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"}]},
        "model": {
            "type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None,
            "end_of_word_suffix": None, "fuse_unk": True, "byte_fallback": True, "ignore_merges": False,
            "vocab": {text: i for i, text in enumerate(texts)}, "merges": SPM_MERGES,
        },
    }  # fmt: skip


BYTE_CONFIG = {"bos_token": SPECIAL[1], "eos_token": SPECIAL[2], "chat_template": TEMPLATE,
               "tokenizer_class": "GPT2Tokenizer"}  # fmt: skip
SPM_CONFIG = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "add_bos_token": True,
              "tokenizer_class": "LlamaTokenizer"}  # fmt: skip


@dataclass(frozen=True)
class Folder:
    """A model's folder. `shards` is the number of its safetensors files, `prefix` precedes its tensors' names."""

    name: str
    config: Mapping[str, Any]
    tokenizer: Mapping[str, Any]
    tokenizer_config: Mapping[str, Any] = field(default_factory=lambda: BYTE_CONFIG)
    dtype: str = "F32"
    shards: int = 1
    prefix: str = "model."
    biases: tuple[str, ...] = ()
    head_norms: bool = False

    unused: tuple[str, ...] = ()
    """Tensors of other parts of the model."""

    @property
    def rule(self) -> str:
        """GGUF's name of the pre-tokenizer."""
        for rule in (*PATTERNS, "gpt-2", "smollm", "smaug-bpe"):
            if self.tokenizer in (byte_level(rule), byte_level(rule, adds_bos=True)):
                return rule
        return "default"

    def write(self, folder: Path) -> Path:
        folder = folder / self.name
        folder.mkdir(parents=True)
        for name, content in (
            ("config", self.config),
            ("tokenizer", self.tokenizer),
            ("tokenizer_config", self.tokenizer_config),
        ):
            (folder / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")
        weights = self.weights()
        groups = np.array_split(list(weights), self.shards)
        files = {f"model-{i + 1:05d}-of-{self.shards:05d}.safetensors": group for i, group in enumerate(groups)}
        if self.shards == 1:
            files = {"model.safetensors": groups[0]}
        else:
            index = {"metadata": {}, "weight_map": {str(name): file for file, group in files.items() for name in group}}
            (folder / "model.safetensors.index.json").write_text(json.dumps(index))
        for file, group in files.items():
            write_shard(folder / file, {str(name): weights[str(name)] for name in group}, self.dtype)
        return folder

    def weights(self) -> dict[str, np.ndarray]:
        """Random float32 by their names; every number fits into the folder's type."""
        usual = {"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "tie_word_embeddings": True}
        text = self.config.get("text_config")
        config = {**usual, **text, "architectures": self.config["architectures"]} if text else self.config
        heads, kv, hidden = config["num_attention_heads"], config["num_key_value_heads"], config["hidden_size"]
        head, ffn = config.get("head_dim", hidden // heads), config["intermediate_size"]
        shapes: dict[str, tuple[int, ...]] = {
            "embed_tokens.weight": (config["vocab_size"], hidden),
            "norm.weight": (hidden,),
        }
        families = ("Phi3", "Gemma", "Olmo2", "Lfm2", "Qwen3_5")
        phi, gemma, olmo2, lfm2, qwen35 = (family in config["architectures"][0] for family in families)
        if lfm2:
            shapes["embedding_norm.weight"] = shapes.pop("norm.weight")
        for layer in range(config["num_hidden_layers"]):
            if lfm2:
                shapes |= _lfm2_shapes(layer, config, head, heads, kv)
                continue
            if qwen35:
                shapes |= _qwen35_shapes(layer, config, head, heads, kv)
                continue
            parts: dict[str, tuple[int, ...]] = {
                "self_attn.o_proj": (hidden, heads * head),
                "mlp.down_proj": (hidden, ffn),
            }
            if phi:
                parts |= {
                    "self_attn.qkv_proj": ((heads + 2 * kv) * head, hidden),
                    "mlp.gate_up_proj": (2 * ffn, hidden),
                }
            else:
                parts |= {"self_attn.q_proj": (heads * head, hidden), "self_attn.k_proj": (kv * head, hidden),
                          "self_attn.v_proj": (kv * head, hidden), "mlp.gate_proj": (ffn, hidden),
                          "mlp.up_proj": (ffn, hidden)}  # fmt: skip
            if olmo2:
                parts |= {"self_attn.q_norm": (heads * head,), "self_attn.k_norm": (kv * head,)}
            if self.head_norms:
                parts |= {"self_attn.q_norm": (head,), "self_attn.k_norm": (head,)}
            norms = ["post_attention_layernorm"] if olmo2 else ["input_layernorm", "post_attention_layernorm"]
            norms += ["pre_feedforward_layernorm"] if gemma else []
            norms += ["post_feedforward_layernorm"] if gemma or olmo2 else []
            parts |= dict.fromkeys(norms, (hidden,))
            for name, shape in parts.items():
                shapes[f"layers.{layer}.{name}.weight"] = shape
                if name.rsplit(".", 1)[-1] in self.biases:
                    shapes[f"layers.{layer}.{name}.bias"] = shape[:1]
        names = {f"{self.prefix}{name}": shape for name, shape in shapes.items()}
        if not config["tie_word_embeddings"]:
            names["lm_head.weight"] = (config["vocab_size"], hidden)
        names |= dict.fromkeys(self.unused, (8, 8))
        rng = np.random.default_rng(len(self.name))
        return {name: rng.integers(-64, 64, shape).astype(np.float32) / 64 for name, shape in names.items()}


def _lfm2_shapes(layer: int, config: Mapping[str, Any], head: int, heads: int, kv: int) -> dict[str, tuple[int, ...]]:
    hidden, ffn = config["hidden_size"], 96  # two thirds of intermediate_size, rounded up
    parts: dict[str, tuple[int, ...]] = {
        "operator_norm": (hidden,), "ffn_norm": (hidden,), "feed_forward.w1": (ffn, hidden),
        "feed_forward.w2": (hidden, ffn), "feed_forward.w3": (ffn, hidden),
    }  # fmt: skip
    if config["layer_types"][layer] == "conv":
        parts |= {"conv.in_proj": (3 * hidden, hidden), "conv.conv": (hidden, 1, config["conv_L_cache"]),
                  "conv.out_proj": (hidden, hidden)}  # fmt: skip
    else:
        parts |= {
            f"self_attn.{part}_proj": (width * head, hidden) for part, width in (("q", heads), ("k", kv), ("v", kv))
        }
        parts |= {"self_attn.out_proj": (hidden, heads * head)}
        parts |= {f"self_attn.{part}_layernorm": (head,) for part in "qk"}
    return {f"layers.{layer}.{name}.weight": shape for name, shape in parts.items()}


def _qwen35_shapes(layer: int, config: Mapping[str, Any], head: int, heads: int, kv: int) -> dict[str, tuple[int, ...]]:
    hidden, ffn, every = config["hidden_size"], config["intermediate_size"], config["full_attention_interval"]
    found: dict[str, tuple[int, ...]] = {
        "input_layernorm.weight": (hidden,), "post_attention_layernorm.weight": (hidden,),
        "mlp.gate_proj.weight": (ffn, hidden), "mlp.up_proj.weight": (ffn, hidden),
        "mlp.down_proj.weight": (hidden, ffn),
    }  # fmt: skip
    if (layer + 1) % every:
        keys, values, size = (config[f"linear_{name}"] for name in ("num_key_heads", "num_value_heads", "key_head_dim"))
        width = (2 * keys + values) * size
        parts: dict[str, tuple[int, ...]] = {
            "in_proj_qkv.weight": (width, hidden), "in_proj_z.weight": (values * size, hidden),
            "in_proj_a.weight": (values, hidden), "in_proj_b.weight": (values, hidden),
            "conv1d.weight": (width, 1, config["linear_conv_kernel_dim"]), "norm.weight": (size,),
            "out_proj.weight": (hidden, values * size), "A_log": (values,), "dt_bias": (values,),
        }  # fmt: skip
        found |= {f"linear_attn.{name}": shape for name, shape in parts.items()}
    else:
        widths = {"q": 2 * heads * head, "k": kv * head, "v": kv * head}
        found |= {f"self_attn.{part}_proj.weight": (width, hidden) for part, width in widths.items()}
        found |= {"self_attn.o_proj.weight": (hidden, heads * head)}
        found |= {f"self_attn.{part}_norm.weight": (head,) for part in "qk"}
    return {f"layers.{layer}.{name}": shape for name, shape in found.items()}


def write_shard(path: Path, weights: Mapping[str, np.ndarray], dtype: str) -> None:
    """A safetensors file, of BF16 too, which numpy lacks."""
    header, parts, offset = {}, [], 0
    for name, values in weights.items():
        data = quantize(values, FORMATS[dtype])
        header[name] = {"dtype": dtype, "shape": list(values.shape), "data_offsets": [offset, offset + len(data)]}
        parts.append(data)
        offset += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(b"".join([struct.pack("<Q", len(text)), text, *parts]))


def architecture(name: str, **more: Any) -> dict[str, Any]:
    return {"architectures": [f"{name}ForCausalLM"], "model_type": name.lower(), **SIZES, **more}


FOLDERS = [
    Folder("llama", architecture("Llama", rope_theta=10000.0), byte_level("smollm")),
    Folder(
        "llama-3", dtype="BF16", shards=3, tokenizer=byte_level("llama-bpe", adds_bos=True),
        config=architecture("Llama", rope_theta=500000.0, tie_word_embeddings=True, rope_scaling={
            "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64}),
    ),
    Folder("llama-linear", architecture(
        "Llama", rope_theta=10000.0, rope_scaling={"type": "linear", "factor": 4.0}), byte_level("gpt-2")),
    Folder("llama-biases", architecture("Llama", rope_theta=10000.0, attention_bias=True),
           byte_level("smaug-bpe"), biases=("q_proj", "k_proj", "v_proj", "o_proj")),
    Folder("mistral", architecture("Mistral", head_dim=24, sliding_window=None, rope_parameters={
        "rope_type": "default", "rope_theta": 1e6}), sentencepiece(prefix=True), SPM_CONFIG, dtype="F16"),
    Folder("mistral-nemo", architecture("Mistral", head_dim=24, rope_theta=1e6), byte_level("tekken")),
    Folder("qwen2", architecture("Qwen2", rope_theta=1e6), byte_level("qwen2"), biases=("q_proj", "k_proj", "v_proj")),
    Folder("qwen2-yarn", architecture("Qwen2", rope_parameters={
        "rope_type": "yarn", "rope_theta": 1e6, "factor": 4.0, "original_max_position_embeddings": 64}),
        byte_level("qwen2"), biases=("q_proj", "k_proj", "v_proj")),
    Folder("qwen3", architecture("Qwen3", head_dim=24, rope_theta=1e6, tie_word_embeddings=True), byte_level("qwen2"),
           dtype="BF16", head_norms=True),
    Folder("phi-3", architecture("Phi3", rope_theta=10000.0, original_max_position_embeddings=256, sliding_window=47),
           sentencepiece(prefix=True, strips=True), SPM_CONFIG),
    Folder("phi-4-mini", architecture(
        "Phi3", rope_theta=10000.0, num_attention_heads=2, num_key_value_heads=1, partial_rotary_factor=0.75,
        original_max_position_embeddings=64, tie_word_embeddings=True, sliding_window=None, rope_scaling={
            "type": "longrope", "short_factor": [1 + i / 8 for i in range(12)],
            "long_factor": [1.5 + i / 2 for i in range(12)]}), byte_level("gpt-4o")),
    Folder("gemma-2", architecture(
        "Gemma2", head_dim=24, tie_word_embeddings=True, attn_logit_softcapping=50.0, final_logit_softcapping=30.0,
        sliding_window=16, query_pre_attn_scalar=24), sentencepiece(prefix=False), SPM_CONFIG),
    Folder("gemma-3", architecture(
        "Gemma3", model_type="gemma3_text", head_dim=24, tie_word_embeddings=True, sliding_window=16,
        sliding_window_pattern=6, rope_theta=1e6,
        rope_local_base_freq=10000.0, query_pre_attn_scalar=24, attn_logit_softcapping=None,
        final_logit_softcapping=None), sentencepiece(prefix=False), SPM_CONFIG, dtype="BF16", head_norms=True),
    # Like the larger ones: without its part for images, and without most of the settings, which have default values.
    Folder("gemma-3-vision", {
        "architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3", "text_config": {
            "model_type": "gemma3_text", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
            "vocab_size": 288, "sliding_window": 1024, "rope_scaling": {"rope_type": "linear", "factor": 8.0}}},
        sentencepiece(prefix=False), SPM_CONFIG, dtype="BF16", head_norms=True, prefix="language_model.model.",
        unused=("vision_tower.embedding.weight", "multi_modal_projector.norm.weight")),
    Folder("smollm-3", architecture("SmolLM3", rope_theta=5e6, tie_word_embeddings=True),
           byte_level("llama-bpe"), dtype="BF16"),
    Folder("olmo-2", architecture("Olmo2", rope_theta=500000.0, rope_scaling=None), byte_level("smaug-bpe")),
    Folder("granite-3", architecture(
        "Granite", rope_theta=10000.0, attention_multiplier=0.0625, embedding_multiplier=12.0,
        residual_multiplier=0.22, logits_scaling=8.0), byte_level("smollm"), dtype="BF16"),
    Folder("lfm-2", architecture(
        "Lfm2", rope_theta=1e6, tie_word_embeddings=True, norm_eps=1e-5, conv_L_cache=3, conv_bias=False,
        layer_types=["conv", "full_attention"], intermediate_size=140, block_auto_adjust_ff_dim=True,
        block_ffn_dim_multiplier=1.0, block_multiple_of=32), byte_level("llama-bpe", adds_bos=True), dtype="BF16"),
    # Like the published ones: a model of text and pictures, with a block that guesses further tokens.
    Folder("qwen-3.5", {
        "architectures": ["Qwen3_5ForConditionalGeneration"], "model_type": "qwen3_5", "tie_word_embeddings": True,
        "text_config": {
            **SIZES, "model_type": "qwen3_5_text", "tie_word_embeddings": True, "head_dim": 32,
            "num_attention_heads": 2, "num_key_value_heads": 1, "linear_num_key_heads": 2,
            "linear_num_value_heads": 4, "linear_key_head_dim": 16, "linear_value_head_dim": 16,
            "linear_conv_kernel_dim": 4, "full_attention_interval": 2,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25,
                                "mrope_section": [2, 1, 1], "mrope_interleaved": True}}},
        byte_level("qwen35"), dtype="BF16", prefix="model.language_model.",
        unused=("model.visual.patch_embed.proj.weight", "mtp.fc.weight")),
]  # fmt: skip
