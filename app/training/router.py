"""Fits the router's parameters on the examples and writes app/routing/agents/router.toml.

    python -m app.training.router [--vectors FILE.npy] [--dry-run]

The examples are split in five parts by meaning (their groups): each part is routed by a router that has not seen it.
Its answers decide everything here except the threshold, which half of the everyday requests (app/bench/routing_data)
decides. The other half and the test set are not read.

An embedder whose adapter was trained on all examples would make them look easier than unseen requests. So with an
adapter give --vectors, which `app.training.embedder_adapter --fold-vectors` writes: an array (parts, examples + more
requests, dimensions) whose part i is by an embedder trained without fold i. With fewer than five parts only these folds
are measured.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from app.bench.routing import calibration_error, read_everyday
from app.building.routing_export import routing_data
from app.native_runtime import open_embedder
from app.routing.agent_catalog import shipped_examples
from app.routing.factory import PARAMETERS, more_requests
from app.training.requests import Request, folds
from py_core.routing.agents import FALLBACK_ID, Example
from py_core.routing.embedder import Meaning
from py_core.routing.head import RoutingHead, fit_head, word_matrix
from py_core.routing.language import has_code, is_english
from py_core.routing.parameters import RouterParameters
from py_core.routing.router import Decision, Router, features

FOLDS, SEED = 5, 7
EVERYDAY_SHARE = 0.5
"""The share of requests that belong to the plain assistant. It is assumed: there is nothing to count."""
EVERYDAY_RIGHT = 0.97
"""Share of everyday requests that are right at the chosen threshold; the goal is 0.95 on unseen requests."""
CORRECTIONS, MOST_TURNED = 100, 0.05
"""After a user has made this many corrections, at most this share of requests with another meaning may follow one."""
START = RouterParameters(
    neighbours=20, temperature=0.1, head_words=0.5, head_ridge=1.0, head_scale=8.0, votes=0.2, learned_similarity=0.5,
    learned_width=0.03, learned_lead=0.15, threshold=0.3, calibration=(0.0, 1.0, 0.0, 0.0, 0.0, 0.0),
)  # fmt: skip


@dataclass
class RouterMaterial:
    """vectors: (parts, examples, dimensions). fold: (examples,).

    Only folds that have a part are measured; the others are always known. `more` holds further examples for heads.
    more_vectors: (parts, more, dimensions).
    """

    examples: list[Example]
    vectors: np.ndarray
    fold: np.ndarray
    more: list[Example]
    more_vectors: np.ndarray

    @property
    def agents(self) -> list[str]:
        return sorted({example.agent for example in self.examples})

    @property
    def labels(self) -> np.ndarray:
        return np.array([self.agents.index(example.agent) for example in self.examples])

    @property
    def parts(self) -> int:
        return len(self.vectors)

    @property
    def measured(self) -> np.ndarray:
        return self.fold < self.parts

    @property
    def in_scope(self) -> np.ndarray:
        return np.array([example.agent != FALLBACK_ID for example in self.examples])

    @property
    def mass(self) -> np.ndarray:
        """The weight of each measured row, which gives everyday requests their share; the weights sum to 1."""
        inside = self.in_scope[self.measured]
        return np.where(inside, (1 - EVERYDAY_SHARE) / inside.sum(), EVERYDAY_SHARE / (~inside).sum())


def read_material(vectors: Path | None) -> RouterMaterial:
    examples = shipped_examples()
    fold = folds([Request(e.text, e.agent, e.group, e.hard) for e in examples], FOLDS, SEED)
    # Rows that are not routed are not measured, and always known.
    fold = [one if is_english(e.text) or has_code(e.text) else FOLDS for one, e in zip(fold, examples, strict=True)]
    more = more_requests()
    every = examples + more
    if vectors is None:
        embedder = open_embedder(threads=2)
        made = asyncio.run(embedder.embed([example.text for example in every]))
        array = np.broadcast_to(made, (FOLDS, *made.shape))
    else:
        array = np.load(vectors).astype(np.float32)
        if array.ndim != 3 or len(array) > FOLDS or array.shape[1] != len(every):
            raise SystemExit(f"{vectors} has the shape {array.shape}, but (1 to {FOLDS}, {len(every)}, ...) is wanted.")
    asked = len(examples)
    return RouterMaterial(examples, array[:, :asked], np.array(fold), more, array[:, asked:])


def head_scores(material: RouterMaterial) -> dict[tuple[float, float], np.ndarray]:
    """(words, ridge) -> scores (rows, agents), each row's by a head that has not seen its part."""
    every = material.examples + material.more
    labels = np.array([material.agents.index(example.agent) for example in every])
    texts, agents, asked = [example.text for example in every], len(material.agents), len(material.examples)
    options = list(product((0.5, 0.7), (1.0, 3.0, 10.0)))
    scores = {option: np.zeros((asked, agents)) for option in options}
    for part in range(material.parts):
        seen = np.concatenate([material.fold != part, np.ones(len(material.more), bool)])
        vectors = np.concatenate([material.vectors[part], material.more_vectors[part]])
        _, rarity = word_matrix([text for text, ok in zip(texts, seen, strict=True) if ok])
        matrix, _ = word_matrix(texts, rarity)
        wanted = (np.eye(agents)[labels[seen]] - 1 / agents).astype(np.float32)
        by_words, by_vector = matrix @ matrix[seen].T, vectors @ vectors[seen].T
        for words, ridge in options:
            gram = words * by_words + (1 - words) * by_vector
            alpha = np.linalg.solve(gram[seen] + ridge * np.eye(int(seen.sum()), dtype=np.float32), wanted)
            scores[words, ridge][~seen[:asked]] = gram[~seen] @ alpha
    return scores


def vote_shares(material: RouterMaterial) -> dict[tuple[int, float], np.ndarray]:
    """(neighbours, temperature) -> shares (rows, agents)."""
    labels, agents = material.labels, material.agents
    options = list(product((10, 20, 40), (0.02, 0.05, 0.1, 0.2)))
    shares = {option: np.zeros((len(labels), len(agents))) for option in options}
    for part in range(material.parts):
        asked, vectors = material.fold == part, material.vectors[part]
        seen = ~asked
        similar = vectors[asked] @ vectors[seen].T
        for k, temperature in options:
            near = np.argpartition(-similar, k, 1)[:, :k]
            close = np.take_along_axis(similar, near, 1)
            votes = np.exp((close - close.max(1, keepdims=True)) / temperature)
            of = labels[seen][near]
            tally = np.stack([(votes * (of == agent)).sum(1) for agent in range(len(agents))], 1)
            shares[k, temperature][asked] = tally / tally.sum(1, keepdims=True)
    return shares


def fit_shares(material: RouterMaterial, start: RouterParameters) -> RouterParameters:
    """The parameters of head and votes with the smallest log loss over the requests in scope."""
    inside = material.in_scope & material.measured
    labels = material.labels[inside]
    real = [column for column, agent in enumerate(material.agents) if agent != FALLBACK_ID]
    rows = np.arange(len(labels))
    best: tuple[float, RouterParameters] = (np.inf, start)

    def loss(shares: np.ndarray) -> float:
        own = shares[inside]
        return float(-np.log(own[rows, labels] / own[:, real].sum(1) + 1e-6).mean())

    heads = head_scores(material)
    votes = vote_shares(material)
    for (words, ridge), scores in heads.items():
        for scale in (6.0, 8.0, 10.0, 13.0, 17.0, 22.0, 30.0, 40.0, 60.0):
            found = loss(_softmax(scale * scores))
            if found < best[0]:
                best = found, replace(start, head_words=words, head_ridge=ridge, head_scale=scale, votes=0.0)
    # always some votes: without them outcomes would change nothing
    chosen, best = best[1], (np.inf, best[1])
    for scale in (0.8, 0.9, 1.0, 1.1, 1.3, 1.6, 2.0):
        scaled = chosen.head_scale * scale
        shares = _softmax(scaled * heads[chosen.head_words, chosen.head_ridge])
        for (k, temperature), voted in votes.items():
            for part in (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7):
                found = loss((1 - part) * shares + part * voted)
                if found < best[0]:
                    new = replace(chosen, neighbours=k, temperature=temperature, votes=part, head_scale=scaled)
                    best = found, new
    return best[1]


def fit_learned(material: RouterMaterial, start: RouterParameters) -> tuple[RouterParameters, dict[str, float]]:
    """The similarity that a request must have to follow a correction: more than requests with another meaning have.

    Pairs are of the same part; `same_meaning_follows` is the share of a group that would follow.
    """
    groups = np.unique([f"{e.agent} {e.group}" for e in material.examples], return_inverse=True)[1]
    same, other = [], []
    for part in range(material.parts):
        rows = np.flatnonzero((material.fold == part) & material.in_scope)
        vectors, of = material.vectors[part][rows], groups[rows]
        first, second = np.triu_indices(len(rows), 1)
        similar = (vectors @ vectors.T)[first, second]
        mates = of[first] == of[second]
        same.append(similar[mates])
        other.append(similar[~mates])
    half = round(float(np.quantile(np.concatenate(other), 1 - MOST_TURNED / CORRECTIONS)), 3)
    figures = {"learned_similarity": half, "same_meaning_follows": float((np.concatenate(same) > half).mean())}
    return replace(start, learned_similarity=half), figures


def decisions(material: RouterMaterial, parameters: RouterParameters) -> list[tuple[Decision, tuple[float, ...]]]:
    """Each measured row's decision by a router that has not seen its part, and the features of its confidence."""
    made: dict[int, Any] = {}
    for part in range(material.parts):
        seen = np.flatnonzero(material.fold != part)
        vectors = material.vectors[part]
        known = [material.examples[row] for row in seen]
        head = fit_head(
            [example.text for example in known + material.more],
            np.concatenate([vectors[seen], material.more_vectors[part]]),
            [example.agent for example in known + material.more],
            words=parameters.head_words, ridge=parameters.head_ridge,
        )  # fmt: skip
        router = Router(NoEmbedder(vectors.shape[1]), parameters, agents=material.agents, head=head)
        router.add_examples(known, vectors[seen])
        for row in np.flatnonzero(material.fold == part):
            text = material.examples[row].text
            made[int(row)] = router.decide(text, vectors[row]), _features(router, head, text, vectors[row])
    return [made[row] for row in sorted(made)]


class NoEmbedder:
    """The vectors exist already."""

    fingerprint = meaning_fingerprint = "none"
    is_multilingual = False

    def __init__(self, dimensions: int) -> None:
        self.dimensions = dimensions

    async def embed(self, texts: Any) -> np.ndarray:
        raise NotImplementedError

    async def meanings(self, texts: Any) -> list[Meaning]:
        raise NotImplementedError

    def forget(self) -> None:
        pass


def _features(router: Router, head: RoutingHead, text: str, vector: np.ndarray) -> tuple[float, ...]:
    shares = dict(router.decide(text, vector).ranked)
    every = _softmax(router.parameters.head_scale * head.scores(text, vector)[None])[0]
    fallback = every[head.agents.index(FALLBACK_ID)]
    nearest = router.examples.nearest(vector, router.parameters.neighbours)
    return features(shares, {FALLBACK_ID: float(fallback)}, nearest)


def fit_logistic(inputs: np.ndarray, right: np.ndarray, mass: np.ndarray, penalty: float = 1e-4) -> np.ndarray:
    """Weights (inputs,) by Newton's method. mass: of the rows, sums to 1."""
    weights = np.zeros(inputs.shape[1])
    for _ in range(50):
        guess = 1 / (1 + np.exp(-inputs @ weights))
        slope = inputs.T @ (mass * (guess - right)) + penalty * weights
        curve = (inputs * (mass * guess * (1 - guess))[:, None]).T @ inputs + penalty * np.eye(len(weights))
        weights -= np.linalg.solve(curve, slope)
    return weights


def everyday_threshold(parameters: RouterParameters) -> float:
    """The lowest threshold that leaves EVERYDAY_RIGHT of the English everyday requests (half "a" of everyday.toml) with
    the plain assistant or an agent that suits them."""
    embedder = open_embedder(threads=2)

    async def routed() -> list[tuple[float, bool]]:
        data = await routing_data(embedder, parameters)
        router = Router(embedder, parameters, agents=data.head.agents, head=data.head)
        router.add_examples(shipped_examples(), data.vectors)
        rows = [row for row in read_everyday() if row["half"] == "a" and row["language"] == "en"]
        made = [(await router.route(row["text"]), row["also"]) for row in rows]
        return [(decision.confidence, decision.ranked[0][0] in also) for decision, also in made]

    found = asyncio.run(routed())
    tried = (number / 100 for number in range(100))
    shares = ((one, np.mean([suits or confidence < one for confidence, suits in found])) for one in tried)
    return next(one for one, share in shares if share >= EVERYDAY_RIGHT)


def report(
    material: RouterMaterial, parameters: RouterParameters, threshold: float | None
) -> tuple[RouterParameters, dict[str, Any]]:
    """Calibration and threshold, and their quality, measured with calibrations that have not seen a part, either.
    threshold: None for that of `everyday_threshold`."""
    made = decisions(material, parameters)
    measured = [material.examples[row] for row in np.flatnonzero(material.measured)]
    inside, mass, fold = material.in_scope[material.measured], material.mass, material.fold[material.measured]
    ranked = [[agent for agent, _ in decision.ranked] for decision, _ in made]
    wanted = [example.agent for example in measured]
    right = np.array([names[0] == agent for names, agent in zip(ranked, wanted, strict=True)])
    in_three = np.array([agent in names[:3] for names, agent in zip(ranked, wanted, strict=True)])
    inputs = np.array([found for _, found in made])
    unseen = np.zeros(len(right))
    for part in range(material.parts):
        rows = fold != part
        weights = fit_logistic(inputs[rows], right[rows], mass[rows] / mass[rows].sum())
        unseen[~rows] = 1 / (1 + np.exp(-inputs[~rows] @ weights))
    weights = fit_logistic(inputs, right, mass)
    a, b, c, d, e, f = (round(float(weight), 4) for weight in weights)
    chosen = replace(parameters, calibration=(a, b, c, d, e, f))
    threshold = everyday_threshold(chosen) if threshold is None else threshold
    hard = np.array([example.hard for example in measured])
    figures = {
        "top1": right[inside].mean(), "top1_hard": right[hard].mean(), "top3": in_three[inside].mean(),
        "calibration_error": calibration_error(unseen, right, mass),
        "everyday_to_fallback": (unseen < threshold)[~inside].mean(),
        "right_but_to_fallback": (right & (unseen < threshold))[inside].mean(),
    }  # fmt: skip
    return replace(chosen, threshold=threshold), {name: round(float(value), 4) for name, value in figures.items()}


def toml(parameters: RouterParameters) -> str:
    lines = ["# Of py_core/routing/parameters.py. Written by app/training/router.py: do not edit by hand.", ""]
    for name, value in asdict(parameters).items():
        lines.append(f"{name} = {json.dumps(list(value) if isinstance(value, tuple) else round(value, 4))}")
    return "\n".join(lines) + "\n"


def _softmax(scores: np.ndarray) -> np.ndarray:
    odds = np.exp(scores - scores.max(1, keepdims=True))
    return odds / odds.sum(1, keepdims=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--vectors", type=Path, help="of embedders that have not seen the part, see above")
    parser.add_argument("--threshold", type=float, help="keep to this one")
    parser.add_argument("--dry-run", action="store_true", help="write nothing")
    options = parser.parse_args()
    material = read_material(options.vectors)
    parameters = fit_shares(material, START)
    parameters, learned = fit_learned(material, parameters)
    parameters, figures = report(material, parameters, options.threshold)
    if not options.dry_run:
        PARAMETERS.write_text(toml(parameters), encoding="utf-8")
    print(json.dumps(figures | learned))
    Console().print(toml(parameters))


if __name__ == "__main__":
    main()
