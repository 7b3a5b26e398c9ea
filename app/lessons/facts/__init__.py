"""Invented facts, and prompts that none of them answers: the gate of lessons is trained on them and measured with them.

A split has three files beside this one. `facts_*.jsonl`: {"question", "answer", "paraphrases", "near"}; a near miss is
close to the question in its words, but the fact does not answer it. `generic_*.jsonl`: {"kind", "prompt"}; kind "mean"
shares words with facts, kind "vague" may be answered by a fact, kind "foreign" is not English. `paragraphs_*.jsonl`:
{"text"}. "train" is for training, "dev" for choosing; "held" is only for the figures at the end.

`pasted.jsonl`: {"kind", "text", "own"}: messages with code, tables, logs, mails or quotes, and plain prose. None of
them asks for a fact; "own" is the person's own question, "" if there is none.

`facts_common_*.jsonl` are facts that many people teach ("What is my name?"). They may answer generic prompts of the
kinds "personal" and "mean", so these prompts are not asked while such facts are stored.

`facts_held_de.jsonl` has the first 24 facts of "held" in German, row by row; `generic_held_de.jsonl` has 40 prompts
beside them. They are only for figures, too.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

Split = Literal["train", "dev", "held"]
GenericSplit = Literal["train", "dev", "held", "held_de"]
FactSplit = Literal["train", "dev", "held", "common_train", "common_dev", "held_de"]
VAGUE = "vague"
"""The kind of generic prompts for which no figure counts an answer as wrong."""
_FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class InventedFact:
    question: str
    answer: str
    paraphrases: tuple[str, ...] = ()
    near: tuple[str, ...] = ()


@dataclass(frozen=True)
class GenericPrompt:
    kind: str
    prompt: str


@dataclass(frozen=True)
class Pasted:
    kind: str
    text: str
    own: str


@cache
def facts(split: FactSplit) -> tuple[InventedFact, ...]:
    return tuple(
        InventedFact(row["question"], row["answer"], tuple(row["paraphrases"]), tuple(row["near"]))
        for row in _rows(f"facts_{split}")
    )


@cache
def generic_prompts(split: GenericSplit) -> tuple[GenericPrompt, ...]:
    return tuple(GenericPrompt(row["kind"], row["prompt"]) for row in _rows(f"generic_{split}"))


@cache
def paragraphs(split: Split) -> tuple[str, ...]:
    return tuple(row["text"] for row in _rows(f"paragraphs_{split}"))


@cache
def pasted() -> tuple[Pasted, ...]:
    return tuple(Pasted(**row) for row in _rows("pasted"))


def _rows(name: str) -> list[Any]:
    return [json.loads(line) for line in (_FOLDER / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]
