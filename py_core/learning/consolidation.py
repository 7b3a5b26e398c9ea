"""The background loop: moves what was taught from lessons into an adapter of the whole model, without harm to the rest.

consolidation = Consolidation(model, base_sha256, job, recipe, texts, desk)
outcome = await consolidation.run()    # can be cancelled at any time; another one's `run` resumes from what was kept
outcome.parameters                     # None if it was refused

A LoRA set on the model's linears is trained on the lessons' answers (lesson_examples.py). A KL term holds it to what
the base model predicts for other texts and for its own answers. Then a probe decides (probe.py). If held-out texts stay
as likely as before, the set is accepted as it is; else it is scaled down in steps; else it is refused.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace

import numpy as np

from py_core.adapters.lora import LoraAdapter
from py_core.adapters.norms import pair_norm
from py_core.adapters.parameters import ParameterLayout, parameter_layout
from py_core.engine.scheduler import Priority
from py_core.learning.consolidation_job import Desk, Job, Outcome, Recipe, Texts, TrainingStage, Verdict
from py_core.learning.known_base import KNOWN, KnownBase
from py_core.learning.lesson_examples import Kept, TaughtAnswer, examples_of
from py_core.learning.probe import greedy, perplexity, sequence_with
from py_core.learning.wordings import own_wordings
from py_core.loading import Model
from py_core.messages import Message
from py_core.models.graph import Graph
from py_core.tokenizers.prompts import encode_text
from py_core.training.checkpoint import Checkpoint, CheckpointError, Origin, read_checkpoint, write_checkpoint
from py_core.training.packing import TrainingExample, answer_example
from py_core.training.schedule import Schedule
from py_core.training.session import Loss, TrainingState
from py_core.training.trainer import StepReport, Trainer, TrainerSettings, TrainingError, fresh_start

NAME = "learned"
"""The adapter's name while it is tried."""


@dataclass
class _Plan:
    """The decisions made before the first step. They are kept, so that an interrupted run resumes with them."""

    job: str
    answers: list[tuple[list[int], list[int]]] = field(default_factory=list)
    wordings: dict[str, list[str]] = field(default_factory=dict)
    probe: dict[str, float] = field(default_factory=dict)
    recall: dict[str, float] = field(default_factory=dict)
    seconds: float = 0.0
    is_complete: bool = False


class Consolidation:
    """One training and the decision about its result. Call `run` once; another instance resumes the same job."""

    def __init__(
        self, model: Model, base_sha256: str, job: Job, recipe: Recipe, texts: Texts, desk: Desk, seed: int = 0,
        priority: Priority = Priority.IDLE,
    ) -> None:  # fmt: skip
        self._model, self._engine, self._base = model, model.engine, base_sha256
        self._job, self._recipe, self._texts, self._desk = job, recipe, texts, desk
        self._seed, self._priority = seed, priority
        self.layout = layout_of(model.graph, recipe)
        self._lessons = [*job.new, *job.old]
        portions = recipe.portions
        rate = recipe.rate_of(model.config.hidden_size, again=job.start is not None)
        schedule = Schedule(rate, portions.steps(len(job.new), len(job.old)), recipe.warm_up)
        elastic = recipe.elastic if job.start and job.start.fisher is not None else 0.0
        self._settings = TrainerSettings(
            schedule, portions.divergence, beta2=recipe.beta2, save_every=recipe.save_every, elastic=elastic
        )
        self._reports: list[StepReport] = []
        self._done = self._total = 0
        self._stage = TrainingStage.READING

    async def run(self) -> Outcome:
        """Prepare, train, and decide. It may be cancelled anywhere.

        Raises BackendError, ChatTemplateError, and what the desk raises. Progress so far is kept.
        """
        plan = await self._prepared()
        seconds, begin = plan.seconds, time.perf_counter()
        outcome = await self._trained(plan)
        if isinstance(outcome, Message):
            return self._refused(plan, outcome, seconds + time.perf_counter() - begin)
        state, fisher = outcome
        return await self._decided(plan, state, fisher, seconds + time.perf_counter() - begin)

    # ---- before the training ----

    async def _prepared(self) -> _Plan:
        self._count()
        plan = self._read_plan(await self._desk.read("plan"))
        if plan.is_complete:
            self._stage = TrainingStage.TRAINING
            self._tell(self._total - self._training_tokens - self._checking_tokens)
            return plan
        begin = time.perf_counter()
        self._enter(TrainingStage.READING)
        priority = self._priority
        known = await self._known()
        plan.probe["base"], plan.answers = known.perplexity or math.inf, known.answers
        before, plan.probe["before"] = 0, plan.probe["base"]
        if (start := self._job.start) is not None:
            before = await self._desk.use(self.adapter(start.parameters))
            if start.probe.get("base") == plan.probe["base"]:  # measured on these texts and this backend
                plan.probe["before"] = start.probe["after"]
            else:
                plan.probe["before"] = await perplexity(self._engine, self._probe(), before, priority)
        self._enter(TrainingStage.ASKING)
        plan.recall["before"], _ = await self._recall(before)
        if before:
            await self._desk.forget(NAME)
        self._enter(TrainingStage.WORDING)
        plan.wordings = await own_wordings(
            self._model, self._job.new, self._recipe.wordings, self._desk.fitting, self._seed, priority, self._tell
        )
        plan.seconds, plan.is_complete = time.perf_counter() - begin, True
        await self._desk.write("plan", json.dumps(asdict(plan)).encode())
        return plan

    async def _known(self) -> KnownBase:
        """Facts that do not depend on what was taught; computed unless an earlier run kept them."""
        recipe, engine, priority = self._recipe, self._engine, self._priority
        data = await self._desk.read(KNOWN)
        known = KnownBase.read(data, engine, self._base, self._texts, recipe.answer_tokens)
        if known.perplexity is None:
            probe = self._probe()
            known.perplexity = await perplexity(engine, probe, 0, priority)
            self._tell(sum(map(len, probe)))
            self._enter(TrainingStage.ANSWERING)
            async with sequence_with(engine, 0) as sequence:
                for prompt in self._texts.prompts:
                    read = await self._desk.prompt(prompt)
                    if said := await greedy(engine, sequence, read, recipe.answer_tokens, priority):
                        known.answers.append((read, said))
                    self._tell(recipe.answer_tokens)
            await self._desk.write(KNOWN, known.to_bytes())
        else:
            self._tell(self._base_tokens)
        return known

    def _read_plan(self, data: bytes | None) -> _Plan:
        """The plan that was kept, if it belongs to this job."""
        told = {
            "lessons": [[one.id, one.question, one.answer, one.quality] for one in self._lessons],
            "new": len(self._job.new), "recipe": asdict(self._recipe), "seed": self._seed, "base": self._base,
            "texts": asdict(self._texts), "start": _digest(self._job.start.parameters) if self._job.start else "",
        }  # fmt: skip
        job = hashlib.sha256(json.dumps(told).encode()).hexdigest()
        try:
            plan = _Plan(**json.loads(data or b""))
        except (ValueError, TypeError):
            return _Plan(job)
        return plan if plan.job == job else _Plan(job)

    def _probe(self) -> list[list[int]]:
        tokens = [encode_text(self._model.tokenizer, text, bos=self._model.bos) for text in self._texts.probe]
        return [ids for ids in tokens if len(ids) > 1]

    async def _recall(self, adapter: int) -> tuple[float, float | None]:
        """The share of the lessons whose answers come word by word: among all lessons, or an even sample if there are
        too many; and among the old ones in that sample, None if it has none."""
        most = self._recipe.recalled
        asked, old_ones = self._lessons[:: -(-len(self._lessons) // most)], {one.id for one in self._job.old}
        right, old = 0, list[bool]()
        async with sequence_with(self._engine, adapter) as sequence:
            for lesson in asked:
                prompt, most = await self._desk.prompt(lesson.question), len(lesson.answer)
                said = await greedy(self._engine, sequence, prompt, most, self._priority, lesson.answer)
                is_right = said == list(lesson.answer) or said == list(lesson.answer[:-1])
                right += is_right
                old += [is_right] if lesson.id in old_ones else []
                self._tell(most)
        return right / len(asked), sum(old) / len(old) if old else None

    # ---- the training ----

    async def _trained(self, plan: _Plan) -> tuple[TrainingState, np.ndarray | None] | Message:
        """Where the training ended, and the Fisher information of the lessons; or why it could not be finished."""
        recipe = self._recipe
        self._enter(TrainingStage.TRAINING)
        training = await self._engine.open_training(self.layout, self._priority)
        try:
            try:
                batches = await self._examples(plan, training.max_rows)
            except TrainingError as error:
                return error.message
            origin = Origin(self.layout, self._base, f"{self._settings.recipe(self._seed)} {plan.job}")
            start = await self._kept(origin)

            async def save(checkpoint: Checkpoint) -> None:
                await self._desk.write("steps", json.dumps([_listed(one) for one in self._reports]).encode())
                await self._desk.write("checkpoint", write_checkpoint(checkpoint, origin))

            trainer = Trainer(
                training, lambda step: batches[step], self._settings, start, self._on_step, self._desk.trouble, save
            )
            try:
                trained = await trainer.run()
            except TrainingError as error:
                return error.message
            except asyncio.CancelledError:
                await save(await trainer.checkpoint())
                raise
            await save(trained)
            state = trained.state
            if recipe.elastic:
                self._enter(TrainingStage.WEIGHING)
                lessons = [
                    answer_example(await self._desk.prompt(one.question), one.answer)
                    for one in self._lessons
                    if await self._fits(one, training.max_rows)
                ]
                keep = recipe.fisher_keep if state.fisher.any() else 0.0
                state = (await trainer.add_fisher(lessons, keep)).state
        finally:
            training.close()
        return state, state.fisher if state.fisher.any() else None

    async def _examples(self, plan: _Plan, max_rows: int) -> list[list[TrainingExample]]:
        texts = [encode_text(self._model.tokenizer, text, bos=self._model.bos) for text in self._texts.texts]
        most = min(self._recipe.text_tokens, max_rows)
        kept = [Kept(tuple(ids[:1]), tuple(ids[1:most])) for ids in texts if len(ids) > 1]
        answers = [Kept(tuple(read), tuple(said)) for read, said in plan.answers if len(read) + len(said) <= max_rows]
        new, old = [
            [
                replace(one, wordings=tuple(plan.wordings.get(one.id, ())))
                for one in lessons
                if await self._fits(one, max_rows)
            ]
            for lessons in (self._job.new, self._job.old)
        ]
        if not new:
            raise TrainingError(
                "training.too-long",
                "The new lessons are too long to train on: over {most} tokens. They still answer.",
                most=max_rows,
            )
        return await examples_of(
            self._recipe.portions, new, old, kept, answers, self._desk.prompt, self._seed, max_rows
        )

    async def _fits(self, lesson: TaughtAnswer, max_rows: int) -> bool:
        """Return whether a pass has room for the lesson. One that does not fit is left out and stays a plain lesson."""
        return len(await self._desk.prompt(lesson.question)) + len(lesson.answer) <= max_rows

    async def _kept(self, origin: Origin) -> Checkpoint:
        """The checkpoint of the training that was interrupted, or of a new one."""
        data = await self._desk.read("checkpoint")
        try:
            checkpoint = read_checkpoint(data, origin) if data else None
            reports = [_report(each) for each in json.loads(await self._desk.read("steps") or b"[]")]
        except (CheckpointError, ValueError, TypeError):
            checkpoint = None  # of another job, or damaged: start from the beginning
        if checkpoint is not None:
            self._reports = [one for one in reports if one.step < checkpoint.step]
            self._tell(sum(one.tokens for one in self._reports))
            return checkpoint
        start = self._job.start
        if start is None:
            return fresh_start(self.layout, self._seed)
        state = TrainingState.of(start.parameters.astype(np.float32))
        if start.fisher is not None:
            state = TrainingState(state.parameters, state.first_moment, state.second_moment, start.fisher)
        return Checkpoint(state).next_task()

    def _on_step(self, report: StepReport) -> None:
        self._reports.append(report)
        self._desk.stepped(report)
        self._tell(report.tokens)

    # ---- the decision ----

    async def _decided(self, plan: _Plan, state: TrainingState, fisher: np.ndarray | None, seconds: float) -> Outcome:
        """Try the set as it is, then at smaller scales, until the probe accepts it."""
        self._enter(TrainingStage.TESTING)
        begin, probe, base = time.perf_counter(), self._probe(), plan.probe["base"]
        after, recall, old, scale, parameters = math.inf, 0.0, None, 0.0, None
        for scale in self._recipe.scales:
            tried = self.scaled(state.parameters, scale)
            number = await self._desk.use(self.adapter(tried))
            try:
                after = await perplexity(self._engine, probe, number, self._priority)
                self._tell(sum(map(len, probe)))
                if after <= base * (1 + self._recipe.harm):
                    (recall, old), parameters = await self._recall(number), tried
                    break
            finally:
                await self._desk.forget(NAME)
        plan.probe["after"], plan.recall["after"] = after, recall
        if old is not None:
            plan.recall["old"] = old
        before = plan.recall["before"]
        seconds += time.perf_counter() - begin
        if parameters is None:
            too_harmful = Message(
                "training.too-harmful",
                "Even at {scale} of its size it made other texts less likely: perplexity {after} instead of "
                "{base}. Everything stays as it was.",
                scale=f"{scale:.0%}",
                after=f"{after:.2f}",
                base=f"{base:.2f}",
            )
            return self._refused(plan, too_harmful, seconds, scale)
        if recall < before or recall == before < 1:
            gave_less = Message(
                "training.gave-less",
                "It gave {recall} of the answers, less than the {before} before it. Everything stays as it was.",
                recall=f"{recall:.0%}",
                before=f"{before:.0%}",
            )
            return self._refused(plan, gave_less, seconds, scale)
        figures = {"recall": f"{recall:.0%}", "after": f"{after:.2f}", "base": f"{base:.2f}"}
        if scale == 1:
            why = Message(
                "training.kept",
                "It gives {recall} of the answers. Perplexity of other texts: {after}, {base} without it.",
                **figures,
            )
            return self._outcome(plan, "accepted", why, scale, parameters, fisher, seconds)
        why = Message(
            "training.kept-scaled",
            "Scaled to {scale}, it gives {recall} of the answers. Perplexity of other texts: {after}, {base} "
            "without it.",
            scale=f"{scale:.0%}",
            **figures,
        )
        return self._outcome(plan, "scaled", why, scale, parameters, fisher, seconds)

    def adapter(self, parameters: np.ndarray) -> LoraAdapter:
        return self.layout.adapter(parameters, NAME, self._base)

    def scaled(self, parameters: np.ndarray, scale: float) -> np.ndarray:
        """The parameters as stored: rounded to float16, with the scale in each pair's b. float32 (layout.size,)."""
        flat = parameters.copy()
        for _, b in self.layout.views(flat).values():
            b *= np.float32(scale)
        return flat.astype(np.float16).astype(np.float32)

    def _refused(self, plan: _Plan, why: Message, seconds: float, scale: float = 0.0) -> Outcome:
        return self._outcome(plan, "refused", why, scale, None, None, seconds)

    def _outcome(
        self, plan: _Plan, verdict: Verdict, why: Message, scale: float, parameters: np.ndarray | None,
        fisher: np.ndarray | None, seconds: float,
    ) -> Outcome:  # fmt: skip
        norm = 0.0 if parameters is None else norm_of(self.layout, parameters)
        tokens = sum(one.tokens for one in self._reports)
        return Outcome(
            verdict,
            why,
            scale,
            parameters,
            fisher,
            tuple(self._reports),
            plan.probe,
            plan.recall,
            norm,
            tokens,
            seconds,
        )

    # ---- progress ----

    def _count(self) -> None:
        """Estimate how many tokens will run."""
        recipe, portions = self._recipe, self._recipe.portions
        answer = sum(len(one.answer) for one in self._lessons) / len(self._lessons)
        lesson = answer + 20
        step = portions.a_step * lesson + portions.texts * recipe.text_tokens + portions.answers * recipe.answer_tokens
        probe = sum(map(len, self._probe()))
        asked = min(len(self._lessons), recipe.recalled) * answer
        self._training_tokens = round(step * self._settings.schedule.steps)
        self._checking_tokens = round(probe + asked)
        words = recipe.wordings * len(self._job.new) * 12
        self._base_tokens = probe + len(self._texts.prompts) * recipe.answer_tokens
        self._total = round(self._base_tokens + asked + words) + self._training_tokens + self._checking_tokens

    def _enter(self, stage: TrainingStage) -> None:
        self._stage = stage
        self._tell(0)

    def _tell(self, tokens: int) -> None:
        self._done = min(self._done + tokens, self._total)
        self._desk.report(self._done, self._total, self._stage)


def layout_of(graph: Graph, recipe: Recipe) -> ParameterLayout:
    """The layout of the pairs that are trained: on all linears of the blocks."""
    return parameter_layout(graph, recipe.rank, recipe.scale)


def norm_of(layout: ParameterLayout, parameters: np.ndarray) -> float:
    """The Frobenius norm of all weight changes together, scale * b @ a."""
    return math.hypot(*(pair_norm(a, b, layout.scale) for a, b in layout.views(parameters).values()))


def _digest(array: np.ndarray) -> str:
    return hashlib.sha256(array.tobytes()).hexdigest()


def _listed(report: StepReport) -> list[float]:
    loss = report.loss
    return [report.step, loss.cross_entropy, loss.divergence, loss.penalty, report.norm, report.rate, report.tokens]


def _report(listed: Sequence[float]) -> StepReport:
    step, cross_entropy, divergence, penalty, norm, rate, tokens = listed
    return StepReport(int(step), Loss(cross_entropy, divergence, penalty), norm, rate, int(tokens))
