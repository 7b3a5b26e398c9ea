"""A model's answer to a prompt: its thought, and the text behind it, with the probabilities of its tokens if wanted."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from contextlib import aclosing
from dataclasses import dataclass, replace

from app.generation.grammars import behind_thought
from app.generation.text_stream import TextStream
from app.protocol import Thought
from py_core.engine.engine import Timings
from py_core.engine.turns import Priority
from py_core.loading import Model
from py_core.sampling import SamplingParams, TokenProbability
from py_core.token_sequence import TokenSequence
from py_core.tokenizers.thinking import ThoughtSplitter, opens_thought, split_thought


@dataclass(frozen=True)
class WrittenToken:
    """begin, end: of what it adds to the text as it was written; nothing if a character goes on behind it."""

    begin: int
    end: int
    probability: TokenProbability


class AnswerStream:
    """`timings` has the answer's costs, and why it ended. `begins`: the place in the text as it was written from which
    on it is the answer, once that is known. `priority`: as in Engine.generate."""

    def __init__(
        self, model: Model, max_tokens: int, sampling: SamplingParams, *, continues: bool = False,
        end_at_loops: bool = False, shown: Collection[str] = (),
    ) -> None:  # fmt: skip
        """continues: the text goes on from the prompt, and nothing in it is a thought. end_at_loops, shown: as in
        TextStream."""
        self._model, self._max_tokens, self._sampling = model, max_tokens, sampling
        self._continues, self._ends_at_loops, self._shown = continues, end_at_loops, shown
        self._stream: TextStream | None = None
        self._sequence: TokenSequence | None = None
        self._thinks, self._prompt_tokens = False, 0
        self.priority = Priority.INTERACTIVE
        self.timings = Timings()
        self.begins: int | None = 0 if continues else None

    @property
    def written(self) -> tuple[str, str]:
        """Return the thought and the answer as they were written: after a loop without the repeats."""
        return split_thought(self._stream.text, self._thinks) if self._stream else ("", "")

    @property
    def length(self) -> int:
        """The number of characters written so far. Behind the thought all of them are given."""
        return len(self._stream.text) if self._stream else 0

    def tokens(self, first: int) -> list[WrittenToken]:
        """Return the tokens from this one on, if `SamplingParams.likeliest` asks for their probabilities."""
        if self._stream is None or self._sequence is None:
            return []
        lengths, noted = self._stream.lengths, self._sequence.probabilities
        return [
            WrittenToken(lengths[at], lengths[at + 1], noted[self._prompt_tokens + at])
            for at in range(first, len(lengths) - 1)
        ]

    async def said(self, sequence: TokenSequence, prompt: list[int]) -> AsyncIterator[str | Thought]:
        """Answer a prompt that the sequence has read. Raises BackendError."""
        model, sampling = self._model, self._sampling
        self._thinks = not self._continues and opens_thought(model.tokenizer, prompt)
        if self._thinks and sampling.grammar:
            sampling = replace(sampling, grammar=behind_thought(sampling.grammar, model.tokenizer))
        stream = self._stream = TextStream(
            model, sequence, self._max_tokens, sampling, self.timings, continues=self._continues,
            end_at_loops=self._ends_at_loops, shown=self._shown, priority=self.priority,
        )  # fmt: skip
        self._sequence, self._prompt_tokens = sequence, len(prompt)
        splitter = ThoughtSplitter(self._thinks)
        async with aclosing(stream.pieces()) as pieces:  # type: ignore[type-var]
            async for piece in pieces:
                if self._continues:
                    yield piece
                    continue
                for said in splitter.push(piece):
                    yield Thought(said.text) if said.is_thought else self._answer(said.text)
        for said in splitter.flush():
            yield Thought(said.text) if said.is_thought else self._answer(said.text)

    def _answer(self, text: str) -> str:
        if self.begins is None:
            self.begins = self.length - len(text)
        return text
