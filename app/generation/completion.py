"""One prompt, one answer, and its costs: the result of `sonata generate` and of the page's developer API."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass

import numpy as np

from app.generation.prompt_window import refuse_by_length
from app.generation.text_stream import TextStream
from py_core.engine.engine import Timings
from py_core.loading import Model
from py_core.sampling import SamplingParams
from py_core.tokenizers.prompts import encode_text


@dataclass(frozen=True)
class Completion:
    """`tokens` are all sampled tokens, the end token included. Rates are tokens a second. `passes`: of a model of
    diffusion, 0 for others."""

    prompt_tokens: list[int]
    tokens: list[int]
    text: str
    backend: str
    adapter: str
    prefill_tok_s: float
    decode_tok_s: float
    reason: str
    passes: int


async def encode_prompt(model: Model, text: str, raw: bool) -> list[int]:
    """Encode a prompt. raw: no chat template, special tokens parsed.

    Raises ValueError if there is nothing to run, ContextFullError if the text is too long by its length alone.
    """
    refuse_by_length(model, text, model.engine.context_length)
    if not raw:
        if not text.strip():
            raise ValueError("The prompt is empty. Write something to answer.")
        return await model.encode_chat([{"role": "user", "content": text}])
    ids = encode_text(model.tokenizer, text, special=True, bos=model.bos)
    if not text or not ids:
        raise ValueError("The prompt is empty. Write something to continue.")
    return ids


async def complete(
    model: Model, text: str, *, raw: bool, max_tokens: int, sampling: SamplingParams,
    on_text: Callable[[str], None] = lambda piece: None, adapter: int = 0,
) -> Completion:  # fmt: skip
    """Answer a prompt, or with `raw` continue it: then the end token is a token like others, and all of the prompt is
    read, even if another sequence has read it. `on_text` gets pieces.

    adapter: the number of the set of LoRA matrices to answer with (`Engine.add_adapter`).
    """
    prompt = await encode_prompt(model, text, raw)
    sequence, timings = model.engine.new_sequence(shares=not raw), Timings()
    model.engine.use_adapter(sequence, adapter)
    stream = TextStream(model, sequence, max_tokens, sampling, timings, raw=raw)
    try:
        await model.engine.prefill(sequence, prompt, timings)
        async with aclosing(stream.pieces()) as pieces:  # type: ignore[type-var]
            async for piece in pieces:
                on_text(piece)
        return Completion(
            prompt_tokens=prompt,
            tokens=sequence.tokens[len(prompt) :],
            text=stream.text,
            backend=model.engine.capabilities.backend,
            adapter=model.engine.capabilities.adapter,
            prefill_tok_s=timings.prefill_tok_s,
            decode_tok_s=timings.decode_tok_s,
            reason=timings.reason,
            passes=timings.passes,
        )
    finally:
        model.engine.free(sequence)


async def last_logits(model: Model, text: str, *, raw: bool, adapter: int = 0) -> np.ndarray:
    """Return the logits after the prompt's last token: float32 (vocab_size,). adapter: as in `complete`."""
    prompt = await encode_prompt(model, text, raw)
    sequence = model.engine.new_sequence()
    model.engine.use_adapter(sequence, adapter)
    try:
        await model.engine.prefill(sequence, prompt, Timings())
        return await model.engine.logits(sequence)
    finally:
        model.engine.free(sequence)
