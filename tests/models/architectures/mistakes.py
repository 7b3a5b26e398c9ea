"""Mistakes that a reader of these files may make: make_expected.py shows that each of them would be noticed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.models.architectures.variants import FULL, LOCAL, WINDOW
from tests.tiny.models import BIASED, MIXTURES, PERMUTED, Variant, neighbours_rotate

Weights = dict[str, np.ndarray]

POST_NORMS = ("post_attention_layernorm", "post_feedforward_layernorm")

LEFT_OUT = 0.99
"""If a feature is left out, some position's logits have a smaller cosine than this."""

NEAR_MISS = 0.999
"""The same for a small error, such as a window that is off by one position. The tests require 0.9999."""


@dataclass(frozen=True)
class Mistake:
    """Another configuration, other weights, or skipped modules: modules whose names end this way pass their input
    on. block: how many positions see each other."""

    what: str
    config: Mapping[str, Any] = field(default_factory=dict)
    weights: Callable[[Weights], Weights] = lambda weights: weights
    skipped: str | None = None
    block: int | None = None
    below: float = LEFT_OUT


def mistakes(variant: Variant) -> list[Mistake]:
    """The mistakes that `variant` exists to catch, and those that its architecture invites."""
    c, architecture = variant.config, variant.architecture
    rope = c["rope_parameters"]
    epsilon = "norm_eps" if architecture == "lfm2" else "rms_norm_eps"
    found = [Mistake("another epsilon", config={epsilon: 1e-5}, below=NEAR_MISS)]
    if architecture in (*PERMUTED, "glm4"):
        found.append(Mistake("halves rotate", weights=lambda w: _reordered(variant, w, neighbours_rotate)))
    elif architecture != "phi3":
        found.append(Mistake("neighbours rotate", weights=lambda w: _reordered(variant, w, _halves_rotate)))
    if rope.get("rope_type") in ("linear", "llama3", "yarn", "longrope"):
        found += _of_scaling(rope)
    biases = [name for name in ("q", "k", "v", "o") if c.get("attention_bias")]
    biases = [name for name in biases if (name, architecture) != ("o", "glm4")]
    biases += ["gate", "up", "down"] if c.get("mlp_bias") else []
    biases += ["q", "k", "v"] if architecture in BIASED else []
    found += [Mistake(f"no bias of {part}", weights=_zeroed(f"{part}_proj.bias")) for part in biases]
    if architecture == "qwen35":
        found += _of_delta_rules(variant)
    if variant.diffusion is not None:
        block, _ = variant.diffusion
        found.append(Mistake("no row sees another behind it", block=1))
        found.append(Mistake("another block", block=2 * block or 8))
    if architecture in ("a2d-qwen3", "qwen3", "gemma3", "gemma4", "olmo2", "olmoe", "qwen35"):
        found += [Mistake(f"no norm of {part}", skipped=f"{part}_norm") for part in "qk"]
    if architecture == "olmo2":
        found += [Mistake(f"no {name}", skipped=name) for name in POST_NORMS]
    if architecture == "glm4":
        names = ("post_self_attn_layernorm", "post_mlp_layernorm")
        found += [Mistake(f"no {name}", skipped=name) for name in names]
    if not c["tie_word_embeddings"]:
        found.append(Mistake("the embedding as output matrix", config={"tie_word_embeddings": True}))
    if architecture == "phi3" or variant.name == "mistral":
        found.append(Mistake("a window", config={"sliding_window": WINDOW}))
    if architecture in ("granite", "granitemoe"):
        names = ("embedding_multiplier", "residual_multiplier")
        found += [Mistake(f"no {name}", config={name: 1.0}) for name in names]
        found.append(Mistake("attention's usual scale", config={"attention_multiplier": 0.25}))
    if architecture in MIXTURES:
        found += [
            Mistake("one expert less", config={"num_experts_per_tok": c["num_experts_per_tok"] - 1}),
            Mistake("up above gate", weights=_experts("gate_up_proj", lambda w: np.roll(w, w.shape[1] // 2, axis=1))),
            Mistake("experts in another order", weights=_experts("down_proj", lambda w: w[::-1])),
        ]
    if architecture == "olmoe":
        found.append(Mistake("shares that sum up to 1", config={"norm_topk_prob": True}))
    if architecture == "lfm2":
        found += [Mistake(f"no norm of {part}", skipped=f"{part}_layernorm") for part in "qk"]
        found += [
            Mistake("no last norm", skipped="embedding_norm"),
            Mistake("the taps of a convolution backwards", weights=_taps(lambda taps: taps[..., ::-1])),
            Mistake("no first tap", weights=_taps(lambda taps: taps * (np.arange(taps.shape[-1]) > 0))),
            Mistake("the gate is not the second third", weights=_rolled("in_proj.weight", 3)),
        ]
    if architecture in ("phi3", "glm4"):
        found += [Mistake("up above gate", weights=_rolled("gate_up_proj.weight", 2)), *_of_partial_rope(rope)]
    if architecture in ("gemma2", "gemma3"):
        found += _of_gemma(variant)
    if architecture == "gemma4":
        found += _of_gemma4(variant)
    if architecture == "smollm3":
        layers = range(c["num_hidden_layers"])
        found += [
            Mistake("rope in every layer", config={"no_rope_layers": [1 for _ in layers]}),
            Mistake("no rope in layers 0 and 4", config={"no_rope_layers": [int(layer % 4 > 0) for layer in layers]}),
        ]
    return found


def _of_delta_rules(variant: Variant) -> list[Mistake]:
    """The mistakes of a reader of Qwen 3.5."""
    c = variant.config
    heads = c["linear_num_value_heads"]
    found = [
        Mistake("norms without the 1", weights=lambda w: {
            k: v - 1 if "norm" in k and "linear_attn" not in k else v for k, v in w.items()
        }),
        Mistake("the norm of a delta rule has a 1 added", weights=_changed("linear_attn.norm.weight", lambda w: w + 1)),
        Mistake("no bias of alpha", weights=_zeroed("dt_bias")),
        Mistake("the rate is not an exponential", weights=_changed("A_log", lambda w: np.log(np.abs(w)))),
        Mistake("alpha is beta", weights=lambda w: {
            k: w[k.replace("in_proj_a", "in_proj_b")] if "in_proj_a" in k else v for k, v in w.items()
        }),
        Mistake("the taps of a convolution backwards", weights=_changed("conv1d.weight", lambda w: w[..., ::-1])),
        Mistake("v comes first", weights=_rolled("in_proj_qkv.weight", 4)),
        Mistake("gates above queries", weights=_changed("q_proj.weight", lambda w: np.roll(w, c["head_dim"], axis=0))),
        Mistake("gates below all queries", weights=_changed("q_proj.weight", lambda w: w.reshape(
            2, -1, c["head_dim"], w.shape[1]).swapaxes(0, 1).reshape(w.shape))),
        *_of_partial_rope(c["rope_parameters"]),
    ]  # fmt: skip
    if heads > c["linear_num_key_heads"]:

        def other(w: np.ndarray) -> np.ndarray:
            return w.reshape(2, -1, *w.shape[1:]).swapaxes(0, 1).reshape(w.shape)

        found.append(Mistake("heads in another order", weights=_changed("A_log", other)))
    return found


def _changed(ending: str, change: Callable[[np.ndarray], np.ndarray]) -> Callable[[Weights], Weights]:
    return lambda weights: {
        name: np.ascontiguousarray(change(values)) if name.endswith(ending) else values
        for name, values in weights.items()
    }


def _of_scaling(rope: Mapping[str, Any]) -> list[Mistake]:
    def other(**values: Any) -> dict[str, Any]:
        return {"rope_parameters": {**rope, **values}}

    plain = {name: rope[name] for name in ("rope_theta", "partial_rotary_factor") if name in rope}
    found = [Mistake("rope without scaling", config={"rope_parameters": {"rope_type": "default", **plain}})]
    if rope["rope_type"] == "yarn":
        found += [
            Mistake("linear scaling instead", config=other(rope_type="linear")),
            Mistake("cos and sin are not scaled", config=other(attention_factor=1.0)),
            Mistake("beta is 32 and 2", config=other(beta_slow=2.0), below=NEAR_MISS),
        ]
    if rope["rope_type"] == "longrope":
        swapped = other(short_factor=rope["long_factor"], long_factor=rope["short_factor"])
        found += [
            Mistake("the other context's factors", config=swapped),
            Mistake("cos and sin are not scaled", config=other(attention_factor=1.0)),
        ]
    return found


def _of_partial_rope(rope: Mapping[str, Any]) -> list[Mistake]:
    if rope["rope_type"] != "default" or "partial_rotary_factor" not in rope:
        return []
    return [Mistake("all of the head rotates", config={"rope_parameters": {**rope, "partial_rotary_factor": 1.0}})]


def _of_gemma(variant: Variant) -> list[Mistake]:
    c = variant.config
    layers = range(c["num_hidden_layers"])
    full, local = "full_attention", "sliding_attention"
    scale = 48 - c["query_pre_attn_scalar"]
    found = [
        Mistake("norms without the 1", weights=lambda w: {k: v - 1 if "norm" in k else v for k, v in w.items()}),
        Mistake("embeddings are not scaled", config={"tie_word_embeddings": False}, weights=_unscaled),
        Mistake("scale of attention from the wrong size", config={"query_pre_attn_scalar": scale}),
        Mistake("SiLU instead of GELU", config={"hidden_activation": "silu"}),
        *(Mistake(f"no {name}", skipped=name) for name in POST_NORMS),
    ]
    if "layer_types" not in c:
        every = 2 if variant.architecture == "gemma2" else 6
        shifted = [full if layer % every == 0 else local for layer in layers]
        found += [
            Mistake("no window", config={"sliding_window": c["max_position_embeddings"]}),
            Mistake("the window in every layer", config={"layer_types": [local for _ in layers]}),
            Mistake("global layers begin with 0", config={"layer_types": shifted}),
            Mistake("the window is one longer", config={"sliding_window": WINDOW + 1}, below=NEAR_MISS),
            Mistake("the window is one shorter", config={"sliding_window": WINDOW - 1}, below=NEAR_MISS),
        ]
    else:
        windows = {"layer_types": [local if (layer + 1) % 6 else full for layer in layers]}
        found.append(Mistake("windows of the architecture", config=windows))
    for cap in ("attn_logit_softcapping", "final_logit_softcapping"):
        if cap in c:
            found.append(Mistake(f"no {cap}", config={cap: None}))
    if variant.architecture == "gemma3" and "layer_types" not in c:
        found += _of_two_ropes(c["rope_parameters"])
    return found


def _of_gemma4(variant: Variant) -> list[Mistake]:
    c = variant.config
    ropes, half = c["rope_parameters"], np.float32(0.5)
    whole = {**ropes, FULL: {**ropes[FULL], "partial_rotary_factor": 1.0}}
    found = [
        Mistake("embeddings are not scaled", config={"tie_word_embeddings": False}, weights=_unscaled),
        Mistake("SiLU instead of GELU", config={"hidden_activation": "silu"}),
        *(Mistake(f"no {name}", skipped=name) for name in (*POST_NORMS, "v_norm")),
        Mistake("attention is scaled", weights=_times("q_norm.weight", half)),
        Mistake("no numbers of layers", weights=lambda w: {k: v**0 if "scalar" in k else v for k, v in w.items()}),
        Mistake("no window", config={"sliding_window": c["max_position_embeddings"]}),
        Mistake("the window is one longer", config={"sliding_window": WINDOW + 1}, below=NEAR_MISS),
        Mistake("the window is one shorter", config={"sliding_window": WINDOW - 1}, below=NEAR_MISS),
        Mistake("no final_logit_softcapping", config={"final_logit_softcapping": None}),
        Mistake("all of the head rotates", config={"rope_parameters": whole}),
        Mistake(
            "base 10000 in local layers",
            config={"rope_parameters": {**ropes, LOCAL: {**ropes[LOCAL], "rope_theta": 1e4}}},
        ),
    ]
    if c["hidden_size_per_layer_input"]:
        layers = c["num_hidden_layers"]
        found += [
            Mistake("no post_per_layer_input_norm", skipped="post_per_layer_input_norm"),
            Mistake("no per_layer_projection_norm", skipped="per_layer_projection_norm"),
            Mistake("no embeddings of layers", weights=_zeroed("embed_tokens_per_layer.weight")),
            Mistake("embeddings of layers are not scaled", weights=_times("embed_tokens_per_layer.weight", half**2)),
            Mistake("no projection for layers", weights=_zeroed("per_layer_model_projection.weight")),
            Mistake("another layer's inputs", weights=lambda w: {
                name: np.roll(values, 1 if "embed" in name else len(values) // layers, axis=1 if "embed" in name else 0)
                if "_per_layer." in name or "per_layer_model" in name else values
                for name, values in w.items()
            }),
        ]  # fmt: skip
    return found


def _times(ending: str, factor: np.float32) -> Callable[[Weights], Weights]:
    return lambda weights: {
        name: values * factor if name.endswith(ending) else values for name, values in weights.items()
    }


def _of_two_ropes(ropes: Mapping[str, Any]) -> list[Mistake]:
    both = ("full_attention", "sliding_attention")
    found = [
        Mistake(f"the rope of {one} everywhere", config={"rope_parameters": dict.fromkeys(both, ropes[one])})
        for one in both
    ]
    if ropes["full_attention"]["rope_type"] == "linear":
        scaling = {"rope_type": "linear", "factor": ropes["full_attention"]["factor"]}
        plain = {"rope_type": "default", "rope_theta": ropes["full_attention"]["rope_theta"]}
        local = ropes["sliding_attention"]
        found += [
            Mistake("no scaling", config={"rope_parameters": {**ropes, "full_attention": plain}}),
            Mistake("scaling of local layers, too", config={
                "rope_parameters": {**ropes, "sliding_attention": {**local, **scaling}}
            }),
            Mistake("base 10000 in local layers", config={
                "rope_parameters": {**ropes, "sliding_attention": {**local, "rope_theta": 10000.0}}
            }),
        ]  # fmt: skip
    return found


def _zeroed(ending: str) -> Callable[[Weights], Weights]:
    return lambda weights: {
        name: np.zeros_like(values) if name.endswith(ending) else values for name, values in weights.items()
    }


def _rolled(ending: str, parts: int) -> Callable[[Weights], Weights]:
    """The last of several stacked matrices comes first."""
    return lambda weights: {
        name: np.roll(values, len(values) // parts, axis=0) if name.endswith(ending) else values
        for name, values in weights.items()
    }


def _taps(change: Callable[[np.ndarray], np.ndarray]) -> Callable[[Weights], Weights]:
    return lambda weights: {
        name: np.ascontiguousarray(change(values), np.float32) if name.endswith("conv.conv.weight") else values
        for name, values in weights.items()
    }


def _experts(ending: str, change: Callable[[np.ndarray], np.ndarray]) -> Callable[[Weights], Weights]:
    return lambda weights: {
        name: np.ascontiguousarray(change(values)) if name.endswith(f"experts.{ending}") else values
        for name, values in weights.items()
    }


def _unscaled(weights: Weights) -> Weights:
    """Changes the embeddings only; the output matrix stays."""
    embedding = weights["model.embed_tokens.weight"]
    scaled = embedding / np.sqrt(embedding.shape[1], dtype=np.float32)
    return {**weights, "model.embed_tokens.weight": scaled, "lm_head.weight": embedding}


def _halves_rotate(rows: np.ndarray, heads: int) -> np.ndarray:
    """The opposite of `neighbours_rotate`."""
    return rows.reshape(heads, len(rows) // heads // 2, 2, -1).swapaxes(1, 2).reshape(rows.shape)


def _reordered(variant: Variant, weights: Weights, reorder: Callable[[np.ndarray, int], np.ndarray]) -> Weights:
    heads = {"q_proj": variant.config["num_attention_heads"], "k_proj": variant.config["num_key_value_heads"]}
    return {
        name: reorder(values, heads[part]) if (part := name.split(".")[-2]) in heads else values
        for name, values in weights.items()
    }
