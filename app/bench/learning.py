"""The measurement of `sonata bench learning`: invented facts are taught, and asked for in the same words and in others.

The facts, and the prompts that none of them answers, are those of app/facts. Choices were made on "dev", none on
"held". An answer is right if it is the taught one, word by word, and ends there.
"""

from __future__ import annotations

import random
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean, median
from typing import Any

from app.bench.perplexity import MeasuredText, joined, score_texts
from app.chat.asker import Asker, head_of_lesson
from app.consolidation.history import run_entry
from app.consolidation.service import ConsolidationService
from app.lessons.facts import VAGUE, InventedFact, Split, facts, generic_prompts, paragraphs, pasted
from app.lessons.facts.templates import template_facts
from app.lessons.match import UnsureMatch
from app.lessons.reader import FactReader, read_facts
from app.lessons.service import LearningService
from app.lessons.shipped_gate import shipped_gate
from app.models.cache import model_path, sha256_of_model
from app.native_runtime import open_embedder
from app.records.kinds import KINDS
from app.records.lessons import Lesson
from app.records.memory import Memory
from py_core.engine.scheduler import Priority
from py_core.loading import Model
from py_core.store.store import Store
from py_core.store.volatile import VolatileRows

FACTS = 24
AT_ONCE = 16
SPARE_TOKENS = 8
"""An answer may have this many tokens more than the longest taught one: it is wrong if it continues."""

Progress = Callable[[str, int, int], None]
"""Called with the name of the step, its progress, and its total."""


@asynccontextmanager
async def volatile_learning(model: Model, given: Path | None) -> AsyncIterator[LearningService]:
    """A runtime over an empty memory that is not stored. given: the value of `--model`. Raises EmbedderError,
    GateError."""
    memory = await Memory.open(await Store.open(VolatileRows(), kinds=KINDS))
    try:
        sha256 = sha256_of_model(model_path(given))
        reader = FactReader(model, sha256)
        yield await LearningService.open(model, sha256, open_embedder(), memory, shipped_gate(), reader)
    finally:
        await memory.close()


@dataclass(frozen=True)
class Questions:
    """The prompts: each fact's question and paraphrases of it, and prompts that no fact answers, by kind."""

    facts: tuple[InventedFact, ...]
    near: tuple[str, ...]
    generic: dict[str, tuple[str, ...]]
    paragraphs: tuple[str, ...]

    @classmethod
    def drawn(cls, split: Split, count: int, seed: int, limit: int | None) -> Questions:
        """`count` facts of a split, drawn by seed; 0 draws the first ones. limit: the most prompts of a kind."""
        every = list(facts(split))
        if seed:
            random.Random(seed).shuffle(every)
        chosen = tuple(every[:count])
        asked = {_plain(text) for fact in chosen for text in (fact.question, *fact.paraphrases)}
        generic: dict[str, list[str]] = {}
        for one in generic_prompts(split):
            if _plain(one.prompt) not in asked:
                generic.setdefault(one.kind, []).append(one.prompt)
        near = [text for fact in chosen for text in fact.near if _plain(text) not in asked]
        return cls(
            chosen, tuple(near[:limit]), {kind: tuple(texts[:limit]) for kind, texts in generic.items()},
            (*paragraphs(split), *(one.text for one in pasted()))[:limit],
        )  # fmt: skip


@dataclass
class Asked:
    """Counts of questions that a stored fact answers: asked, the right lesson found, a wrong one found, answered right.
    By reading: answered with the right lesson, with a wrong one."""

    asked: int = 0
    found: int = 0
    misled: int = 0
    right: int = 0
    read_right: int = 0
    read_wrong: int = 0

    def entry(self) -> dict[str, Any]:
        of = max(self.asked, 1)
        names = ("found", "misled", "right", "read_right", "read_wrong")
        return {"asked": self.asked} | {name: getattr(self, name) / of for name in names}


@dataclass
class OpenModel:
    """Counts of prompts that no stored fact answers: asked, given a lesson by the gate, read with some lessons, and
    given one of these. which: the prompts that were given a lesson, with its question. ms: the time of the search for a
    lesson."""

    asked: int = 0
    opened: int = 0
    unsure: int = 0
    read: int = 0
    which: list[tuple[str, str]] = field(default_factory=list)
    ms: list[float] = field(default_factory=list)

    def entry(self) -> dict[str, Any]:
        return {"asked": self.asked, **self.shares(), "which": self.which}

    def shares(self) -> dict[str, float]:
        return {name: getattr(self, name) / max(self.asked, 1) for name in ("opened", "unsure", "read")}


async def measure_learning(
    model: Model, learning: LearningService, split: Split, *, count: int = FACTS, stored: Sequence[int] = (1000,),
    seed: int = 0, limit: int | None = None, consolidating: bool = False,
    on_progress: Progress = lambda what, done, total: None,
) -> dict[str, Any]:  # fmt: skip
    """Teach facts to an empty memory, ask, and store others until each number in `stored` is reached; then ask again.

    limit: the number of facts to ask for, and of prompts of each kind. consolidating: also measure the result of the
    background loop, before others are stored. Raises BackendError, StoreError, ValueError.
    """
    questions = Questions.drawn(split, count, seed, limit)
    most = max(len(model.tokenizer.encode(fact.answer)) for fact in questions.facts) + SPARE_TOKENS
    asker = Asker(model, learning, most)
    texts = [MeasuredText(line, text) for line, text in enumerate(questions.paragraphs, 1)]
    before = joined(await score_texts(model, texts))
    untaught = await _ask_facts(Asker(model, None, most), {}, questions.facts[:limit], on_progress)
    lessons, taught = await _teach(learning, questions.facts, on_progress)
    report: dict[str, Any] = {
        "model": model.config.name, "backend": model.engine.capabilities.backend, "split": split, "seed": seed,
        "facts": len(questions.facts), "taught": taught,
        "untaught": {name: found.entry() for name, found in untaught.items()}, "stored": {},
    }  # fmt: skip
    if consolidating:
        report["consolidation"] = await _consolidate(model, learning, questions.facts[:limit], most, texts, on_progress)
    full = len(questions.facts)
    for size in (full, *(size for size in stored if size > full)):
        if size > full:
            await _fill(learning, _fillers(questions, size), on_progress)
        asked = await _ask_facts(asker, lessons, questions.facts[:limit], on_progress)
        report["stored"][size] = {
            **{name: found.entry() for name, found in asked.items()},
            **(await _openings(asker, learning, questions, on_progress)),
        }
    after = joined(await score_texts(model, texts, head_of=head_of_lesson(learning)))
    report["perplexity"] = {
        "tokens": after.tokens, "before": before.perplexity, "after": after.perplexity,
        "change": after.perplexity / before.perplexity - 1,
    }  # fmt: skip
    return report


async def _teach(
    learning: LearningService, given: Sequence[InventedFact], on_progress: Progress
) -> tuple[dict[str, str], dict[str, Any]]:
    """The lessons' ids by their questions, and the time that it took."""
    lessons, made = {}, []
    for number, fact in enumerate(given):
        on_progress("Teaching", number, len(given))
        made.append(await learning.teach(fact.question, fact.answer))
        lessons[fact.question] = made[-1].lesson.id
    figures = {"lessons": len(made), "ms": median(one.milliseconds for one in made)}
    for name in ("nll_before", "nll_after"):
        values = [getattr(one, name) for one in made]
        figures |= {name: mean(values), f"{name}_worst": max(values)}
    return lessons, figures


async def _fill(learning: LearningService, given: Sequence[InventedFact], on_progress: Progress) -> None:
    """Store lessons as an import does: the model's data of a lesson are made when the gate finds it."""
    for begin in range(0, len(given), AT_ONCE):
        on_progress("Storing", begin, len(given))
        part = given[begin : begin + AT_ONCE]
        meanings = await learning.embedder.meanings([fact.question for fact in part])
        kept = [
            await learning.memory.lessons.keep(Lesson(fact.question, fact.answer, vector=meaning.vector))
            for fact, meaning in zip(part, meanings, strict=True)
        ]
        await learning.meanings.of(kept)


async def _ask_facts(
    asker: Asker, lessons: dict[str, str], given: Sequence[InventedFact], on_progress: Progress
) -> dict[str, Asked]:
    found = {"questions": Asked(), "paraphrases": Asked()}
    for number, fact in enumerate(given):
        on_progress("Asking", number, len(given))
        for at, text in enumerate((fact.question, *fact.paraphrases)):
            counted = found["paraphrases" if at else "questions"]
            answer = await asker.answer(text)
            used = answer.lesson.id if answer.lesson else None
            counted.asked += 1
            counted.found += used is not None and used == lessons.get(fact.question)
            counted.misled += used is not None and used != lessons.get(fact.question)
            counted.right += (right := answer.text.strip() == fact.answer)
            counted.read_right += bool(answer.read) and right
            counted.read_wrong += bool(answer.read) and not right
    return found


async def _consolidate(
    model: Model, learning: LearningService, given: Sequence[InventedFact], most: int, texts: Sequence[MeasuredText],
    on_progress: Progress,
) -> dict[str, Any]:  # fmt: skip
    """Measures the answers of the trained adapter alone, and its cost on other texts. Afterwards the plain model
    answers."""
    asker = Asker(model, None, most)
    loop = await ConsolidationService.open(learning, asker.assistant.adapters, asker.assistant.adapters.use_learned)
    run = await loop.consolidate(
        priority=Priority.BACKGROUND, report=lambda done, total, what="": on_progress("Consolidating", done, total)
    )
    assert run is not None
    asked = await _ask_facts(asker, {}, given, on_progress)
    scored = joined(await score_texts(model, texts, await asker.assistant.adapter_number()))
    loop.close()
    await asker.assistant.adapters.use_learned(None)
    learning.use_revision(0)
    return {
        **{name: found.entry() for name, found in asked.items()}, "run": run_entry(run),
        "perplexity": scored.perplexity,
    }  # fmt: skip


async def _openings(
    asker: Asker, learning: LearningService, questions: Questions, on_progress: Progress
) -> dict[str, Any]:
    """generic: all kinds but the vague ones together; kinds: each by itself."""
    near = await _opened(asker, learning, questions.near, on_progress)
    kinds = {kind: await _opened(asker, learning, texts, on_progress) for kind, texts in questions.generic.items()}
    counted = [found for kind, found in kinds.items() if kind != VAGUE]
    sums = (sum(getattr(one, name) for one in counted) for name in ("asked", "opened", "unsure", "read"))
    generic = OpenModel(*sums)
    generic.which = [each for one in counted for each in one.which]
    return {
        "look_ms": median([ms for one in (near, *kinds.values()) for ms in one.ms] or [0.0]),
        "near": near.entry(), "generic": generic.entry(),
        "kinds": {kind: {"asked": one.asked, **one.shares()} for kind, one in kinds.items()},
        "paragraphs": (await _opened(asker, learning, questions.paragraphs, on_progress)).entry(),
    }  # fmt: skip


async def _opened(asker: Asker, learning: LearningService, texts: Iterable[str], on_progress: Progress) -> OpenModel:
    found, texts = OpenModel(), list(texts)
    for number, text in enumerate(texts):
        on_progress("Looking for lessons", number, len(texts))
        found.asked += 1
        begin = time.perf_counter()
        considered = await learning.look(text)
        found.ms.append(1000 * (time.perf_counter() - begin))
        if considered and considered[0].score > learning.threshold:
            found.opened += 1
            found.which.append((text, considered[0].lesson.question))
        elif isinstance(unsure := await learning.recall_or_read(text), UnsureMatch):
            found.unsure += 1
            if (recalled := await read_facts(asker.assistant, learning.memory, text, unsure)) is not None:
                found.read += 1
                found.which.append((text, recalled.lesson.question))
    return found


def _fillers(questions: Questions, size: int) -> list[InventedFact]:
    """Facts from templates that fill the memory up to `size`; none of them answers a prompt."""
    asked = {_plain(text) for fact in questions.facts for text in (fact.question, *fact.paraphrases, *fact.near)}
    asked |= {_plain(text) for texts in questions.generic.values() for text in texts}
    wanted = size - len(questions.facts)
    return [fact for fact in template_facts(wanted + 50) if _plain(fact.question) not in asked][:wanted]


def _plain(text: str) -> str:
    return " ".join(text.lower().split())
