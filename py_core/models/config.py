"""A model's sizes and settings, read from GGUF metadata under the names that Hugging Face configurations use."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from py_core.display import one_line, shown
from py_core.formats.gguf import GGUFError, GGUFHeader
from py_core.formats.quantization import dequantize
from py_core.formats.source import WeightSource
from py_core.limits import MAX_COUNTS, MAX_ROPE_BASE, MAX_STRETCH
from py_core.models import rotation
from py_core.models.diffusion import MOST_AT_ONCE, Diffusion, diffusion_of
from py_core.models.refusals import MIXTURES, check_settings, unsupported
from py_core.models.rotation import Rotation

ROPE_FREQS = "rope_freqs.weight"
ROPE_LONG, ROPE_SHORT = "rope_factors_long.weight", "rope_factors_short.weight"
ROPE_FACTORS = (ROPE_FREQS, ROPE_LONG, ROPE_SHORT)
"""Tensors that divide the frequencies of a rotation. They are read before the model is described."""

DEFAULT_CONTEXT = 8192
"""The default number of tokens of a sequence: keys and values of more would need more memory than most have."""

_WIDTH = "feed_forward_length"
_MOST_STRETCH = 64
"""The largest multiple of the trained context that may be asked for: beyond it, every model's output is nonsense."""

_PREFIX_BYTES = 64 << 20
"""A tensor that ends within this size is read with the header, so that the file's beginning is not read twice."""


@dataclass(frozen=True)
class ModelConfig:
    """Counts are from the file, except `context_length`: the most tokens that a sequence may have here.

    `sliding_window` is 0 if every layer attends to everything. `attention_softcap` and `logits_softcap` are 0 if
    nothing is capped. `local_rope` is the rotation in layers with a window, if it differs from `rope`. The multipliers
    and `logits_scaling` are 0 if the file has none. `conv_layers` have a convolution of `conv_taps` positions instead
    of attention. In Qwen 3.5 a delta rule follows it, with `key_heads` heads of q and k and `value_heads` heads of v,
    of `state_size` values each. `experts` is 0 if a layer has one MLP; otherwise each row uses `experts_used` of that
    many.

    `local_layers` are the layers with a window if the file says it, with `local_kv_heads` heads of `local_head_dim`
    values. `intermediate_sizes` are those of each layer if they differ. The last `shared_kv_layers` have no keys and
    values of their own. `per_layer_width`: the values of a token's additional embedding for each layer, or 0.
    `own_name`: the name that the file gives, "" for none; `name` may be changed to that of a kept model. `diffusion`:
    None if the model writes from left to right.
    """

    architecture: str
    name: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    rms_norm_eps: float
    max_position_embeddings: int
    context_length: int
    tie_word_embeddings: bool
    rope: Rotation
    local_rope: Rotation
    sliding_window: int = 0
    attention_softcap: float = 0.0
    logits_softcap: float = 0.0
    embedding_multiplier: float = 0.0
    residual_multiplier: float = 0.0
    attention_multiplier: float = 0.0
    logits_scaling: float = 0.0
    conv_layers: frozenset[int] = frozenset()
    conv_taps: int = 0
    key_heads: int = 0
    value_heads: int = 0
    state_size: int = 0
    experts: int = 0
    experts_used: int = 0
    local_layers: frozenset[int] = frozenset()
    local_head_dim: int = 0
    local_kv_heads: int = 0
    intermediate_sizes: tuple[int, ...] = ()
    shared_kv_layers: int = 0
    per_layer_width: int = 0
    own_name: str = ""
    diffusion: Diffusion | None = None

    @property
    def block(self) -> int:
        """How many positions see each other, from multiples of it on: 1 for a model that writes from left to right, 0
        if all do."""
        return self.diffusion.block if self.diffusion else 1

    def residual_at(self, depth: float) -> str:
        """The name of the tap by which `Runs.hidden` reads the residual at a share of the depth: 0.25 is after a
        quarter of the blocks, rounded up. Raises ValueError outside of 0 < depth <= 1."""
        if not 0 < depth <= 1:
            raise ValueError(f"The depth is {depth}, but must be over 0 and at most 1.")
        return f"residual.{math.ceil(depth * self.num_hidden_layers)}"


class _Settings:
    """The metadata with the architecture's prefix, checked."""

    def __init__(self, metadata: Mapping[str, Any]) -> None:
        self._metadata = metadata
        self.architecture: str = _get(metadata, "general.architecture", str)

    def integer(self, key: str, default: int | None = None, least: int = 1) -> int:
        return self._counted(key, self.get(key, int, default), least)

    def _counted(self, key: str, value: int, least: int) -> int:
        if not least <= value <= MAX_COUNTS[key]:
            raise self.damaged(key, value)
        return value

    def of_layers(self, key: str, layers: int, default: int | None = None) -> int:
        """A count that a file may give for each layer. It must be the same for all; other models are not supported."""
        values = self._listed(key, layers)
        if values is None:
            return self.integer(key, default)
        if (values != values[0]).any():
            raise unsupported(f"{self.architecture}.{key}", values)
        return self._counted(key, int(values[0]), least=1)

    def each_layer(self, key: str, layers: int, default: int | None = None) -> list[int]:
        """A count of each layer. The file has one number for all, or a list."""
        values = self._listed(key, layers)
        if values is None:
            return [self.integer(key, default)] * layers
        return [self._counted(key, int(value), least=1) for value in values]

    def _listed(self, key: str, layers: int) -> np.ndarray | None:
        values = self._metadata.get(f"{self.architecture}.{key}")
        listed = isinstance(values, np.ndarray) and values.dtype.kind in "iu" and values.shape == (layers,)
        return values if listed else None

    def local_layers(self, layers: int) -> frozenset[int]:
        """The layers with a window, of which a file of Gemma 4 has a list."""
        key = "attention.sliding_window_pattern"
        values = self._metadata.get(f"{self.architecture}.{key}")
        if not (isinstance(values, np.ndarray) and values.dtype.kind in "biu" and values.shape == (layers,)):
            raise self.damaged(key, values)
        return frozenset(np.flatnonzero(values).tolist())

    def kv_heads(self, layers: int, heads: int) -> tuple[int, frozenset[int]]:
        """The heads of keys and values of a layer with attention, and the layers without any: LFM2's convolutions."""
        key = "attention.head_count_kv"
        values = self._metadata.get(f"{self.architecture}.{key}")
        of_layers = isinstance(values, np.ndarray) and values.dtype.kind in "iu" and values.shape == (layers,)
        if not of_layers or self.architecture != "lfm2":
            return self.of_layers(key, layers, heads), frozenset()
        assert isinstance(values, np.ndarray)
        counts = set(values.tolist()) - {0}
        if len(counts) != 1:
            raise unsupported(f"{self.architecture}.{key}", values)
        return self._counted(key, counts.pop(), least=1), frozenset(np.flatnonzero(values == 0).tolist())

    def recurrent_layers(self, layers: int) -> frozenset[int]:
        """The layers of Qwen 3.5 without attention. A file says them one by one, or that each nth layer is another."""
        listed = self._metadata.get(f"{self.architecture}.attention.recurrent_layers")
        every = self.integer("full_attention_interval", 4)
        if not (isinstance(listed, np.ndarray) and listed.ndim == 1 and len(listed) >= layers):
            listed = np.arange(1, layers + 1) % every
        recurrent = frozenset(np.flatnonzero(listed[:layers]).tolist())
        if len(recurrent) == layers:  # pages belong to layers with attention
            raise self.damaged("full_attention_interval", every)
        return recurrent

    def delta_heads(self) -> tuple[int, int, int]:
        """The heads of q and k, the heads of v, and the values of each head of a delta rule."""
        keys, heads = self.integer("ssm.group_count"), self.integer("ssm.time_step_rank")
        size, width = self.integer("ssm.state_size"), self.integer("ssm.inner_size")
        if heads % keys:
            raise self.damaged("ssm.time_step_rank", heads)
        if width != heads * size:
            raise unsupported(f"{self.architecture}.ssm.inner_size", width)
        return keys, heads, size

    def experts(self) -> tuple[int, int]:
        """The experts of a layer, and how many of them a row uses."""
        if self.architecture not in MIXTURES:
            return 0, 0
        count, used = self.integer("expert_count"), self.integer("expert_used_count")
        if used > count:
            raise self.damaged("expert_used_count", used)
        return count, used

    def factor(self, key: str, default: float = 1.0) -> float:
        """A factor of the rotation. Like in llama.cpp, 0 means that it was never set."""
        return self.real(key, 0.0) or default

    def real(self, key: str, default: float | None = None, most: float = MAX_STRETCH) -> float:
        value = self.get(key, (int, float), default)
        if not (0 <= value <= most and (value > 0 or default == 0.0)):
            raise self.damaged(key, value)
        return float(value)

    def multiplier(self, key: str) -> float:
        """0 if the file has none; otherwise at least 1 / MAX_STRETCH, since one may be divided by its square."""
        value = self.real(key, 0.0)
        if 0 < value < 1 / MAX_STRETCH:
            raise self.damaged(key, value)
        return value

    def rope_base(self, key: str) -> float:
        """The base must be over 1; otherwise later pairs would not turn slower than the first."""
        value = self.real(key, 10000.0, MAX_ROPE_BASE)
        if value <= 1:
            raise self.damaged(key, value)
        return value

    def get(self, key: str, kind: type | tuple[type, ...], default: Any = None) -> Any:
        return _get(self._metadata, f"{self.architecture}.{key}", kind, default)

    def damaged(self, key: str, value: object) -> GGUFError:
        return GGUFError(
            "model.damaged-key",
            "The model file says {architecture}.{key} = {value}, which no model has: it is damaged.",
            architecture=self.architecture,
            key=key,
            value=shown(value),
        )


async def read_rope_factors(source: WeightSource, header: GGUFHeader) -> dict[str, np.ndarray]:
    """The tensors of ROPE_FACTORS that the file has. They are small, and the rotation must be known before the weights.

    Raises GGUFError if one is larger than in any model.
    """
    found = {}
    for name in ROPE_FACTORS:
        if (info := header.tensors.get(name)) is None:
            continue
        if math.prod(info.shape) > 1 << 16:
            raise GGUFError(
                "model.bad-shape",
                "Tensor {name} has the shape {shape}, which no model has: the file is damaged.",
                name=shown(name),
                shape=info.shape,
            )
        end = info.offset + info.nbytes
        if end <= _PREFIX_BYTES:
            data: bytes | memoryview = (await source.prefix(end))[info.offset : end]
        else:
            data = bytes(await source.read(info.offset, info.nbytes))
            await source.rewind()
        if len(data) < info.nbytes:
            raise GGUFError(
                "model.ends-before-tensor",
                "The model file ends before its tensor {name}. Download it again.",
                name=shown(name),
            )
        found[name] = dequantize(data, info.format, info.shape).reshape(-1)
    return found


def config_from_gguf(
    header: GGUFHeader, context: int | None = None, rope_factors: Mapping[str, np.ndarray] | None = None
) -> ModelConfig:
    """`context` is the most tokens that a sequence may have, by default the file's number, up to DEFAULT_CONTEXT.

    A larger context than the file's stretches the rotation by YaRN. `rope_factors` is the result of
    `read_rope_factors`. Raises GGUFError, naming the setting, if one is missing or invalid.
    """
    settings = _Settings(header.metadata)
    if "token_embd.weight" not in header.tensors:
        raise GGUFError(
            "model.no-embedding",
            "The model file has no tensor 'token_embd.weight': it is not a complete language model.",
        )
    hidden_size = settings.integer("embedding_length")
    layers = settings.integer("block_count")
    qwen35 = settings.architecture == "qwen35"
    if qwen35:  # the last blocks guess further tokens
        layers = max(layers - settings.integer("nextn_predict_layers", 0, least=0), 1)
    heads = settings.of_layers("attention.head_count", layers)
    key_heads, value_heads, state_size = settings.delta_heads() if qwen35 else (0, 0, 0)
    taps = "ssm.conv_kernel" if qwen35 else "shortconv.l_cache"
    head_dim = settings.integer("attention.key_length", max(hidden_size // heads, 1))
    gemma4: dict[str, Any] = {}
    if settings.architecture == "gemma4":
        kv_heads, gemma4 = _gemma4(settings, layers, heads)
        conv_layers = frozenset[int]()
    else:
        kv_heads, conv_layers = settings.kv_heads(layers, heads)
    conv_layers = settings.recurrent_layers(layers) if qwen35 else conv_layers
    if heads % kv_heads or heads % gemma4.get("local_kv_heads", kv_heads):
        raise GGUFError(
            "model.bad-heads",
            "The model file has {heads} attention heads and {kv} key/value heads: it is damaged.",
            heads=heads,
            kv=kv_heads,
        )
    if head_dim % 2 or gemma4.get("local_head_dim", 0) % 2:
        raise GGUFError(
            "model.odd-heads",
            "This model's attention heads have {size} values; Sonata reads even numbers only.",
            size=head_dim,
        )
    trained = settings.integer("context_length")
    context = min(trained, DEFAULT_CONTEXT) if context is None else context
    if context > trained * _MOST_STRETCH:
        raise GGUFError(
            "model.context-too-long",
            "This model was trained for {trained} tokens; a context of {context} is too long for it. Ask for "
            "at most {most}.",
            trained=trained,
            context=context,
            most=trained * _MOST_STRETCH,
        )
    diffusion = diffusion_of(header.metadata, settings.architecture, _vocab_size(header))
    if diffusion and not diffusion.block:
        context = min(context, MOST_AT_ONCE)
    rope = _rope(settings, header, head_dim, trained, context, rope_factors or {})
    check_settings(header.metadata, settings.architecture, head_dim, rope.dimensions, layers)
    local_rope = rope
    if settings.architecture in ("gemma3", "gemma4"):
        most = gemma4.get("local_head_dim", rope.dimensions)
        local = settings.integer("rope.dimension_count_swa", most)
        if local > most or local % 2:
            raise settings.damaged("rope.dimension_count_swa", local)
        local_rope = rotation.plain(settings.rope_base("rope.freq_base_swa"), local)
    experts, experts_used = settings.experts()
    return ModelConfig(
        architecture=settings.architecture,
        name=name_of(header.metadata) or settings.architecture,
        own_name=name_of(header.metadata),
        vocab_size=_vocab_size(header),
        hidden_size=hidden_size,
        intermediate_size=max(gemma4["intermediate_sizes"]) if gemma4 else settings.of_layers(_WIDTH, layers),
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=head_dim,
        rms_norm_eps=settings.real("attention.layer_norm_rms_epsilon"),
        max_position_embeddings=trained,
        context_length=context,
        tie_word_embeddings="output.weight" not in header.tensors,
        rope=rope,
        local_rope=local_rope,
        sliding_window=settings.integer("attention.sliding_window", 0, least=0),
        attention_softcap=settings.real("attn_logit_softcapping", 0.0),
        logits_softcap=settings.real("final_logit_softcapping", 0.0),
        embedding_multiplier=settings.multiplier("embedding_scale"),
        residual_multiplier=settings.multiplier("residual_scale"),
        attention_multiplier=settings.multiplier("attention.scale"),
        logits_scaling=settings.multiplier("logit_scale"),
        conv_layers=conv_layers,
        conv_taps=settings.integer(taps, least=2) if conv_layers else 0,
        key_heads=key_heads,
        value_heads=value_heads,
        state_size=state_size,
        experts=experts,
        experts_used=experts_used,
        diffusion=diffusion,
        **gemma4,
    )


def _gemma4(settings: _Settings, layers: int, heads: int) -> tuple[int, dict[str, Any]]:
    """The heads of keys and values of layers without a window, and what only Gemma 4 has, by fields of ModelConfig."""
    local = settings.local_layers(layers)
    shared = settings.integer("attention.shared_kv_layers", 0, least=0)
    own = layers - shared
    if any(all((layer in local) != (other in local) for other in range(own)) for layer in range(own, layers)):
        raise unsupported("gemma4.attention.shared_kv_layers", shared)
    of_layers = settings.each_layer("attention.head_count_kv", layers, heads)
    kinds = [{of_layers[layer] for layer in range(layers) if (layer in local) == one} for one in (False, True)]
    if not all(len(found) < 2 for found in kinds):
        raise unsupported("gemma4.attention.head_count_kv", np.array(of_layers))
    wide, narrow = (next(iter(found), of_layers[0]) for found in kinds)
    return wide, {
        "intermediate_sizes": tuple(settings.each_layer(_WIDTH, layers)),
        "local_layers": local,
        "local_head_dim": settings.integer("attention.key_length_swa"),
        "local_kv_heads": narrow,
        "shared_kv_layers": shared,
        "per_layer_width": settings.integer("embedding_length_per_layer_input", 0, least=0),
    }


def name_of(metadata: Mapping[str, Any]) -> str:
    """A model's own name in one short line; "" if it has none."""
    name = metadata.get("general.name")
    return one_line(name) if isinstance(name, str) else ""


def _vocab_size(header: GGUFHeader) -> int:
    """The number of rows of the embedding. Raises GGUFError if the vocabulary has another number of tokens."""
    rows = header.tensors["token_embd.weight"].shape[0]
    tokens = header.metadata.get("tokenizer.ggml.tokens")
    if isinstance(tokens, list) and len(tokens) != rows:
        raise GGUFError(
            "model.other-vocabulary",
            "The model file has {tokens} tokens, but an embedding of {rows} rows: it is "
            "damaged, or its vocabulary is another model's. Download it again.",
            tokens=len(tokens),
            rows=rows,
        )
    return rows


def _rope(
    settings: _Settings, header: GGUFHeader, head_dim: int, trained: int, context: int,
    factors: Mapping[str, np.ndarray],
) -> Rotation:  # fmt: skip
    """The rotation of queries and keys; the file or the caller may ask for a longer context than the trained one."""
    theta = settings.rope_base("rope.freq_base")
    dimensions = settings.integer("rope.dimension_count", head_dim)
    if dimensions > head_dim or dimensions % 2:
        raise GGUFError(
            "model.bad-rope",
            "The model file says {architecture}.rope.dimension_count = {dimensions}, but its "
            "attention heads have {size} values: it is damaged.",
            architecture=settings.architecture,
            dimensions=dimensions,
            size=head_dim,
        )
    for name in ROPE_FACTORS:
        if name in header.tensors and name not in factors:
            raise ValueError(f"{name} has to be read before the model is described (read_rope_factors)")
    for name, values in factors.items():
        if values.shape != (dimensions // 2,) or not (np.isfinite(values) & (values > 0)).all():
            raise GGUFError(
                "model.bad-rope-factors",
                "Tensor {name} should have {count} numbers over 0, one for each pair that is "
                "rotated: the file is damaged. Download it again.",
                name=repr(name),
                count=dimensions // 2,
            )
    rope = rotation.plain(theta, dimensions)
    kind = settings.get("rope.scaling.type", str, "linear").strip() or "linear"  # the factor is 1 if the file has none
    factor = settings.factor("rope.scaling.factor", settings.factor("rope.scale_linear"))
    magnitude = settings.factor("rope.scaling.attn_factor")
    before = settings.integer("rope.scaling.original_context_length", 0, least=0) or trained
    if ROPE_LONG in factors or ROPE_SHORT in factors:
        # Chosen by the context that is opened, not by the sequence: keys in the cache are already rotated.
        chosen = ROPE_LONG if context > before else ROPE_SHORT
        if chosen not in factors:
            raise GGUFError(
                "model.no-tensor",
                "The model file has no tensor {name}: it is not a complete model.",
                name=shown(chosen),
            )
        return rotation.divided(rope, factors[chosen].tolist(), magnitude)
    if ROPE_FREQS in factors:
        rope = rotation.divided(rope, factors[ROPE_FREQS].tolist())
    if kind == "linear":
        rope = rotation.linear(rope, factor)
    elif kind == "yarn":
        rope = _yarn(settings, rope, theta, factor, before, magnitude)
    elif kind != "none":  # a longrope has factors, and was found above
        raise unsupported(f"{settings.architecture}.rope.scaling.type", kind)
    if kind != "yarn" and magnitude != 1:
        raise unsupported(f"{settings.architecture}.rope.scaling.attn_factor", magnitude)
    if context > trained:
        rope = rotation.yarn(rope, theta, context / trained, trained)
    return rope


def _yarn(settings: _Settings, rope: Rotation, theta: float, factor: float, before: int, magnitude: float) -> Rotation:
    fast, slow = settings.real("rope.scaling.yarn_beta_fast", 32.0), settings.real("rope.scaling.yarn_beta_slow", 1.0)
    return rotation.yarn(rope, theta, factor, before, magnitude, fast, slow)


def _get(metadata: Mapping[str, Any], key: str, kind: type | tuple[type, ...], default: Any = None) -> Any:
    value = metadata.get(key, default)
    if value is None:
        raise GGUFError(
            "model.missing-key",
            "The model file has no value {key}: it is damaged, or not a language model.",
            key=shown(key),
        )
    if not isinstance(value, kind) or isinstance(value, bool):
        raise GGUFError(
            "model.bad-key",
            "The model file has {key} = {value}, which is not of the expected kind: it is damaged.",
            key=shown(key),
            value=shown(value),
        )
    return value
