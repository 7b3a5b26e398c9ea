"""Records how an answer was made. What is known is recorded at once; what must be read is added in the background.

After an answer a record is put into the writer's queue. A second later, if the person did not continue, the first
MOST_READ of the answer's tokens run again on the conversation's own sequence. This gives their log-probabilities. It is
idle work: it pauses while the person types, more urgent work comes first, and if the conversation changes, the reading
ends without an error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from app.generation.assistant import Assistant
from app.protocol import Done
from app.records.memory import Memory
from py_core.backend_errors import BackendError
from py_core.engine.scheduler import Priority
from py_core.learning.quality import parts_of, rated
from py_core.learning.trajectories import KEPT_TEXT, Trajectory
from py_core.routing.embedder import EmbedderError
from py_core.store.errors import StoreError

if TYPE_CHECKING:
    from app.runtime import Runtime

IDLE_SECONDS = 1.0
"""Seconds between an answer and its reading: a person who continues at once does not wait for a pass of it."""
MOST_READ = 256
"""Tokens of an answer that are read. Its beginning tells how good it is, and even the longest answer takes no more
time."""
READ_AT_ONCE = 16
"""Tokens that are read at once. If no key press came before, it is the most that a message waits for."""
MOST_COMPARED = 400
"""Characters of the message and of the answer: some 90 tokens. The embedder takes 30 ms for them in the page."""


class TrajectoryRecorder:
    """Records the answers of one assistant."""

    def __init__(self, assistant: Assistant, runtime: Runtime, idle_seconds: float = IDLE_SECONDS) -> None:
        self.idle_seconds = idle_seconds
        self._assistant, self._runtime = assistant, runtime

    def answered(self, memory: Memory, trajectory: Trajectory) -> None:
        """Record an answer that the assistant has just given. Does not wait. Raises StoreError."""
        made = memory.trajectories.record(trajectory)
        if not made.learnable:
            return
        tokens = tuple(self._assistant.sequence.tokens)
        memory.background.start(lambda: self._read(memory, made, tokens))

    def asked_again(self, memory: Memory, id: str) -> None:
        """Note that the person wanted another answer instead of this one: a weak sign that it was not good."""

        def again(trajectory: Trajectory) -> Trajectory:
            return rated(replace(trajectory, again=True))

        self._change(memory, id, again)

    def _change(self, memory: Memory, id: str, change: Callable[[Trajectory], Trajectory]) -> None:
        """Apply a change in the background; "" is no answer's id."""

        async def note() -> None:
            try:
                await memory.trajectories.change(id, change)
            except StoreError as error:
                self._runtime.trouble(error)

        if id:
            memory.background.start(note)

    def went_on(self, memory: Memory, id: str, answered: str, details: Mapping[str, Any], done: Done | None) -> None:
        """Note that a stopped answer was continued. details: of its turn. done: of the rest."""

        def longer(trajectory: Trajectory) -> Trajectory:
            stages = dict(trajectory.stages)
            stages["decode"] = stages.get("decode", 0.0) + (1000 * done.decode_seconds if done else 0.0)
            return replace(
                trajectory, answered=answered[:KEPT_TEXT], reason=details.get("reason", "error"),
                new_tokens=details.get("tokens", 0), stages=stages,
            )  # fmt: skip

        self._change(memory, id, longer)

    async def _read(self, memory: Memory, made: Trajectory, tokens: Sequence[int]) -> None:
        try:
            await asyncio.sleep(self.idle_seconds)
            prompt, answer = tokens[: made.prompt_tokens], tokens[made.prompt_tokens :]
            logprob = await self._logprob(memory, tokens, len(prompt))
            async with memory.background.step():
                similarity = await self._similarity(made)
            async with memory.background.step():
                # What the model says without the lesson tells nothing about the lesson's answer.
                parts = parts_of(answer, prompt, made.reason, None if made.lesson else logprob, similarity)
            await memory.trajectories.change(made.id, lambda now: rated(replace(now, parts=parts, logprob=logprob)))
        except StoreError as error:
            if error.reason != "closed":
                self._runtime.trouble(error)

    async def _logprob(self, memory: Memory, tokens: Sequence[int], start: int) -> float | None:
        """Return the mean log-probability of the answer's tokens; None if the person continued before it was read."""
        if not 1 <= start < len(tokens):
            return None
        engine, sequence = self._assistant.model.engine, self._assistant.sequence
        before_head, end = self._assistant.model.config.residual_at(1), min(len(tokens), start + MOST_READ)
        found = list[np.ndarray]()
        # From the prompt's last token on: it predicts the answer's first.
        for first in range(start - 1, end - 1, READ_AT_ONCE):
            async with memory.background.step():
                if tuple(sequence.tokens) != tokens:
                    return None
                stop = min(first + READ_AT_ONCE, end - 1)
                try:
                    rows = (await engine.hidden(sequence, [before_head], first, Priority.IDLE, stop))[before_head]
                    found.append(await engine.score_states(sequence, rows, tokens[first + 1 : stop + 1], Priority.IDLE))
                except BackendError:  # the conversation continues, or the device was lost: then the next answer says so
                    return None
        return min(float(np.mean(np.concatenate(found), dtype=np.float64)), 0.0)

    async def _similarity(self, made: Trajectory) -> float | None:
        routing = self._runtime.routing
        if routing is None or not made.answered.strip():
            return None
        try:
            texts = [text[:MOST_COMPARED] for text in (made.asked, made.answered)]
            asked, answered = await routing.embedder.meanings(texts)
        except EmbedderError:
            return None
        return float(asked.vector @ answered.vector)
