"""Chooses the agent for a request.

    router = Router(embedder, parameters, agents=ids, head=head)
    router.add_examples(examples, vectors)
    decision = await router.route("why does my page crash")
    await router.correct("why does my page crash", "tester")     # counts at once, for similar requests too

The agents' shares combine a linear head (head.py) with the votes of the nearest examples, weighted by similarity and
by each example's learned weight. The user's own patterns (corrections, the examples of the user's own agents) have a
separate index and take precedence, the more the more similar they are.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from py_core.display import shown
from py_core.hnsw.hnsw_kernel import HnswKernel
from py_core.routing.agents import FALLBACK_ID, AgentError, Example
from py_core.routing.embedder import Embedder
from py_core.routing.follow_up import is_follow_up
from py_core.routing.head import RoutingHead
from py_core.routing.language import has_code, is_english
from py_core.routing.parameters import RouterParameters
from py_core.routing.pattern_index import PatternIndex, pattern_id, same_text
from py_core.routing.patterns import Pattern, Source

EXAMPLES_SCANNED = 10_000
"""The shipped examples are compared one by one: exact, a fraction of a millisecond, and no graph to build or load."""

Found = Sequence[tuple[Pattern, float]]
"""Patterns and their similarity, the most similar first."""


@dataclass(frozen=True)
class Neighbour:
    """similarity: the cosine. `pattern_id`: for `learn` and `forget`."""

    pattern_id: str
    text: str
    agent: str
    similarity: float
    source: Source


Reason = Literal[
    "examples", "wording", "correction", "unsure", "language", "follow-up", "empty", "chosen", "chat", "off"
]  # fmt: skip
"""The reason for the choice of the agent. The most similar examples are for it; the linear head is for it, though they
are not; a user's correction; no agent was likely enough (the fallback); the message is not English, and the user has
taught nothing like it (the fallback); it continues the conversation; the message is empty; the user wanted this agent's
answer; the user chose it for the chat; the user wants no messages routed (the fallback)."""


@dataclass(frozen=True)
class Decision:
    """The chosen agent, and all details about the choice: words and numbers in the interface come from here.

    `confidence`: the probability that the first of `ranked` is right for this message alone, 0 to 1. Below `threshold`
    the fallback answers. `ranked`: agents, each with its probability; the rest to 1 is that no agent suits.
    `neighbours`: the most similar first. `milliseconds`: of embed, search and decide.
    """

    agent: str
    reason: Reason
    confidence: float
    threshold: float
    ranked: tuple[tuple[str, float], ...]
    neighbours: tuple[Neighbour, ...]
    milliseconds: Mapping[str, float]


class Router:
    """Chooses the agent for a request. A change of patterns counts from the next `route` on; do not change them
    while another task is routing."""

    def __init__(
        self,
        embedder: Embedder,
        parameters: RouterParameters,
        *,
        agents: Iterable[str],
        head: RoutingHead | None = None,
        kernel: HnswKernel | None = None,
        is_multilingual: bool = False,
    ) -> None:
        """agents: the existing ids; the fallback is always added. kernel: of the indexes, numpy's if None.
        is_multilingual: the shipped data decides in other languages than English, too."""
        self.embedder = embedder
        self.parameters = parameters
        self.head = head
        self.kernel = kernel
        self._is_multilingual = is_multilingual
        self.examples = PatternIndex(embedder.dimensions, kernel, EXAMPLES_SCANNED)
        self.learned = PatternIndex(embedder.dimensions, kernel)
        self.set_agents(agents)

    @property
    def agents(self) -> tuple[str, ...]:
        """The agents that a request can be for: all but the fallback."""
        return self._agents

    def set_agents(self, agents: Iterable[str]) -> None:
        """Set the agents. Patterns of removed agents stay, and vote again once their agent is back."""
        ids = frozenset(agents)
        self._agents = tuple(sorted(ids - {FALLBACK_ID}))
        self._allowed = ids | {FALLBACK_ID}
        known = self.head.agents if self.head else ()
        self._columns = [column for column, agent in enumerate(known) if agent in self._allowed]
        for patterns in (self.examples, self.learned):
            patterns.activate(self._allowed)

    def add_examples(self, examples: Sequence[Example], vectors: np.ndarray, source: Source = "example") -> None:
        """Add patterns of examples with their vectors, (examples, dimensions). source: "agent" for a user's agents."""
        patterns = self.examples if source == "example" else self.learned
        for example, vector in zip(examples, vectors, strict=True):
            id = pattern_id(example.text, source, example.agent)
            pattern = Pattern(id, example.text, vector, example.agent, source)
            patterns.put(pattern)

    async def route(self, text: str, conversation_agent: str | None = None) -> Decision:
        """conversation_agent: the agent of the previous answer, if any: follow-ups stay there. Raises EmbedderError."""
        if not text.strip():
            times = dict.fromkeys(("embed", "search", "decide"), 0.0)
            return Decision(FALLBACK_ID, "empty", 0.0, self.parameters.threshold, (), (), times)
        begin = time.perf_counter()
        vector = (await self.embedder.embed([text]))[0]
        embedded = time.perf_counter()
        decision = self.decide(text, vector, conversation_agent)
        return replace(decision, milliseconds={"embed": 1000 * (embedded - begin), **decision.milliseconds})

    def decide(self, text: str, vector: np.ndarray, conversation_agent: str | None = None) -> Decision:
        """Like `route`, for a text whose vector, float32 (dimensions,), is known."""
        begin = time.perf_counter()
        now = time.time()
        k = self.parameters.neighbours
        examples = self.examples.nearest(vector, k)
        learned = self.learned.nearest(vector, k)
        searched = time.perf_counter()
        # a vector of a model for English says nothing about other languages
        is_known = self._is_multilingual or is_english(text) or has_code(text)
        examples = examples if is_known else []
        head = self._head_shares(text, vector) if is_known else {}
        votes = _votes(examples, self.parameters.temperature, now)
        plain = self._shares(head, votes)
        confidence = self._confidence(plain, head, examples)
        learned_weight = self._learned_weight(learned, examples, now)
        learned_votes = _votes(learned, self.parameters.learned_width, now)
        shares = {agent: (1 - learned_weight) * share for agent, share in plain.items()}
        for agent, share in learned_votes.items():
            shares[agent] = shares.get(agent, 0.0) + learned_weight * share
        ranked = tuple(sorted(shares.items(), key=lambda item: (-item[1], item[0])))
        best = ranked[0][0] if ranked else FALLBACK_ID
        # the user's patterns are right as far as they apply; the rest has the others' probabilities
        agreed = confidence if plain and best == _best(plain) else 0.0
        confidence = min(max(learned_weight * learned_votes.get(best, 0.0) + (1 - learned_weight) * agreed, 0.0), 1.0)
        agent, reason = self._choice(best, confidence, learned if learned_weight >= 0.5 else (), votes)
        if reason == "unsure" and not is_known:
            reason = "language"
        if (
            conversation_agent in self._agents
            and conversation_agent != agent
            and reason != "correction"
            and is_follow_up(text, confidence)
        ):
            agent, reason = conversation_agent, "follow-up"
        nearest = sorted(examples + learned, key=lambda found: -found[1])[:k]
        neighbours = tuple(Neighbour(p.id, p.text, p.agent, similarity, p.source) for p, similarity in nearest)
        done = time.perf_counter()
        times = {"search": 1000 * (searched - begin), "decide": 1000 * (done - searched)}
        return Decision(
            agent, reason, confidence, self.parameters.threshold, _likelihoods(ranked, confidence), neighbours, times
        )

    def learn(self, pattern_id: str, good: bool) -> Pattern:
        """Record that a route decided by this pattern was good, or not. Returns the reweighted pattern, to be stored.

        Raises KeyError if there is no such pattern.
        """
        patterns = self._with(pattern_id)
        return patterns.reweigh(patterns[pattern_id].after_outcome(good))

    def unlearn(self, pattern_id: str, before: float, after: float) -> Pattern:
        """Revert an outcome that changed a pattern's weight from `before` to `after`; later outcomes stay. Returns the
        pattern, to be stored. Raises KeyError."""
        patterns = self._with(pattern_id)
        pattern = patterns[pattern_id]
        is_last = pattern.weight == after
        return patterns.reweigh(replace(pattern, weight=before) if is_last else pattern.scaled(before / after))

    def weight(self, pattern_id: str) -> float:
        """Raises KeyError."""
        return self._with(pattern_id)[pattern_id].weight

    async def correct(self, text: str, agent: str) -> Pattern:
        """Set the agent for this text, whatever was learned about it before. Returns the pattern, to be stored.

        Raises AgentError for an unknown agent or an empty text, EmbedderError.
        """
        if agent not in self._allowed:
            raise AgentError(
                "agents.unknown",
                "There is no agent {id}. The agents are {known}.",
                id=shown(agent),
                known=", ".join(sorted(self._allowed)),
            )
        if not text.strip():
            raise AgentError(
                "routing.empty-request", "An empty request cannot be learned: there is nothing to compare others with."
            )
        vector = (await self.embedder.embed([text]))[0]
        pattern = Pattern(pattern_id(text, "user"), text, vector, agent, last_used=time.time())
        for other, similarity in self.learned.nearest(vector, 10):
            if similarity > 0.99 and same_text(other.text, text):
                self.learned.remove(other.id)
        self.learned.put(pattern)
        return pattern

    def forget(self, pattern_id: str) -> bool:
        """Forget a pattern; returns True if it existed. A shipped example stays, and its weight returns to 1."""
        if pattern_id in self.examples:
            self.examples.reweigh(replace(self.examples[pattern_id], weight=1.0))
            return True
        return self.learned.remove(pattern_id)

    def put(self, pattern: Pattern) -> None:
        """Add a stored pattern of the user's, embedded by this embedder; or set the stored weight of an example."""
        if pattern.source == "example":
            if pattern.id in self.examples:
                self.examples.reweigh(replace(self.examples[pattern.id], weight=pattern.weight))
        else:
            self.learned.put(pattern)

    def _choice(self, best: str, confidence: float, deciding: Found, votes: Mapping[str, float]) -> tuple[str, Reason]:
        """Choose for the message alone. deciding: the user's patterns, if they have over half of the weight."""
        if confidence < self.parameters.threshold:
            return FALLBACK_ID, "unsure"
        for pattern, _ in deciding:
            if pattern.agent == best:
                return best, "correction" if pattern.source == "user" else "examples"
        return best, "examples" if votes and _best(votes) == best else "wording"

    def _with(self, id: str) -> PatternIndex:
        for patterns in (self.learned, self.examples):
            if id in patterns:
                return patterns
        raise KeyError(f"There is no pattern {shown(id)}: it was forgotten, or belongs to another store.")

    def _head_shares(self, text: str, vector: np.ndarray) -> dict[str, float]:
        """The head's shares, including the fallback's."""
        if self.head is None or not self._columns:
            return {}
        scores = self.parameters.head_scale * self.head.scores(text, vector)[self._columns]
        odds = np.exp(scores - scores.max())
        shares = (odds / odds.sum()).tolist()
        return {self.head.agents[column]: share for column, share in zip(self._columns, shares, strict=True)}

    def _shares(self, head: Mapping[str, float], votes: Mapping[str, float]) -> dict[str, float]:
        """The shares of all agents but the fallback; they sum to 1, unless all scores and votes are 0."""
        part = self.parameters.votes if head and votes else float(not head)
        shares = {agent: (1 - part) * head.get(agent, 0.0) + part * votes.get(agent, 0.0) for agent in self._agents}
        total = sum(shares.values())
        return {agent: share / total for agent, share in shares.items()} if total > 0 else {}

    def _confidence(self, shares: Mapping[str, float], head: Mapping[str, float], nearest: Found) -> float:
        """Logistic regression on the `features` of a decision."""
        if not shares:
            return 0.0
        terms = zip(self.parameters.calibration, features(shares, head, nearest), strict=True)
        return 1 / (1 + math.exp(-max(min(sum(weight * value for weight, value in terms), 30.0), -30.0)))

    def _learned_weight(self, learned: Found, examples: Found, now: float) -> float:
        """How much the user's own patterns apply, 0 to 1."""
        if not learned:
            return 0.0
        p = self.parameters
        nearest = examples[0][1] if examples else -1.0
        half = max(p.learned_similarity, nearest - p.learned_lead)
        odds = max(
            (similarity - half) / p.learned_width + math.log(pattern.strength(now)) for pattern, similarity in learned
        )
        return 1 / (1 + math.exp(-max(min(odds, 30.0), -30.0)))


def features(
    shares: Mapping[str, float], head: Mapping[str, float], nearest: Found
) -> tuple[float, float, float, float, float, float]:
    """1, log odds of the best share, log of best to second, similarity of the agents' nearest 3, the fallback's log
    share, similarity of the fallback's nearest. An agent that is not among the nearest counts as similar as the
    last."""
    ordered = sorted(shares.values(), reverse=True)
    best, second = ordered[0], ordered[1] if len(ordered) > 1 else 0.0
    last = nearest[-1][1] if nearest else 0.0
    similar = [similarity for pattern, similarity in nearest if pattern.agent != FALLBACK_ID][:3]
    similar += [last] * (3 - len(similar))
    everyday = next((similarity for pattern, similarity in nearest if pattern.agent == FALLBACK_ID), last)
    return (
        1.0,
        math.log((best + 1e-4) / (1 - best + 1e-4)),
        math.log((best + 1e-4) / (second + 1e-4)),
        sum(similar) / 3,
        math.log(head.get(FALLBACK_ID, 0.0) + 1e-4),
        everyday,
    )


def _likelihoods(ranked: Sequence[tuple[str, float]], confidence: float) -> tuple[tuple[str, float], ...]:
    """The probability that each agent is right, ranked by shares that sum to 1. The first gets the confidence.

    The others are scaled by the same factor, or share the remainder: so none is likelier than the first, and together
    they are at most 1.
    """
    if not ranked:
        return ()
    best = ranked[0][1]
    scale = min(confidence / best, (1 - confidence) / (1 - best) if best < 1 else 0.0)
    return ((ranked[0][0], confidence), *((agent, share * scale) for agent, share in ranked[1:]))


def _votes(nearest: Found, temperature: float, now: float) -> dict[str, float]:
    """agent -> share."""
    votes: dict[str, float] = {}
    for pattern, similarity in nearest:
        vote = pattern.strength(now) * math.exp((similarity - nearest[0][1]) / temperature)
        votes[pattern.agent] = votes.get(pattern.agent, 0.0) + vote
    total = sum(votes.values())
    return {agent: vote / total for agent, vote in votes.items()}


def _best(shares: Mapping[str, float]) -> str:
    return min(shares, key=lambda agent: (-shares[agent], agent))
