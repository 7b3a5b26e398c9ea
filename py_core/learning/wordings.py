"""Questions in other words, by the model itself: it is shown how, and draws."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing

from py_core.engine.engine import Timings
from py_core.engine.scheduler import Priority
from py_core.learning.lesson_examples import TaughtAnswer
from py_core.loading import Model
from py_core.sampling import SamplingParams
from py_core.tokenizers.prompts import encode_text

_SHOWN = """Each question is asked again in other words.

Question: Where is the spare key?
In other words: In which place do we keep the extra key?

Question: What is my sister's job?
In other words: How does my sister earn her living?

Question: When does the swimming course start?
In other words: At what time do the swimming lessons begin?

Question: {}
In other words:"""

_TOKENS = 22
_SHORTEST, _LONGEST = 8, 140
"""Characters."""
_DRAWS = SamplingParams(temperature=0.8, top_k=40)

Fitting = Callable[[TaughtAnswer, Sequence[str]], Awaitable[list[str]]]


async def own_wordings(
    model: Model, lessons: Sequence[TaughtAnswer], count: int, fitting: Fitting, seed: int, priority: Priority,
    on_tokens: Callable[[int], None] = lambda tokens: None,
) -> dict[str, list[str]]:  # fmt: skip
    """Of each lesson by its id: at most `count` questions that the model draws, of which `fitting` keeps those that ask
    for the same. The same seed gives the same ones. Raises BackendError.
    """
    found: dict[str, list[str]] = {}
    if not count:
        return found
    engine = model.engine
    sequence = engine.new_sequence()
    try:
        for at, lesson in enumerate(lessons):
            prompt = encode_text(model.tokenizer, _SHOWN.format(lesson.question), bos=model.bos)
            drawn: dict[str, None] = {}
            if len(prompt) + _TOKENS > engine.context_length:
                continue
            for number in range(count):
                await engine.prefill(sequence, prompt, Timings(), priority=priority)
                sampling = SamplingParams(
                    temperature=_DRAWS.temperature, top_k=_DRAWS.top_k, seed=(seed * 1000 + at * 64 + number) % 2**32
                )
                text, tokens = "", list[int]()
                generated = engine.generate(sequence, _TOKENS, sampling, Timings(), priority=priority)
                async with aclosing(generated) as batches:  # type: ignore[type-var]
                    async for ids in batches:
                        tokens += ids
                        text = model.tokenizer.decode(tokens)
                        if "\n" in text.lstrip():
                            break
                on_tokens(len(tokens))
                text = text.lstrip().split("\n")[0].strip(' "')
                if _SHORTEST < len(text) < _LONGEST and text.lower() != lesson.question.lower():
                    drawn[text] = None
            found[lesson.id] = await fitting(lesson, list(drawn)) if drawn else []
    finally:
        engine.free(sequence)
    return found
