"""How the next token is chosen: parameters, and the reference sampler that the GPU's is tested against."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SamplingParams:
    """temperature 0 is greedy. top_k 0, top_p 1, min_p 0 and penalties 1/0/0 switch that rule off."""

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    penalty_window: int = 64
    seed: int = 0
