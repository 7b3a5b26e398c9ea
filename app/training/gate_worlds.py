"""The data for training and measuring the gate: stored lessons, and prompts with the lesson that answers them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from app.lessons.facts import VAGUE, FactSplit, GenericPrompt, InventedFact, Split, facts, generic_prompts, paragraphs
from app.lessons.facts.templates import template_facts
from app.lessons.service import NEAR
from py_core.learning.gate.features import FEATURES, Taught, has_words, pair_features
from py_core.learning.gate.gate import CANDIDATES
from py_core.routing.embedder import Meaning

NOTHING = -1
"""The number that stands for "no lesson answers the prompt"."""
NEUTRAL = frozenset(("knowledge", "chat", "coding", "follow-up", "writing", "how-to", "foreign"))
"""Kinds of generic prompts that no taught fact answers."""


class MeaningEmbedder(Protocol):
    async def meanings(self, texts: Sequence[str]) -> Sequence[Meaning]: ...


@dataclass(frozen=True)
class Prompt:
    """kind: "taught", "paraphrase", "near", "generic", "vague" or "paragraph". detail: the kind of a generic prompt.

    lesson: the number of the lesson that answers it, or NOTHING.
    """

    text: str
    kind: str
    lesson: int
    detail: str = ""


def prompts_of(
    own: Sequence[InventedFact], generic: Iterable[GenericPrompt] = (), unrelated: Iterable[str] = ()
) -> list[Prompt]:
    """All prompts about facts and beside them. A prompt that a fact does answer is neither near nor generic."""
    made = []
    answered = set()
    for number, fact in enumerate(own):
        made.append(Prompt(fact.question, "taught", number))
        made += [Prompt(text, "paraphrase", number) for text in fact.paraphrases]
        answered |= {text.lower() for text in (fact.question, *fact.paraphrases)}
    near = dict.fromkeys(text for fact in own for text in fact.near)
    made += [Prompt(text, "near", NOTHING) for text in near if text.lower() not in answered]
    made += [
        Prompt(row.prompt, VAGUE if row.kind == VAGUE else "generic", NOTHING, row.kind)
        for row in generic
        if row.prompt.lower() not in answered
    ]
    return made + [Prompt(text, "paragraph", NOTHING) for text in unrelated]


def split_of(split: FactSplit) -> tuple[Sequence[InventedFact], list[Prompt]]:
    """The facts of a split and all its prompts; with common facts only the NEUTRAL ones."""
    own = facts(split)
    if split in ("common_train", "common_dev"):
        beside: Split = "train" if split == "common_train" else "dev"
        return own, prompts_of(own, [row for row in generic_prompts(beside) if row.kind in NEUTRAL])
    if split == "held_de":
        return own, prompts_of(own, generic_prompts(split))
    name: Split = "train" if split == "train" else "dev" if split == "dev" else "held"
    return own, prompts_of(own, generic_prompts(name), paragraphs(name))


@dataclass(frozen=True, eq=False)
class World:
    """lessons: (question, question and answer) each; `own` of them are of the split, the others of templates.

    by_question, by_best: float32 (prompts, lessons), the cosine of the prompt to the question, and the larger of that
    and the cosine to question and answer.
    """

    prompts: list[Prompt]
    asked: list[Taught]
    lessons: list[tuple[Taught, Taught]]
    own: int
    by_question: np.ndarray
    by_best: np.ndarray

    def candidates(self, prompt: int, stored: np.ndarray) -> np.ndarray:
        """The lessons that the gate sees, as LearningService.consider finds them. stored: numbers of lessons."""
        near = stored[np.argsort(-self.by_question[prompt, stored], kind="stable")[:NEAR]]
        return near[np.argsort(-self.by_best[prompt, near], kind="stable")[:CANDIDATES]]

    def stores(self, size: int, draws: int, seed: int = 0) -> list[np.ndarray]:
        """The numbers of the lessons in a memory: draws of `size` own ones, or one memory of all own ones and more."""
        if size >= self.own:
            return [np.arange(min(size, len(self.lessons)))]
        rng = np.random.default_rng(seed)
        return [np.sort(rng.permutation(self.own)[:size]) for _ in range(draws)]


async def open_world(
    embedder: MeaningEmbedder, own: Sequence[InventedFact], prompts: Sequence[Prompt], stored: int = 0
) -> World:
    """own: the facts that the prompts are about. stored: templates fill the memory up to this number of lessons."""
    known = {prompt.text.lower() for prompt in prompts}
    filling = [fact for fact in template_facts(stored + 50) if fact.question.lower() not in known] if stored else []
    every = [*own, *filling[: max(0, stored - len(own))]]
    texts = [prompt.text for prompt in prompts]
    texts += [fact.question for fact in every] + [f"{fact.question} {fact.answer}" for fact in every]
    taught = list(zip(texts, await embedder.meanings(texts), strict=True))
    asked, questions = taught[: len(prompts)], taught[len(prompts) : len(prompts) + len(every)]
    both = taught[len(prompts) + len(every) :]
    a, q, qa = (np.stack([meaning.vector for _, meaning in part]) for part in (asked, questions, both))
    by_question = a @ q.T
    by_best = np.maximum(by_question, a @ qa.T)
    return World(list(prompts), asked, list(zip(questions, both, strict=True)), len(own), by_question, by_best)


@dataclass(frozen=True)
class GateGroup:
    """A prompt before one memory, and the candidate that answers it. kind: "other" if that lesson is not stored."""

    kind: str
    detail: str
    prompt: int
    lessons: np.ndarray
    rows: slice
    right: np.ndarray


@dataclass(frozen=True, eq=False)
class Compared:
    """Features (pairs, FEATURES) of all prompts with their candidates, and the prompt of each row.

    Prompts that cannot be compared have no rows.
    """

    features: np.ndarray
    groups: list[GateGroup]

    @classmethod
    def of(cls, world: World, stores: Iterable[np.ndarray]) -> Compared:
        """All prompts before each of the memories."""
        return cls.of_cases(world, ((at, stored) for stored in stores for at in range(len(world.prompts))))

    @classmethod
    def of_cases(cls, world: World, cases: Iterable[tuple[int, np.ndarray]]) -> Compared:
        """cases: the number of a prompt, and the numbers of the lessons that are stored."""
        known: dict[tuple[int, bytes], slice] = {}
        found: list[np.ndarray] = []
        groups = []
        count = 0
        for number, stored in cases:
            prompt, lessons = world.prompts[number], world.candidates(number, stored)
            key = number, lessons.tobytes()
            if key not in known:
                there = has_words(world.asked[number])
                if there:
                    found.append(pair_features(world.asked[number], [world.lessons[at] for at in lessons]))
                known[key] = slice(count, count + len(lessons) * there)
                count = known[key].stop
            kind = "other" if prompt.lesson >= 0 and prompt.lesson not in stored else prompt.kind
            groups.append(GateGroup(kind, prompt.detail, number, lessons, known[key], lessons == prompt.lesson))
        return cls(np.concatenate(found) if found else np.zeros((0, FEATURES), np.float32), groups)


@dataclass(frozen=True)
class Decisions:
    """For each group: its kind, the best candidate's score, and whether that candidate is the right one."""

    kinds: np.ndarray
    scores: np.ndarray
    right: np.ndarray

    @classmethod
    def of(cls, compared: Compared, score: Callable[[np.ndarray], np.ndarray], shut: float) -> Decisions:
        """score: of features. shut: the score of prompts that cannot be compared."""
        every = score(compared.features)
        best, right = [], []
        for group in compared.groups:
            scores = every[group.rows]
            at = int(scores.argmax()) if len(scores) else 0
            best.append(float(scores[at]) if len(scores) else shut)
            right.append(bool(len(scores) and group.right[at]))
        return cls(np.array([group.kind for group in compared.groups]), np.array(best), np.array(right))

    def shares(self, threshold: float) -> dict[str, float]:
        """For each kind the share that is open; for "taught" and "paraphrase" the share that is open and right."""
        opened = self.scores > threshold
        made = {}
        for kind in dict.fromkeys(self.kinds.tolist()):
            counted = opened & self.right if kind in ("taught", "paraphrase") else opened
            made[kind] = round(float(counted[self.kinds == kind].mean()), 4)
        return made
