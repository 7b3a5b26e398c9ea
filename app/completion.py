"""One prompt, one answer, and what it took: what `sonata generate` and the page's developer API give."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass

import numpy as np

from py_core.engine.engine import Timings
from py_core.loading import Model
from py_core.sampling import SamplingParams


@dataclass(frozen=True)
class Completion:
    """`tokens` are all that were sampled, the end token included. Rates are tokens a second."""

    prompt_tokens: list[int]
    tokens: list[int]
    text: str
    backend: str
    adapter: str
    prefill_tok_s: float
    decode_tok_s: float
    reason: str


def encode_prompt(model: Model, text: str, raw: bool) -> list[int]:
    """Raw: no chat template, special tokens parsed. Raises ValueError when there is nothing to run."""
    if not raw:
        if not text.strip():
            raise ValueError("The prompt is empty. Write something to answer.")
        return model.encode_chat([{"role": "user", "content": text}])
    ids = model.tokenizer.encode(text, special=True)
    if not ids:
        raise ValueError("The prompt is empty. Write something to continue.")
    return ids


async def complete(
    model: Model, text: str, *, raw: bool, max_tokens: int, sampling: SamplingParams,
    on_text: Callable[[str], None] = lambda piece: None,
) -> Completion:  # fmt: skip
    """Answer a prompt, or with `raw` continue it: then the end token is a token like others. `on_text` gets pieces."""
    prompt = encode_prompt(model, text, raw)
    session, timings = model.engine.new_sequence(), Timings()
    try:
        await model.engine.prefill(session, prompt, timings)
        stream = model.tokenizer.stream(skip_special=not raw)
        pieces = []
        generated = model.engine.generate(session, max_tokens, sampling, timings, ignore_end=raw)
        async with aclosing(generated) as batches:  # type: ignore[type-var]
            async for ids in batches:
                pieces.append("".join(stream.push(token) for token in ids))
                on_text(pieces[-1])
        pieces.append(stream.flush())
        on_text(pieces[-1])
        return Completion(
            prompt_tokens=prompt,
            tokens=session.tokens[len(prompt) :],
            text="".join(pieces),
            backend=model.backend.capabilities.backend,
            adapter=model.backend.capabilities.adapter,
            prefill_tok_s=timings.prefill_tok_s,
            decode_tok_s=timings.decode_tok_s,
            reason=timings.reason,
        )
    finally:
        model.backend.free(session)


async def last_logits(model: Model, text: str, *, raw: bool) -> np.ndarray:
    """Logits after the prompt's last token: float32 (vocab_size,)."""
    prompt = encode_prompt(model, text, raw)
    session = model.engine.new_sequence()
    try:
        await model.engine.prefill(session, prompt, Timings())
        return await model.backend.logits(session)
    finally:
        model.backend.free(session)
