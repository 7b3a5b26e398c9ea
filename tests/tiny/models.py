"""Writes tiny models of every architecture as GGUF files, as llama.cpp's converter would, from random numbers.

Weights are uniform, not normal: a uniform number needs no logarithm, so every machine draws the same bytes.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from py_core.formats.gguf_writer import write_gguf
from py_core.formats.quantization import FORMATS, BlockFormat, dequantize, quantize
from py_core.tokenizers.byte_bpe import BYTE_TO_CHAR

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
BYTES = b" \n" + bytes(range(0x21, 0x100)) + bytes(byte for byte in range(0x20) if byte != 0x0A)
"""In the order in which they get ids after SPECIAL: a small vocabulary has the first of them."""
ALL_BYTES = len(SPECIAL) + len(BYTES)
"""A vocabulary in which every text can be spelled."""

POSITIONS = 72
"""More than a page of keys and values holds, and than a window."""
CONTEXT = 256
"""The value of most files; more is a stretch."""

GAIN = 1.5
"""A matrix turns numbers of variance 1 into numbers of standard deviation GAIN, so that attention is selective and
layers matter."""

NORMAL, CONTROL, UNUSED = 1, 3, 5
"""Token types."""

PERMUTED = ("llama", "llada", "smollm3", "granite", "granitemoe")
"""Architectures whose q and k rows the converter reorders, so that neighbours rotate."""

BIASED = ("a2d-qwen2", "dream", "qwen2")
"""Architectures whose q, k and v have biases."""

MIXTURES = {
    "granitemoe": ("block_sparse_moe", "router", "num_local_experts"),
    "olmoe": ("mlp", "gate", "num_experts"),
}
"""By architecture: the module of a block's experts and that of its router in `transformers`, and the key of their
number."""


@dataclass(frozen=True)
class Variant:
    """`architecture` is GGUF's name, `transformers` that of its classes ("Llama": LlamaConfig).

    `config` is a config.json's, in the names of `transformers`; the file's tensors and metadata follow from it.
    `metadata` are keys of the file, without the architecture's name, that do not follow from `config`. `context` is the
    context with which a backend is opened. `padding` is the number of tokens at the end of the vocabulary without text.

    Matrices have `format`, those in `formats` (by "attn_q", "output") another; norms and biases are F32, unless
    `formats` sets another for a norm. `biased` are the matrices with a bias if `config` does not say. The larger the
    `embedding_spread` (a standard deviation), the more a model with tied embeddings repeats itself. `diffusion`: the
    places of a block, 0 for all, and whether logits are shifted; the first token is the mask.
    """

    name: str
    architecture: str
    transformers: str
    config: Mapping[str, Any]
    metadata: Mapping[str, Any] = field(default_factory=dict)
    format: str = "F32"
    formats: Mapping[str, str] = field(default_factory=dict)
    biased: Collection[str] | None = None
    fused_qkv: bool = False
    padding: int = 0
    seed: int = 0
    embedding_spread: float = 1.0
    diffusion: tuple[int, bool] | None = None
    positions: int = POSITIONS
    context: int = CONTEXT

    def changed(self, name: str | None = None, **config: Any) -> Variant:
        """The same under another name, with other settings of config.json."""
        return Variant(**{**vars(self), "name": name or self.name, "config": {**self.config, **config}})

    def write(self, path: Path, changes: Mapping[str, Any] | None = None) -> Path:
        """`changes` are other values of the file's metadata; None leaves a key out."""
        tensors = {name: (rows, _form(self, name, rows.ndim)) for name, rows in file_tensors(self).items()}
        values = {**metadata(self), **(changes or {})}
        write_gguf(path, {key: value for key, value in values.items() if value is not None}, tensors)
        return path


@dataclass(frozen=True)
class Tensor:
    """A tensor's name in `transformers` and in the file. `spread` is the standard deviation, around 0."""

    name: str
    gguf_name: str
    shape: tuple[int, ...]
    spread: float
    norm: bool = False

    @property
    def is_matrix(self) -> bool:
        return len(self.shape) > 1


def _form(variant: Variant, gguf_name: str, dimensions: int) -> BlockFormat:
    floats = dimensions == 1 or gguf_name.endswith(("conv.weight", "conv1d.weight", "ffn_gate_inp.weight"))
    other = "F32" if floats else variant.format
    return FORMATS[variant.formats.get(gguf_name.removesuffix(".weight").split(".")[-1], other)]


def head_size(variant: Variant) -> int:
    c = variant.config
    return c.get("head_dim", c["hidden_size"] // c["num_attention_heads"])


@dataclass(frozen=True)
class Kind:
    """The differences between the layers of Gemma 4."""

    head: int
    kv_heads: int
    ffn: int
    is_local: bool
    has_kv: bool
    has_v: bool


def gemma4_layer(variant: Variant, layer: int) -> Kind:
    c = variant.config
    local, has_kv = c["layer_types"][layer] == "sliding_attention", layer < _own_layers(variant)
    same = c.get("attention_k_eq_v", False) and not local
    return Kind(
        head=c["head_dim"] if local else c["global_head_dim"],
        kv_heads=c["num_global_key_value_heads"] if same else c["num_key_value_heads"],
        ffn=c["intermediate_size"] * (2 if c.get("use_double_wide_mlp") and not has_kv else 1),
        is_local=local,
        has_kv=has_kv,
        has_v=has_kv and not same,
    )


def _own_layers(variant: Variant) -> int:
    return variant.config["num_hidden_layers"] - variant.config.get("num_kv_shared_layers", 0)


def tensors(variant: Variant) -> Iterator[Tensor]:
    """The tensors of `transformers` for this model, in the order in which the numbers are drawn."""
    c, architecture = variant.config, variant.architecture
    gemma = architecture in ("gemma2", "gemma3", "gemma4")
    per_layer = c.get("hidden_size_per_layer_input", 0)
    hidden, ffn, head = c["hidden_size"], c["intermediate_size"], head_size(variant)
    q, kv = c["num_attention_heads"] * head, c["num_key_value_heads"] * head

    def norm(name: str, gguf_name: str, width: int = hidden) -> Tensor:
        return Tensor(f"{name}.weight", f"{gguf_name}.weight", (width,), 0.3, norm=True)

    def linear(name: str, gguf_name: str, shape: tuple[int, int], bias: bool) -> Iterator[Tensor]:
        yield Tensor(f"{name}.weight", f"{gguf_name}.weight", shape, GAIN / math.sqrt(shape[1]))
        if bias if variant.biased is None else gguf_name.split(".")[-1] in variant.biased:
            yield Tensor(f"{name}.bias", f"{gguf_name}.bias", shape[:1], 0.7)

    # Gemma multiplies its embeddings by sqrt(hidden), here 8: so they are smaller by that factor, and the logits, too.
    spread = variant.embedding_spread * (0.25 if gemma else 1)
    yield Tensor("model.embed_tokens.weight", "token_embd.weight", (c["vocab_size"], hidden), spread)
    if per_layer:
        inputs = c["num_hidden_layers"] * per_layer
        name, shape = "model.embed_tokens_per_layer.weight", (c["vocab_size"], inputs)
        yield Tensor(name, "per_layer_token_embd.weight", shape, 1 / math.sqrt(per_layer))
        yield from linear("model.per_layer_model_projection", "per_layer_model_proj", (inputs, hidden), False)
        yield norm("model.per_layer_projection_norm", "per_layer_proj_norm", per_layer)
    for layer in range(c["num_hidden_layers"]):
        block, file_block = f"model.layers.{layer}", f"blk.{layer}"
        if architecture == "lfm2":
            yield norm(f"{block}.operator_norm", f"{file_block}.attn_norm")
            if c["layer_types"][layer] == "conv":
                mixer, taps = f"{block}.conv", c["conv_L_cache"]
                yield from linear(f"{mixer}.in_proj", f"{file_block}.shortconv.in_proj", (3 * hidden, hidden), False)
                yield Tensor(f"{mixer}.conv.weight", f"{file_block}.shortconv.conv.weight", (hidden, 1, taps), 0.7)
                yield from linear(f"{mixer}.out_proj", f"{file_block}.shortconv.out_proj", (hidden, hidden), False)
            else:
                mixer = f"{block}.self_attn"
                for part, width in (("q", q), ("k", kv), ("v", kv)):
                    yield from linear(f"{mixer}.{part}_proj", f"{file_block}.attn_{part}", (width, hidden), False)
                yield norm(f"{mixer}.q_layernorm", f"{file_block}.attn_q_norm", head)
                yield norm(f"{mixer}.k_layernorm", f"{file_block}.attn_k_norm", head)
                yield from linear(f"{mixer}.out_proj", f"{file_block}.attn_output", (hidden, q), False)
            yield norm(f"{block}.ffn_norm", f"{file_block}.ffn_norm")
            for part, name, shape in (
                ("w1", "ffn_gate", (ffn, hidden)), ("w3", "ffn_up", (ffn, hidden)), ("w2", "ffn_down", (hidden, ffn)),
            ):  # fmt: skip
                yield from linear(f"{block}.feed_forward.{part}", f"{file_block}.{name}", shape, False)
            continue
        attention, mlp = f"{block}.self_attn", f"{block}.mlp"
        if architecture == "qwen35":
            yield norm(f"{block}.input_layernorm", f"{file_block}.attn_norm")
            if c["layer_types"][layer] == "linear_attention":
                mixer, taps = f"{block}.linear_attn", c["linear_conv_kernel_dim"]
                keys, heads, size = (
                    c[f"linear_{name}"] for name in ("num_key_heads", "num_value_heads", "key_head_dim")
                )
                width = (2 * keys + heads) * size
                yield Tensor(f"{mixer}.dt_bias", f"{file_block}.ssm_dt.bias", (heads,), 1.5)
                yield Tensor(f"{mixer}.A_log", f"{file_block}.ssm_a", (heads,), 1.0)
                yield Tensor(f"{mixer}.conv1d.weight", f"{file_block}.ssm_conv1d.weight", (width, 1, taps), 0.7)
                yield norm(f"{mixer}.norm", f"{file_block}.ssm_norm", size)
                for part, name, rows in (
                    ("qkv", "attn_qkv", width), ("z", "attn_gate", heads * size), ("b", "ssm_beta", heads),
                    ("a", "ssm_alpha", heads),
                ):  # fmt: skip
                    yield from linear(f"{mixer}.in_proj_{part}", f"{file_block}.{name}", (rows, hidden), False)
                yield from linear(f"{mixer}.out_proj", f"{file_block}.ssm_out", (hidden, heads * size), False)
            else:
                for part, width in (("q", 2 * q), ("k", kv), ("v", kv)):
                    yield from linear(f"{attention}.{part}_proj", f"{file_block}.attn_{part}", (width, hidden), False)
                yield norm(f"{attention}.q_norm", f"{file_block}.attn_q_norm", head)
                yield norm(f"{attention}.k_norm", f"{file_block}.attn_k_norm", head)
                yield from linear(f"{attention}.o_proj", f"{file_block}.attn_output", (hidden, q), False)
            yield norm(f"{block}.post_attention_layernorm", f"{file_block}.post_attention_norm")
            for part, shape in (("gate", (ffn, hidden)), ("up", (ffn, hidden)), ("down", (hidden, ffn))):
                yield from linear(f"{mlp}.{part}_proj", f"{file_block}.ffn_{part}", shape, False)
            continue
        parts = "qkv"
        if architecture == "gemma4":
            kind = gemma4_layer(variant, layer)
            head, ffn, q, kv = kind.head, kind.ffn, c["num_attention_heads"] * kind.head, kind.kv_heads * kind.head
            parts = "q" + "k" * kind.has_kv + "v" * kind.has_v
        biased = c.get("attention_bias", False)
        if architecture != "olmo2":
            yield norm(f"{block}.input_layernorm", f"{file_block}.attn_norm")
        if architecture == "phi3":
            yield from linear(f"{attention}.qkv_proj", f"{file_block}.attn_qkv", (q + 2 * kv, hidden), False)
        else:
            for part, width in zip(parts, (q, kv, kv), strict=False):
                name, has_bias = f"{file_block}.attn_{part}", biased or architecture in BIASED
                yield from linear(f"{attention}.{part}_proj", name, (width, hidden), has_bias)
        if architecture in ("a2d-qwen3", "qwen3", "gemma3", "gemma4"):
            for part in "qk" if "k" in parts else "q":
                yield norm(f"{attention}.{part}_norm", f"{file_block}.attn_{part}_norm", head)
        if architecture in ("olmo2", "olmoe"):
            yield norm(f"{attention}.q_norm", f"{file_block}.attn_q_norm", q)
            yield norm(f"{attention}.k_norm", f"{file_block}.attn_k_norm", kv)
        biased = biased and architecture != "glm4"
        yield from linear(f"{attention}.o_proj", f"{file_block}.attn_output", (hidden, q), biased)
        if architecture == "glm4":
            yield norm(f"{block}.post_self_attn_layernorm", f"{file_block}.post_attention_norm")
        if gemma or architecture == "olmo2":
            yield norm(f"{block}.post_attention_layernorm", f"{file_block}.post_attention_norm")
        if gemma:
            yield norm(f"{block}.pre_feedforward_layernorm", f"{file_block}.ffn_norm")
        elif architecture != "olmo2":
            yield norm(f"{block}.post_attention_layernorm", f"{file_block}.ffn_norm")
        biased = c.get("mlp_bias", False)
        if architecture in MIXTURES:
            moe, router, key = MIXTURES[architecture]
            moe, count = f"{block}.{moe}", c[key]
            yield from linear(f"{moe}.{router}", f"{file_block}.ffn_gate_inp", (count, hidden), False)
            for part, name, shape in (
                ("gate_up", "ffn_gate_up_exps", (count, 2 * ffn, hidden)),
                ("down", "ffn_down_exps", (count, hidden, ffn)),
            ):  # fmt: skip
                spread = GAIN / math.sqrt(shape[2])
                yield Tensor(f"{moe}.experts.{part}_proj", f"{file_block}.{name}.weight", shape, spread)
            continue
        if architecture in ("phi3", "glm4"):
            yield from linear(f"{mlp}.gate_up_proj", f"{file_block}.ffn_up", (2 * ffn, hidden), False)
        else:
            yield from linear(f"{mlp}.gate_proj", f"{file_block}.ffn_gate", (ffn, hidden), biased)
            yield from linear(f"{mlp}.up_proj", f"{file_block}.ffn_up", (ffn, hidden), biased)
        yield from linear(f"{mlp}.down_proj", f"{file_block}.ffn_down", (hidden, ffn), biased)
        if gemma or architecture == "olmo2":
            yield norm(f"{block}.post_feedforward_layernorm", f"{file_block}.post_ffw_norm")
            if per_layer:
                name, shape = f"{block}.per_layer_input_gate", (per_layer, hidden)
                yield from linear(name, f"{file_block}.inp_gate", shape, False)
                yield from linear(f"{block}.per_layer_projection", f"{file_block}.proj", shape[::-1], False)
                yield norm(f"{block}.post_per_layer_input_norm", f"{file_block}.post_norm")
            if architecture == "gemma4":
                yield Tensor(f"{block}.layer_scalar", f"{file_block}.layer_output_scale.weight", (1,), 0.3, norm=True)
        elif architecture == "glm4":
            yield norm(f"{block}.post_mlp_layernorm", f"{file_block}.post_ffw_norm")
    yield (
        norm("model.embedding_norm", "token_embd_norm") if architecture == "lfm2" else norm("model.norm", "output_norm")
    )
    if not c["tie_word_embeddings"]:
        yield from linear("lm_head", "output", (c["vocab_size"], hidden), False)


def drawn(variant: Variant) -> dict[str, np.ndarray]:
    """float32 by their names in `transformers`."""
    rng = np.random.default_rng(variant.seed)
    numbers = {}
    for tensor in tensors(variant):
        values = (2 * rng.random(tensor.shape) - 1) * math.sqrt(3) * tensor.spread
        if tensor.norm and not from_one(variant, tensor):
            values += 1
        if tensor.name.endswith("A_log"):
            values -= 2  # so that rows are remembered for some time
        # Gemma 4 does not divide its scores by sqrt(head size), here 4.
        if variant.architecture == "gemma4" and tensor.name.endswith("q_norm.weight"):
            values /= 4
        numbers[tensor.name] = values.astype(np.float32)
    return numbers


def from_one(variant: Variant, tensor: Tensor) -> bool:
    """True if `transformers` has the distance of this norm's weights from 1."""
    qwen35 = variant.architecture == "qwen35" and not tensor.name.endswith("linear_attn.norm.weight")
    return tensor.norm and (variant.architecture in ("gemma2", "gemma3") or qwen35)


def weights(variant: Variant) -> dict[str, np.ndarray]:
    """The random numbers, rounded by the file's formats."""
    rounded = drawn(variant)
    for tensor in tensors(variant):
        if tensor.is_matrix:
            form = _form(variant, tensor.gguf_name, len(tensor.shape))
            rounded[tensor.name] = dequantize(quantize(rounded[tensor.name], form), form, tensor.shape)
    return rounded


def neighbours_rotate(rows: np.ndarray, heads: int) -> np.ndarray:
    """The rows of q or k reordered: a head's row i and its row i + half become neighbours."""
    half = len(rows) // heads // 2
    return rows.reshape(heads, 2, half, -1).swapaxes(1, 2).reshape(rows.shape)


def rope_tensors(variant: Variant) -> dict[str, np.ndarray]:
    """The factors by which frequencies are divided, if a file holds them as tensors: float32 (pairs,)."""
    parameters = variant.config["rope_parameters"]
    kind = parameters.get("rope_type")
    if variant.architecture == "gemma4":
        half = variant.config["global_head_dim"] // 2
        turning = int(half * parameters["full_attention"]["partial_rotary_factor"])
        return {"rope_freqs.weight": np.array([1.0] * turning + [1e30] * (half - turning), np.float32)}
    if kind == "longrope":
        return {
            f"rope_factors_{which}.weight": np.array(parameters[f"{which}_factor"], np.float32)
            for which in ("long", "short")
        }
    if kind != "llama3":
        return {}
    # Section "Long Context" of The Llama 3 Herd of Models (arXiv 2407.21783), in the words of its configuration.
    low, high = parameters["low_freq_factor"], parameters["high_freq_factor"]
    factors = []
    for pair in range(head_size(variant) // 2):
        wavelength = 2 * math.pi * parameters["rope_theta"] ** (2 * pair / head_size(variant))
        turns = parameters["original_max_position_embeddings"] / wavelength
        kept = min(max((turns - low) / (high - low), 0.0), 1.0)
        factors.append(1 / ((1 - kept) / parameters["factor"] + kept))
    return {"rope_freqs.weight": np.array(factors, np.float32)}


def metadata(variant: Variant) -> dict[str, Any]:
    """The metadata that llama.cpp's converter writes, and no more: much must be known about the architecture."""
    c, architecture = variant.config, variant.architecture
    rope = c["rope_parameters"]
    rope = rope.get("full_attention", rope)
    values: dict[str, Any] = {
        "context_length": c["max_position_embeddings"],
        "embedding_length": c["hidden_size"],
        "block_count": c["num_hidden_layers"],
        "feed_forward_length": c["intermediate_size"],
        "attention.head_count": c["num_attention_heads"],
        "attention.head_count_kv": c["num_key_value_heads"],
        "attention.layer_norm_rms_epsilon": c["norm_eps" if architecture == "lfm2" else "rms_norm_eps"],
    }
    if architecture == "lfm2":
        kinds = c["layer_types"]
        heads = np.array([0 if kind == "conv" else c["num_key_value_heads"] for kind in kinds], np.int32)
        values |= {
            "attention.head_count_kv": heads,
            "vocab_size": c["vocab_size"],
            "shortconv.l_cache": c["conv_L_cache"],
        }
    if architecture == "qwen35":
        kinds, sections = c["layer_types"], [*rope.get("mrope_section", (11, 11, 10)), 0]
        values |= {
            "rope.dimension_sections": np.array(sections, np.int32),
            "rope.dimension_count": int(head_size(variant) * rope["partial_rotary_factor"]),
            "ssm.conv_kernel": c["linear_conv_kernel_dim"],
            "ssm.state_size": c["linear_key_head_dim"],
            "ssm.group_count": c["linear_num_key_heads"],
            "ssm.time_step_rank": c["linear_num_value_heads"],
            "ssm.inner_size": c["linear_num_value_heads"] * c["linear_value_head_dim"],
            "full_attention_interval": 4,
        }
        if guessing := variant.metadata.get("nextn_predict_layers", 0):
            values["block_count"] += guessing
        if kinds != [kinds[0]] * 3 + ["full_attention"]:
            listed = [kind == "linear_attention" for kind in kinds] + [False] * guessing
            values["attention.recurrent_layers"] = np.array(listed)
    if architecture in MIXTURES:
        values |= {"expert_count": c[MIXTURES[architecture][2]], "expert_used_count": c["num_experts_per_tok"]}
    if architecture == "gemma4":
        kinds4 = [gemma4_layer(variant, layer) for layer in range(c["num_hidden_layers"])]
        sizes = {"": c["global_head_dim"], "_swa": c["head_dim"]}
        values |= {f"attention.{part}_length{kind}": size for part in ("key", "value") for kind, size in sizes.items()}
        values |= {f"rope.dimension_count{kind}": size for kind, size in sizes.items()}
        values |= {
            "attention.shared_kv_layers": c.get("num_kv_shared_layers", 0),
            "embedding_length_per_layer_input": c["hidden_size_per_layer_input"],
            "attention.sliding_window_pattern": np.array([kind.is_local for kind in kinds4]),
            "rope.freq_base_swa": c["rope_parameters"]["sliding_attention"]["rope_theta"],
        }
        if c.get("use_double_wide_mlp"):
            values["feed_forward_length"] = np.array([kind.ffn for kind in kinds4], np.int32)
        if c.get("num_global_key_value_heads"):
            values["attention.head_count_kv"] = np.array([kind.kv_heads for kind in kinds4], np.int32)
    elif "head_dim" in c:
        values |= {"attention.key_length": c["head_dim"], "attention.value_length": c["head_dim"]}
    if architecture != "gemma2":
        values["rope.freq_base"] = rope["rope_theta"]
    if architecture in PERMUTED:
        values |= {"vocab_size": c["vocab_size"], "rope.dimension_count": head_size(variant)}
    if architecture == "glm4":
        values["rope.dimension_count"] = int(head_size(variant) * rope["partial_rotary_factor"])
    if architecture == "phi3":
        original = c["original_max_position_embeddings"]
        values["rope.dimension_count"] = int(head_size(variant) * rope.get("partial_rotary_factor", 1.0))
        values["rope.scaling.original_context_length"] = original
        if rope["rope_type"] == "longrope":
            stretched = math.log(c["max_position_embeddings"] / original) / math.log(original)
            values["rope.scaling.attn_factor"] = math.sqrt(1 + stretched)
    if rope["rope_type"] in ("linear", "yarn"):
        values |= {"rope.scaling.type": rope["rope_type"], "rope.scaling.factor": rope["factor"]}
    if rope["rope_type"] == "yarn":
        values["rope.scaling.original_context_length"] = rope["original_max_position_embeddings"]
    if c.get("sliding_window") and "sliding_attention" in c.get("layer_types", ["sliding_attention"]):
        values["attention.sliding_window"] = c["sliding_window"]
    for cap in ("attn_logit_softcapping", "final_logit_softcapping"):
        if cap in c:
            values[cap] = c[cap]
    multipliers = {
        "embedding_scale": "embedding_multiplier",
        "residual_scale": "residual_multiplier",
        "attention.scale": "attention_multiplier",
        "logit_scale": "logits_scaling",
    }
    values |= {key: c[name] for key, name in multipliers.items() if name in c}
    values |= variant.metadata
    return {
        "general.architecture": architecture,
        "general.name": variant.name,
        **{f"{architecture}.{key}": value for key, value in values.items()},
        **tokenizer(variant),
        **diffusion(variant),
    }


def diffusion(variant: Variant) -> dict[str, Any]:
    """The keys of a model of diffusion."""
    if variant.diffusion is None:
        return {}
    block, shifted = variant.diffusion
    return {
        f"{variant.architecture}.attention.causal": False,
        "tokenizer.ggml.mask_token_id": 0,
        "diffusion.block_size": block,
        "diffusion.shift_logits": shifted,
    }


def tokenizer(variant: Variant) -> dict[str, Any]:
    """A byte-level vocabulary; a small one lacks most bytes; the last `padding` tokens have no text."""
    real = variant.config["vocab_size"] - variant.padding
    tokens = [*SPECIAL, *(BYTE_TO_CHAR[byte] for byte in BYTES)][:real]
    tokens += [f"[PAD{number}]" for number in range(real, variant.config["vocab_size"])]
    types = [CONTROL] * len(SPECIAL) + [NORMAL] * (real - len(SPECIAL)) + [UNUSED] * variant.padding
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.merges": [],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.chat_template": CHATML,
    }


def file_tensors(variant: Variant) -> dict[str, np.ndarray]:
    """The tensors by their names in the file, as the converter lays them out, not yet rounded: float32."""
    values, out = drawn(variant), {}
    heads = {"attn_q": variant.config["num_attention_heads"], "attn_k": variant.config["num_key_value_heads"]}
    for tensor in tensors(variant):
        rows = values[tensor.name]
        part = tensor.gguf_name.split(".")[-2]
        if part in ("conv", "ssm_conv1d"):
            rows = rows.reshape(len(rows), -1)
        if variant.architecture == "qwen35":
            rows = _heads_by_place(variant, tensor.name, rows)
            rows = -np.exp(rows) if tensor.name.endswith("A_log") else rows
        if variant.architecture in PERMUTED and part in heads:
            rows = neighbours_rotate(rows, heads[part])
        if from_one(variant, tensor):
            rows = rows + np.float32(1)
        out[tensor.gguf_name] = rows
        if part == "ffn_gate_up_exps":
            both = out.pop(tensor.gguf_name)
            for one, half in zip(("gate", "up"), np.split(both, 2, axis=1), strict=True):
                out[tensor.gguf_name.replace("gate_up", one)] = np.ascontiguousarray(half)
        if variant.fused_qkv and part == "attn_v":
            block, kind = tensor.gguf_name.split("attn_v")
            out[f"{block}attn_qkv{kind}"] = np.concatenate([out.pop(f"{block}attn_{one}{kind}") for one in "qkv"])
    if variant.metadata.get("nextn_predict_layers"):
        hidden, block = variant.config["hidden_size"], f"blk.{variant.config['num_hidden_layers']}"
        out |= {f"{block}.nextn.eh_proj.weight": np.zeros((hidden, 2 * hidden), np.float32)}
    return out | rope_tensors(variant)


def _heads_by_place(variant: Variant, name: str, rows: np.ndarray) -> np.ndarray:
    """The heads of v in Qwen 3.5's delta rules, in a file: first the first one of each head of k, then the second ones.
    In `transformers` all heads of v of a head of k lie together."""
    c = variant.config
    keys, heads = c["linear_num_key_heads"], c["linear_num_value_heads"]
    if "linear_attn" not in name or name.endswith("norm.weight"):
        return rows
    if name.endswith("out_proj.weight"):
        return np.ascontiguousarray(_heads_by_place(variant, "linear_attn", np.ascontiguousarray(rows.T)).T)
    first = 2 * keys * c["linear_key_head_dim"] if "qkv" in name or "conv1d" in name else 0
    grouped = rows[first:].reshape(keys, heads // keys, -1, *rows.shape[1:])
    return np.concatenate([rows[:first], grouped.swapaxes(0, 1).reshape(rows[first:].shape)])
