"""Facts about the plain model that a consolidation measures. They are kept, as what was taught does not change them."""

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
    """of: identifies the model, its backend, and the texts. perplexity: of the probe. answers: the tokens of each
    prompt and of the model's answer to it. perplexity None and no answers: not yet measured."""

    of: str
    perplexity: float | None = None
    answers: list[tuple[list[int], list[int]]] = field(default_factory=list)

    @classmethod
    def read(cls, data: bytes | None, engine: Engine, base_sha256: str, texts: Texts, answer_tokens: int) -> KnownBase:
        """Read what was kept, if it matches this model and these texts; else nothing is known."""
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
