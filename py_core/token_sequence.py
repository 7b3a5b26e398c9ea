"""A sequence of tokens: what the engine, the backends and the pages of keys and values all name."""

from __future__ import annotations

from dataclasses import dataclass, field

from py_core.grammar.constraint import Constraint
from py_core.sampling import TokenProbability
from py_core.speculation.guesses import PromptLookup
from py_core.speculation.lookahead import Drafter

NO_SLOT = -1
"""The slot of a sequence that has no row in the page table."""


@dataclass
class TokenSequence:
    """One sequence of tokens and the KV pages that hold it.

    `tokens` are the ids so far, in order; the keys and values of the first `stored` of them are in pages. A token
    that was just sampled is still pending; the backend runs it when its logits are needed.
    """

    number: int
    """The number of this sequence alone: no other sequence of the backend has or had it."""
    slot: int = NO_SLOT
    """Its row in the page table while it has one (sequence_slots.py)."""
    tokens: list[int] = field(default_factory=list)
    stored: int = 0
    adapter: int = 0
    """The number of the set of LoRA matrices that it runs with (`HasAdapters.use_adapter`), 0 for none."""
    head_adapter: int = 0
    """The number of the adapter at the head's input (`HasAdapters.use_head_adapter`), 0 for none."""
    shares: bool = True
    """True if it begins with pages that other sequences have read, and they with its pages (`HasPages.begin_with`)."""
    guesses: PromptLookup | None = None
    """Guesses of the next tokens, if decoding is to run guesses with its steps. Decoded tokens are added to it."""
    draft: Drafter | None = None
    """A draft model that may guess them, too."""
    constraint: Constraint | None = None
    """The grammar that its next tokens must follow. Decoded tokens are added to it."""
    probabilities: dict[int, TokenProbability] = field(default_factory=dict)
    """Those of its answer's tokens, by their places among `tokens`, if its rules ask for them
    (`SamplingParams.likeliest`)."""

    canvas: tuple[int | None, ...] = ()
    """The places behind its tokens that a model of diffusion writes now: a token, or None for a mask."""

    @property
    def length(self) -> int:
        return len(self.tokens)
