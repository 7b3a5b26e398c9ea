"""The style of answers that a person likes, over a memory: learned in pauses, used only if measurements show a gain.

    style = await StyleService.open(learning, assistant.adapters.use_style)
    await style.run(report)          # learns from corrections and praised answers, and decides

It learns from text: corrections ("You should have said ..."), and answers that were found good or kept. A quarter of
these texts is held out to measure whether the style helps. A style is used if the held-out texts cost less with it and
other texts stay as likely as before; else it is refused, and the record says why. When one of the texts is forgotten,
the style is deleted in the same transaction (app/records/styles.py), and learned again without that text in the next
pause.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from app.consolidation.follower import MemoryFollower
from app.consolidation.idle_work import Report, unheard
from app.consolidation.loop_runs import note_run
from app.consolidation.texts import shipped_texts
from app.generation.assistant import SYSTEM_PROMPT
from app.lessons.service import LearningService
from app.records import lessons, policies, styles
from app.records.styles import Style, packed
from py_core.adapters.head import HeadAdapter
from py_core.adapters.lora import AdapterError
from py_core.adapters.parameters import parameter_layout
from py_core.engine.scheduler import Priority
from py_core.learning import trajectories
from py_core.learning.consolidation_job import Texts
from py_core.learning.imprint_maker import lesson_tokens
from py_core.learning.style import LearnedStyle, StyleRecipe, StyleRows, learn_style, row_nll, rows_of, scaled
from py_core.learning.trajectories import KEPT_TEXT
from py_core.loading import Model
from py_core.messages import Message, Words
from py_core.store.rows import Change
from py_core.tokenizers.chat_template import ChatTemplateError
from py_core.tokenizers.prompts import encode_text
from py_core.training.session import Training, TrainingState

STYLE_POLICY = "learning.style"
"""The user's switch for learning and using a style."""
ENOUGH = 12
"""The least number of liked answers to learn from: three of them are held out."""
EVERY = 4
"""One answer in this many is held out."""
MOST = 64
"""Only this many of the latest answers are learned from."""
LONGEST = 96
"""The most tokens of an answer that are read."""
TEXT_TOKENS = 64
"""The most tokens of a generic text that are read."""
GENERIC_TEXTS = 24
PROBE_TEXTS = 12
"""The number of shipped texts that limit the change by the style, and the number of others for measuring it."""
SCALES = (1.0, 0.7, 0.5, 0.35)
"""Scales for the learned style: the largest that leaves other texts as likely as before is used."""
LEAST_GAIN = 0.05
"""The least gain on the held-out answers, in nats per token."""
MOST_HARM = 0.0075
"""The largest rise of the perplexity of texts that nothing is learned from, as a share."""
RECIPE = StyleRecipe()
_KINDS = frozenset({lessons.KIND, trajectories.KIND, styles.KIND, policies.KIND})

AnswerWith = Callable[[int], None]


@dataclass(frozen=True)
class Liked:
    """An answer that the person liked. source: "KIND:ID" of the record that says so."""

    source: str
    question: str
    answer: str


def held_out(liked: Sequence[Liked]) -> tuple[list[Liked], list[Liked]]:
    """Return the answers to learn from, and those to measure with: each keeps its side when others are appended."""
    return [one for at, one in enumerate(liked) if at % EVERY != EVERY - 1], list(liked[EVERY - 1 :: EVERY])


class StyleService:
    """Made by `open`. Its methods may raise StoreError, BackendError. Work for IdleLearning (idle_work.py)."""

    def __init__(
        self, learning: LearningService, answer_with: AnswerWith, recipe: StyleRecipe = RECIPE,
        texts: Texts | None = None,
    ) -> None:  # fmt: skip
        self.learning, self.recipe, self.texts = learning, recipe, texts or shipped_texts()
        self.current: Style | None = None
        """The style that answers use; None if the plain model answers."""
        self._answer_with, self._number = answer_with, 0
        self._running = asyncio.Lock()
        self._revision = 0
        self._follower = MemoryFollower(learning.memory, _KINDS, self._renew, self._note)

    @classmethod
    async def open(
        cls, learning: LearningService, answer_with: AnswerWith, recipe: StyleRecipe = RECIPE,
        texts: Texts | None = None,
    ) -> StyleService:  # fmt: skip
        """answer_with: called with the number of the adapter at the head's input that answers use, 0 for none, now and
        whenever it changes."""
        service = cls(learning, answer_with, recipe, texts)
        await service.refresh()
        return service

    def close(self) -> None:
        """Stop following the memory, and remove the style from the device."""
        self._follower.close()
        self._take_away()

    @property
    def is_on(self) -> bool:
        return self.learning.memory.policies.is_on(STYLE_POLICY)

    async def words(self) -> Words:
        """Return the status of the style in a sentence or two."""
        last = await self._last()
        liked = await self._liked()
        if last is not None and self._fits(last, liked):
            return last.why
        return Message(
            "style.not-enough",
            "It needs {enough} answers that you corrected or liked; so far there are {liked}.",
            enough=ENOUGH,
            liked=len(liked),
        )

    # ---- which style answers ----

    async def refresh(self) -> None:
        """Choose the style that answers use: after changes of its source texts, an import, a passphrase."""
        if self._revision != self.learning.imprints.revision:
            self._follower.is_stale = True
        await self._follower.refresh()

    async def _renew(self) -> None:
        self._revision = self.learning.imprints.revision
        style = await self._usable()
        if style != self.current:
            self._take_away()
            await self._bring(style)

    async def _usable(self) -> Style | None:
        """Return the last style, if it is on, fits the revision that answers, and all its texts are still liked."""
        style = await self._last() if self.is_on else None
        if style is None or style.adapter is None or not self._fits(style, await self._liked()):
            return None
        return style

    async def _bring(self, style: Style | None) -> None:
        adapter = style.adapter if style else None
        if adapter is not None:
            try:
                self._number = await self.learning.model.engine.put_head_adapter(adapter)
            except AdapterError:  # of another width: the file was changed
                return
            self.current = style
            self._answer_with(self._number)

    def _take_away(self) -> None:
        if self._number:
            self._answer_with(0)
            self.learning.model.engine.remove_head_adapter(self._number)
        self.current, self._number = None, 0

    async def _last(self) -> Style | None:
        return await self.learning.memory.styles.get(self.learning.base_sha256)

    async def _liked(self) -> list[Liked]:
        """Return the answers that are liked now, the oldest first."""
        memory = self.learning.memory
        taught = [
            (one.created, Liked(f"{lessons.KIND}:{one.id}", one.question, one.answer))
            for one in await memory.lessons.all()
            if one.source != "taught" and one.answers
        ]
        known = {(one.question, one.answer) for _, one in taught}
        praised = [
            (one.created, Liked(f"{trajectories.KIND}:{one.id}", one.asked, one.answered))
            for one in await memory.trajectories.all()
            if one.feedback == "good" and not one.lesson and one.reason == "end" and len(one.answered) < KEPT_TEXT
            if (one.asked, one.answered) not in known
        ]
        return [liked for _, liked in sorted([*taught, *praised], key=lambda each: (each[0], each[1].source))]

    def _note(self, change: Change) -> None:
        if (styles.KIND, self.learning.base_sha256[:16]) in change.deletes:
            self._take_away()  # at once: it must not affect another token

    @property
    def _generic(self) -> Sequence[str]:
        return self.texts.texts[:GENERIC_TEXTS]

    @property
    def _probe(self) -> Sequence[str]:
        return self.texts.probe[:PROBE_TEXTS]

    # ---- the loop: see app/consolidation/idle_work.py ----

    async def waiting(self) -> int:
        """Return how many liked answers are new to the style; 0 while there are too few in total. Returns the number of
        all of them if it was learned from something that is no longer liked."""
        liked, last = await self._liked(), await self._last()
        if len(liked) < ENOUGH:
            return 0
        known = {*last.sources, *last.held} if last is not None and self._fits(last, liked) else set()
        return sum(one.source not in known for one in liked[-MOST:])

    async def is_begun(self) -> bool:
        """Return False: learning a style takes seconds, and starts again from the beginning."""
        return False

    async def run(self, report: Report) -> None:
        """Learn from liked answers, in idle time."""
        await self.learn(report)

    async def learn(self, report: Report = unheard, priority: Priority = Priority.IDLE) -> Style | None:
        """Learn from the answers that are liked now, and decide. None if there are too few, or some were forgotten."""
        async with self._running:
            learned_from, held = held_out((await self._liked())[-MOST:])
            if len(learned_from) + len(held) < ENOUGH:
                return None
            style = await self._learned(learned_from, held, report, priority)
            memory = self.learning.memory
            if kept := await memory.styles.keep(style):
                answers = len(learned_from) + len(held)
                await note_run(memory.policies, "style", memory.store.clock(), style.verdict, answers)
        await self.refresh()
        return style if kept else None

    async def _learned(
        self, learned_from: Sequence[Liked], held: Sequence[Liked], report: Report, priority: Priority
    ) -> Style:
        model, revision, begin = self.learning.model, self.learning.imprints.revision, time.perf_counter()
        async with Reader(model, await self.learning.imprints.adapter(), priority) as reader:
            total = len(learned_from) + len(held) + len(self._generic) + len(self._probe) + self.recipe.steps
            done = 0

            def tell() -> None:
                nonlocal done
                done += 1
                report(done, total, Message("style.learns", "learns the style of answers that you liked"))

            async def read(answers: Sequence[Liked]) -> StyleRows:
                found = []
                for one in answers:
                    found.append(await reader.answer(one))
                    tell()
                return StyleRows.joined([rows for rows in found if rows is not None])

            async def read_texts(given: Sequence[str]) -> StyleRows:
                found = []
                for text in given:
                    found.append(await reader.text(text))
                    tell()
                return StyleRows.joined([rows for rows in found if rows is not None])

            rows, measured = await read(learned_from), await read(held)
            generic, probe = await read_texts(self._generic), await read_texts(self._probe)
            training = await reader.training()
            try:
                began = time.perf_counter()
                found = await learn_style(training, rows, generic.states, self.recipe, lambda step: tell())
                update_ms = 1000 * (time.perf_counter() - began) / len(found.steps)
                style, figures = await _tried(training, found.adapter, measured, probe)
            finally:
                training.close()
        figures |= {
            "answers": float(len(learned_from) + len(held)), "update_ms": update_ms,
            "seconds": time.perf_counter() - begin,
        }  # fmt: skip
        why, helps = _verdict(figures)
        return Style(
            self.learning.base_sha256, "accepted" if helps else "refused", why, revision,
            tuple(one.source for one in learned_from), tuple(one.source for one in held),
            _digest([*learned_from, *held]), figures, _steps(found), packed(style) if helps else "",
        )  # fmt: skip

    def _fits(self, style: Style, liked: Sequence[Liked]) -> bool:
        """Return True if it belongs to the revision that answers, and all its source texts are still liked."""
        there = {one.source: one for one in liked}
        known = [there[source] for source in (*style.sources, *style.held) if source in there]
        return style.revision == self.learning.imprints.revision and _digest(known) == style.made_of


class Reader:
    """Reads answers and texts on a sequence of its own, with the learned adapter's matrices."""

    def __init__(self, model: Model, adapter: int, priority: Priority) -> None:
        self._model, self._adapter, self._priority = model, adapter, priority

    async def __aenter__(self) -> Reader:
        engine = self._model.engine
        self._sequence = engine.new_sequence()
        engine.use_adapter(self._sequence, self._adapter)
        return self

    async def __aexit__(self, *error: object) -> None:
        self._model.engine.free(self._sequence)

    async def answer(self, liked: Liked) -> StyleRows | None:
        """Read an answer; None if the model cannot read it."""
        try:
            tokens = await lesson_tokens(self._model, SYSTEM_PROMPT, liked.question, liked.answer)
        except ChatTemplateError:
            return None
        if len(tokens.prompts[0]) + LONGEST > self._model.engine.context_length:
            return None
        return await self._rows(tokens.prompts[0], tokens.answer[:LONGEST])

    async def text(self, text: str) -> StyleRows | None:
        ids = encode_text(self._model.tokenizer, text, bos=self._model.bos)[: TEXT_TOKENS + 1]
        return await self._rows(ids[:1], ids[1:]) if len(ids) > 1 else None

    async def training(self) -> Training:
        """Return a session in which only the head runs, with the fewest parameters possible."""
        graph = self._model.graph
        last = [name for name in graph.weights if name in graph.linear_weights][-1:]
        layout = parameter_layout(graph, 1, 1.0, last)
        training = await self._model.engine.open_training(layout, self._priority)
        await training.restore(TrainingState.of(np.zeros(layout.size, np.float32)))
        return training

    async def _rows(self, prompt: list[int], answer: list[int]) -> StyleRows:
        return await rows_of(self._model.engine, self._sequence, prompt, answer, self._priority)


async def _tried(
    training: Training, learned: HeadAdapter, held: StyleRows, probe: StyleRows
) -> tuple[HeadAdapter, dict[str, float]]:
    """Return the learned style at the largest of SCALES that does no harm, or at the smallest, and its measurements."""
    before, _ = await row_nll(training, held, None)
    text_before = _perplexity(await row_nll(training, probe, None))
    for scale in SCALES:
        adapter = scaled(learned, scale)
        text_after = _perplexity(await row_nll(training, probe, adapter))
        if text_after <= (1 + MOST_HARM) * text_before:
            break
    after, divergence = await row_nll(training, held, adapter, compared=True)
    figures = {
        "nll_before": before, "nll_after": after, "divergence": divergence, "scale": scale,
        "text_before": text_before, "text_after": text_after,
    }  # fmt: skip
    return adapter, {name: value if math.isfinite(value) else 1e300 for name, value in figures.items()}


def _perplexity(found: tuple[float, float]) -> float:
    return math.exp(min(found[0], 700.0))


def _verdict(figures: dict[str, float]) -> tuple[Message, bool]:
    """Return a sentence, and True if the style is to be used."""
    before, after = figures["nll_before"], figures["nll_after"]
    harm = figures["text_after"] / figures["text_before"] - 1
    measured = Message(
        "style.measured",
        "Nats per token on answers that it had not seen: {after}, {before} without it. Perplexity of other texts: "
        "{harm}.",
        after=f"{after:.2f}",
        before=f"{before:.2f}",
        harm=f"{harm:+.1%}",
    )
    told = {"count": f"{figures['answers']:.0f}", "measured": measured}
    if harm > MOST_HARM:
        harms = Message(
            "style.harms", "Learned from {count} answers, but not used: it harms other texts. {measured}", **told
        )
        return harms, False
    if before - after < LEAST_GAIN:
        helps_too_little = Message(
            "style.helps-too-little",
            "Learned from {count} answers, but not used: it helps too little. {measured}",
            **told,
        )
        return helps_too_little, False
    return Message("style.learned", "Learned from {count} answers. {measured}", **told), True


def _steps(found: LearnedStyle) -> dict[str, list[float]]:
    return {
        name: [float(getattr(step, name)) for step in found.steps] for name in ("cross_entropy", "divergence", "kept")
    }


def _digest(liked: Sequence[Liked]) -> str:
    told = "\0".join(sorted(f"{one.source}\0{one.question}\0{one.answer}" for one in liked))
    return hashlib.sha256(told.encode("utf-8", "surrogatepass")).hexdigest()
