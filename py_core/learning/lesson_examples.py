"""What a consolidation trains with, step by step: lessons asked in many ways, old ones again, and what must not change.

All of it is chosen before the first step, by the seed: so a step that runs again has the same examples.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np

from py_core.learning.augmentation import Asker, Mix
from py_core.training.packing import Example

T = TypeVar("T")

LEAST_WEIGHT = 0.1
"""Of a lesson whose answers the person found bad, in its loss: it is still taught."""


@dataclass(frozen=True)
class TaughtAnswer:
    """A lesson as training needs it. answer: its tokens, with the one that ends it. quality: 0 to 1.

    wordings: other questions for it, by the model itself.
    """

    id: str
    question: str
    answer: tuple[int, ...]
    quality: float = 1.0
    wordings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Kept:
    """Tokens that are read, and those after them of which the model should go on to say what its base says."""

    read: tuple[int, ...]
    compared: tuple[int, ...]


@dataclass(frozen=True)
class Portions:
    """How much of what is trained on. docs/decisions/0045 says how the numbers were found.

    a_step: lessons in a step, of which `rehearsed` are old ones where there are any. rounds: how often each new one
    comes, rounds_again where there are old ones, in steps of least_steps to most_steps in all. texts, answers: how many
    of the kept ones a step has, and text_weight, answer_weight: what their KL divergences count beside the lessons'
    cross-entropy, which counts 1.
    """

    a_step: int = 8
    rehearsed: int = 3
    rounds: float = 28.0
    rounds_again: float = 20.0
    least_steps: int = 24
    most_steps: int = 400
    texts: int = 1
    answers: int = 1
    text_weight: float = 2.0
    answer_weight: float = 0.3
    mix: Mix = field(default_factory=Mix)

    def steps(self, new: int, old: int) -> int:
        """Of a training of so many lessons."""
        wanted = round((self.rounds_again if old else self.rounds) * new / self._news(new, old))
        return min(max(wanted, self.least_steps), self.most_steps)

    def _news(self, new: int, old: int) -> int:
        """New lessons in a step. Of few lessons each may come twice in it, in other words."""
        return min(self.a_step - (self.rehearsed if old else 0), 2 * new)

    @property
    def divergence(self) -> float:
        """The weight of all KL divergences: `trainer.Settings.divergence`."""
        return (self.text_weight if self.texts else 0.0) + (self.answer_weight if self.answers else 0.0)


Prompt = Callable[[str], Awaitable[list[int]]]
"""A question's tokens, behind those that every conversation begins with, up to where the answer begins."""


async def examples_of(
    portions: Portions, new: Sequence[TaughtAnswer], old: Sequence[TaughtAnswer], texts: Sequence[Kept],
    answers: Sequence[Kept], prompt: Prompt, seed: int, max_rows: int,
) -> list[list[Example]]:  # fmt: skip
    """The examples of each step. The same arguments give the same ones.

    max_rows: of a pass; where a question in other words is longer it is asked as it was taught.
    """
    draw, asker = np.random.default_rng([seed, 1]), Asker(portions.mix)
    steps, news = portions.steps(len(new), len(old)), portions._news(len(new), len(old))
    draws = [np.random.default_rng([seed, number]) for number in range(2, 6)]
    new_ones, old_ones = _Round(new, draws[0]), _Round(old, draws[1])
    kept_texts, kept_answers = _Round(texts, draws[2]), _Round(answers, draws[3])
    plain = {lesson.id: await prompt(lesson.question) for lesson in (*new, *old)}
    found = []
    for _ in range(steps):
        step = []
        for lesson in (*new_ones.take(news), *old_ones.take(portions.rehearsed)):
            asked = await prompt(asker.ask(lesson.question, draw, lesson.wordings))
            if len(asked) + len(lesson.answer) > max_rows:
                asked = plain[lesson.id]
            step.append(_answer(asked, lesson))
        for weight, kept in (
            (portions.text_weight, kept_texts.take(portions.texts)),
            (portions.answer_weight, kept_answers.take(portions.answers)),
        ):
            step += [_kept(one, weight / len(kept)) for one in kept if weight]
        found.append(step)
    return found


class _Round(Generic[T]):
    """Each of some things once, in an order that is drawn, then each again in another one."""

    def __init__(self, things: Sequence[T], draw: np.random.Generator) -> None:
        self._things, self._draw, self._left = things, draw, list[int]()

    def take(self, count: int) -> list[T]:
        """The next ones; none where there are none."""
        while self._things and len(self._left) < count:
            self._left += self._draw.permutation(len(self._things)).tolist()
        taken, self._left = self._left[:count], self._left[count:]
        return [self._things[at] for at in taken]


def _answer(asked: Sequence[int], lesson: TaughtAnswer) -> Example:
    weight = max(lesson.quality, LEAST_WEIGHT)
    weights = (*(0.0 for _ in asked), *(weight for _ in lesson.answer))
    return Example((*asked, *lesson.answer), weights, tuple(0.0 for _ in weights))


def _kept(kept: Kept, weight: float) -> Example:
    """Its tokens count `weight` together, however long it is."""
    each = weight / len(kept.compared)
    kl_weights = (*(0.0 for _ in kept.read), *(each for _ in kept.compared))
    return Example((*kept.read, *kept.compared), tuple(0.0 for _ in kl_weights), kl_weights)
