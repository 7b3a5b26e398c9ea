"""The text of an answer, piece by piece, as its tokens are sampled."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing

from py_core.backends.base import TokenSequence
from py_core.engine.engine import Timings
from py_core.loading import Model
from py_core.sampling import SamplingParams


class TextStream:
    """`text` is what there is of the answer so far; after a loop it is cut where the repeats begin."""

    def __init__(
        self, model: Model, sequence: TokenSequence, max_tokens: int, sampling: SamplingParams, timings: Timings, *,
        raw: bool = False, end_at_loops: bool = False, ids: AsyncIterator[list[int]] | None = None,
    ) -> None:  # fmt: skip
        """After a prefill. raw: special tokens are shown, and the end token does not end the text.

        end_at_loops, timings: as of Engine.generate. ids: in place of what it yields (learned_answer.py).
        """
        self.text = ""
        self._timings = timings
        self._decoder = model.tokenizer.stream(skip_special=not raw, continues=raw)
        self._ids = ids or model.engine.generate(
            sequence, max_tokens, sampling, timings, ignore_end=raw, end_at_loops=end_at_loops
        )

    async def pieces(self) -> AsyncIterator[str]:
        """Yield what each batch of tokens adds, "" where it ends within a character. Raises as Engine.generate does."""
        lengths = [0]  # of the text after each token
        async with aclosing(self._ids) as batches:  # type: ignore[type-var]
            async for ids in batches:
                known = len(self.text)
                for token in ids:
                    self.text += self._decoder.push(token)
                    lengths.append(len(self.text))
                yield self.text[known:]
        if self._timings.reason == "loop":
            self.text = self.text[: lengths[len(lengths) - 1 - self._timings.repeated_tokens]]
            return
        known = len(self.text)
        self.text += self._decoder.flush()
        yield self.text[known:]
