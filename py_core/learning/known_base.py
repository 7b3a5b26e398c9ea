"""What a consolidation finds out about the plain model, whatever was taught: kept, so that the next one need not."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field

from py_core.engine.engine import Engine
from py_core.learning.consolidation_job import Texts

KNOWN = "known"
"""The name under which it is kept (`Desk.read`)."""


@dataclass
class KnownBase:
    """of: names the model, what runs it, and the texts. perplexity: of the probe. answers: tokens of each prompt, and
    of what the model says to it. None, and none: it has to be found out."""

    of: str
    perplexity: float | None = None
    answers: list[tuple[list[int], list[int]]] = field(default_factory=list)

    @classmethod
    def read(cls, data: bytes | None, engine: Engine, base_sha256: str, texts: Texts, answer_tokens: int) -> KnownBase:
        """What was kept, if it is of this; else nothing is known."""
        runs = engine.capabilities.backend, engine.capabilities.features
        told = [base_sha256, *runs, list(texts.prompts), list(texts.probe), answer_tokens]
        of = hashlib.sha256(json.dumps(told).encode()).hexdigest()
        try:
            known = cls(**json.loads(data or b""))
        except (ValueError, TypeError):
            return cls(of)
        return known if known.of == of else cls(of)

    def to_bytes(self) -> bytes:
        return json.dumps(asdict(self)).encode()
