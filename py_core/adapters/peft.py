"""PEFT's adapters: tensor names and adapter_config.json.

A tensor's name is "base_model.model." + the module in `transformers` + ".lora_A.weight" or ".lora_B.weight". Trainers
that save a state dict leave the adapter's name after lora_A and the names of wrappers (torch.compile, FSDP) between
the modules, or use their own prefix or none: `_module` skips these. Rows of B have the order of `transformers`: for
some architectures, a model file has q and k in another order.

Source: https://huggingface.co/docs/peft/developer_guides/checkpoint
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from py_core.adapters.layout import AdapterLayout, check_shapes, finite
from py_core.adapters.lora import AdapterError, LoraPair
from py_core.display import one_line, shown
from py_core.formats.safetensors import StoredArray
from py_core.limits import MAX_ADAPTER_CONFIG_BYTES, MAX_ADAPTER_PATTERNS, MAX_ADAPTER_SCALE
from py_core.messages import Message
from py_core.models.transformers_names import file_module, halves_rotate, neighbours_rotate, transformers_module

CONFIG_FILE, WEIGHTS_FILE = "adapter_config.json", "adapter_model.safetensors"
_PREFIX = "base_model.model."
_NAME = re.compile(r"([\w.]{1,200})\.lora_([AB])(?:\.([^.]{1,60}))?\.weight", re.ASCII)
_WRAPPER = re.compile(r"(?:^|(?<=\.))(?:_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module|module)\.")
_MLX = ("fine_tune_type", "lora_parameters")
"""Settings in the adapter_config.json of mlx-lm."""
_TYPES = ("F32", "F16", "BF16", "F64")

_NOT_JSON = Message("peft.no-json", "it is not a JSON object")
_DORA = Message("peft.dora", "DoRA, which also scales the weights")
_MODULES = Message("peft.modules", "whole modules besides LoRA (modules_to_save)")
_BIASES = Message("peft.biases", "trained biases")
_UNSUPPORTED = {
    "use_dora": _DORA,
    "lora_bias": Message("peft.lora-bias", "biases of LoRA"),
    "modules_to_save": _MODULES,
    "trainable_token_indices": Message("peft.tokens", "embeddings of tokens (trainable_token_indices)"),
    "target_parameters": Message("peft.experts", "parameters of experts (target_parameters)"),
    "layer_replication": Message("peft.layers", "repeated layers (layer_replication)"),
    "alora_invocation_tokens": Message(
        "peft.activated", "activated LoRA, which begins at certain tokens (alora_invocation_tokens)"
    ),
    "arrow_config": Message("peft.arrow", "Arrow, which mixes several adapters"),
    "kasa_config": Message("peft.kasa", "KaSA, which changes the base's weights"),
    "monteclora_config": Message("peft.monteclora", "MonteCLoRA, which draws from several adapters"),
}
"""Settings that change an adapter's effect, with their names for a sentence."""

_NEW_BASE = ("pissa", "olora", "corda", "loftq", "lora_ga")
"""Initializations (`init_lora_weights`) that change the base's weights, too."""

_PATTERN = re.compile(r"\^?(?:[\w.]|\\\.|\\d\+?|\.\*|\((?:\?:)?[\w|.\\]*\))*\$?", re.ASCII)
"""Regular expressions that are safe to run. Long ones, and those with many groups or repetitions, could take hours."""


def read_config(data: bytes | memoryview) -> dict[str, Any]:
    """Parse adapter_config.json. Raises AdapterError if it is invalid, or asks for what Sonata does not support."""
    if len(data) > MAX_ADAPTER_CONFIG_BYTES:
        raise _damaged(
            Message(
                "peft.config-size",
                "it has {size} bytes, and none has more than {most}",
                size=len(data),
                most=MAX_ADAPTER_CONFIG_BYTES,
            )
        )
    try:
        config = json.loads(bytes(data))
    except (ValueError, RecursionError) as error:
        raise _damaged(_NOT_JSON) from error
    if not isinstance(config, dict):
        raise _damaged(_NOT_JSON)
    if "peft_type" not in config and any(key in config for key in _MLX):
        raise _of_mlx()
    if config.get("peft_type") != "LORA":
        raise AdapterError(
            "adapter.peft-type",
            "The adapter is of the type {type}; Sonata reads adapters of the type 'LORA'.",
            type=shown(config.get("peft_type")),
        )
    for key, value in config.items():
        if value in (None, False, "") or value in ([], {}):
            continue
        unknown = key.startswith("use_") and key not in ("use_rslora",)
        if key in _UNSUPPORTED or unknown:
            raise _unsupported(
                _UNSUPPORTED.get(key, Message("peft.variant", "{key}, a variant of LoRA", key=one_line(key)))
            )
    if config.get("bias") not in (None, "none"):
        raise _unsupported(Message("peft.bias", "trained biases (bias = {bias})", bias=shown(config["bias"])))
    begun = config.get("init_lora_weights")
    if isinstance(begun, str) and begun.lower().startswith(_NEW_BASE):
        raise AdapterError(
            "adapter.changed-base",
            "The adapter was trained on a base whose weights {how} had changed "
            "(init_lora_weights), so it does not fit the plain model: PEFT can convert it "
            "(path_initial_model_for_weight_conversion).",
            how=shown(begun),
        )
    return config


def read_pairs(
    stored: Mapping[str, StoredArray], config: Mapping[str, Any], layout: AdapterLayout
) -> dict[str, LoraPair]:
    """The pairs by the model file's tensors. `config` is the result of `read_config`.

    Raises AdapterError if a tensor is not a LoRA matrix of this model's linears, or has another shape.
    """
    alphas = _Alphas(config)
    halves: dict[str, dict[str, tuple[str, StoredArray]]] = {}
    adapter: str | None = None
    for name, array in stored.items():
        theirs, half, own = _module(name)
        if adapter not in (None, own):
            raise _unsupported(_in_tensor(Message("peft.several", "several adapters in one file"), name))
        adapter = own
        module = file_module(theirs, layout.architecture, layout.layers)
        if module not in layout.places:
            raise AdapterError(_elsewhere(theirs, module, layout.architecture))
        if half in halves.setdefault(module, {}):
            raise AdapterError(
                "adapter.tensor-twice",
                "The adapter has the tensor {name} twice: it is damaged. Download it again.",
                name=shown(name),
            )
        halves[module][half] = theirs, array
    pairs = {}
    for module, both in halves.items():
        if len(both) < 2:
            (theirs, _), missing = next(iter(both.values())), "lora_B" if "A" in both else "lora_A"
            raise AdapterError(
                "adapter.no-matrix",
                "The adapter has no {missing} for {name}: it is damaged. Download it again.",
                missing=missing,
                name=shown(theirs),
            )
        (theirs, a), (_, b) = both["A"], both["B"]
        place = layout.places[module]
        check_shapes(theirs, place, a.shape, b.shape)
        for array in (a, b):
            if array.dtype not in _TYPES:
                raise AdapterError(
                    "adapter.bad-type",
                    "The adapter's tensors for {name} are of the type {type}; Sonata reads {readable}.",
                    name=shown(theirs),
                    type=array.dtype,
                    readable=", ".join(_TYPES),
                )
        rows = finite(f"{theirs}.lora_B", b.array())
        rows = neighbours_rotate(rows, place.heads) if place.heads else rows
        columns = finite(f"{theirs}.lora_A", a.array())
        if (order := layout.order(module)) is not None:
            columns, rows = _ordered(module, columns, rows, order)
        pairs[module] = LoraPair(columns, rows, alphas.scale(theirs, a.shape[0]))
    return layout.join(pairs)


def write_pairs(
    pairs: Mapping[str, LoraPair], layout: AdapterLayout, base_model: str = ""
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """The tensors by their names in PEFT, float32, and adapter_config.json.

    `base_model` is the name or folder of the model in `transformers`. Raises AdapterError if the model does not have a
    tensor of `pairs`, and for numbers that `read_pairs` would refuse.
    """
    arrays, settings = {}, {}
    for module, pair in layout.split(pairs).items():
        place, theirs = layout.places[module], transformers_module(module, layout.architecture)
        rows = halves_rotate(pair.b, place.heads) if place.heads else pair.b
        columns = pair.a
        if (order := layout.order(module)) is not None:
            columns, rows = _ordered(module, columns, rows, np.argsort(order))
        for half, values in (("A", columns), ("B", rows)):
            name = f"{_PREFIX}{theirs}.lora_{half}.weight"
            arrays[name] = finite(name, values)
        _check_scale(pair.scale)
        settings[theirs] = pair.rank, _whole(pair.scale * pair.rank)
    return arrays, _config(settings, layout, base_model)


def _ordered(module: str, a: np.ndarray, b: np.ndarray, order: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The columns of a delta rule's last matrix in this order, or the rows of another one."""
    return (np.ascontiguousarray(a[:, order]), b) if module.endswith("ssm_out") else (a, b[order])


def _config(settings: Mapping[str, tuple[int, float]], layout: AdapterLayout, base_model: str) -> dict[str, Any]:
    """adapter_config.json for each module's rank and alpha; the most common values become the defaults."""
    rank, alpha = (_most_common(values) for values in zip(*settings.values(), strict=True)) if settings else (1, 1)
    return {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base_model or None,
        "inference_mode": True,
        "r": rank,
        "lora_alpha": alpha,
        "rank_pattern": {name: own for name, (own, _) in settings.items() if own != rank},
        "alpha_pattern": {name: own for name, (_, own) in settings.items() if own != alpha},
        "target_modules": _targets(settings, layout),
        "use_rslora": False,
        "use_dora": False,
        "fan_in_fan_out": False,
        "bias": "none",
        "lora_dropout": 0.0,
        "init_lora_weights": True,
        "modules_to_save": None,
    }


def _targets(settings: Iterable[str], layout: AdapterLayout) -> list[str]:
    """Name endings if every layer has the module, else whole names."""
    endings = Counter(name.rpartition(".")[2] for name in settings)
    if all(count == layout.layers for count in endings.values()):
        return sorted(endings)
    return sorted(settings)


def _most_common(values: Iterable[Any]) -> Any:
    return Counter(values).most_common(1)[0][0]


def _whole(number: float) -> float | int:
    """A number as people write it: 16, not 16.0."""
    return int(number) if number == int(number) else number


class _Alphas:
    """The settings in adapter_config.json that determine a module's scale."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._alpha = _number(config.get("lora_alpha"), "lora_alpha")
        self._root = config.get("use_rslora") or False
        patterns = config.get("alpha_pattern") or {}
        if not isinstance(self._root, bool) or not isinstance(patterns, dict):
            raise _damaged(Message("peft.other-kind", "use_rslora or alpha_pattern has another type"))
        if len(patterns) > MAX_ADAPTER_PATTERNS:
            raise _damaged(
                Message(
                    "peft.many-patterns",
                    "alpha_pattern has {count} names, and none has more than {most}",
                    count=len(patterns),
                    most=MAX_ADAPTER_PATTERNS,
                )
            )
        self._patterns = [
            (_pattern(key), _number(value, f"alpha_pattern[{shown(key)}]")) for key, value in patterns.items()
        ]

    def scale(self, module: str, rank: int) -> float:
        """alpha / rank, or alpha / sqrt(rank) with rsLoRA (arXiv 2312.03732)."""
        alpha = next((own for pattern, own in self._patterns if pattern.fullmatch(module)), self._alpha)
        scale = alpha / (math.sqrt(rank) if self._root else rank)
        return _check_scale(scale)


def _check_scale(scale: float) -> float:
    if not abs(scale) <= MAX_ADAPTER_SCALE:
        raise AdapterError(
            "adapter.large-scale",
            "The adapter multiplies by {scale}, and no real one does by more than {most}: it is damaged. "
            "Choose another.",
            scale=shown(scale),
            most=f"{MAX_ADAPTER_SCALE:g}",
        )
    return scale


def _pattern(key: str) -> re.Pattern[str]:
    """PEFT treats the keys as regular expressions that match the end of a module's name."""
    short = len(key) <= 200 and key.count("(") <= 2 and key.count("*") + key.count("+") <= 2
    if not (short and _PATTERN.fullmatch(key)):
        raise AdapterError(
            "adapter.bad-pattern",
            "adapter_config.json has {key} in alpha_pattern; Sonata reads only names of modules and short "
            "regular expressions there. Write the names.",
            key=shown(key),
        )
    try:
        return re.compile(rf"(?:.*\.)?(?:{key})")
    except re.error as error:
        raise _damaged(
            Message("peft.no-expression", "{key} in alpha_pattern is not a regular expression", key=shown(key))
        ) from error


def _number(value: Any, key: str) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not abs(value) < 1e9:
        raise _damaged(Message("peft.bad-value", "{key} is {value}", key=key, value=shown(value)))
    return float(value)


def _module(name: str) -> tuple[str, str, str]:
    """The module in `transformers`, "A" or "B", and the file's name for the adapter, "" if it has none."""
    if found := _NAME.fullmatch(_WRAPPER.sub("", name).rpartition(_PREFIX)[2]):
        return found[1], found[2], found[3] or ""
    if name.endswith((".lora_a", ".lora_b")):
        raise _of_mlx()
    kinds = {
        ".lora_magnitude_vector": _DORA,
        ".lora_embedding_": Message("peft.embedding", "LoRA on the embedding"),
        ".bias": _BIASES,
    }
    other_names = Message("peft.other-names", "LoRA under names that are not PEFT's")
    unknown = other_names if "lora" in name.lower() else _MODULES
    kind = next((words for part, words in kinds.items() if part in name), unknown)
    raise _unsupported(_in_tensor(kind, name))


def _in_tensor(what: Message, name: str) -> Message:
    return Message("peft.in-tensor", "{what}, in the tensor {name}", what=what, name=shown(name))


def _elsewhere(theirs: str, module: str | None, architecture: str) -> Message:
    if module is None:
        return Message(
            "adapter.no-module",
            "The adapter changes {name}, which this model of {architecture} does not have. It "
            "was made for another model: choose that one, or another adapter.",
            name=shown(theirs),
            architecture=architecture,
        )
    return Message(
        "adapter.not-in-blocks",
        "The adapter changes {name}, but Sonata applies adapters only to the linears of a model's "
        "blocks. Train it without that module, or choose another.",
        name=shown(theirs),
    )


def _of_mlx() -> AdapterError:
    return AdapterError(
        "adapter.mlx",
        "The adapter is in the format of MLX, but Sonata reads that of PEFT: convert it (MLX's matrices "
        "are transposed), or choose another.",
    )


def _unsupported(what: Message) -> AdapterError:
    return AdapterError(
        "adapter.unsupported",
        "The adapter has {what}, but Sonata applies only plain LoRA. Choose another adapter.",
        what=what,
    )


def _damaged(why: Message) -> AdapterError:
    return AdapterError("adapter.bad-config", "adapter_config.json cannot be used ({why}). Download it again.", why=why)
