"""What a consolidation is given, and what comes of it."""

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


class Stage(Enum):
    """What a consolidation does, one after the other, in words for people that go on from "it "."""

    READING = Message("training.reading", "reads texts that are to stay as likely as they are")
    ANSWERING = Message("training.answering", "writes down how it answers now")
    ASKING = Message("training.asking", "asks itself what it was taught")
    WORDING = Message("training.wording", "looks for other words for what it was taught")
    TRAINING = Message("training.training", "trains")
    WEIGHING = Message("training.weighing", "looks what of it matters most")
    TESTING = Message("training.testing", "tests what came of it")


@dataclass(frozen=True)
class Texts:
    """What must not change. texts and prompts: trained on, the latter with the model's own answers. probe: never."""

    texts: Sequence[str]
    prompts: Sequence[str]
    probe: Sequence[str]


@dataclass(frozen=True)
class Recipe:
    """How to train, and what to accept. docs/decisions/0045 says how the numbers were found.

    rank, scale: of the pairs; scale is alpha / rank. rate, rate_again: of the first training, and of one that goes on.
    text_tokens, answer_tokens: of each kept text and answer, at most. wordings: questions in other words that the model
    draws for each new lesson. harm: how much the probe's perplexity may grow over the plain model's, 0.03 is 3%.
    scales: tried one after the other. elastic, fisher_keep: of elastic weight consolidation, from the second training
    on. recalled: lessons that are asked before and after, at most.
    """

    portions: Portions = field(default_factory=Portions)
    rank: int = 8
    scale: float = 2.0
    rate: float = 4e-3
    rate_again: float = 2.4e-3
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


@dataclass(frozen=True, eq=False)
class Start:
    """The revision that a training goes on from. fisher: of the lessons that it knows; None where it is not known.
    probe: `Outcome.probe` of the run that made it."""

    parameters: np.ndarray
    fisher: np.ndarray | None = None
    probe: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Job:
    """new: lessons that the start does not know, one at least; old: those that it knows."""

    new: Sequence[TaughtAnswer]
    old: Sequence[TaughtAnswer] = ()
    start: Start | None = None


@dataclass(frozen=True, eq=False)
class Outcome:
    """why: a sentence. scale: at which it was tried last.

    parameters: what to keep, with the scale in it, float32 (layout.size,), each a float16; None where it was refused.
    fisher: of the lessons, for the next training. probe: perplexities of the plain model ("base"), of the revision
    "before", and "after". recall: "before" and "after", shares of the lessons whose answers came word by word, and
    "old", afterwards of those that the start knew. norm: of what is added to the weights. tokens: of the training.
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
    """Where a consolidation finds and keeps things, and tells how far it is."""

    async def prompt(self, question: str) -> list[int]:
        """A conversation with this question, up to where the answer begins."""
        ...

    async def fitting(self, question: TaughtAnswer, wordings: Sequence[str]) -> list[str]:
        """Those of the wordings that ask for the same."""
        ...

    async def read(self, name: str) -> bytes | None:
        """What was kept under a name: "plan", "steps" or "checkpoint" of this run; "known", of the model, for all."""
        ...

    async def write(self, name: str, data: bytes) -> None: ...

    async def use(self, adapter: LoraAdapter) -> int:
        """Bring it to the model; its number, for `Engine.use_adapter`."""
        ...

    async def forget(self, name: str) -> None:
        """Take the adapter of this name away again."""
        ...

    def report(self, done: int, total: int, stage: Stage) -> None:
        """About so many tokens ran, of so many."""
        ...

    def stepped(self, report: StepReport) -> None: ...

    def trouble(self, said: Message) -> None: ...
