"""The input and the outcome of a consolidation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Literal, Protocol

import numpy as np

from py_core.adapters.lora import LoraAdapter
from py_core.learning.lesson_examples import Portions, TaughtAnswer
from py_core.messages import Message
from py_core.training.trainer import StepReport

Verdict = Literal["accepted", "scaled", "refused"]


class TrainingStage(Enum):
    """The stages of a consolidation, in order. Each value completes a sentence for people that begins with "it "."""

    READING = Message("training.reading", "reads texts that must stay as likely as they are")
    ANSWERING = Message("training.answering", "writes down how it answers now")
    ASKING = Message("training.asking", "tests itself on what it was taught")
    WORDING = Message("training.wording", "looks for other ways to say what it was taught")
    TRAINING = Message("training.training", "trains")
    WEIGHING = Message("training.weighing", "measures which weights matter most")
    TESTING = Message("training.testing", "tests the result")


@dataclass(frozen=True)
class Texts:
    """Texts whose predictions must not change.

    texts and prompts: trained on, the latter with the model's own answers. probe: never trained on.
    """

    texts: Sequence[str]
    prompts: Sequence[str]
    probe: Sequence[str]


@dataclass(frozen=True)
class Recipe:
    """How to train, and what to accept. docs/decisions/0045 says how the numbers were found.

    rank, scale: of the pairs; scale is alpha / rank. rate, rate_again: for the first training, and for one that
    continues, of models of this width or narrower (`rate_of`). text_tokens, answer_tokens: the most tokens of each
    kept text and answer. wordings: questions in other words that the model generates for each new lesson. harm: how
    much the probe's perplexity may grow over the plain model's; 0.03 is 3%. scales: tried in this order. elastic,
    fisher_keep: for elastic weight consolidation, from the second training on. recalled: the most lessons that are
    asked before and after.
    """

    portions: Portions = field(default_factory=Portions)
    rank: int = 8
    scale: float = 2.0
    rate: float = 4e-3
    rate_again: float = 2.4e-3
    width: int = 576
    warm_up: int = 5
    beta2: float = 0.95
    text_tokens: int = 56
    answer_tokens: int = 40
    wordings: int = 8
    harm: float = 0.03
    scales: tuple[float, ...] = (1.0, 0.85, 0.7, 0.55)
    elastic: float = 1e4
    fisher_keep: float = 0.5
    recalled: int = 48
    save_every: int = 8

    def rate_of(self, hidden: int, again: bool) -> float:
        """The highest learning rate for a model of this width. again: the training continues an earlier one.

        A wider model has more weights that move together, and needs smaller steps: by the square of its width.
        """
        return (self.rate_again if again else self.rate) * min(1.0, self.width / hidden) ** 2


@dataclass(frozen=True, eq=False)
class Start:
    """The revision that a training continues from. fisher: of the lessons that it knows, None if unknown.
    probe: `Outcome.probe` of the run that made it."""

    parameters: np.ndarray
    fisher: np.ndarray | None = None
    probe: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Job:
    """new: lessons that the start does not know, at least one. old: lessons that it knows."""

    new: Sequence[TaughtAnswer]
    old: Sequence[TaughtAnswer] = ()
    start: Start | None = None


@dataclass(frozen=True, eq=False)
class Outcome:
    """why: a sentence. scale: the last one that was tried.

    parameters: to keep, with the scale applied, float32 (layout.size,), each a float16 value; None if it was refused.
    fisher: of the lessons, for the next training. probe: perplexities of the plain model ("base"), of the revision
    "before", and "after". recall: the shares of lessons whose answers came word by word, "before" and "after", and
    "old": afterwards, among the lessons that the start knew. norm: of the change of the weights. tokens: trained on.
    """

    verdict: Verdict
    why: Message
    scale: float
    parameters: np.ndarray | None
    fisher: np.ndarray | None
    steps: tuple[StepReport, ...]
    probe: Mapping[str, float]
    recall: Mapping[str, float]
    norm: float
    tokens: int
    seconds: float


class Desk(Protocol):
    """Storage and progress reports of a consolidation."""

    async def prompt(self, question: str) -> list[int]:
        """The tokens of a conversation with this question, up to where the answer begins."""
        ...

    async def fitting(self, question: TaughtAnswer, wordings: Sequence[str]) -> list[str]:
        """The wordings that ask for the same thing as the question."""
        ...

    async def read(self, name: str) -> bytes | None:
        """The data kept under a name: "plan", "steps" or "checkpoint" of this run; "known", shared by all runs."""
        ...

    async def write(self, name: str, data: bytes) -> None: ...

    async def use(self, adapter: LoraAdapter) -> int:
        """Upload the adapter to the model. Returns its number, for `Engine.use_adapter`."""
        ...

    async def forget(self, name: str) -> None:
        """Remove the adapter of this name."""
        ...

    def report(self, done: int, total: int, stage: TrainingStage) -> None:
        """Report that about `done` of `total` tokens have run."""
        ...

    def stepped(self, report: StepReport) -> None: ...

    def trouble(self, said: Message) -> None: ...
