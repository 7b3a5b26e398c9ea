"""The tokens and seconds of all answers since the start, for whoever watches the server."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from py_core.engine.engine import Timings


@dataclass
class Totals:
    """Tokens and seconds of prompts, without the reused tokens, and of answers. Seconds of answers that ran at the same
    time count for each."""

    prompt_tokens: int = 0
    prompt_seconds: float = 0.0
    new_tokens: int = 0
    new_seconds: float = 0.0

    def add(self, answers: Iterable[Timings]) -> None:
        """Add answers that have ended, however they did."""
        for timings in answers:
            self.prompt_tokens += timings.prompt_tokens - timings.reused_tokens
            self.prompt_seconds += timings.prefill_seconds
            self.new_tokens += timings.new_tokens
            self.new_seconds += timings.decode_seconds
