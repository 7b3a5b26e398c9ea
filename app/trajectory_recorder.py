"""Records what happened while an answer was made: at once what is known, and in the background what has to be read.

At the answer a record is put into the writer's queue. A second later, if the person did not go on, the answer's tokens
run again on the conversation's own sequence: their log-probabilities, and the residual stream at some depths. Whoever
is more urgent goes first, and where the conversation changes the reading ends, without an error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from app.assistant import Assistant
from app.services import Services
from py_core.backends.base import MAX_TAPS, BackendError
from py_core.learning.quality import parts_of, quality_of
from py_core.memory.errors import StoreError
from py_core.memory.memory import Memory
from py_core.memory.trajectories import Trace, Trajectory
from py_core.routing.agents import Agent
from py_core.routing.embedder import EmbedderError

INSTANT_POLICY = "learning.instant"
"""The switch of the instant loop. Where it is off nothing is recorded."""
DEPTHS_POLICY = "learning.depths"
"""The depths at which the residual stream is read, beside those of the agent."""
DEPTHS = [0.25, 0.5, 0.75]
IDLE_SECONDS = 1.0
"""Between an answer and its reading: who goes on at once does not wait for a pass of it."""
LONGEST_EMBEDDED = 4_000
"""Characters, as turn_indexer.py has them: what it embedded is not embedded again."""


class TrajectoryRecorder:
    """Records the answers of one assistant."""

    def __init__(self, assistant: Assistant, services: Services, idle_seconds: float = IDLE_SECONDS) -> None:
        self.idle_seconds = idle_seconds
        self._assistant, self._services = assistant, services

    def answered(self, memory: Memory, trajectory: Trajectory, agent: Agent | None) -> None:
        """Record an answer that the assistant has just given. Waits for nothing. Raises StoreError."""
        if not memory.policies.is_on(INSTANT_POLICY):
            return
        made = memory.trajectories.record(trajectory)
        tokens = tuple(self._assistant.sequence.tokens)
        layers = self.layers(memory, agent)
        memory.background.start(lambda: self._read(memory, made, tokens, layers))

    def asked_again(self, memory: Memory, id: str) -> None:
        """The person wanted another answer in place of this one: a weak sign that it was not good."""

        def again(trajectory: Trajectory) -> Trajectory:
            return rated(replace(trajectory, again=True))

        async def note() -> None:
            try:
                await memory.trajectories.change(id, again)
            except StoreError as error:
                self._services.trouble(error)

        if id:
            memory.background.start(note)

    def layers(self, memory: Memory, agent: Agent | None) -> list[str]:
        """The values that are read of an answer of this agent's (`Engine.hidden`)."""
        policy = memory.policies.look(DEPTHS_POLICY)
        chosen = policy.value if policy is not None and isinstance(policy.value, list) else DEPTHS
        depths = [depth for depth in (*chosen, *(agent.depths if agent else ())) if 0 < depth <= 1]
        config = self._assistant.model.config
        return list(dict.fromkeys(config.residual_at(depth) for depth in sorted(depths)))[:MAX_TAPS]

    async def _read(self, memory: Memory, made: Trajectory, tokens: Sequence[int], layers: list[str]) -> None:
        try:
            await asyncio.sleep(self.idle_seconds)
            prompt, answer = tokens[: made.prompt_tokens], tokens[made.prompt_tokens :]
            trace = await self._trace(memory, tokens, len(prompt), layers)
            logprob = None if trace.logprobs is None else min(float(np.mean(trace.logprobs, dtype=np.float64)), 0.0)
            async with memory.background.step():
                similarity = await self._similarity(made)
            async with memory.background.step():
                # What the model says without the lesson tells nothing of an answer that a lesson gave.
                parts = parts_of(answer, prompt, made.reason, None if made.lesson else logprob, similarity)
            await memory.trajectories.change(made.id, lambda now: rated(replace(now, parts=parts, logprob=logprob)))
            await memory.trajectories.keep_trace(made.id, trace)
        except StoreError as error:
            if error.reason != "closed":
                self._services.trouble(error)

    async def _trace(self, memory: Memory, tokens: Sequence[int], start: int, layers: list[str]) -> Trace:
        """As much of it as can be read before the person goes on."""
        engine, sequence = self._assistant.model.engine, self._assistant.sequence
        trace = Trace(np.array(tokens[start:], np.int32))
        try:
            async with memory.background.step():
                if tuple(sequence.tokens) != tokens or not 1 <= start < len(tokens):
                    return trace
                logprobs = await engine.token_logprobs(sequence, tokens, start)
                trace = replace(trace, logprobs=_compact(logprobs))
            async with memory.background.step():
                if tuple(sequence.tokens) != tokens or not layers:
                    return trace
                states = await engine.hidden(sequence, layers, start - 1)
                last = np.stack([states[name][0] for name in layers])
                mean = np.stack([states[name][1:].mean(axis=0) for name in layers])
                return replace(trace, layers=tuple(layers), last=_compact(last), mean=_compact(mean))
        except BackendError:  # the conversation goes on, or the device was lost: then the next answer says so
            return trace

    async def _similarity(self, made: Trajectory) -> float | None:
        routing = self._services.routing
        if routing is None or not made.answered.strip():
            return None
        try:
            asked, answered = await routing.embedder.meanings([made.asked, made.answered])
        except EmbedderError:
            return None
        return float(asked.vector @ answered.vector)


def rated(trajectory: Trajectory) -> Trajectory:
    """With the quality that follows from its parts and from what the person said and did."""
    told = trajectory
    return replace(told, quality=quality_of(told.parts, told.feedback, told.kept, told.again))


def _compact(values: np.ndarray) -> np.ndarray:
    """In half the bytes. Residuals of some models have values that float16 lacks: they become its largest."""
    limit = np.finfo(np.float16).max
    return np.clip(values, -limit, limit).astype(np.float16)
