"""The text of an answer, piece by piece, as its tokens are sampled."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import aclosing

from py_core.engine.engine import Timings
from py_core.engine.turns import Priority
from py_core.loading import Model
from py_core.sampling import SamplingParams
from py_core.token_sequence import TokenSequence


class TextStream:
    """`text` is the answer so far; after a loop it is cut where the repeats begin."""

    def __init__(
        self, model: Model, sequence: TokenSequence, max_tokens: int, sampling: SamplingParams, timings: Timings, *,
        raw: bool = False, end_at_loops: bool = False, ids: AsyncIterator[list[int]] | None = None,
        begun: Sequence[int] = (), text: str | None = None, shown: Collection[str] = (), continues: bool = False,
        priority: Priority = Priority.INTERACTIVE,
    ) -> None:  # fmt: skip
        """Call after a prefill. raw: special tokens are shown, and the end token does not end a text without a grammar.
        continues: the text goes on from the prompt's, as with `raw`.

        end_at_loops, timings, priority: as in Engine.generate. ids: replaces what it yields (learned_answer.py).
        begun: the sequence's last tokens, if they are the beginning of the answer. text: what they are shown as, if
        known. shown: special tokens that are shown.
        """
        self._timings = timings
        self._decoder = model.tokenizer.stream(skip_special=not raw, continues=raw or continues, shown=shown)
        said = "".join(self._decoder.push(token) for token in begun)
        self.text = said if text is None else text
        self.lengths = [len(self.text)]
        """The text's length before each new token, and now."""
        self._ids = ids or model.engine.generate(
            sequence, max_tokens, sampling, timings, ignore_end=raw and sampling.grammar is None,
            end_at_loops=end_at_loops, begun=begun, priority=priority,
        )  # fmt: skip

    async def pieces(self) -> AsyncIterator[str]:
        """Yield what each batch of tokens adds, "" if it ends within a character. Raises the same as
        Engine.generate."""
        async with aclosing(self._ids) as batches:  # type: ignore[type-var]
            async for ids in batches:
                known = len(self.text)
                for token in ids:
                    self.text += self._decoder.push(token)
                    self.lengths.append(len(self.text))
                yield self.text[known:]
        if self._timings.reason == "loop":
            self.text = self.text[: self.lengths[-1 - self._timings.repeated_tokens]]
