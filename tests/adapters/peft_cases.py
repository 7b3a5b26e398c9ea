"""The adapters that `peft` trains on tiny models, as data: one for each way in which PEFT's files differ."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.models.architectures.variants import VARIANTS
from tests.tiny.models import Variant

LAST = 8
"""Positions of which the logits are kept."""

ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]
EVERY = [*ATTENTION, "gate_proj", "up_proj", "down_proj"]


@dataclass(frozen=True)
class Case:
    """`settings` are fields of PEFT's LoraConfig; the file holds numbers of `dtype` (torch's name)."""

    variant: Variant
    settings: Mapping[str, Any]
    dtype: str = "float32"


def _case(name: str, dtype: str = "float32", **settings: Any) -> Case:
    return Case(VARIANTS[name], {"r": 2, "lora_alpha": 4, "target_modules": EVERY, **settings}, dtype)


CASES = {
    case.variant.name: case
    for case in [
        _case(
            "llama",
            rank_pattern={"down_proj": 3, "model.layers.1.self_attn.q_proj": 4},
            alpha_pattern={"v_proj": 16, r"layers\.\d+\.mlp\.up_proj": 1, "^model.layers.2.self_attn.k_proj": 9},
        ),
        _case("llama-fused-qkv", target_modules=["q_proj", "v_proj", "o_proj"], alpha_pattern={"v_proj": 10}),
        _case("mistral", use_rslora=True, r=3, lora_alpha=5),
        _case("qwen2", target_modules=["q_proj", "v_proj"]),
        _case("qwen3", "bfloat16", target_modules="all-linear"),
        _case("phi3", target_modules=["qkv_proj", "o_proj", "gate_up_proj", "down_proj"]),
        _case("gemma2", target_modules=r".*\.(q_proj|k_proj|down_proj)", fan_in_fan_out=True),
        _case("gemma3", "float16", layers_to_transform=[0, 5, 7]),
        _case("gemma4", target_modules="all-linear"),
        _case("olmo2", target_modules=["q_proj", "k_proj", "down_proj"]),
        _case("granite", target_modules=["q_proj", "k_proj", "up_proj"]),
        _case("granitemoe", target_modules=["q_proj", "k_proj", "o_proj"]),
        _case("olmoe", target_modules=["q_proj", "v_proj"]),
        _case("glm4", target_modules=["q_proj", "v_proj", "gate_up_proj", "down_proj"]),
        _case("lfm2", target_modules=["in_proj", "out_proj", "q_proj", "w1", "w2"]),
        _case("qwen35", target_modules=["in_proj_qkv", "in_proj_z", "in_proj_a", "out_proj", "q_proj", "up_proj"]),
        _case("smollm3", layers_to_transform=[0, 3, 7]),
    ]
}
