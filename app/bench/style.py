"""The measurement of `sonata bench style`: does a style that was learned from some answers appear in others?

The answers are those of app/style. The split "taught" becomes corrections in an empty memory, and the loop learns from
them as from a user's; the split "unseen" is only measured.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from app.bench.learning import Progress
from app.bench.perplexity import MeasuredText, Score, joined, score_texts
from app.chat.asker import Asker
from app.consolidation.style import MEASURES, StyledAnswer, measured, styled_answers
from app.consolidation.style_service import STYLE_POLICY, Liked, Reader, StyleService
from app.lessons.facts import generic_prompts, paragraphs
from app.lessons.service import LearningService
from app.records.lessons import Lesson
from py_core.engine.scheduler import Priority
from py_core.learning.style import StyleRows, row_nll
from py_core.loading import Model

TOKENS = 48
"""Most tokens of a greedy answer."""
CHAT_PROMPTS = 12
"""Ordinary prompts, for the KL divergence of the model's answers."""


async def measure_style(
    model: Model, learning: LearningService, names: Sequence[str] = tuple(MEASURES), *, limit: int | None = None,
    on_progress: Progress = lambda what, done, total: None,
) -> dict[str, Any]:  # fmt: skip
    """limit: the number of unseen prompts of each style. Raises BackendError, StoreError, EmbedderError."""
    return await _Bench(model, learning, limit, on_progress).run(names)


class _Bench:
    def __init__(self, model: Model, learning: LearningService, limit: int | None, on_progress: Progress) -> None:
        self._model, self._learning, self._limit, self._on_progress = model, learning, limit, on_progress
        self._asker = Asker(model, None, TOKENS)
        self._texts = [MeasuredText(number, text) for number, text in enumerate(paragraphs("dev"), 1)]

    async def run(self, names: Sequence[str]) -> dict[str, Any]:
        await self._learning.memory.policies.set(STYLE_POLICY, True, confidence=1.0, source="user")
        prompts = [one.prompt for one in styled_answers(names[0], "unseen")[: self._limit]]
        chat = [one.prompt for one in generic_prompts("dev")]
        chat = chat[:: len(chat) // CHAT_PROMPTS][: min(CHAT_PROMPTS, self._limit or CHAT_PROMPTS)]
        plain = await self._said(prompts, "Answering without a style")
        own = await self._said(chat, "Answering ordinary prompts")
        asked = [StyledAnswer(*pair) for pair in zip(chat, own, strict=True) if pair[1]]
        before = joined(await score_texts(self._model, self._texts))
        made = {name: await self._one(name, prompts, plain, asked, before) for name in names}
        capabilities = self._model.engine.capabilities
        return {
            "model": self._model.config.name, "backend": capabilities.backend, "prompts": len(prompts), "styles": made
        }  # fmt: skip

    async def _one(
        self, name: str, prompts: Sequence[str], plain: Sequence[str], chat: Sequence[StyledAnswer], before: Score
    ) -> dict[str, Any]:
        memory, number = self._learning.memory, [0]
        for one in styled_answers(name, "taught"):
            await memory.lessons.keep(Lesson(one.prompt, one.answer, "corrected"))
        service = await StyleService.open(self._learning, lambda chosen: number.__setitem__(0, chosen))
        begin = time.perf_counter()
        style = await service.learn(
            lambda done, total, what="": self._on_progress(f"Learning {name}", done, total), Priority.BACKGROUND
        )
        seconds = time.perf_counter() - begin
        assert style is not None
        adapter = service.current.adapter if service.current else None
        unseen = styled_answers(name, "unseen")[: self._limit]
        async with Reader(self._model, 0, Priority.BACKGROUND) as reader:
            found = [await self._rows(reader, each) for each in (unseen, chat)]
            training = await reader.training()
            try:
                nll = [(await row_nll(training, found[0], one))[0] for one in (None, adapter)]
                _, divergence = await row_nll(training, found[1], adapter, compared=True)
            finally:
                training.close()
        self._asker.assistant.adapters.use_style(number[0])
        said = await self._said(prompts, f"Answering with {name}") if number[0] else list(plain)
        self._asker.assistant.adapters.use_style(0)

        async def head_of(text: str) -> int:
            return number[0]

        after = joined(await score_texts(self._model, self._texts, head_of=head_of))
        service.close()
        for lesson in await memory.lessons.all():
            await memory.lessons.delete(lesson.id)
        steps: Mapping[str, Sequence[float]] = style.steps
        return {
            "verdict": style.verdict, "why": str(style.why), "figures": dict(style.figures), "seconds": seconds,
            "update_ms": style.figures["update_ms"], "shortened": int(np.sum(np.array(steps["kept"]) < 1)),
            "unseen_nll": nll, "measure": [measured(name, plain), measured(name, said)],
            "wanted": measured(name, [one.answer for one in unseen]), "chat_divergence": divergence,
            "perplexity": [before.perplexity, after.perplexity], 
            "examples": list(zip(prompts, plain, said, strict=True))[:5],
        }  # fmt: skip

    async def _rows(self, reader: Reader, answers: Sequence[StyledAnswer]) -> StyleRows:
        rows = [await reader.answer(Liked("", one.prompt, one.answer)) for one in answers]
        return StyleRows.joined([one for one in rows if one is not None])

    async def _said(self, prompts: Sequence[str], what: str) -> list[str]:
        found = []
        for number, prompt in enumerate(prompts):
            self._on_progress(what, number, len(prompts))
            found.append((await self._asker.answer(prompt)).text.strip())
        return found
