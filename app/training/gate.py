"""Trains the gate of lessons on app/lessons/facts and writes app/lessons/gate.safetensors: 3 networks, in numpy.

    python -m app.training.gate [--multilingual] [--dry-run]

With --multilingual for the states of the multilingual embedder: app/lessons/gate_multilingual.safetensors.

The same data and seed give the same file. It prints how the gate does on dev; tests/bench/learning/gate.py prints all
figures.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
from collections.abc import Sequence

import numpy as np

from app.lessons.facts import FactSplit, InventedFact
from app.lessons.shipped_gate import GATE, MULTILINGUAL_GATE
from app.native_runtime import open_embedder
from app.training.gate_worlds import NOTHING, Compared, Decisions, MeaningEmbedder, Prompt, open_world, split_of
from py_core.formats.safetensors import write_safetensors
from py_core.learning.gate.gate import SHUT, Gate
from py_core.learning.gate.lexicon import SMALL

THRESHOLD = -0.75
"""Chosen on dev: 3.3% of its generic prompts open the gate, and each of these shares a word with the fact."""
HIDDEN, NETWORKS = 64, 3
EPOCHS, BATCH, RATE, DECAY, DROPOUT = 12, 2048, 8e-3, 0.01, 0.05
BETA1, BETA2 = 0.9, 0.999
STYLED_SHARE = 0.5
"""This share of the prompts that nothing answers is also asked in another style; all others are."""
_FRAMES = (
    "Please tell me: {}", "Do you remember? {}", "hey, {}", "{} I forgot.", "Quick question: {}", "Can you help me? {}",
    "I was wondering, {}", "{} Answer briefly.", "By the way, {}", "Sorry, {}", "{} Thanks!", "ok so {}", "{} please",
)  # fmt: skip
_FRAMES_ABOUT = (
    "Write a poem about a {}.", "Write a short story about the {}.", "write an email about the {}", "What is a {}?",
    "How do I choose a {}?", "How do I find a good {}?", "Give me a name for a {}.", "List five kinds of {}.",
    "Tell me a joke about a {}.", "Who invented the {}?", "Where can I buy a {}?", "How much does a {} cost?",
    "What does {} mean in German?", "Draft a poster about a {}.", "Explain {} to a child.", "How do I draw a {}?",
    "Why is a {} important?", "Write a message about the {} to a friend.", "how does a {} work", "Do you like {}?",
)  # fmt: skip
ABOUT = 2
_SENTENCES_BEFORE = ("Please", "Do you", "Quick", "Can")


def styled(text: str, rng: random.Random, short: bool) -> str:
    """The text as others may type it: in lower case, in a frame, with a typo, or (if `short`) in key words."""
    style = rng.randrange(5 if short else 4)
    if style == 0:
        return text.lower().rstrip("?.!")
    if style == 1:
        frame = rng.choice(_FRAMES)
        follows = frame.startswith(_SENTENCES_BEFORE) or frame.startswith("{}")
        return frame.format(text if follows else text[0].lower() + text[1:])
    if style in (2, 3):
        mistyped = _with_typo(text, rng)
        return mistyped if style == 2 else mistyped.lower().rstrip("?.!")
    words = [word for word in re.findall(r"[\w'-]+", text) if word.lower() not in SMALL]
    return " ".join(words) if len(words) > 1 else text.lower()


def _with_typo(text: str, rng: random.Random) -> str:
    words = text.split()
    long = [at for at, word in enumerate(words) if len(word) > 4]
    if not long:
        return text.lower()
    at = rng.choice(long)
    word = words[at]
    cut = rng.randrange(1, len(word) - 2)
    before, one, two, after = word[:cut], word[cut], word[cut + 1], word[cut + 2 :]
    words[at] = rng.choice([before + two + one + after, before + two + after, before + one + word[cut:]])
    return " ".join(words)


def in_other_styles(prompts: list[Prompt], seed: int) -> list[Prompt]:
    """The prompts, followed by some of them as another user may type them."""
    rng = random.Random(seed)
    known = {prompt.text.lower() for prompt in prompts}
    made = list(prompts)
    for prompt in prompts:
        answered = prompt.lesson >= 0
        if prompt.kind == "paragraph" or not (answered or rng.random() < STYLED_SHARE):
            continue
        text = styled(prompt.text, rng, answered)
        if text.lower() not in known:
            known.add(text.lower())
            made.append(Prompt(text, prompt.kind, prompt.lesson, prompt.detail))
    return made


def about(facts: Sequence[InventedFact], seed: int) -> list[Prompt]:
    """Prompts with a word of a fact's question that it does not answer, by rule: _ABOUT of each fact."""
    rng = random.Random(seed)
    made = {}
    for fact in facts:
        words = [word for word in re.findall(r"[a-z]+", fact.question) if len(word) > 3 and word not in SMALL]
        for frame in rng.sample(_FRAMES_ABOUT, ABOUT if words else 0):
            text = frame.format(rng.choice(words))
            made[text] = Prompt(text, "generic", NOTHING, "made")
    return list(made.values())


async def training_pairs(embedder: MeaningEmbedder) -> tuple[np.ndarray, np.ndarray]:
    """Features (pairs, FEATURES), and labels float32 (pairs,): 1 if the lesson of the pair answers its prompt.

    Prompts meet a memory with all lessons, memories with few, and one that has all except the lesson that answers them.
    """
    features, right = [], []
    plans: list[tuple[FactSplit, int, int]] = [("train", 24, 2), ("common_train", 12, 3)]
    for seed, (split, few, draws) in enumerate(plans, 1):
        own, prompts = split_of(split)
        if split == "train":
            prompts = prompts + about(own, seed)
        world = await open_world(embedder, own, in_other_styles(prompts, seed))
        every = np.arange(world.own)
        cases = [(at, stored) for stored in (every, *world.stores(few, draws)) for at in range(len(world.prompts))]
        answered = ((at, prompt.lesson) for at, prompt in enumerate(world.prompts) if prompt.lesson != NOTHING)
        cases += [(at, np.delete(every, lesson)) for at, lesson in answered]
        compared = Compared.of_cases(world, cases)
        for group in compared.groups:
            rows = compared.features[group.rows]
            features.append(rows)
            right.append(group.right[: len(rows)])
    return np.concatenate(features), np.concatenate(right).astype(np.float32)


def fit(features: np.ndarray, right: np.ndarray, networks: int = NETWORKS, epochs: int = EPOCHS) -> Gate:
    """Networks of one hidden layer by AdamW on the log loss; each with its own seed."""
    mean, scale = features.mean(0, dtype=np.float64), features.std(0, dtype=np.float64) + 1e-6
    scaled = ((features - mean) / scale).astype(np.float32)
    made = [_network(scaled, right, seed, epochs) for seed in range(networks)]
    w1, b1, w2, b2 = (np.stack([network[at] for network in made]) for at in range(4))
    return Gate(mean.astype(np.float32), scale.astype(np.float32), w1, b1, w2, b2[:, 0], THRESHOLD)


def _network(features: np.ndarray, right: np.ndarray, seed: int, epochs: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    count, inputs = features.shape
    shapes = ((inputs, HIDDEN), inputs), ((HIDDEN,), inputs), ((HIDDEN,), HIDDEN), ((1,), HIDDEN)
    parameters = [(rng.uniform(-1, 1, shape) / np.sqrt(width)).astype(np.float32) for shape, width in shapes]
    first = [np.zeros_like(one) for one in parameters]
    second = [np.zeros_like(one) for one in parameters]
    batch = min(BATCH, count)
    steps, step = epochs * (count // batch), 0
    for _ in range(epochs):
        order = rng.permutation(count)
        for begin in range(0, count - batch + 1, batch):
            rows = order[begin : begin + batch]
            kept = rng.random((batch, inputs), dtype=np.float32) >= DROPOUT
            x = features[rows] * kept / np.float32(1 - DROPOUT)
            slopes = gradients(parameters, x, right[rows])
            rate = np.float32(RATE * 0.5 * (1 + np.cos(np.pi * step / steps)))
            step += 1
            for one, slope, m, v in zip(parameters, slopes, first, second, strict=True):
                m += (1 - BETA1) * (slope - m)
                v += (1 - BETA2) * (slope * slope - v)
                one *= 1 - rate * DECAY
                one -= rate * (m / (1 - BETA1**step)) / (np.sqrt(v / (1 - BETA2**step)) + 1e-8)
    return parameters


def gradients(parameters: list[np.ndarray], x: np.ndarray, right: np.ndarray) -> list[np.ndarray]:
    """Gradients of the mean log loss. parameters: w1 (inputs, hidden), b1, w2 (hidden,), b2 (1,). x: (rows, inputs)."""
    w1, b1, w2, b2 = parameters
    inner = np.tanh(x @ w1 + b1)
    out = inner @ w2 + b2
    slope = ((1 / (1 + np.exp(-out)) - right) / len(x)).astype(x.dtype)
    inner_slope = slope[:, None] * w2 * (1 - inner * inner)
    return [x.T @ inner_slope, inner_slope.sum(0), inner.T @ slope, slope.sum(keepdims=True)]


def file_of(gate: Gate) -> bytes:
    """The safetensors file of a gate, with 16-bit numbers."""
    kept = ("mean", "scale", "threshold")
    arrays = {name: array if name in kept else array.astype(np.float16) for name, array in gate.arrays().items()}
    return write_safetensors(arrays)


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--dry-run", action="store_true", help="write nothing")
    parser.add_argument("--multilingual", action="store_true", help="for the multilingual embedder")
    options = parser.parse_args()
    embedder = open_embedder(threads=2, multilingual=options.multilingual)
    gate = Gate.from_bytes(file_of(fit(*await training_pairs(embedder))))
    if not options.dry_run:
        (MULTILINGUAL_GATE if options.multilingual else GATE).write_bytes(file_of(gate))
    own, prompts = split_of("dev")
    world = await open_world(embedder, own, prompts)
    decisions = Decisions.of(Compared.of(world, world.stores(24, 6)), gate.of_features, SHUT)
    print(json.dumps(decisions.shares(gate.threshold)))


if __name__ == "__main__":
    asyncio.run(main())
