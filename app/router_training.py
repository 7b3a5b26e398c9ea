"""Trains the router's head with what the user corrected: a part of the background loop, without the model.

    training = RouterTraining(services)
    made = await training.train()       # None where there is nothing new
    made.verdict, made.why

Each training begins at the shipped head and takes all corrections, so what is deleted leaves no trace. It is kept only
if corrections that it was not trained with are routed better by it, and shipped examples that it was not trained with
are routed as well as before.
"""

from __future__ import annotations

import asyncio
import time
import zlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from app.agent_catalog import shipped_examples
from app.idle_work import Report
from app.routing_service import RoutingService
from app.services import Services
from app.trained_head import head_data, trained_head
from app.training_settings import PREFIX, SOURCE
from py_core.memory.heads import TrainedHead
from py_core.memory.patterns import Pattern
from py_core.routing.agents import FALLBACK_ID
from py_core.routing.head import Head
from py_core.routing.head_training import CORRECTION_WEIGHT, Rows, Step, retrained
from py_core.routing.pattern_index import pattern_id
from py_core.routing.router import Router

FEWEST = 4
"""Corrections, below which nothing can be held out."""
PARTS = 4
"""Each correction is held out of one of so many trainings."""
HARM = 0.01
"""So many shipped examples more may go wrong, as a share of those that are held out of all trainings."""
PROBED = 5
"""One of so many groups of examples is held out."""
LEAST_GAIN = 0.02
"""By so much the place (see Found) of corrections that it has not seen must be better, and as many be right."""
WEIGHT_POLICY = f"{PREFIX}router"
"""What a correction counts in the training beside CORRECTION_WEIGHT: learned from how trainings ended."""
LEAST_WEIGHT = 0.1
WHAT = "learns from how you corrected routes"


@dataclass(frozen=True)
class Found:
    """right: the share of requests that go to their agent. place: the mean of 1 / the place of that agent in the order
    of how likely each is (the mean reciprocal rank)."""

    right: float
    place: float


@dataclass(frozen=True, eq=False)
class _Material:
    """Of one training. corrections: in the order of their ids."""

    routing: RoutingService
    shipped: Head
    corrections: Sequence[Pattern]
    probe: Sequence[Pattern]
    rehearsed: Rows
    corrected: Rows
    weight: float
    step: Step

    async def head(self, chosen: np.ndarray) -> Head:
        """Trained with those of a mask (corrections,)."""
        rows = self.corrected.only(chosen)
        taken = [one for one, is_chosen in zip(self.corrections, chosen, strict=True) if is_chosen]
        weights = np.array([CORRECTION_WEIGHT * self.weight * one.weight for one in taken], np.float32)
        words, agents = self.routing.router.parameters.head_words, [one.agent for one in taken]
        return await retrained(self.shipped, self.rehearsed, rows, agents, weights, words=words, step=self.step)

    async def found(self, head: Head, asked: Sequence[Pattern]) -> tuple[Found, Found]:
        """With the shipped head and with this one, where those that are asked vote for nothing."""
        router = await self.routing.router.without({one.id for one in asked}, self.step)
        found = []
        for router.head in (self.shipped, head):
            found.append(await _found(router, asked, self.step))
        return found[0], found[1]


class RouterTraining:
    """One for the services. It works in steps of the memory's background, so that answers do not wait for it."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._running = asyncio.Lock()

    async def waiting(self) -> int:
        """Corrections that are not as the last training had them; 0 where there are too few, or just these were tried
        with the same weight."""
        routing = self._services.routing
        if routing is None:
            return 0
        now = _agents(await _corrections(routing))
        if len(now) < FEWEST or await self._was_tried(routing, now):
            return 0
        known = routing.trained.learned if routing.trained is not None else {}
        return sum(known.get(id) != agent for id, agent in now.items())

    async def is_begun(self) -> bool:
        """A training that was ended is begun anew: it takes seconds."""
        return False

    async def run(self, report: Report) -> None:
        """As IdleWork has it."""
        await self.train(report)

    async def train(
        self, report: Report = lambda done, total, what="": None, *, seed: int = 0, step: Step | None = None
    ) -> TrainedHead | None:
        """Train, and decide. None where too little was corrected, or the same was tried before.

        step: around each piece of work; that of the memory's background where there is none. Raises EmbedderError,
        StoreError.
        """
        async with self._running:
            routing, begin = self._services.routing, time.perf_counter()
            if routing is None or routing.shipped_head is None:
                return None
            corrections = await _corrections(routing)
            if len(corrections) < FEWEST or await self._was_tried(routing, _agents(corrections)):
                return None
            step = step or routing.memory.background.step
            material = await self._material(routing, routing.shipped_head, corrections, step)
            report(1, PARTS + 3, WHAT)
            before, after = await self._held_out(material, seed, report)
            data = head_data(material.shipped, await material.head(np.ones(len(corrections), bool)))
            head = trained_head(material.shipped, data)
            assert head is not None
            report(PARTS + 2, PARTS + 3, WHAT)
            probe_before, probe_after = await material.found(head, material.probe)
            is_harmful = probe_after.right < probe_before.right - HARM
            is_better = after.right >= before.right and after.place > before.place + LEAST_GAIN
            why = (
                f"{after.right:.0%} of the corrected messages that it had not seen went to your agent, "
                f"{before.right:.0%} before; it is {'nearer' if is_better else 'not nearer'} to being chosen."
            )
            if is_harmful:
                why = f"{probe_after.right:.1%} of the examples went right, {probe_before.right:.1%} before: too few."
            made = TrainedHead(
                routing.head_base,
                "accepted" if is_better and not is_harmful else "refused", why, _agents(corrections), material.weight,
                {
                    "held": float(len(corrections)), "held_before": before.right, "held_after": after.right,
                    "held_place_before": before.place, "held_place_after": after.place,
                    "probe": float(len(material.probe)),
                    "probe_before": probe_before.right, "probe_after": probe_after.right,
                },
                time.perf_counter() - begin, data if is_better and not is_harmful else b"",
            )  # fmt: skip
            if _agents(await _corrections(routing)) != made.learned:
                return None  # something was taken back meanwhile: what was made of it is not kept
            await routing.memory.heads.keep(made)
            await self._learn_weight(routing, made, is_harmful)
            await routing.refresh()
            report(PARTS + 3, PARTS + 3, WHAT)
            return made

    async def undo(self) -> bool:
        """Route with the head before the one that routes now. Returns whether there was one to take back."""
        routing = self._services.routing
        if routing is None or routing.trained is None:
            return False
        await routing.memory.heads.undo(routing.trained)
        await routing.refresh()
        return True

    # ---- its steps ----

    async def _material(
        self, routing: RoutingService, shipped: Head, corrections: Sequence[Pattern], step: Step
    ) -> _Material:
        router = routing.router
        groups = {pattern_id(one.text, "example", one.agent): f"{one.agent} {one.group}" for one in shipped_examples()}
        examples = [one for one in router.examples.of.values() if one.agent in shipped.agents]
        # The same groups each time: they belong to no training.
        is_probe = [zlib.crc32(groups.get(one.id, one.id).encode()) % PROBED == 0 for one in examples]
        kept = [one for one, held in zip(examples, is_probe, strict=True) if not held]
        probe = [one for one, held in zip(examples, is_probe, strict=True) if held and one.agent in router.agents]
        rehearsed, corrected = [
            await Rows.of([one.text for one in part], np.stack([one.vector for one in part]), shipped, step)
            for part in (kept, corrections)
        ]
        return _Material(routing, shipped, corrections, probe, rehearsed, corrected, _weight(routing), step)

    async def _held_out(
        self, material: _Material, seed: int, report: Report
    ) -> tuple[Found, Found]:  # fmt: skip
        """How corrections are routed that are not known, without and with a head that was trained with the others."""
        count = len(material.corrections)
        part = np.random.default_rng(seed).permutation(count) % PARTS
        before, after = list[tuple[Found, int]](), list[tuple[Found, int]]()
        for number in range(PARTS):
            held = part == number
            asked = [one for one, is_held in zip(material.corrections, held, strict=True) if is_held]
            head = await material.head(~held)
            for part_of, one in zip((before, after), await material.found(head, asked), strict=True):
                part_of.append((one, len(asked)))
            report(2 + number, PARTS + 3, WHAT)
        return _mean(before), _mean(after)

    async def _was_tried(self, routing: RoutingService, now: dict[str, str]) -> bool:
        """Whether the last training had just these corrections, with the weight that they would have now, and its
        result is in use, or was refused or taken back."""
        last = (await routing.memory.heads.all())[-1:]
        if not last or dict(last[0].learned) != now or last[0].weight != _weight(routing):
            return False
        return last[0].verdict != "accepted" or bool(last[0].data)

    async def _learn_weight(self, routing: RoutingService, made: TrainedHead, is_harmful: bool) -> None:
        """After a training that harmed corrections count half, after a good one again more, up to what was measured."""
        policies = routing.memory.policies
        known = policies.look(WEIGHT_POLICY)
        if known is not None and known.source == "user":
            return
        value = max(made.weight / 2, LEAST_WEIGHT) if is_harmful else min(made.weight * 1.25, 1.0)
        runs = [one for one in await routing.memory.heads.all() if one.weight == value]
        good = sum(one.figures.get("probe_after", 0.0) >= one.figures.get("probe_before", 0.0) - HARM for one in runs)
        count = (known.observations if known is not None else 0) + 1
        await policies.set(
            WEIGHT_POLICY, value, confidence=(good + 1) / (len(runs) + 2), source=SOURCE, observations=count
        )


async def _corrections(routing: RoutingService) -> list[Pattern]:
    """Of agents that the shipped head knows, and that there are."""
    await routing.refresh()
    known = {*routing.router.agents, FALLBACK_ID}
    if routing.shipped_head is not None:
        known &= set(routing.shipped_head.agents)
    said = routing.router.learned.of.values()
    return sorted((one for one in said if one.source == "user" and one.agent in known), key=lambda one: one.id)


def _agents(corrections: Sequence[Pattern]) -> dict[str, str]:
    return {one.id: one.agent for one in corrections}


def _weight(routing: RoutingService) -> float:
    policy = routing.memory.policies.look(WEIGHT_POLICY)
    value = policy.value if policy is not None and isinstance(policy.value, float) else 1.0
    return min(max(value, LEAST_WEIGHT), 1.0)


async def _found(router: Router, asked: Collection[Pattern], step: Step) -> Found:
    right, places = list[bool](), list[float]()
    for one in asked:
        async with step():
            decision = router.decide(one.text, one.vector)
        likely = dict(decision.ranked)
        likely[FALLBACK_ID] = 1 - sum(likely.values())
        own = likely.get(one.agent, 0.0)
        right.append(decision.agent == one.agent)
        places.append(1 / (1 + sum(share > own for share in likely.values())))
    return Found(float(np.mean(right)), float(np.mean(places)))


def _mean(parts: Sequence[tuple[Found, int]]) -> Found:
    count = sum(number for _, number in parts)
    return Found(
        sum(one.right * number for one, number in parts) / count,
        sum(one.place * number for one, number in parts) / count,
    )
