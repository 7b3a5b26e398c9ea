"""Turns a lesson into an imprint: the model's states at the tokens before each token of the answer (imprint.py).

No gradient is needed. The answer is read once behind its question, and once behind the question's words in reverse
order, and the states before each of its tokens are kept. The same pass gives the cost of the answer's tokens without
and with the imprint: only the head runs again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from py_core.engine.engine import Engine
from py_core.engine.scheduler import Priority
from py_core.learning.imprint import Imprint, directions_of
from py_core.token_sequence import TokenSequence
from py_core.tokenizers.chat_template import Message, encode_chat
from py_core.tokenizers.thinking import opens_thought

if TYPE_CHECKING:
    from py_core.loading import Model

STATES = "final_norm"
"""The name of the states that the head reads."""
_THOUGHT_ENDS = "\n\n</think>\n\n"


@dataclass(frozen=True)
class LessonTokens:
    """prompts: tokens before the answer, behind the question and behind its words in reverse order. answer: its tokens,
    including the end token."""

    prompts: tuple[list[int], ...]
    answer: list[int]

    @property
    def common(self) -> int:
        """The number of tokens that the prompts share at the beginning: everything before the question."""
        at = 0
        while len(self.prompts) > 1 and len({tuple(prompt[: at + 1]) for prompt in self.prompts}) == 1:
            at += 1
        return at

    @property
    def longest(self) -> int:
        """The number of tokens of the longer prompt plus the answer."""
        return max(map(len, self.prompts)) + len(self.answer)


def reversed_words(question: str) -> str:
    """The question's words in reverse order, without its final punctuation: it stands for another wording."""
    return " ".join(reversed(question.rstrip(" ?!.").split())) or question


async def lesson_tokens(model: Model, system: str, question: str, answer: str) -> LessonTokens:
    """The lesson as a conversation of one turn. Special tokens in it are plain text.

    Raises ChatTemplateError if the model's template does not accept it.
    """
    wordings = dict.fromkeys([question, reversed_words(question)])
    prompts = [await model.encode_chat(_asked(system, wording)) for wording in wordings]
    return LessonTokens(tuple(prompts), await _answer_tokens(model, system, question, answer, prompts[0]))


async def make_imprint(
    model: Model, sequence: TokenSequence, tokens: LessonTokens, directions: np.ndarray, *, made_of: str = "",
    priority: Priority = Priority.INTERACTIVE,
) -> Imprint:  # fmt: skip
    """Read the answer behind each prompt. The imprint holds the answer's NLL before and after, as the model gives them.

    sequence: runs with the LoRA set that the model answers with. Tokens that it already holds, the common prefix of all
    lessons, are not read again. directions: (n, hidden), of the model (`learn_directions`). The same lesson gives the
    same bits. Raises ContextFullError, BackendError.
    """
    engine, answer, last = model.engine, tokens.answer, model.config.residual_at(1)
    states, residual = list[np.ndarray](), np.empty(0)
    for prompt in tokens.prompts[::-1]:  # the unreversed question comes last: its residuals are scored
        engine.hold(sequence, [*prompt, *answer[:-1]])
        found = await engine.hidden(sequence, [STATES, last], len(prompt) - 1, priority)
        states, residual = [found[STATES], *states], found[last]
    imprint = Imprint.of(np.stack(states), answer, directions, made_of)
    before = await engine.score_states(sequence, residual, answer, priority)
    after = await _scores_with(engine, sequence, imprint, residual, priority)
    return replace(imprint, nll_before=-float(before.mean()), nll_after=-float(after.mean()))


async def learn_directions(
    model: Model, system: str, texts: Sequence[str], priority: Priority = Priority.BACKGROUND,
    on_progress: Callable[[int, int], None] = lambda read, texts: None,
) -> np.ndarray:  # fmt: skip
    """The directions that the model's states of any text share, from messages in its chat format. on_progress: how many
    of the texts have been read, and how many there are.

    float32 (directions, hidden). Raises BackendError.
    """
    states, engine = [], model.engine
    sequence = engine.new_sequence()
    try:
        on_progress(0, len(texts))
        for number, text in enumerate(texts, 1):
            ids = await model.encode_chat(_asked(system, text))
            # The shared prefix, the system message, counts once.
            start = min(engine.hold(sequence, ids), len(ids) - 1)
            states.append((await engine.hidden(sequence, [STATES], start, priority))[STATES])
            on_progress(number, len(texts))
    finally:
        engine.free(sequence)
    return directions_of(np.concatenate(states))


async def _scores_with(
    engine: Engine, sequence: TokenSequence, imprint: Imprint, residual: np.ndarray, priority: Priority
) -> np.ndarray:
    """log p of the answer's tokens, each with the part of the imprint that covers it."""
    answer, found, begin = imprint.tokens.tolist(), [], 0
    for part in imprint.parts():
        number = await engine.put_head_adapter(part.adapter, priority)
        try:
            engine.use_head_adapter(sequence, number)
            own = slice(begin, begin + part.tokens)
            found.append(await engine.score_states(sequence, residual[own], answer[own], priority))
            begin += part.tokens
        finally:
            engine.use_head_adapter(sequence, 0)
            engine.remove_head_adapter(number)
    return np.concatenate(found)


def _asked(system: str, question: str) -> list[Message]:
    return [{"role": "system", "content": system}, {"role": "user", "content": question}]


async def _answer_tokens(model: Model, system: str, question: str, answer: str, prompt: list[int]) -> list[int]:
    """The answer as the template writes an assistant's turn, if that turn extends the prompt; else encoded alone."""
    tokenizer = model.tokenizer
    if opens_thought(tokenizer, prompt):
        return [*tokenizer.encode_parts([(_THOUGHT_ENDS, True), (answer, False)]), *_end(model)]
    turns = [*_asked(system, question), {"role": "assistant", "content": answer}]
    whole = await encode_chat(tokenizer, model.template, turns, False, bos=model.bos)
    if whole[: len(prompt)] == prompt:
        rest = whole[len(prompt) :]
        end = next((at for at, token in enumerate(rest) if token in tokenizer.eos_ids), None)
        if end:
            return rest[: end + 1]
    return [*tokenizer.encode(answer), *_end(model)]


def _end(model: Model) -> list[int]:
    """The token that ends an answer, if the model has one."""
    ends = model.tokenizer.eos_ids
    eos = model.tokenizer.eos_id
    return [eos if eos in ends else min(ends)] if ends and eos is not None else sorted(ends)[:1]
