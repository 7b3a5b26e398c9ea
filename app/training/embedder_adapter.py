"""Trains the low-rank adapter that makes an embedder represent the request, not the topic.

    python -m app.training.embedder_adapter [--model minilm|multilingual] [--validate] [--help]

Needs the extra `train` and the model's files, which `python build.py site` downloads. Writes
app/building/embedder/adapter.safetensors (multilingual.safetensors), and beside it a JSON file about the run. With
--validate nothing is written: the examples are split in five parts by meaning, and each part is routed by an embedder
that has not seen it. --fold-vectors FILE.npy writes the input of `app.training.router --vectors`; the results of an
interrupted run stay.

Notable here:
- contrastive loss with many positives (https://arxiv.org/abs/2004.11362): requests to the same agent attract each
  other, others repel. Half of each batch are templates: each topic with several intents
- a prototype for each agent, learned with the adapter and then discarded
- an anchor: similarities between general sentences stay those of the unchanged model
- the adapter is the moving average of its last steps
"""

from __future__ import annotations

import argparse
import copy
import hashlib
import json
import math
import random
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from app.bench.routing import read_everyday
from app.building.embedder.files import WEIGHTS
from app.building.embedder.minilm import (
    STATES_CENTRE,
    merge_adapter,
    sentence_vector,
    token_states,
    whitened,
    whitening,
)
from app.building.embedder.multilingual import embedding_of
from app.models.build_outputs import EMBEDDER_ADAPTER, EMBEDDER_TOKENIZER, MULTILINGUAL_ADAPTER, MULTILINGUAL_WEIGHTS
from app.paths import ROOT, cache_dir
from app.routing.factory import more_requests
from app.training.general_sentences import GeneralSentences, graded_pairs, spearman
from app.training.minilm_torch import AdaptedMiniLM
from app.training.requests import Request, Templates, changed, folds, read_requests
from py_core.formats.safetensors import read_safetensors, write_safetensors
from py_core.tokenizers.unigram import Unigram
from py_core.tokenizers.wordpiece import WordPiece

NEIGHBOURS = 15
FOLDS = 5
CENTRED = 0.8
"""The part of the mean state that the multilingual model's meanings lose. All its states point the same way; with the
whole mean gone, cosines of related texts would be smaller than MiniLM's, for which the limits of the search are."""
Tokenizer = WordPiece | Unigram


@dataclass(frozen=True)
class EmbedderRecipe:
    """The settings of a run. `per_agent`: requests of each agent in a batch."""

    seed: int = 7
    rank: int = 16
    steps: int = 240
    per_agent: int = 6
    topics: int = 8
    intents: int = 6
    general: int = 32
    rate: float = 2e-3
    weight_decay: float = 0.05
    dropout: float = 0.1
    temperature: float = 0.1
    prototype_scale: float = 16.0
    prototype_weight: float = 1.0
    template_weight: float = 0.5
    anchor_weight: float = 30.0
    average: float = 0.98
    ridge: float = 1e-3


class EmbedderTrainer:
    """One run: the model and what it learns from."""

    def __init__(
        self, weights: dict[str, np.ndarray], tokenizer: Tokenizer, recipe: EmbedderRecipe, device: str
    ) -> None:
        torch.manual_seed(recipe.seed)
        self._recipe = recipe
        self._tokenizer = tokenizer
        self._device = device
        self._random = random.Random(recipe.seed)
        self._base = AdaptedMiniLM(weights, rank=1).to(device).eval()  # the adapter starts as zero
        self.model = AdaptedMiniLM(weights, recipe.rank, dropout=recipe.dropout).to(device)
        self.whitening: dict[str, np.ndarray] = {}

    def train(self, requests: Sequence[Request]) -> None:
        recipe = self._recipe
        agents = sorted({request.agent for request in requests})
        more = [Request(one.text, one.agent, one.group) for one in more_requests() if one.agent in agents]
        requests = [*requests, *more]
        by_agent = {agent: [r for r in requests if r.agent == agent] for agent in agents}
        prototypes = nn.Parameter(torch.randn(len(agents), 384, device=self._device))
        groups = [
            {"params": list(self.model.parameters()), "lr": recipe.rate},
            {"params": [prototypes], "lr": 10 * recipe.rate, "weight_decay": 0.0},
        ]
        optimizer = torch.optim.AdamW(groups, weight_decay=recipe.weight_decay)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _warm_cosine(step, recipe.steps))
        templates, general = Templates(), GeneralSentences()
        average = copy.deepcopy(self.model)
        self.model.train()
        for step in range(recipe.steps):
            texts, labels = [], []
            for index, agent in enumerate(agents):
                for request in self._random.sample(by_agent[agent], recipe.per_agent):
                    texts.append(changed(request.text, self._random) if self._random.random() < 0.7 else request.text)
                    labels.append(index)
            real = len(texts)
            for topic in self._random.sample(templates.topics, recipe.topics):
                for index in self._random.sample(range(len(agents)), min(recipe.intents, len(agents))):
                    text = templates.request(agents[index], topic, self._random)
                    texts.append(changed(text, self._random) if self._random.random() < 0.3 else text)
                    labels.append(index)
            sentences = self._encode(general.sample(recipe.general, self._random))
            vectors = self.model([*self._encode(texts), *sentences])
            asked, kept = vectors[: len(texts)], vectors[len(texts) :]
            labels_tensor = torch.tensor(labels, device=self._device)
            importance = torch.full((len(texts),), recipe.template_weight, device=self._device)
            importance[:real] = 1.0
            logits = recipe.prototype_scale * asked @ functional.normalize(prototypes, dim=-1).T
            to_prototypes = functional.cross_entropy(logits, labels_tensor, reduction="none", label_smoothing=0.05)
            to_others = _contrastive(asked, labels_tensor, recipe.temperature)
            loss = ((to_others + recipe.prototype_weight * to_prototypes) * importance).sum() / importance.sum()
            with torch.no_grad():
                before = self._base(sentences)
            anchor = ((kept @ kept.T - before @ before.T) ** 2).mean() + 0.2 * (1 - (kept * before).sum(-1)).mean()
            (loss + recipe.anchor_weight * anchor).backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            schedule.step()
            with torch.no_grad():
                keep = min(recipe.average, (step + 1) / (step + 10))
                for slow, fast in zip(average.parameters(), self.model.parameters(), strict=True):
                    slow.lerp_(fast, 1 - keep)
            if step % 25 == 0 or step == recipe.steps - 1:
                print(f"  step {step}: requests {loss.item():.3f}, anchor {anchor.item():.4f}", flush=True)
        self.model = average.eval()
        self.whiten(requests)

    @torch.no_grad()
    def embed(self, texts: Sequence[str], base: bool = False) -> np.ndarray:
        """(texts, 384) by the current model, or by the unchanged one."""
        model = self._base if base else self.model.eval()
        order = sorted(range(len(texts)), key=lambda index: len(texts[index]))
        out = np.empty((len(texts), 384), np.float32)
        for start in range(0, len(order), 64):
            chosen = order[start : start + 64]
            out[chosen] = model(self._encode([texts[index] for index in chosen])).float().cpu().numpy()
        return out if base else whitened(out, self.whitening)

    def adapter(self) -> dict[str, np.ndarray]:
        return {**self.model.adapter(), **self.whitening}

    def whiten(self, requests: Sequence[Request]) -> None:
        """From now on `embed` whitens the vectors (app/building/embedder/minilm.py)."""
        self.whitening = whitening(self.embed([request.text for request in requests]), self._recipe.ridge)

    def _encode(self, texts: Sequence[str]) -> list[list[int]]:
        return [self._tokenizer.encode(text) for text in texts]


def _warm_cosine(step: int, steps: int) -> float:
    warm = max(1, steps // 15)
    return min(1.0, (step + 1) / warm) * 0.5 * (1 + math.cos(math.pi * step / steps))


def _contrastive(vectors: Tensor, labels: Tensor, temperature: float) -> Tensor:
    """(texts,): the loss of each: how little the texts with its label stand out from all others."""
    similar = vectors @ vectors.T / temperature
    itself = torch.eye(len(labels), dtype=torch.bool, device=vectors.device)
    similar = similar.masked_fill(itself, -torch.inf)
    log_share = similar - similar.logsumexp(1, keepdim=True)
    positive = (labels[:, None] == labels[None, :]) & ~itself
    return -log_share.masked_fill(~positive, 0).sum(1) / positive.sum(1).clamp(min=1)


def vote(queries: np.ndarray, patterns: np.ndarray, labels: np.ndarray, agents: int) -> np.ndarray:
    """(queries, agents): votes of the nearest patterns, weighted by similarity."""
    similar = queries @ patterns.T
    nearest = np.argpartition(-similar, NEIGHBOURS, axis=1)[:, :NEIGHBOURS]
    votes = np.zeros((len(queries), agents))
    for row, columns in enumerate(nearest):
        np.add.at(votes[row], labels[columns], np.maximum(similar[row, columns], 0) ** 4)
        # agents without a vote follow in the order of their best example
        np.maximum.at(votes[row], labels, 1e-6 * np.maximum(similar[row], 0))
    return votes


def accuracy(votes: np.ndarray, labels: np.ndarray, hard: np.ndarray) -> dict[str, float]:
    ranks = (votes > votes[np.arange(len(labels)), labels][:, None]).sum(1)
    return {
        "top1": float((ranks == 0).mean()),
        "top3": float((ranks < 3).mean()),
        "top1_hard": float((ranks[hard] == 0).mean()) if hard.any() else float("nan"),
    }


def validate(
    requests: Sequence[Request], weights: dict[str, np.ndarray], tokenizer: Tokenizer, recipe: EmbedderRecipe,
    device: str, parts: int, only: int,
) -> dict[str, Any]:  # fmt: skip
    """Routes each part of the examples by the others, before and after training on the others."""
    names = sorted({request.agent for request in requests})
    labels = np.array([names.index(request.agent) for request in requests])
    hard = np.array([request.hard for request in requests])
    part = np.array(folds(requests, parts, recipe.seed))
    texts = [request.text for request in requests]
    votes = {"base": np.zeros((len(requests), len(names))), "adapted": np.zeros((len(requests), len(names)))}
    ratings = []
    for held_out in range(only or parts):
        trainer = EmbedderTrainer(weights, tokenizer, recipe, device)
        known, asked = part != held_out, part == held_out
        trainer.train([request for request, is_known in zip(requests, known, strict=True) if is_known])
        for name in votes:
            vectors = trainer.embed(texts, base=name == "base")
            votes[name][asked] = vote(vectors[asked], vectors[known], labels[known], len(names))
        now = accuracy(votes["adapted"][asked], labels[asked], hard[asked])
        ratings.append(general_similarity(trainer))
        print(f"part {held_out}: {now} {ratings[-1]}", flush=True)
    asked = part < (only or parts)
    result: dict[str, Any] = {name: accuracy(v[asked], labels[asked], hard[asked]) for name, v in votes.items()}
    right = votes["adapted"].argmax(1) == labels
    result["adapted_by_agent"] = {name: float(right[asked & (labels == i)].mean()) for i, name in enumerate(names)}
    result["general"] = {key: float(np.mean([rating[key] for rating in ratings])) for key in ratings[0]}
    wrong = [
        f"{names[labels[i]]} -> {names[votes['adapted'][i].argmax()]}: {texts[i]}"
        for i in np.flatnonzero(asked & ~right)
    ]
    return result | {"wrong": wrong}


def fold_vectors(
    requests: Sequence[Request], others: Sequence[str], weights: dict[str, np.ndarray], tokenizer: Tokenizer,
    recipe: EmbedderRecipe, device: str, parts: int, target: Path,
) -> None:  # fmt: skip
    """A float32 array (parts, requests and others, 384): part i is by an embedder trained without fold i of the
    requests. others: texts on which none of the embedders is trained, or all are."""
    part = np.array(folds(requests, FOLDS, recipe.seed))
    texts = [request.text for request in requests] + list(others)
    shape = (parts, len(texts), 384)
    made = np.load(target) if target.is_file() else np.full(shape, np.nan, np.float32)
    if made.shape != shape:
        raise SystemExit(f"{target} is of other examples: delete it.")
    for held_out in range(parts):
        if np.isfinite(made[held_out]).all():
            continue
        print(f"part {held_out}", flush=True)
        trainer = EmbedderTrainer(weights, tokenizer, recipe, device)
        trainer.train([r for r, fold in zip(requests, part, strict=True) if fold != held_out])
        made[held_out] = trainer.embed(texts)
        np.save(target, made)


def general_similarity(trainer: EmbedderTrainer) -> dict[str, float]:
    """Spearman's rank correlation with the graded pairs, before and after, and between the two embedders."""
    pairs = graded_pairs()
    texts = [text for _, first, second in pairs for text in (first, second)]
    cosines = {}
    for name in ("base", "adapted"):
        vectors = trainer.embed(texts, base=name == "base")
        cosines[name] = (vectors[::2] * vectors[1::2]).sum(1)
    grades = np.array([grade for grade, _, _ in pairs])
    return {
        "spearman_base": spearman(grades, cosines["base"]),
        "spearman_adapted": spearman(grades, cosines["adapted"]),
        "spearman_between": spearman(cosines["base"], cosines["adapted"]),
    }


def centre(weights: dict[str, np.ndarray], tokenizer: Tokenizer) -> np.ndarray:
    """CENTRED of the mean state of everyday requests, as much of English as of German ones: float16 (384,)."""
    rows = [row for row in read_everyday() if row["half"] == "a"]
    means = []
    for language in ("en", "de"):
        ids = [tokenizer.encode(row["text"]) for row in rows if row["language"] == language]
        means.append(np.mean([token_states(weights, text).mean(0) for text in ids], 0))
    return (CENTRED * np.mean(means, 0)).astype(np.float16)


def write(
    trainer: EmbedderTrainer, more: dict[str, np.ndarray], model: str, requests: Sequence[Request],
    recipe: EmbedderRecipe, target: Path, seconds: float,
) -> None:  # fmt: skip
    """The adapter, float16, with `more` beside it, and the JSON file about it."""
    base = {"minilm": "all-MiniLM-L6-v2", "multilingual": "multilingual-e5-small"}[model]
    content = write_safetensors(trainer.adapter() | more, {"base": base, "format": "sonata lora 1"})
    target.write_bytes(content)
    rows = "\n".join(sorted(f"{r.agent}\t{r.group}\t{r.text}" for r in requests))
    made = {
        "command": f"python -m app.training.embedder_adapter --model {model}",
        "recipe": asdict(recipe),
        "examples": {"count": len(requests), "sha256": hashlib.sha256(rows.encode()).hexdigest()},
        "general": general_similarity(trainer),
        "sha256": hashlib.sha256(content).hexdigest(),
        "torch": torch.__version__,
        "seconds": round(seconds),
    }
    target.with_suffix(".json").write_text(json.dumps(made, indent=1) + "\n")
    print(f"{target}: {len(content) / 1e6:.2f} MB")


def check_export(
    trainer: EmbedderTrainer, weights: dict[str, np.ndarray], tokenizer: Tokenizer, texts: Sequence[str]
) -> None:
    """Checks that build.py's merged weights give the trained vectors. Raises AssertionError if not."""
    merged = merge_adapter(weights, trainer.adapter())
    for text, vector in zip(texts, trainer.embed(texts), strict=True):
        likeness = float(sentence_vector(merged, tokenizer.encode(text)) @ vector)
        assert likeness > 0.999, f"the merged model differs from the trained one: {likeness}"


def _model(name: str) -> tuple[dict[str, np.ndarray], Tokenizer]:
    """The weights, as a BERT's, and the tokenizer."""
    cache = cache_dir() / "embedder"
    if name == "multilingual":
        model = embedding_of((cache / MULTILINGUAL_WEIGHTS).read_bytes())
        return model.weights, Unigram.from_json(model.tokenizer)
    weights, _ = read_safetensors((cache / WEIGHTS).read_bytes())
    return weights, WordPiece.from_json((cache / EMBEDDER_TOKENIZER).read_bytes())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--examples", type=Path, default=ROOT / "app" / "routing" / "agents" / "examples")
    parser.add_argument("--model", choices=["minilm", "multilingual"], default="minilm")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--validate", action="store_true", help="measure instead of writing")
    parser.add_argument("--only", type=int, default=0, help="with --validate or --fold-vectors: only this many parts")
    parser.add_argument("--wrong", type=Path, help="with --validate: write the wrongly routed requests here")
    parser.add_argument("--fold-vectors", type=Path, metavar="FILE.npy", help="for app.training.router")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=2)
    for name, value in asdict(EmbedderRecipe()).items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(value), default=value)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    recipe = EmbedderRecipe(**{name: getattr(options, name) for name in asdict(EmbedderRecipe())})
    weights, tokenizer = _model(options.model)
    output = options.output or (EMBEDDER_ADAPTER if options.model == "minilm" else MULTILINGUAL_ADAPTER)
    requests = read_requests(options.examples)
    print(f"{len(requests)} examples of {len({r.agent for r in requests})} agents")
    begin = time.monotonic()
    if options.fold_vectors:
        fold_vectors(
            requests,
            [one.text for one in more_requests()],
            weights,
            tokenizer,
            recipe,
            options.device,
            options.only or FOLDS,
            options.fold_vectors,
        )
        return
    if options.validate:
        result = validate(requests, weights, tokenizer, recipe, options.device, FOLDS, options.only)
        wrong = result.pop("wrong")
        if options.wrong:
            options.wrong.write_text("\n".join(wrong) + "\n")
        print(json.dumps(result | {"seconds": round(time.monotonic() - begin)}, indent=1))
        return
    trainer = EmbedderTrainer(weights, tokenizer, recipe, options.device)
    trainer.train(requests)
    check_export(trainer, weights, tokenizer, [request.text for request in requests[:20]])
    more = {STATES_CENTRE: centre(weights, tokenizer)} if options.model == "multilingual" else {}
    write(trainer, more, options.model, requests, recipe, output, time.monotonic() - begin)


if __name__ == "__main__":
    main()
