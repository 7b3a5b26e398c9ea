"""Distils answers into strategies: similar messages are grouped, and each group gets a verdict.

Groups: seeded K-means++ on the messages' vectors. Groups with close centres are merged, and so are earlier strategies
whose trajectories are gone. A message that is far from its centre belongs to no group.

An answer is good from quality GOOD on. The person's rating counts OPINION times as much as a score from signals, and
every answer's weight halves in HALF_LIFE_DAYS. With g the share of good answers in a group, the verdict is success
from CLEAR on, failure up to 1 - CLEAR, and partial between; it is unknown if no answer's quality is known.

A strategy's quality is the reliability of its verdict: max(g, 1 - g) * known / (known + 1/2), with `known` the weight
of the answers behind it. It falls as these get older and no new ones come. Below LEAST_QUALITY the strategy is pruned.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from py_core.learning.strategies import Strategy, Verdict

DAY_SECONDS = 86400.0
HALF_LIFE_DAYS = 60.0
GOOD = 0.6
OPINION = 3.0
CLEAR = 0.75
LEAST_QUALITY = 0.6
SAME = 0.8
"""Groups whose centres have this cosine are merged."""
NEAR = 0.4
"""A message with a smaller cosine to its group's centre does not belong to the group."""
GROUP = 2
"""K-means begins with one group per this many messages, at most MOST_GROUPS; close groups are merged afterwards."""
MOST_GROUPS = 64
MOST_STRATEGIES = 200
EXAMPLES = 3
ROUNDS = 50


@dataclass(frozen=True, eq=False)
class Experience:
    """An answer. vector: the message's, float32 (dimensions,), of length 1. quality: None if not known. is_opinion:
    True if the quality is the person's rating. created: seconds since 1970."""

    id: str
    asked: str
    vector: np.ndarray
    agent: str = ""
    quality: float | None = None
    is_opinion: bool = False
    created: float = 0.0

    def weight(self, now: float) -> float:
        return (OPINION if self.is_opinion else 1.0) * faded(now - self.created)


@dataclass(frozen=True, eq=False)
class Bank:
    """strategies: the best first. members: the experiences of each strategy by its id, also of pruned strategies, which
    were not worth keeping. merged: how many earlier strategies became part of another."""

    strategies: tuple[Strategy, ...]
    members: dict[str, tuple[Experience, ...]]
    pruned: tuple[Strategy, ...]
    merged: int


def faded(seconds: float) -> float:
    """The remaining weight of something this old, from 1 to 0."""
    return 0.5 ** (max(seconds, 0.0) / DAY_SECONDS / HALF_LIFE_DAYS)


def distil(
    experiences: Sequence[Experience], earlier: Sequence[Strategy], now: float, seed: int = 0,
    most: int = MOST_STRATEGIES,
) -> Bank:  # fmt: skip
    """The strategies of these experiences and of earlier strategies. The same input and seed give the same result."""
    groups = _groups(experiences, seed)
    merged = 0
    made = list[tuple[Strategy, tuple[Experience, ...]]]()
    free = {one.id: one for one in earlier}  # not yet claimed by a group
    archives = sorted((one for one in earlier if one.archived[0]), key=lambda one: one.id)
    for group in groups:
        near = [one for one in archives if float(one.vector @ group[0]) >= SAME]
        archives = [one for one in archives if one not in near]
        merged += len(near)
        made.append((_strategy(group[0], group[1], near, free, now), tuple(group[1])))
    while archives:
        first, *archives = archives
        near = [first, *(one for one in archives if float(one.vector @ first.vector) >= SAME)]
        archives = [one for one in archives if one not in near]
        merged += len(near) - 1
        made.append((_strategy(_centre(near), [], near, free, now), ()))
    made.sort(key=lambda pair: (-pair[0].quality, pair[0].id))
    kept = [pair for pair in made if pair[0].quality >= LEAST_QUALITY][:most]
    ids = {strategy.id for strategy, _ in kept}
    return Bank(
        tuple(strategy for strategy, _ in kept),
        {strategy.id: members for strategy, members in made},
        tuple(strategy for strategy, _ in made if strategy.id not in ids),
        merged,
    )


def kmeans(vectors: np.ndarray, k: int, seed: int = 0) -> np.ndarray:
    """The group of each row of float32 (n, dimensions): int (n,), from 0, without gaps. K-means++ (Arthur and
    Vassilvitskii 2007), then Lloyd's iterations. At most k groups, fewer if rows are alike."""
    n = len(vectors)
    if n == 0:
        return np.zeros(0, np.int64)
    random = np.random.default_rng(seed)
    points = np.asarray(vectors, np.float64)
    centres = [points[random.integers(n)]]
    nearest = ((points - centres[0]) ** 2).sum(axis=1)
    while len(centres) < min(k, n) and (total := nearest.sum()) > 1e-12:
        centres.append(points[random.choice(n, p=nearest / total)])
        nearest = np.minimum(nearest, ((points - centres[-1]) ** 2).sum(axis=1))
    middle = np.stack(centres)
    labels = np.full(n, -1)
    for _ in range(ROUNDS):
        distances = (points**2).sum(axis=1)[:, None] - 2 * points @ middle.T + (middle**2).sum(axis=1)
        found = distances.argmin(axis=1)
        if (found == labels).all():
            break
        labels = found
        for group in range(len(middle)):
            if (labels == group).any():
                middle[group] = points[labels == group].mean(axis=0)
    return np.unique(labels, return_inverse=True)[1]


def verdict_of(known: float, good: float) -> Verdict:
    """The verdict from the weight of the answers whose quality is known, and of the good ones among them."""
    if known <= 0:
        return "unknown"
    share = good / known
    return "success" if share >= CLEAR else "failure" if share <= 1 - CLEAR else "partial"


def reliability(known: float, good: float) -> float:
    """The reliability of that verdict, from 0 to 1."""
    if known <= 0:
        return 0.0
    share = min(max(good / known, 0.0), 1.0)
    return max(share, 1 - share) * known / (known + 0.5)


def archive(strategy: Strategy, gone: Sequence[Experience], now: float) -> Strategy:
    """The strategy after these of its experiences are deleted: their statistics stay part of it."""
    count, known, good = strategy.archived
    more_known, more_good = _sums(gone, now)
    return replace(strategy, archived=(count + len(gone), known + more_known, good + more_good))


def _groups(experiences: Sequence[Experience], seed: int) -> list[tuple[np.ndarray, list[Experience]]]:
    """Centres and their members, by K-means++, after similar groups are merged."""
    if not experiences:
        return []
    ordered = sorted(experiences, key=lambda one: one.id)
    vectors = np.stack([one.vector for one in ordered])
    labels = kmeans(vectors, min(math.ceil(len(ordered) / GROUP), MOST_GROUPS), seed)
    groups = [[ordered[at] for at in np.flatnonzero(labels == label)] for label in range(int(labels.max()) + 1)]
    while True:
        centres = np.stack([_centre(group) for group in groups])
        alike = np.triu(centres @ centres.T, 1)
        at = int(alike.argmax())
        first, second = divmod(at, len(groups))
        if alike[first, second] < SAME:
            break
        groups[first] += groups.pop(second)
    kept = [
        [one for one in group if one.vector @ centre >= NEAR] for group, centre in zip(groups, centres, strict=True)
    ]
    return [(centre, group) for centre, group in zip(centres, kept, strict=True) if group]


def _strategy(
    centre: np.ndarray, members: Sequence[Experience], near: Sequence[Strategy], free: dict[str, Strategy], now: float
) -> Strategy:
    """The strategy of a group, including what earlier strategies near it knew of messages that are gone."""
    archived = [sum(one.archived[place] for one in near) for place in range(3)]
    last = max([*(one.created for one in members), *(one.last_used for one in near)])
    since = max((one.last_used for one in near), default=now)
    known, good = (
        live + faded(now - since) * gone for live, gone in zip(_sums(members, now), archived[1:], strict=True)
    )
    ordered = sorted(members, key=lambda one: (-float(one.vector @ centre), one.id))
    examples = dict.fromkeys([*(one.asked for one in ordered), *(text for one in near for text in one.examples)])
    same = max(free.values(), key=lambda one: (float(one.vector @ centre), one.id), default=None)
    if same is None or float(same.vector @ centre) < SAME:
        same = None
    else:
        del free[same.id]
    return Strategy(
        same.id if same is not None else _id(centre, members),
        np.asarray(centre, np.float32),
        tuple(examples)[:EXAMPLES],
        _best_agent(members, near, now),
        verdict_of(known, good),
        reliability(known, good),
        int(len(members) + archived[0]),
        known,
        good,
        (archived[0], archived[1], archived[2]),
        same.created if same is not None else now,
        last,
    )


def _sums(members: Sequence[Experience], now: float) -> tuple[float, float]:
    known = [one for one in members if one.quality is not None]
    good = [one for one in known if one.quality is not None and one.quality >= GOOD]
    return sum(one.weight(now) for one in known), sum(one.weight(now) for one in good)


def _best_agent(members: Sequence[Experience], near: Sequence[Strategy], now: float) -> str:
    """The agent with the most good answers, by weight; else the one with the most answers."""
    scores: dict[str, float] = {}
    for one in members:
        worth = one.weight(now) if one.quality is not None and one.quality >= GOOD else 1e-6
        scores[one.agent] = scores.get(one.agent, 0.0) + worth
    for strategy in near:
        scores[strategy.agent] = scores.get(strategy.agent, 0.0) + strategy.archived[2] + 1e-6
    return min(scores, key=lambda agent: (-scores[agent], agent))


def _centre(members: Sequence[Experience] | Sequence[Strategy]) -> np.ndarray:
    middle = np.stack([one.vector for one in members]).sum(axis=0, dtype=np.float64)
    length = float(np.linalg.norm(middle))
    return middle / length if length > 0 else middle


def _id(centre: np.ndarray, members: Sequence[Experience]) -> str:
    told = np.round(np.asarray(centre, np.float32), 3).tobytes() + "\0".join(one.id for one in members).encode()
    return hashlib.sha256(told).hexdigest()[:24]
