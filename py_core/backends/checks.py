"""The limits of all backends, and the checks of the arguments that they get."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np

from py_core.backend_errors import BackendError, ContextFullError, too_long
from py_core.formats.gguf import TensorInfo
from py_core.models.config import ModelConfig
from py_core.models.diffusion import Diffusion
from py_core.sampling import MOST_BIASES, SamplingParams
from py_core.token_sequence import TokenSequence

MAX_LOGIT_ROWS = 8
"""Rows of a pass that may need logits: the last ones, of several sequences or of a draft."""

MAX_TAPS = 8
"""Values that one call of `Runs.hidden` reads: kernels keep a buffer for each."""

MAX_ADAPTERS = 4
"""The most sets of LoRA matrices at a time. One of rank 16 on every linear is a tenth of a small model."""

HEAD_SLOTS = 64
"""The most adapters at the head's input at a time. A slot takes 256 bytes for each value of the hidden size."""


def check_formats(
    tensors: Mapping[str, TensorInfo], weights: Iterable[str], readable: Collection[str], kernels: str
) -> None:
    """Raises BackendError for the first weight in a format that these kernels do not read."""
    for name in weights:
        form = tensors[name].format.name
        if form not in readable:
            raise BackendError(
                "model.unreadable-format",
                "{name} is in {format}; the {kernels} kernels read only {readable}. Use a file in one of these "
                "formats, or the numpy backend, which is slow.",
                name=name,
                format=form,
                kernels=kernels,
                readable=", ".join(readable),
            )


def check_prefill(sequence: TokenSequence, tokens: Sequence[int], vocab_size: int, context_length: int) -> None:
    """Run the checks of every backend's prefill, before it touches anything."""
    if not tokens:
        raise ValueError("prefill needs at least one token")
    if not all(0 <= token < vocab_size for token in tokens):
        raise ValueError(f"a token id is outside of 0..{vocab_size - 1}")
    total = sequence.length + len(tokens)
    if total > context_length:
        raise ContextFullError(too_long(total, context_length))


def check_not_empty(sequence: TokenSequence) -> None:
    """Raises ValueError if the sequence is empty: before a prefill there is nothing to predict from."""
    if not sequence.tokens:
        raise ValueError("the sequence holds no tokens: prefill comes first")


def check_last_rows(sequence: TokenSequence, rows: int) -> None:
    """Run the checks of every backend's `last_logits`."""
    check_not_empty(sequence)
    if not 1 <= rows <= min(MAX_LOGIT_ROWS, sequence.length):
        raise ValueError(
            f"Logits after the last {rows} tokens are asked for; the sequence has {sequence.length}, and at most "
            f"{MAX_LOGIT_ROWS} rows at a time can have them."
        )


def check_hidden(
    sequence: TokenSequence, names: Sequence[str], start: int, end: int | None, taps: Collection[str]
) -> None:
    """Run the checks of every backend's `hidden`; `taps` are the names that its graph has."""
    check_not_empty(sequence)
    if not 0 <= start < sequence.length:
        raise ValueError(f"start is {start}, but must be one of the sequence's {sequence.length} tokens, from 0 on.")
    if end is not None and not start < end <= sequence.length:
        raise ValueError(f"end is {end}, but must be from {start + 1} to {sequence.length}.")
    if not 1 <= len(set(names)) == len(names) <= MAX_TAPS:
        raise ValueError(f"{list(names)} are asked for; hidden reads 1 to {MAX_TAPS} values, each once.")
    for name in names:
        if name not in taps:
            raise ValueError(f"This model has no value {name!r} to read; it has {', '.join(taps) or 'none'}.")


def check_scored(sequence: TokenSequence, start: int) -> None:
    """Run the checks of every backend's `token_logprobs`."""
    if not 1 <= start < sequence.length:
        raise ValueError(
            f"start is {start}, but must be from 1 to {sequence.length - 1}: one of the sequence's {sequence.length} "
            "tokens, and not the first, which nothing comes before."
        )


def check_scored_states(states: np.ndarray, tokens: Sequence[int], width: int, vocab_size: int) -> None:
    """Run the checks of every backend's `score_states`; `width` is the hidden size."""
    if not tokens or states.shape != (len(tokens), width):
        raise ValueError(f"{len(tokens)} tokens need states of shape {(len(tokens), width)}, not {states.shape}.")
    if not all(0 <= token < vocab_size for token in tokens):
        raise ValueError(f"a token id is outside of 0..{vocab_size - 1}")


def check_canvas(sequence: TokenSequence, canvas: Sequence[int], config: ModelConfig) -> Diffusion:
    """Run the checks of every backend's `denoise`. Returns how the model writes."""
    if config.diffusion is None:
        raise ValueError("This model writes from left to right: it has no mask.")
    check_not_empty(sequence)
    check_prefill(sequence, canvas, config.vocab_size, config.context_length)
    if config.block and (sequence.length + len(canvas) - 1) // config.block > sequence.length // config.block:
        raise ValueError(f"A canvas of {len(canvas)} places does not end with its block of {config.block}.")
    return config.diffusion


def check_together(
    sequences: Sequence[TokenSequence], n: int, sampling: Sequence[SamplingParams], context_length: int,
    vocab_size: int,
) -> int:  # fmt: skip
    """Run the checks of every backend's `decode_together`. Return how many of up to `n` tokens each has room for."""
    for sequence in sequences:
        check_not_empty(sequence)
    numbers, adapters = {sequence.number for sequence in sequences}, {sequence.adapter for sequence in sequences}
    if not 1 <= len(numbers) == len(sequences) == len(sampling) <= MAX_LOGIT_ROWS or len(adapters) > 1:
        raise ValueError(
            f"{len(sequences)} sequences with {len(adapters)} sets of LoRA matrices are to be decoded together; it can "
            f"be 1 to {MAX_LOGIT_ROWS}, each once, with the same set and sampling rules each."
        )
    for rules in sampling:
        tokens = {token for token, _ in rules.biases if 0 <= token < vocab_size}
        if len(tokens) < len(rules.biases) or len(tokens) > MOST_BIASES:
            raise ValueError(f"up to {MOST_BIASES} tokens have biases, each once, from 0 to {vocab_size - 1}")
    return min(n, context_length - max(sequence.length for sequence in sequences))
